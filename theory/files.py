"""Files that are either whole or absent: written to a temporary name, synced, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

TEMPORARY_PREFIX = ".tmp-"


@contextlib.contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``path`` (same suffix); on success it is synced and renamed to ``path``.

    Parameters
    ----------
    path
        Final name. Its folder is created.

    Raises
    ------
    OSError
        If the folder cannot be written. Nothing is left behind then, and an older file stays as it was.
    """
    final = Path(path)
    if final.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(final))
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, suffix=final.suffix, dir=final.parent)
    except OSError as error:  # named after the file that was asked for
        raise OSError(error.errno, error.strerror, str(final)) from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as stream:
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(final)
        _sync_folder(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` (UTF-8) to ``path`` atomically and return the path.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system can sync a folder."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
