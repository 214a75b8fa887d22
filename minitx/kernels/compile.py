"""The one way in which kernels are compiled: for explicit types, at the first call with a dtype, and kept on disk.

    @kernel(*for_dtypes(lambda T: void(array(T, 2), array(T, 1, writes=True))))
    def row_sums(x, y): ...

    row_sums[x.dtype](x, y)

A kernel is a table: dtype of the first array → compiled function. Looking a dtype up compiles it, if need be, so that
float64 costs nothing until somebody uses it. What comes out is numba's entry point without its dispatcher, which would
look at the type of every argument again (1 µs for five arrays): **the caller answers for the types**. Arrays must have
the declared dtype, number of axes and C order. With NUMBA_BOUNDSCHECK=1 the dispatcher stays, and checks them.

Helpers that kernels call are plain `@inline` functions: they are compiled as a part of each kernel that uses them.

numba's own cache on disk has four gaps. It does not see that a helper in another file has changed, nor that bounds
checking was switched on; it fails where it finds no place to write; and two processes that compile different
signatures of one function at once may end with the index of the one and the code of the other. So the place is chosen
here: a hash of all kernel sources and flags is in its name, and each signature of each kernel has a folder of its own,
in which two processes can only ever write the same thing.
"""
from __future__ import annotations

import functools
import hashlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import numba.extending
import numpy as np
from numba import float32, float64, njit, types
from numba.core.ccallback import CFunc
from numba.core.registry import cpu_target
from numba.core.runtime.nrt import rtsys

from minitx.kernels import ahead
from minitx.kernels.say import once

config: Any = numba.config
HERE = Path(__file__).parent
FORGET_AFTER = 30 * 24 * 3600  # seconds: folders of kernels from sources that nobody has used for so long are removed

# What the compiler may do to floating-point arithmetic: everything but assume that NaN and infinity do not occur. Sums
# may be regrouped, so that they vectorise; how is fixed when a kernel is compiled, so results repeat bit for bit. (A
# loop that sums and stores at once would be compiled in two ways, one of them for arrays that may overlap, and where
# they lie would choose: such a loop is a helper that says `no_overlap`. tests/kernels/test_places.py looks.)
FASTMATH = {"contract", "reassoc", "nsz", "arcp", "afn"}

# Helpers are never called from Python: without the wrappers for that they compile faster.
HELPER: dict[str, Any] = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


# An attribute of a function in LLVM. Without it loops on Intel's CPUs get vectors of 256 bits, as suited early ones.
WHOLE_VECTORS = '"prefer-vector-width"="512"'


def intrinsic(function: Any) -> Any:
    """A function that writes LLVM instructions where it is called. (The caller's own loops then use whole vectors.)"""

    @functools.wraps(function)
    def typed(typingctx: Any, *args: Any) -> Any:
        signature, write = function(typingctx, *args)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            set.add(builder.function.attributes, WHOLE_VECTORS)  # (its own `add` takes no attribute with a value)
            return write(context, builder, signature, args)

        return signature, codegen

    return numba.extending.intrinsic(typed)


class CannotCompile(NotImplementedError):
    """The compiler refused a kernel on this machine: the op's definition has to do the work."""


def array(dtype: Any, ndim: int, writes: bool = False) -> types.Array:
    """A C-ordered argument. Without `writes` it may be read-only (values on the tape are)."""
    return types.Array(dtype, ndim, "C", readonly=not writes)


def strided(dtype: Any, ndim: int) -> types.Array:
    """An argument that is only read and may lie in memory in any order: transposed, sliced, reversed."""
    return types.Array(dtype, ndim, "A", readonly=True)


def for_dtypes(signature: Callable[[Any], Any]) -> list[Any]:
    """The same signature for float32 and for float64."""
    return [signature(float32), signature(float64)]


def inline(function: Callable[..., Any]) -> Any:
    """A helper that becomes part of the kernels that call it."""
    return njit(fastmath=FASTMATH, **HELPER)(function)


def exact(function: Callable[..., Any]) -> Any:
    """A helper whose additions must happen as written (products and sums may still be fused): error compensation."""
    return njit(fastmath={"contract"}, forceinline=True, **HELPER)(function)


