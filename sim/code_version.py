"""A hash of the sources that decide what a run's numbers are, so that runs of different code are never mixed up."""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import tokenize
from pathlib import Path

# Modules of theory that training imports, and modules of sim that can change no number of a run.
READ_FROM_THEORY = ("checks", "files", "results", "spectra", "task")
NO_NUMBERS = (
    "__init__",
    "code_version",
    "devices",
    "executors",
    "grid",
    "jobs",
    "progress",
    "runs",
    "sweep",
    "sweep_progress",
    "worker",
)
NO_NUMBERS_FOLDERS = ("probes",)


@functools.cache
def code_version() -> str:
    """Return twelve hex digits that change when code that decides numbers changes.

    Hashed are the sources of ``sim`` and of what it imports from ``theory``, without comments, docstrings and blank
    lines: to reword the documentation, or to change the sweep machinery, the probes or the progress bar, leaves the
    version as it was. Versions of torch and the hardware are no part of it; each run records them.
    """
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for path in sources():
        digest.update(f"\0{path.relative_to(root).as_posix()}\0".encode())
        digest.update(bare(path.read_text(encoding="utf-8")).encode())
    return digest.hexdigest()[:12]


def sources() -> list[Path]:
    """Return the files that are hashed, always in one order."""
    sim = Path(__file__).resolve().parent
    found = [sim.parent / "theory" / f"{name}.py" for name in READ_FROM_THEORY]
    for path in sorted(sim.rglob("*.py")):
        parts = path.relative_to(sim).with_suffix("").parts
        if not (len(parts) == 1 and parts[0] in NO_NUMBERS) and parts[0] not in NO_NUMBERS_FOLDERS:
            found.append(path)
    return found


def bare(source: str) -> str:
    """Return Python ``source`` without comments, docstrings, blank lines and trailing spaces.

    Cut from the text itself, so that the result is the same under every version of Python.
    """
    lines = source.splitlines()
    # (row, column) spans, rows from 1, in characters, last first so that cutting moves nothing still to be cut.
    spans = sorted([*_comments(source), *_docstrings(source)], reverse=True)
    for (first, start), (last, end) in spans:
        lines[first - 1 : last] = [lines[first - 1][:start] + lines[last - 1][end:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _comments(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [(token.start, token.end) for token in tokens if token.type == tokenize.COMMENT]


def _docstrings(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    spans = []
    for node in ast.walk(ast.parse(source)):
        for statement in getattr(node, "body", []) if not isinstance(node, (ast.Lambda, ast.IfExp)) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                assert statement.end_lineno is not None
                assert statement.end_col_offset is not None
                start = (statement.lineno, statement.col_offset)
                end = (statement.end_lineno, statement.end_col_offset)
                spans.append(tuple(_characters(source, at) for at in (start, end)))
    return spans  # type: ignore[return-value]


def _characters(source: str, at: tuple[int, int]) -> tuple[int, int]:
    """Turn ast's column in UTF-8 bytes into one in characters."""
    row, column = at
    return row, len(source.splitlines()[row - 1].encode()[:column].decode())
