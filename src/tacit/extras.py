"""Which optional library belongs to which extra, and what one can do with it."""

from dataclasses import dataclass
from importlib.util import find_spec

from tacit.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Extra:
    """An extra of the distribution: a capability, and the modules that it brings."""

    name: str
    gives: str
    modules: tuple[str, ...]


EXTRAS = (
    Extra(
        name="dp",
        gives="DP-SGD, and the accountants of dp-accounting",
        modules=("dp_accounting", "opacus"),
    ),
    Extra(
        name="fl",
        gives="jobs on Flower, and work spread over Ray clusters",
        modules=("flwr", "ray"),
    ),
    Extra(
        name="he",
        gives="homomorphic ciphers, models on ciphertexts, two parties without a dealer",
        modules=("gmpy2", "tenseal", "zstandard"),
    ),
    Extra(name="images", gives="sheets of pictures as data", modules=("PIL",)),
    Extra(
        name="llm",
        gives="private chat with language models",
        modules=("gguf", "jinja2", "tokenizers"),
    ),
    Extra(
        name="networks",
        gives="features of texts by a public network",
        modules=("onnxruntime",),
    ),
    Extra(name="onnx", gives="learners written to ONNX files", modules=("onnx",)),
    Extra(name="sql", gives="tables out of a database", modules=("duckdb",)),
    Extra(
        name="studio",
        gives="a page to start, watch and compare jobs",
        modules=("starlette", "uvicorn"),
    ),
    Extra(name="tables", gives="Parquet, Feather and Arrow files as data", modules=("pyarrow",)),
    Extra(name="verify", gives="exact verification of tree ensembles", modules=("numba", "z3")),
)


def check_extra(name: str, what: str, *modules: str) -> None:
    """Make sure that modules of an extra are there, before minutes are spent on the way to them.

    Raises:
        ConfigError: one is missing; says what needs it and how to install it.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigError(
            f"{what} needs {' and '.join(missing)}, not installed here; run: "
            f"pip install 'tacit-ml[{name}]'"
        )


def install_hint(module: str) -> str | None:
    """Return the one command that brings a missing module; None if no extra has it."""
    top = module.partition(".")[0]
    found = next((extra for extra in EXTRAS if top in extra.modules), None)
    return None if found is None else f"pip install 'tacit-ml[{found.name}]'"
