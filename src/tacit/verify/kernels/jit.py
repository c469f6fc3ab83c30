"""The one way in which kernels are compiled, and what is said when Numba is not installed."""

import hashlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any, Protocol, TypeVar

from tacit.errors import ConfigError

try:
    import numba
    from numba.core import caching, config, event
    from numba.misc.appdirs import AppDirs
except ModuleNotFoundError as missing:
    raise ConfigError(
        "tacit.verify needs Numba; install it with: pip install 'tacit-ml[verify]'"
    ) from missing

F = TypeVar("F", bound=Callable[..., object])

# Any: only kernels call it. A name, not an address, so that kernels can be kept on disk.
external_clock: Any = numba.types.ExternalFunction(
    "clock_gettime", numba.types.int32(numba.types.int32, numba.types.voidptr)
)


SMALL = ("tacit.verify.kernels.presolve.", "tacit.verify.kernels.layout.rounding")
"""Where the kernels lie that answer most rows, and are compiled first."""


def compiled(function: F) -> F:
    """Compile a function to machine code on first use and keep it on disk.

    The kernel releases the interpreter lock, so samples can be verified on several threads.
    Floating-point operations are neither reordered nor fused: predictions must be bit-equal.
    """
    return _compile(function)


def bare(function: F) -> F:
    """Compile a function that allocates nothing, without counting who holds its arrays.

    Counting takes longer than some kernels: each array of each tuple is counted at every call. The
    caller holds the arrays for as long as the kernel runs.
    """
    return _compile(function, _nrt=False)


def _compile(function: F, **options: bool) -> F:
    # Any: Numba's types do not know all options.
    make: Any = numba.njit(nogil=True, fastmath=False, **options)  # type: ignore[call-overload]
    # Any: the compiled function is called exactly like the one it was made from.
    kernel: Any = make(function)
    try:
        kernel._cache = _Kept(function)  # type: ignore[no-untyped-call]
    except (AttributeError, OSError, RuntimeError):
        # Another version of Numba keeps kernels elsewhere, or no folder can be written to: they
        # are compiled anew in each process.
        kernel = make(function)
    return kernel  # type: ignore[no-any-return]


class _Locator(caching._CacheLocator):
    """Where the machine code of a file's kernels is kept: a folder named by what it is made of.

    Numba names the folder by the file's place, and notices changes of that file only; but machine
    code holds the kernels it calls, from other files. Here another release, or another
    environment, with the same kernels finds them compiled; and nothing stale is ever found.
    """

    def __init__(self, function: FunctionType, path: str) -> None:
        self._line = function.__code__.co_firstlineno
        self._digest = digest_kernels(Path(path))
        # Any: Numba has no types for these.
        places: Any = AppDirs("tacit", appauthor=False)  # type: ignore[no-untyped-call]
        folder: Any = getattr(config, "CACHE_DIR", "") or places.user_cache_dir
        self._folder = str(Path(folder, "kernels", f"{Path(path).stem}-{self._digest[:20]}"))

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: FunctionType, py_file: str) -> "_Locator":
        found = cls(py_func, py_file)
        found.ensure_cache_path()  # type: ignore[no-untyped-call]
        return found


class _Kept(caching.FunctionCache):
    """Machine code on disk, found by `_Locator`."""

    class _impl_class(caching.CompileResultCacheImpl):
        _locator_classes: list[type[object]] = [_Locator]  # noqa: RUF012 - as Numba has it


@cache
def digest_kernels(path: Path) -> str:
    """Digest a file of kernels, the files of kernels that it imports, and the compiler's version.

    Kernels import nothing else of this room, so no change of an importer, of a report or of the
    Python around the search makes anything compile anew.
    """
    digest = hashlib.sha256(numba.__version__.encode())
    for one in sorted(_imported(path), key=lambda one: one.parts[-2:]):
        digest.update(one.read_bytes())
    return digest.hexdigest()


def _imported(path: Path) -> set[Path]:
    kernels = next((one for one in path.parents if one.name == "kernels"), Path(__file__).parent)
    found, front = {path}, [path]
    while front:
        pattern = r"^from tacit\.verify\.kernels\.([\w.]+) import"
        names = re.findall(pattern, front.pop().read_text(), re.M)
        more = {kernels.joinpath(*name.split(".")).with_suffix(".py") for name in names} - found
        found |= more
        front += more
    return found


class _Dispatcher(Protocol):
    py_func: FunctionType


class _Compilation(Protocol):
    data: dict[str, _Dispatcher]


class _Watch(event.Listener):
    """Counts the time that is spent on compiling; Numba compiles one kernel at a time."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.own = threading.local()
        self.tell: Callable[[str], None] | None = None
        self.is_interrupted = False
        self.thread: int | None = None
        self._depth = 0
        self._begun = (0.0, 0.0)

    def on_start(self, event: _Compilation) -> None:
        if self._depth == 0:
            self.thread = threading.get_ident()
            self._begun = time.monotonic(), time.thread_time()
            if self.tell is not None:
                self.tell(event.data["dispatcher"].py_func.__module__)
        self._depth += 1

    def on_end(self, event: _Compilation) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.thread = None
            self.wall += time.monotonic() - self._begun[0]
            spent = time.thread_time() - self._begun[1]
            self.own.processor = getattr(self.own, "processor", 0.0) + spent
        if self.is_interrupted:
            raise KeyboardInterrupt


_watch = _Watch()
event.register("numba:compile", _watch)  # type: ignore[no-untyped-call]


def wall_time() -> float:
    """Read the wall clock, which stands still while a kernel is compiled."""
    return time.monotonic() - _watch.wall


def processor_time() -> float:
    """Read the processor time of this thread, less what it has spent on compiling."""
    spent: float = getattr(_watch.own, "processor", 0.0)
    return time.thread_time() - spent


@contextmanager
def tell_compiling(tell: Callable[[str], None]) -> Iterator[None]:
    """Call `tell` before kernels are compiled, with what they are for; once for each purpose.

    An interrupt is then raised between two kernels: within one, Numba may swallow it.
    """
    said: set[str] = set()

    def tell_once(module: str) -> None:
        purpose = "the small search" if module.startswith(SMALL) else "the deep search"
        if purpose not in said:
            said.add(purpose)
            tell(purpose)

    before, _watch.tell = _watch.tell, tell_once
    try:
        with _interrupted_between_kernels():
            yield
    finally:
        _watch.tell = before


@contextmanager
def _interrupted_between_kernels() -> Iterator[None]:
    main = threading.main_thread().ident
    if threading.get_ident() != main:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        _watch.is_interrupted = True
        if _watch.thread != main:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        _watch.is_interrupted = False
