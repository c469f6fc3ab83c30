"""The one way in which loops are compiled to machine code, and where that is kept.

Numba is optional, and imported when something is compiled.
"""

import hashlib
import re
from collections.abc import Callable
from functools import cache, wraps
from importlib.metadata import version
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from tacit.errors import ConfigError

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """Compile a function to machine code on first use and keep it on disk.

    The kernel releases the interpreter lock, so several threads can run it at a time.
    Floating-point operations are neither reordered nor fused: predictions must be bit-equal.
    """
    return _compile(function)


def bare(function: F) -> F:
    """Compile a function that allocates nothing, without counting who holds its arrays.

    Counting takes longer than some kernels: each array of each tuple is counted at every call. The
    caller holds the arrays for as long as the kernel runs.
    """
    return _compile(function, _nrt=False)


def deferred(without: str) -> Callable[[F], F]:
    """Compile a function when it is first called: nobody who does not need it waits for Numba.

    Args:
        without: what is said where Numba is not installed.
    """

    def wrap(function: F) -> F:
        @cache
        def kernel() -> F:
            try:
                return compiled(function)
            except ImportError as missing:
                raise ConfigError(without) from missing

        @wraps(function)
        def call(*given: object) -> object:
            return kernel()(*given)

        return call  # type: ignore[return-value]  # it is called as the function is

    return wrap


def _compile(function: F, **options: bool) -> F:
    import numba

    # Any: Numba's types do not know all options.
    make: Any = numba.njit(nogil=True, fastmath=False, **options)  # type: ignore[call-overload]
    # Any: the compiled function is called exactly like the one it was made from.
    kernel: Any = make(function)
    try:
        kernel._cache = _kept()(function)
    except (AttributeError, OSError, RuntimeError):
        # Another version of Numba keeps kernels elsewhere, or no folder can be written to: they
        # are compiled anew in each process.
        kernel = make(function)
    return kernel  # type: ignore[no-any-return]


@cache
def _kept() -> Callable[[F], object]:
    """Return Numba's cache of a function, with folders of our own."""
    from numba.core import caching, config
    from numba.misc.appdirs import AppDirs

    class _Locator(caching._CacheLocator):
        """Where the machine code of a file's kernels is kept: a folder named by what it is made of.

        Numba names the folder by the file's place, and notices changes of that file only; but
        machine code holds the kernels it calls, from other files. Here another release, or another
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

    return _Kept


@cache
def digest_kernels(path: Path) -> str:
    """Digest a file of kernels, the files of kernels that it imports, and the compiler's version.

    Kernels import nothing else of their room, so no change of an importer, of a report or of the
    Python around them makes anything compile anew.
    """
    digest = hashlib.sha256(version("numba").encode())
    for one in sorted(_imported(path), key=lambda one: one.parts[-2:]):
        digest.update(one.read_bytes())
    return digest.hexdigest()


def _imported(path: Path) -> set[Path]:
    kernels = next((one for one in path.parents if one.name == "kernels"), path.parent)
    found, front = {path, Path(__file__)}, [path]
    while front:
        pattern = r"^from tacit\.verify\.kernels\.([\w.]+) import"
        names = re.findall(pattern, front.pop().read_text(), re.M)
        more = {kernels.joinpath(*name.split(".")).with_suffix(".py") for name in names} - found
        more = {one for one in more if one.is_file()}  # a file elsewhere may import kernels, too
        found |= more
        front += more
    return found
