"""A form for a kind of job: a field for every key of its record, with words and what is wrong."""

from collections.abc import Mapping

from tacit.cli.studio.words import Words
from tacit.jobs.fields import Setting, list_settings, show_value, state_table
from tacit.report.markup import Markup, concat, keep_lines, tag

_PARTIES = frozenset({"owner", "dealer", "labels", "compute", "features", "show_to", "give_to"})
"""Keys that name parties."""
_PLAIN = ("a text", "a path", "true or false")


class Form:
    """Lays out the fields of one job."""

    def __init__(self, words: Words, raw: Mapping[str, object], problems: Mapping[str, str]):
        self._words, self._raw, self._problems = words, raw, problems

    def lay(self, record: type) -> Markup:
        """Lay out the tables of a job, each in a box."""
        parts = [self._table(one, one.name) for one in list_settings(record)]
        names = self._raw.get("parties")
        options = [tag("option", value=name) for name in (names if isinstance(names, dict) else ())]
        return concat([*parts, tag("datalist", *options, id="parties")])

    def _table(self, setting: Setting, key: str) -> Markup:
        """Lay out a table; one that nobody must fill in is folded."""
        if setting.record is None:
            return self._field(setting, key)
        value = self._find(key)
        if setting.form == "tables":
            inner = self._tables(setting, key, value if isinstance(value, dict) else {})
        else:
            inner = self._fields(setting, key)
        about = tag("p", state_table(setting.record), class_="help")
        is_open = setting.is_required or bool(value) or self._is_wrong(key)
        title = f"[{key}]"
        if not is_open:
            return tag("details", tag("summary", title), about, inner, class_="table")
        return tag("fieldset", tag("legend", title), about, inner)

    def _fields(self, table: Setting, at: str) -> Markup:
        first: list[str] = []
        more: list[str] = []
        for one in list_settings(table.record, table.made) if table.record else ():
            key = f"{at}.{one.name}"
            if key == "job.kind":
                continue
            shown = one.is_required or self._find(key) is not None or self._is_wrong(key)
            (first if shown else more).append(self._table(one, key))
        summary = tag("summary", self._words("More settings ({n})", n=len(more)))
        folded = tag("details", summary, tag("div", *more, class_="fields"))
        return concat([tag("div", *first, class_="fields"), folded if more else ""])

    def _tables(self, setting: Setting, key: str, value: Mapping[str, object]) -> Markup:
        boxes = []
        for name in value:
            remove = tag(
                "button",
                self._words("Remove"),
                name="remove",
                value=f"{key}.{name}",
                class_="quiet",
                aria_label=f"{self._words('Remove')} {name}",
            )
            hidden = tag("input", type="hidden", name=f"{key}.*", value=name)
            inner = self._fields(setting, f"{key}.{name}")
            boxes.append(tag("fieldset", tag("legend", name, " ", remove), hidden, inner))
        wrong = self._problem(key)
        place = f"add-{key}"
        add = tag(
            "p",
            tag("label", self._words("Add to {table}", table=f"[{key}]"), for_=place),
            tag("input", id=place, name=f"add:{key}", list=None if key == "parties" else "parties"),
            tag("button", self._words("Add"), name="add", value=key, class_="quiet"),
            class_="add",
        )
        return concat([wrong, *boxes, add])

    def _field(self, one: Setting, key: str) -> Markup:
        value = self._find(key)
        text = "" if value is None else show_value(value, one.form)
        marks = {
            "id": key,
            "name": key,
            "aria_describedby": f"{key}-help",
            "aria_invalid": "true" if key in self._problems else None,
        }
        if one.form in ("choice", "flag"):
            choices = one.choices or ("true", "false")
            usual = self._words("as usual: {value}", value=one.default) if one.default else "–"
            options = [tag("option", usual, value="")] if not one.is_required else []
            options += [
                tag("option", each, value=each, selected="selected" if each == text else None)
                for each in choices
            ]
            box = tag("select", *options, **marks)
        elif one.form == "toml":
            box = tag("textarea", keep_lines(text), rows=max(2, text.count("\n") + 1), **marks)
        else:
            named = "parties" if one.name in _PARTIES else None
            box = tag("input", value=text, placeholder=one.default or None, list=named, **marks)
        needed = tag("span", self._words("required"), class_="needed") if one.is_required else ""
        wanted = "" if one.wanted in _PLAIN or one.choices else one.wanted
        words = [
            tag("code", part) if at % 2 else part for at, part in enumerate(one.words.split("`"))
        ]
        hint = [*words, f" · {wanted}" if one.words and wanted else wanted]
        return tag(
            "div",
            tag("label", one.name, " ", needed, for_=key),
            box,
            self._problem(key),
            tag("p", *hint, id=f"{key}-help", class_="help"),
            class_="field",
        )

    def _problem(self, key: str) -> Markup:
        if key not in self._problems:
            return Markup("")
        return tag("p", self._problems[key], class_="problem")

    def _find(self, key: str) -> object:
        value: object = self._raw
        for step in key.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        return value

    def _is_wrong(self, key: str) -> bool:
        return any(f"{one}.".startswith((f"{key}.", f"{key}[")) for one in self._problems)
