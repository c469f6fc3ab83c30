"""Write the reference from docstrings: `make reference`.

For the pages of the Python front sources are read and never imported, so that a page is the same
whatever is installed. A name that a room exports is followed to the file that defines it. On the
page of the job file the tables are written, off the records of the kinds; what stands between them
is written by hand.
"""

import ast
import inspect
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from tacit.data.prepare import ColumnTable
from tacit.jobs.config import Job
from tacit.jobs.fields import Setting, list_settings, parse_text, state_table, walk
from tacit.jobs.kinds import KINDS
from tacit.jobs.toml import write_value
from tacit.report.schema import describe_result
from tacit.spec import describe_type

FOLDER = Path(__file__).parent
SOURCE = FOLDER.parents[1] / "src"
HEAD = "| key | type | default | meaning |\n|---|---|---|---|\n"
PREPARATION = "Its keys are [those of every kind](#preparation)."
# Page, the module behind it, and the names that come first; all that it exports if none are given.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "audit": ("tacit.audit", ()),
    "connect": ("tacit.cli.launch.connect", ("connect", "Member", "Answer")),
    "data": (
        "tacit.data",
        ("load_file", "load_dataset", "search_path", "split_dataset", "Rows", "Source"),
    ),
    "dp": ("tacit.dp", ()),
    "federated": (
        "tacit.federated",
        (
            "FederatedData",
            "FederatedModel",
            "FederatedResult",
            "FederatedSpec",
            "Federation",
            "Privacy",
            "PrivateStrategy",
            "Training",
            "client_mod",
            "fit",
        ),
    ),
    "learners": ("tacit.learners", ()),
    "llm": ("tacit.llm", ()),
    "result": (
        "tacit.result",
        (
            *("Result", "PartyReport", "Span", "Cost", "Traffic", "Forecast", "Timing"),
            *("Leak", "Claim", "Metric", "Curve", "Picture", "Sheet"),
        ),
    ),
    "secure": ("tacit.inference", ("secure", "Secured", "PrivateAnswer", "Crew")),
    "split": ("tacit.split", ("fit", "Compression", "Defence", "TrainingPace", "SplitModel")),
    "text": ("tacit.text", ()),
    "train": (
        "tacit.training.front",
        (
            "train",
            "TrainedModel",
            "TrainData",
            "TrainModel",
            "Training",
            "Privacy",
            "TrainProtection",
        ),
    ),
    "verify": ("tacit.verify", ()),
}
FIRST = {
    "audit": "membership",
    "dp": "make_private",
    "llm": "chat",
    "split": "fit",
    "text": "fine_tune",
    "verify": "verify",
}
_LISTS = {"Args": "Arguments", "Attributes": "Attributes", "Raises": "Raises"}
_PARAGRAPHS = {"Returns": "Returns", "Yields": "Gives"}
_WORDS = ("Guarantee", "Cost", "Assumes")

Definition = ast.FunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Found:
    """A function or a class, and where it is defined."""

    node: Definition
    words: str
    module: str


def write_pages() -> dict[Path, str]:
    """Return the text of every page by its path."""
    job_file = FOLDER / "job-file.md"
    pages = {FOLDER / f"{page}.md": _page(page) for page in PAGES}
    pages[job_file] = fill(job_file.read_text(encoding="utf-8"))
    schema = json.dumps(describe_result(), ensure_ascii=False, indent=1)
    return {**pages, FOLDER / "result.schema.json": f"{schema}\n"}


def fill(page: str) -> str:
    """Write the tables of every kind of job between their marks, and those that all kinds have."""
    shared = tuple(one.name for one in fields(Job))
    parts = {"all": list_keys("infer", lambda table: table in shared)}
    parts["prepare"] = _table(list_settings(ColumnTable))
    parts |= {kind: list_keys(kind, lambda table: table not in shared) for kind in KINDS}
    for name, text in parts.items():
        mark = f"<!-- keys: {name} -->"
        if page.count(mark) != 1:
            raise ValueError(f"job-file.md: wanted one {mark} and a line <!-- end --> below it")
        before, _, rest = page.partition(mark)
        page = f"{before}{mark}\n\n{text}\n\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page


