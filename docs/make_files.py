"""Write docs/files.md: every module with the first line of its docstring. Run from the project's root."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("theory", "sim", "validate", "benchmarks")
HEADER = """# Files

One line a file, taken from its docstring by `python docs/make_files.py`.
Imports point one way: theory ← sim ← validate.
"""


def render() -> str:
    """Return the page."""
    lines = [HEADER]
    for package in PACKAGES:
        lines.append(f"## {package}/\n")
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            summary = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]
            lines.append(f"- `{name}`: {summary}")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    (ROOT / "docs" / "files.md").write_text(render(), encoding="utf-8")
