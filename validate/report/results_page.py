"""The results as one Markdown page with its pictures, made to lie in a repository: the runs stay outside."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from theory.checks import reject
from theory.files import write_text
from validate.report.content import page_content
from validate.report.render import template, write_bytes

if TYPE_CHECKING:
    from validate.report.material import Material

# Small files: the pictures are kept under version control.
PICTURE_DPI = 110
PICTURES = Path("docs") / "results"


def check_results_path(page: Path) -> None:
    """Refuse a name that is not Markdown's, or is a folder's.

    Raises
    ------
    ValueError
        If it does not end in ``.md``, or is a folder.
    """
    if page.suffix.lower() != ".md" or page.is_dir():
        raise reject("results", str(page), "a file name ending in .md")


def write_results(page: Path, material: Material) -> Path:
    """Write ``page``, and its pictures to ``docs/results`` beside it; return its path.

    Links are relative: the page shows its pictures wherever the folder is copied. The same runs give the same bytes.

    Parameters
    ----------
    page : path
        A name ending in ``.md``.
    material : Material
        A judged study.

    Raises
    ------
    ValueError
        If ``page`` has another suffix.
    OSError
        If it cannot be written.
    """
    check_results_path(page)
    content = page_content(material, dpi=PICTURE_DPI)
    for figure in content["figures"]:
        write_bytes(page.parent / PICTURES / f"{figure['name']}.png", figure["image"])
    made_by = shlex.join(["inverse-depth", "report", "--out", material.out, "--results", os.fspath(page)])
    text = template("results.md.j2").render(content, pictures=PICTURES.as_posix(), made_by=made_by)
    return write_text(page, text)
