"""Compilation of the numeric kernels: once, cached on disk, without the interpreter's lock."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


def _writable(folder: Path) -> bool:
    """Whether files can be created under ``folder``, which may not exist yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def _user_cache() -> Path | None:
    """Return the folder where numba would keep a user-wide cache, or ``None`` if there is no home folder."""
    if base := os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA"):
        return Path(base)
    try:
        return Path.home() / ".cache"
    except RuntimeError:
        return None


def _temporary_cache() -> Path:
    """Return a private folder for compiled kernels: one a user, so that the next process finds it; else a fresh one."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"inverse-depth-kernels-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        # A folder that someone else prepared could hold their code.
        mine = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and status.st_mode & 0o777 == 0o700)
        if mine and folder.is_dir() and not folder.is_symlink():
            return folder
    except OSError:
        pass
    return Path(tempfile.mkdtemp(prefix="inverse-depth-kernels-"))


def prepare_cache(package: Path) -> Path | None:
    """Give numba a place for its cache where it would find none; return that place, or ``None`` if nothing was needed.

    Parameters
    ----------
    package : Path
        Folder of the compiled modules; numba writes to its ``__pycache__`` by default, else to the user's cache.

    Warns
    -----
    RuntimeWarning
        When a temporary folder has to serve.
    """
    if os.environ.get("NUMBA_CACHE_DIR"):
        return None
    pycache = package / "__pycache__"
    user = _user_cache()
    if _writable(pycache if pycache.exists() else package) or (user is not None and _writable(user)):
        return None
    folder = _temporary_cache()
    os.environ["NUMBA_CACHE_DIR"] = str(folder)
    warnings.warn(
        f"{package} is read-only and there is no home folder: compiled kernels are cached in {folder}",
        RuntimeWarning,
        stacklevel=3,
    )
    return folder


_TEMPORARY = prepare_cache(Path(__file__).resolve().parent)

import numba  # noqa: E402  (after the cache has a place: numba reads the setting on import)

if _TEMPORARY is not None:
    # The environment is too late where numba has been imported before.
    _settings: Any = numba.config
    _settings.CACHE_DIR = str(_TEMPORARY)


def kernel(function: Function) -> Function:
    """Compile ``function`` on first call, cached on disk, releasing the interpreter's lock; ``.py_func`` stays.

    Division by zero gives inf or NaN as in numpy.
    """
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return compiled


def streaming_kernel(function: Function) -> Function:
    """Compile like :func:`kernel`, allowing sums to be reordered and multiplications fused, so that loops vectorise."""
    options: dict[str, Any] = {"fastmath": {"reassoc", "contract", "nsz"}}
    compiled: Any = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    return compiled


def threads() -> int:
    """Return the number of threads that kernels may use (``NUMBA_NUM_THREADS``, ``numba.set_num_threads``)."""
    return int(numba.get_num_threads())
