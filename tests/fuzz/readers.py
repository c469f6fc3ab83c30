"""What reads bytes that others wrote, with good inputs for each; add a reader to `READERS`.

Trees become bytes here, as their writers would not: with values of any type where theirs have one.
"""

import io
import json
import struct
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from tacit.errors import TacitError

TESTS = Path(__file__).parents[1]
JOBS = TESTS.parent / "examples" / "jobs"
Tree = Any  # tables, lists, numbers and texts, as JSON has them


@dataclass(frozen=True)
class Reader:
    """What reads, good inputs for it, and how a tree becomes bytes, if its inputs are trees."""

    read: Callable[[Any], object]
    seeds: Callable[[], list[Any]]
    write: Callable[[Tree], Any] | None = None


@contextmanager
def _file(data: bytes, name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


@cache
def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - faster than a disk


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    """Make a reader of bytes from one of files."""

    def reads(data: bytes) -> object:
        with _file(data, name) as path:
            return read(path)

    return reads


def in_folder(names: tuple[str, ...], read: Callable[[Path], object]) -> Callable[[Tree], object]:
    """Make a reader of a folder with a JSON file for each name of a tree."""

    def reads(tree: Tree) -> object:
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            for name in names:
                if isinstance(tree, dict) and name in tree:
                    (Path(folder) / name).write_bytes(_as_json(tree[name]))
            return read(Path(folder))

    return reads


def _as_json(tree: Tree) -> bytes:
    return json.dumps(tree).encode()


# Readers


_HEAD = 8  # the first field of a frame's head


def _frames(data: bytes) -> None:
    from tacit.transport.frame import BadHeadError, decode_head, fail, label_bytes, read_fail

    with suppress(BadHeadError):  # the link says what it was
        first = data[:_HEAD].ljust(_HEAD, b"\0")
        size = label_bytes(first)
        decode_head(first, data[_HEAD : _HEAD + size].ljust(size, b"\0"))
    read_fail(fail(data.decode(errors="replace"), data.decode("latin-1")))


def _frame_seeds() -> list[bytes]:
    from tacit.transport.frame import DATA, make_head

    heads = [make_head(DATA, "online", "a/b", "i64", (3, 4))]
    heads.append(make_head(2, "setup", "", "u8", (0,)))
    return [head.static + head.label for head in heads]


def _gguf(data: bytes) -> None:
    from tacit.llm import open_checkpoint

    with _file(data, "m.gguf") as path:
        found = open_checkpoint(path)
        with suppress(TacitError):  # weights may be wrong where the tokenizer is right
            found.load()
        found.tokenizer().encode("ab c")


_GGUF_KINDS = {bool: (7, "?"), int: (10, "Q"), float: (6, "f")}


def write_gguf(tree: Tree) -> bytes:
    """Write settings and tensors as GGUF lays them out, whatever type a value has."""
    settings = tree.get("settings") if isinstance(tree, dict) else None
    tensors = tree.get("tensors") if isinstance(tree, dict) else None
    settings = settings if isinstance(settings, dict) else {}
    tensors = tensors if isinstance(tensors, dict) else {}
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings)))
    for name, value in settings.items():
        out += _gguf_text(name)
        kind, content = _gguf_value(value)
        out += struct.pack("<I", kind) + content
    offset = 0
    for name, sizes in tensors.items():
        sizes = [one for one in sizes if type(one) is int] if isinstance(sizes, list) else [4]
        out += _gguf_text(name) + struct.pack("<I", len(sizes) % 2**32)
        out += b"".join(struct.pack("<Q", one % 2**64) for one in sizes[::-1])
        out += struct.pack("<IQ", 0, offset)
        offset += -(-4 * abs(int(np.prod([one % 1000 for one in sizes]))) // 32) * 32
    out += bytes(-len(out) % 32)
    return bytes(out) + np.linspace(-1, 1, min(offset, 1 << 20) // 4, dtype="<f4").tobytes()


def _gguf_text(text: object) -> bytes:
    written = str(text).encode(errors="surrogatepass")
    return struct.pack("<Q", len(written)) + written


def _gguf_value(value: Tree) -> tuple[int, bytes]:
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        is_large = not -(2**31) <= value < 2**31
        return (10, struct.pack("<Q", value % 2**64)) if is_large else (5, struct.pack("<i", value))
    if isinstance(value, float):
        return 12, struct.pack("<d", value)
    if isinstance(value, list):
        inner = [_gguf_value(one) for one in value]
        kinds = {kind for kind, _ in inner} or {5}
        if len(kinds) > 1:  # a list has one type
            inner, kinds = [(8, _gguf_text(one)) for one in value], {8}
        head = struct.pack("<IQ", kinds.pop(), len(inner))
        return 9, head + b"".join(content for _, content in inner)
    return 8, _gguf_text("" if value is None else value)


def _gguf_seeds() -> list[Tree]:
    from support.llm import LLAMA, make_model

    letters = [*"abcdefghijklmnopqrstuvwxyz0123456789.,;:!?", "ab", "abc"]
    tokens = ["<unk>", "<s>", "</s>", *letters]
    own = {
        "block_count": 2,
        "embedding_length": 16,
        "attention.head_count": 4,
        "attention.head_count_kv": 2,
        "feed_forward_length": 24,
        "context_length": 32,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.freq_base": 10000.0,
    }
    names = {"norm1": "attn_norm", "norm2": "ffn_norm", "o": "attn_output"}
    names |= {"gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    names |= {part: f"attn_{part}" for part in "qkv"}
    tensors = {"token_embd.weight": [len(tokens), 16], "output_norm.weight": [16]}
    for key, weight in make_model(LLAMA).weights.items():
        if key.startswith("layers.") and key.endswith("weight"):
            _, layer, part, kind = key.split(".")
            tensors[f"blk.{layer}.{names[part]}.{kind}"] = list(weight.shape)
    seeds = []
    for kind, model in (("llama", "llama"), ("qwen2", "gpt2")):
        vocabulary = {
            "tokenizer.ggml.model": model,
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [2, 3, 3, *[1] * len(letters)],
            "tokenizer.ggml.bos_token_id": 1,
            "tokenizer.ggml.eos_token_id": 2,
            "tokenizer.chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
        }
        if model == "llama":
            vocabulary["tokenizer.ggml.scores"] = [-float(at) for at in range(len(tokens))]
        else:
            vocabulary |= {"tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.merges": ["a b", "ab c"]}
        settings = {"general.architecture": kind, "general.alignment": 32}
        settings |= {f"{kind}.{name}": value for name, value in own.items()} | vocabulary
        seeds.append({"settings": settings, "tensors": tensors})
    return seeds


def _weights(ending: str) -> Callable[[bytes], object]:
    def reads(path: Path) -> object:
        from tacit.nn.weights import read_weights

        return read_weights(path)

    return in_file(f"w{ending}", reads)


def _weight_seeds(ending: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        import torch
        from safetensors.torch import save

        tensors = {"0.weight": torch.ones(3, 2), "0.bias": torch.zeros(3)}
        file = io.BytesIO()
        match ending:
            case ".safetensors":
                return [save(tensors)]
            case ".npz":
                np.savez_compressed(file, **{name: one.numpy() for name, one in tensors.items()})
            case _:
                torch.save(tensors, file)
        return [file.getvalue()]

    return seeds


def _rows(ending: str) -> Callable[[bytes], object]:
    def reads(path: Path) -> object:
        from tacit.data import load_file

        return load_file(path, label="y")

    return in_file(f"rows{ending}", reads)


def _row_seeds(ending: str) -> Callable[[], list[bytes]]:
    def seeds() -> list[bytes]:
        columns = {"id": [1, 2, 3], "a": [0.5, -1.0, 2.0], "y": [0, 1, 1]}
        if ending == ".csv":
            return [b"id,a,y\n1,0.5,0\n2,-1e3,1\n", b'\xef\xbb\xbf"id","a b","y"\r\n1,"0.5",0\r\n']
        file = io.BytesIO()
        if ending == ".npz":
            np.savez(file, features=np.ones((3, 2)), y=np.arange(3))
        else:
            import pyarrow
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.table(columns), file)
        return [file.getvalue()]

    return seeds


def _trees(data: bytes) -> None:
    from tacit.verify import load_ensemble

    def reads(path: Path) -> object:
        return load_ensemble(path)

    in_file("model", reads)(data)


def _boosters() -> tuple[Any, Any]:
    import lightgbm
    import xgboost

    coins = np.random.default_rng(0)
    x, y = coins.normal(size=(60, 3)), coins.integers(0, 2, 60)
    there = xgboost.train({"max_depth": 2}, xgboost.DMatrix(x, y), 3)
    here = lightgbm.train(
        {"verbose": -1, "num_leaves": 4, "min_data_in_leaf": 2}, lightgbm.Dataset(x, y), 3
    )
    return there, here


def _tree_seeds() -> list[bytes]:
    from tacit.verify import load_ensemble
    from tacit.verify.models.load import store_ensemble

    there, here = _boosters()
    saved = [bytes(there.save_raw(form)) for form in ("ubj", "json")]
    found: list[Any] = []
    in_file("m", lambda path: found.append(load_ensemble(path)))(saved[0])
    return [*saved, here.model_to_string().encode(), store_ensemble(found[0])]


def _xgboost_seeds() -> list[Tree]:
    return [json.loads(bytes(_boosters()[0].save_raw("json")))]


def _tokenizer(folder: Path) -> None:
    from tacit.llm.model.template import Message, render
    from tacit.llm.model.tokenizer import check_vocabulary, from_folder

    tokenizer = from_folder(folder)
    tokenizer.decode(tokenizer.encode("ab c<s>"))
    render(tokenizer, [Message(role="user", content="ab")])
    check_vocabulary(tokenizer, 64)


_MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json")


def _tokenizer_seeds() -> list[Tree]:
    from support.llm import write_model

    with tempfile.TemporaryDirectory() as folder:
        path = write_model(Path(folder) / "m")
        tree = {name: json.loads((path / name).read_text()) for name in _MODEL_FILES[:2]}
    tree["tokenizer_config.json"] = {
        "chat_template": [{"name": "default", "template": "{{ messages[0].content|tojson }}"}],
        "add_bos_token": True,
        "eos_token": {"content": "."},
        "unk_token": "a",
    }
    tree["generation_config.json"] = {"eos_token_id": [63, 1]}
    return [tree]


def _template(data: bytes) -> None:
    from tacit.llm.model.template import Message, render
    from tacit.llm.model.tokenizer import Tokenizer

    text = data.decode(errors="replace")
    tokenizer = Tokenizer(engine=None, starts=(), stops=frozenset(), template=text, special={})
    render(tokenizer, [Message(role="user", content="ab"), Message(role="assistant", content="")])


def _template_seeds() -> list[bytes]:
    return [
        b"{% for m in messages %}{{ m['role'] }}: {{ m.content | trim }}\n{% endfor %}",
        b"{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
        b"{% set x = namespace(n=0) %}{{ messages | tojson(indent=2) }}{{ '%s' % x.n }}",
    ]


def _job(tree: Tree) -> object:
    from tacit.jobs.kinds import read_job

    return read_job(tree, source="job.toml")


def _job_seeds() -> list[Tree]:
    return [tomllib.loads(path.read_text()) for path in sorted(JOBS.glob("*.toml"))]


def _toml(data: bytes) -> object:
    from tacit.jobs.kinds import load_job

    return in_file("job.toml", load_job)(data)


def _toml_seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(JOBS.glob("*.toml"))[::4]]


def _result(data: bytes) -> object:
    from tacit.report import from_json, to_json

    return to_json(from_json(data.decode(errors="replace"), source="result.json"))


def _result_seeds() -> list[Tree]:
    from tacit.report import to_json
    from tacit.result import SCHEMA, Result

    made = _filled(Result)
    return [json.loads(to_json(made)) | {"schema": SCHEMA}]


def _filled(hint: Any) -> Any:
    """Make a value of a type: of records and tuples one of each, else something small."""
    inner = get_args(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return hint(**{name: _filled(one) for name, one in hints.items()})
    if get_origin(hint) is Literal:
        return inner[0]
    if get_origin(hint) is UnionType:
        return _filled(inner[0])
    if get_origin(hint) is tuple:
        return tuple(_filled(one) for one in inner if one is not Ellipsis)
    return {str: "a", int: 1, float: 0.5, bool: True, type(None): None}[hint]


def _request(tree: Tree) -> object:
    from tacit.cli.commands.completion_request import read_request
    from tacit.llm import Manner

    return read_request(tree, Manner())


def _request_seeds() -> list[Tree]:
    return [
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {"role": "user", "content": [{"type": "text", "text": "hello"}]},
            ],
            "temperature": 0.7,
            "top_p": 0.9,
            "max_tokens": 16,
            "stop": ["\n", "."],
            "seed": 7,
            "stream": False,
        }
    ]


def _proof(data: bytes) -> object:
    from tacit.verify import check_proof, load_proof

    return check_proof(_stump(), load_proof(data.decode(errors="replace")))


@cache
def _stump() -> Any:
    from tacit.verify import from_sklearn

    coins = np.random.default_rng(0)
    x = coins.normal(size=(60, 3)).astype(np.float32)
    return from_sklearn(RandomForestClassifier(4, max_depth=2, random_state=0).fit(x, x[:, 0] > 0))


def _proof_seeds() -> list[Tree]:
    from tacit.verify import dump_proof, prove, verify

    model, point = _stump(), np.full(3, 0.4, dtype=np.float32)
    return [json.loads(dump_proof(prove(model, verify(model, point, 0.05))))]


def _sums(data: bytes) -> None:
    """Try what comes as every message of a masked sum, and as what clients keep."""
    from tacit.federated.contract import kind_of, unpack
    from tacit.federated.provision import read_secret
    from tacit.federated.secagg.messages import ADVERT_BYTES, read_advert, read_open, read_roster

    for read in (
        lambda: read_open(data),
        lambda: read_advert(data[:ADVERT_BYTES].ljust(ADVERT_BYTES, b"\0"), 0),
        lambda: read_roster(_plan(), data),
        lambda: read_secret(data),
        lambda: unpack(data, kind_of(data, sender="server"), "ibv", sender="server"),
    ):
        with suppress(TacitError):
            read()


@cache
def _plan() -> Any:
    from tacit.federated.secagg.messages import read_open

    return read_open(_open())[0]


@cache
def _open() -> bytes:
    from tacit.federated.secagg.graph import plan_neighbourhood
    from tacit.federated.secagg.messages import open_message
    from tacit.federated.secagg.plan import plan_secagg

    near = plan_neighbourhood(4, minimum=3, drop_rate=0.25, colluding_share=0.0, server="curious")
    return open_message(plan_secagg(4, 3, bound=1.0, neighbourhood=near, minimum=3), 0)


def _keys(data: bytes) -> None:
    from tacit.crypto.cipher import load_public
    from tacit.crypto.cipher.keys import load_secret, load_share

    for read in (
        lambda: load_public("paillier", data),
        lambda: load_public("bfv", data[:1000]),
        lambda: load_secret("paillier", data),
        lambda: load_share(data),
    ):
        with suppress(TacitError):
            read()


def _key_seeds() -> list[bytes]:
    from tacit.crypto.cipher import make_key
    from tacit.crypto.cipher.keys import dump_secret
    from tacit.ring import Prg

    key = make_key("paillier", Prg(bytes(16)).bytes, bits=2048)
    return [key.public.to_bytes(), dump_secret(key)]


def _identity(data: bytes) -> None:
    from tacit.crypto.identity import load_identity

    certificate, _, key = data.partition(b"\0\0\0\0")
    with tempfile.TemporaryDirectory(dir=_memory()) as folder:
        for ending, content in ((".crt", certificate), (".key", key)):
            path = Path(folder) / f"lab{ending}"
            path.touch(0o600)
            path.write_bytes(content)
        load_identity(Path(folder), "lab")


def _identity_seeds() -> list[bytes]:
    from tacit.crypto.identity import make_identity

    with tempfile.TemporaryDirectory() as folder:
        made = make_identity("lab", Path(folder))
        return [made.certificate_file.read_bytes() + b"\0\0\0\0" + made.key_file.read_bytes()]


READERS: dict[str, Reader] = {
    "frames": Reader(_frames, _frame_seeds),
    "gguf": Reader(_gguf, _gguf_seeds, write_gguf),
    "gguf-bytes": Reader(_gguf, lambda: [write_gguf(one) for one in _gguf_seeds()]),
    "safetensors": Reader(_weights(".safetensors"), _weight_seeds(".safetensors")),
    "npz": Reader(_weights(".npz"), _weight_seeds(".npz")),
    "pt": Reader(_weights(".pt"), _weight_seeds(".pt")),
    "csv": Reader(_rows(".csv"), _row_seeds(".csv")),
    "npz-rows": Reader(_rows(".npz"), _row_seeds(".npz")),
    "parquet": Reader(_rows(".parquet"), _row_seeds(".parquet")),
    "trees": Reader(_trees, _tree_seeds),
    "xgboost": Reader(_trees, _xgboost_seeds, _as_json),
    "tokenizer": Reader(in_folder(_MODEL_FILES, _tokenizer), _tokenizer_seeds, lambda tree: tree),
    "template": Reader(_template, _template_seeds),
    "job": Reader(_job, _job_seeds, lambda tree: tree),
    "toml": Reader(_toml, _toml_seeds),
    "result": Reader(_result, _result_seeds, _as_json),
    "proof": Reader(_proof, _proof_seeds, _as_json),
    "keys": Reader(_keys, _key_seeds),
    "request": Reader(_request, _request_seeds, lambda tree: tree),
    "sums": Reader(_sums, lambda: [_open()]),
    "identity": Reader(_identity, _identity_seeds),
}