def list_keys(kind: str, is_wanted: Callable[[str], bool]) -> str:
    """Write the tables of a kind that are wanted by their first word, a line for each key."""
    inside = ""
    heads: dict[str, str] = {}
    lines: dict[str, list[str]] = {}
    for key, one in walk(KINDS[kind]().record):
        if not is_wanted(key.partition(".")[0]) or (inside and key.startswith(inside)):
            continue
        outer = key.rpartition(".")[0]
        if one.record is None:
            if not one.words:
                raise ValueError(
                    f'{kind}: wanted words for {key} under "Attributes:" of its record'
                )
            lines[outer].append(_key(one, "*local*" not in heads[outer].partition(":")[0]))
            continue
        table = f"{key}.NAME" if one.form == "tables" else key
        if one.record is ColumnTable:  # its keys stand once
            about = _bold(one.words)
            heads[table] = f"**[{key}.COLUMN]**, *optional*: {about}. {PREPARATION}"
            lines[table] = []
            inside = f"{table}."
            continue
        marks = ["" if one.is_required else "*optional*", "*local*" if one.is_local else ""]
        about = _bold(one.words or state_table(one.record).rstrip("."))
        about = about[:1].upper() + about[1:]
        heads[table] = f"**[{table}]**{', '.join(['', *filter(None, marks)])}: {about}."
        lines[table] = []
    return "\n\n".join(
        text + (f"\n\n{HEAD}" + "\n".join(lines[table]) if lines[table] else "")
        for table, text in heads.items()
    )


def _table(settings: Iterable[Setting]) -> str:
    return HEAD + "\n".join(_key(one, is_marked=True) for one in settings)


def _key(one: Setting, is_marked: bool) -> str:
    kind = re.sub(r"^an? ", "", describe_type(one.hint).replace("finite number", "number"))
    kind = re.sub(r"'([^']*)'", r'`"\1"`', kind)
    kind += ", *local*" if one.is_local and is_marked else ""
    default = f"`{write_value(parse_text(one.default, one.hint))}`" if one.default else "–"
    default = "required" if one.is_required else default
    cells = (f"`{one.name}`", kind, default, _bold(one.words))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _bold(words: str) -> str:
    """Mark the words of what decides what is protected."""
    return re.sub(r"^privacy: ", "**privacy**: ", words, flags=re.IGNORECASE)


def _page(page: str) -> str:
    module, chosen = PAGES[page]
    tree = _tree(module)
    names = chosen or tuple(_exported(tree))
    if page in FIRST:
        names = (FIRST[page], *(name for name in names if name != FIRST[page]))
    is_room = module == f"tacit.{page}"
    about = _markdown(ast.get_docstring(tree) or "")
    parts = [f"# `tacit.{page}`", about, "Written from docstrings by `make reference`."]
    for name in names:
        found = _find(module, name)
        if found is not None:
            parts.append(_entry(f"tacit.{page}.{name}" if is_room else name, found))
    return "\n\n".join(parts) + "\n"


def _entry(name: str, found: Found) -> str:
    node = found.node
    short = name.rpartition(".")[2]
    if isinstance(node, ast.FunctionDef):
        head = f"```python\n{_signature(short, node)}\n```\n\n"
    else:
        head = f"```python\n{_fields(short, found)}\n```\n\n"
    parts = [f"## `{name}`\n\n{head}{_markdown(_all_words(found))}".rstrip()]
    if isinstance(node, ast.ClassDef):
        bases = [_find("tacit.result", ast.unparse(one)) for one in node.bases]
        shared = [one for base in bases if base for one in ast.iter_child_nodes(base.node)]
        for one in (*shared, *node.body):
            if isinstance(one, ast.FunctionDef) and not one.name.startswith("_"):
                words = _markdown(ast.get_docstring(one) or "")
                parts.append(f"### `{_signature(f'{short}.{one.name}', one)}`\n\n{words}".rstrip())
    return "\n\n".join(parts)


def _signature(name: str, node: ast.FunctionDef) -> str:
    if any(isinstance(one, ast.Name) and one.id == "property" for one in node.decorator_list):
        return f"{name}: {ast.unparse(node.returns) if node.returns else 'object'}"
    arguments = [text for text in _arguments(node.args) if text.split(":")[0] != "self"]
    back = f" -> {_returned(node)}" if node.returns else ""
    line = f"{name}({', '.join(arguments)}){back}"
    if len(line) <= 96 or "." in name:
        return line
    return f"{name}(\n" + "".join(f"    {one},\n" for one in arguments) + f"){back}"


def _returned(node: ast.FunctionDef) -> str:
    text = ast.unparse(node.returns) if node.returns else ""
    if any(isinstance(one, ast.Name) and one.id == "contextmanager" for one in node.decorator_list):
        return text.replace("Iterator[", "AbstractContextManager[", 1)
    return text


