"""Writing notebooks, pages and documentation to disk: what the command ``notebook`` does."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from theory.checks import choice
from theory.files import write_text
from validate.notebooks.build import build_notebook, write_docs
from validate.notebooks.script import NOTEBOOKS, read_script, read_settings, with_parameters


def write_notebooks(
    name: str = "all",
    *,
    out: Path | None = None,
    execute: bool = False,
    html: bool = False,
    settings: Sequence[str] = (),
    docs: Path | None = None,
    report: Callable[[str], object] | None = None,
) -> list[Path]:
    """Write one notebook or all, and return the files.

    Parameters
    ----------
    name : str
        ``overview``, the name of a derivation, or ``all``.
    out : path, optional
        Folder of ``NAME.ipynb`` and, with ``html``, ``NAME.html``.
    execute : bool
        Run each from a clean kernel first.
    html : bool
        Also write a page that needs no network.
    settings : sequence of str
        ``name=number`` for the first cell; each name must belong to one of the notebooks at least.
    docs : path, optional
        Folder of the derivation pages.
    report : callable, optional
        Called with a line as each notebook is done.

    Raises
    ------
    ValueError
        For an unknown name or setting, no folder at all, or a cell that fails.
    OSError
        If a folder cannot be written.
    """
    names = NOTEBOOKS if choice("name", name, ("all", *NOTEBOOKS)) == "all" else (name,)
    if out is None and docs is None:
        raise ValueError("out=None: must be a folder, unless docs is given")
    values = read_settings(settings)
    known = sorted(set().union(*(read_script(each).parameters for each in names)))
    for setting in values:
        if setting not in known:
            raise ValueError(f"set {setting}: must be one of {', '.join(known)}")
    for each in names:  # refused by one, refused for all: nothing is half written
        with_parameters(read_script(each), values)
    files = write_docs(docs, names) if docs is not None else []
    for each in names if out is not None else ():
        assert out is not None
        start = time.monotonic()
        notebook = build_notebook(each, values)
        if execute:
            from validate.notebooks.execute import execute as run

            notebook = run(each, notebook)
        files.append(write_text(out / f"{each}.ipynb", json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"))
        if html:
            from validate.notebooks.html import render_html

            files.append(write_text(out / f"{each}.html", render_html(notebook)))
        if report is not None:
            report(f"{each}: {time.monotonic() - start:.1f} s")
    return files
