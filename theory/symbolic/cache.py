"""What has been verified already: evidence on disk, keyed by the sources it rests on and by sympy's version."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import json
import os
import platform
import stat
import tempfile
import warnings
from pathlib import Path

from theory.files import write_text

CACHE_VARIABLE = "INVERSE_DEPTH_CACHE"
ROOT = Path(__file__).resolve().parents[2]


@functools.cache
def cache_folder() -> Path:
    """Return the folder for verified evidence and generated functions.

    ``$INVERSE_DEPTH_CACHE``, else ``$XDG_CACHE_HOME/inverse-depth``, else ``~/.cache/inverse-depth``. Where none of
    them can be written, a private folder among the temporary files, with one warning.
    """
    chosen = os.environ.get(CACHE_VARIABLE)
    candidates = [Path(chosen)] if chosen else []
    if not chosen:
        with contextlib.suppress(RuntimeError):
            base = os.environ.get("XDG_CACHE_HOME")
            candidates.append((Path(base) if base else Path.home() / ".cache") / "inverse-depth")
    for folder in candidates:
        if _usable(folder):
            return folder
    folder = Path(tempfile.gettempdir()) / f"inverse-depth-{_user()}"
    if not _usable(folder):
        folder = Path(tempfile.mkdtemp(prefix="inverse-depth-"))
    warnings.warn(f"no cache folder can be written: using {folder}", RuntimeWarning, stacklevel=2)
    return folder


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else "user"


def _usable(folder: Path) -> bool:
    """Return whether ``folder`` is ours, closed to writing by others, and writable; it is created if absent."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError:
        return False
    if hasattr(os, "getuid") and (facts.st_uid != os.getuid() or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)):
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def write_if_other(path: Path, text: str) -> None:
    """Write ``text`` to ``path``, atomically, unless that is what is there (its time stamp then stays)."""
    try:
        same = path.read_text(encoding="utf-8") == text
    except (OSError, UnicodeDecodeError):
        same = False
    if not same:
        write_text(path, text)


def source_files(module: str) -> list[Path]:
    """Return the files of this project that ``module`` rests on: its own and, transitively, those it imports."""
    found: dict[str, Path] = {}
    pending = [module, "theory.symbolic", "theory.symbolic.derivation"]
    while pending:
        name = pending.pop()
        path = _file_of(name)
        if path is None or name in found:
            continue
        found[name] = path
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                pending += [alias.name for alias in node.names if alias.name.startswith("theory.")]
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("theory."):
                pending += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return sorted(found.values())


def _file_of(module: str) -> Path | None:
    base = ROOT / Path(*module.split("."))
    for path in (base.with_suffix(".py"), base / "__init__.py"):
        if path.is_file():
            return path
    return None


def source_key(module: str) -> str:
    """Return the hash of everything the evidence for ``module`` rests on: sources, sympy, mpmath, Python."""
    import mpmath
    import sympy

    parts = [sympy.__version__, mpmath.__version__, platform.python_version()]
    digest = hashlib.sha256("|".join(parts).encode())
    for path in source_files(module):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def load_evidence(name: str, key: str) -> tuple[str, dict[str, str]] | None:
    """Return (digest of the equations, evidence by step) for exactly these sources, or ``None``."""
    try:
        stored = json.loads((cache_folder() / "derivations" / f"{name}.json").read_text(encoding="utf-8"))
        if stored["key"] != key:
            return None
        evidence = {str(step): str(text) for step, text in stored["evidence"].items()}
        return str(stored["digest"]), evidence
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def save_evidence(name: str, key: str, digest: str, evidence: dict[str, str]) -> None:
    """Store the evidence, whole or not at all; a folder that cannot be written is no error, only slower."""
    text = json.dumps({"key": key, "digest": digest, "evidence": evidence}, indent=1)
    with contextlib.suppress(OSError):
        write_text(cache_folder() / "derivations" / f"{name}.json", text + "\n")