def _arguments(given: ast.arguments) -> list[str]:
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    found = [_argument(*one) for one in zip(plain, defaults, strict=True)]
    if given.vararg is not None:
        found.append(f"*{_argument(given.vararg, None)}")
    elif given.kwonlyargs:
        found.append("*")
    found += [_argument(*one) for one in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        found.append(f"**{_argument(given.kwarg, None)}")
    return found


def _argument(one: ast.arg, default: ast.expr | None) -> str:
    text = f"{one.arg}: {ast.unparse(one.annotation)}" if one.annotation else one.arg
    return text if default is None else f"{text} = {ast.unparse(default)}"


def _fields(name: str, found: Found) -> str:
    """Say how an object is made: the fields of a record, or the constructor."""
    lineage = [one.node for one in _lineage(found) if isinstance(one.node, ast.ClassDef)]
    made = next(
        (
            one
            for one in lineage[-1].body
            if isinstance(one, ast.FunctionDef) and one.name == "__init__"
        ),
        None,
    )
    if made is not None:
        return f"class {_signature(name, made).removesuffix(' -> None')}"
    fields = {
        ast.unparse(one.target): _field(one)
        for node in lineage
        for one in node.body
        if isinstance(one, ast.AnnAssign)
    }
    shown = [one for field, one in fields.items() if not field.startswith("_")]
    return f"class {name}" + "".join(f"\n    {one}" for one in shown)


def _field(one: ast.AnnAssign) -> str:
    """Write a field of a record with its default alone, whatever else is said about it."""
    made = one.value
    if isinstance(made, ast.Call) and ast.unparse(made.func) == "field":
        default = [word.value for word in made.keywords if word.arg == "default"]
        if default or not any(word.arg == "default_factory" for word in made.keywords):
            one = ast.AnnAssign(one.target, one.annotation, next(iter(default), None), one.simple)
    return ast.unparse(one)


def _lineage(found: Found) -> list[Found]:
    """List the records of ours that a class has its fields from, itself last."""
    bases = found.node.bases if isinstance(found.node, ast.ClassDef) else []
    ours = [_find(found.module, ast.unparse(one)) for one in bases]
    records = [
        one for one in ours if one and "dataclass" in ast.unparse(one.node).split("class ")[0]
    ]
    return [*(each for one in records for each in _lineage(one)), found]


def _all_words(found: Found) -> str:
    """Return the words of a class, with the fields that it has from others."""
    words = found.words
    for base in reversed(_lineage(found)[:-1]):
        shared = base.words.partition("Attributes:\n")[2].partition("\n\n")[0]
        if shared:
            own, mark, rest = words.partition("Attributes:\n")
            own = own if mark else f"{words}\n\n"
            words = f"{own}Attributes:\n{shared}\n{rest}".rstrip()
    return words


def _find(module: str, name: str) -> Found | None:
    """Follow a name to where it is defined; None for what is neither a function nor a class."""
    tree = _tree(module)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return Found(node, ast.get_docstring(node) or "", module)
        if _assigns(node, name):
            return None
    for node in ast.walk(tree):  # also where only a type checker imports
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit"):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return _find(node.module or "", alias.name)
    return None


def _assigns(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return any(isinstance(one, ast.Name) and one.id == name for one in targets)


def _exported(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if _assigns(node, "__all__"):
            return list(ast.literal_eval(node.value))
    return []


def _tree(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _markdown(docstring: str) -> str:
    """Turn a docstring of the house's form into Markdown."""
    blocks = re.split(r"\n\n+(?=\S)", docstring.replace("``", "`").replace("::\n", ":\n"))
    return "\n\n".join(_block(block) for block in blocks if block.strip())


def _block(block: str) -> str:
    head, _, rest = block.partition("\n")
    word = head.rstrip(":")
    if head.endswith(":") and word in _LISTS:
        items = re.split(r"\n(?=\S)", inspect.cleandoc(rest))
        return f"**{_LISTS[word]}**\n\n" + "\n".join(_item(one) for one in items)
    if head.endswith(":") and word in _PARAGRAPHS:
        return f"**{_PARAGRAPHS[word]}** {_joined(inspect.cleandoc(rest))}"
    starts = "|".join(_WORDS)
    parts = re.split(rf"\n(?=(?:{starts}):)", block)
    return "\n\n".join(re.sub(rf"^({starts}):", r"**\1:**", one) for one in parts)


def _item(text: str) -> str:
    name, _, words = _joined(text).partition(": ")
    return f"- `{name}`: {_bold(words)}"


def _joined(text: str) -> str:
    return " ".join(line.strip() for line in text.splitlines())


if __name__ == "__main__":
    try:
        pages = write_pages()
    except ValueError as error:  # what is missing on a page or in a record
        raise SystemExit(str(error)) from error
    for path, text in pages.items():
        path.write_text(text, encoding="utf-8")