class Compiled(dict[Any, Any]):
    """dtype → what the compiler made of a function for it, at the first look-up."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.kept: list[Any] = []  # an entry point does not keep its code alive, its dispatcher does
        self.seconds = 0.0  # spent on compiling or loading
        self.refused: set[Any] = set()  # the dtypes for which the compiler has failed: it is not asked twice

    def __missing__(self, dtype: Any) -> Any:
        with _lock:
            if dtype in self.refused:
                raise CannotCompile(self.function.__name__)
            start = time.perf_counter()
            name = f"{self.function.__module__}.{self.function.__name__}-{np.dtype(dtype).name}"
            directory = None if _place() is None else _place() / name  # type: ignore[operator]
            if directory is None or not any(directory.rglob("*.nbc")):
                once(f"compiling kernels for this CPU{'' if directory is None else '; they are kept'} ...")
                if _new:
                    _new.clear()
                    ahead.start()
            before, config.CACHE_DIR = config.CACHE_DIR, str(directory or "")
            try:
                self[dtype] = self.compile(np.dtype(dtype), directory is not None)
            except Exception as error:
                once(f"a kernel could not be compiled here ({name}: {type(error).__name__}), so what needs it runs on "
                     "the slower NumPy definitions")  # fmt: skip
                self.refused.add(dtype)
                raise CannotCompile(name) from error
            finally:
                config.CACHE_DIR = before
            self.seconds += time.perf_counter() - start
            return self[dtype]

    def compile(self, dtype: Any, cache: bool) -> Any:
        raise NotImplementedError


class Kernel(Compiled):
    """A function that Python calls."""

    def __init__(self, function: Callable[..., Any], signatures: Iterable[Any], flags: dict[str, Any]) -> None:
        super().__init__(function)
        self.flags = flags
        self.signatures = {np.dtype(str(_first_array(s).dtype)): s for s in signatures}

    def compile(self, dtype: Any, cache: bool) -> Callable[..., Any]:
        options = {"cache": cache, "error_model": "numpy", "no_cfunc_wrapper": True, **self.flags}
        dispatcher: Any = njit(**options)(self.function)
        load_quickly(dispatcher._cache)
        signature = self.signatures[dtype]
        dispatcher.compile(signature)
        dispatcher.disable_compile()
        self.kept.append(dispatcher)
        return dispatcher if config.BOUNDSCHECK else dispatcher.get_overload(signature)  # type: ignore[no-any-return]

    def __call__(self, *args: Any) -> Any:
        """For a caller that does not count every microsecond: the dtype is that of the first array."""
        return self[next(a for a in args if isinstance(a, np.ndarray)).dtype](*args)


def kernel(*signatures: Any, **flags: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """`@kernel(signature, ...)`: a function that Python calls; one signature per dtype of its first array."""
    return lambda function: Kernel(function, signatures, {"fastmath": FASTMATH, **flags})


def _first_array(signature: Any) -> types.Array:
    return next(a for a in signature.args if isinstance(a, types.Array))


def load_quickly(cache: Any) -> None:
    """Before numba looks whether a kernel is on the disk, it loads all that it knows of Python's and NumPy's functions.

    That takes 0.35 seconds, at the first kernel of a process. What is on the disk needs none of it but the memory
    manager, and before it compiles what is not, numba loads it once more.
    """
    load = cache.load_overload

    def only_load(signature: Any, context: Any) -> Any:
        context.refresh = lambda: rtsys.initialize(context)
        try:
            return load(signature, context)
        finally:
            del context.refresh

    cache.load_overload = only_load


pointer: Any = types.CPointer


class Worker(Compiled):
    """A function that kernels call by its address, so that it is compiled once, not in each: see parallel.py."""

    def compile(self, dtype: Any, cache: bool) -> int:
        element = numba.from_dtype(dtype)
        pointers = [pointer(t) for t in (element, types.int64)]
        signature = (*pointers, types.int64), types.void
        function: Any = CFunc(self.function, signature, {}, {"fastmath": FASTMATH, "error_model": "numpy"})
        if cache:
            function.enable_caching()
            load_quickly(function._cache)
        function.compile()
        self.kept.append(function)
        return int(function.address)


# ---------------------------------------------------------------------- where compiled kernels are kept

_lock = threading.RLock()  # numba's settings are global while a kernel is set up
_found: list[Path | None] = []
_new: list[Path] = []  # the folder, where this process made it and has not compiled anything yet


def _place() -> Path | None:
    """The folder for what comes of these sources, this numba and this CPU; None where nothing can be written."""
    if not _found:
        _found.append(cache_directory())
    return _found[0]


def cache_directory() -> Path | None:
    """In NUMBA_CACHE_DIR, or beside the sources, or in the user's home; None where nothing can be written."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    parents = [Path(given)] if given else [HERE / "__pycache__", Path("~/.cache/minitx").expanduser()]
    for parent in parents:
        directory = parent / f"kernels-{fingerprint()}"
        try:
            if not directory.is_dir():
                _forget_old(parent)
                parent.mkdir(parents=True, exist_ok=True)
                with suppress(FileExistsError):  # another process was faster
                    directory.mkdir()
                    _new.append(directory)
            with tempfile.TemporaryFile(dir=directory):
                os.utime(directory)
                return directory
        except OSError:
            continue
    once(f"no place to keep compiled kernels (tried {', '.join(map(str, parents))}); each process compiles them anew")
    return None


def fingerprint() -> str:
    """A hash of everything that decides what machine code comes out."""
    machine = cpu_target.target_context.codegen().magic_tuple()  # system, CPU, its features
    flags = f"{numba.__version__} {np.__version__} {machine} {config.BOUNDSCHECK} {config.OPT}"
    digest = hashlib.sha256(flags.encode())
    for file in sorted(HERE.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _forget_old(parent: Path) -> None:
    for directory in parent.glob("kernels-*"):
        if time.time() - directory.stat().st_mtime > FORGET_AFTER:
            shutil.rmtree(directory, ignore_errors=True)
