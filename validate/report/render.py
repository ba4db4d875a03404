"""The report as files: an offline HTML page, its Markdown and JSON twins, figures as PNG and their tables."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.files import atomic_path, write_text
from theory.results import dump_json
from validate.report.content import page_content

if TYPE_CHECKING:
    import pandas as pd

    from validate.report.material import Material

TEMPLATES = Path(__file__).parent
IMAGE_DPI = 144
# Inches: shrunk to the width of a phone, the text of wider pictures could not be read.
WIDE = 7.2
# Height over width: from here on a picture has a printed page for itself.
TALL = 1.1


def write_report(folder: Path, material: Material) -> Path:
    """Write report.html, .md and .json, claims.json, runs.parquet, figures/ and data/; return the page's path.

    Parameters
    ----------
    folder : path
        Where to write; created.
    material : Material
        What to write.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    content = page_content(material, dpi=IMAGE_DPI)
    for name, table in material.tables.items():
        write_frame(folder / "data" / f"{name}.parquet", table)
    for figure in content["figures"]:
        write_bytes(folder / "figures" / f"{figure['name']}.png", figure["image"])
        figure["shape"] = _shape(figure["image"])
        figure["encoded"] = base64.b64encode(figure["image"]).decode("ascii")
    write_frame(folder / "runs.parquet", material.runs)
    write_text(folder / "claims.json", dump_json(claims_json(material), indent=2) + "\n")
    write_text(folder / "report.md", template("page.md.j2").render(content))
    write_text(folder / "report.json", dump_json(_json_twin(content), indent=2) + "\n")
    return write_text(folder / "report.html", template("page.html.j2", escape=True).render(content))


def _shape(image: bytes) -> str:
    """Return how the page lays a PNG out: wide ones scroll on a phone, tall ones may fill a printed page."""
    width, height = (int.from_bytes(image[start : start + 4], "big") / IMAGE_DPI for start in (16, 20))
    return " ".join(["wide"] * (width > WIDE) + ["tall"] * (height > TALL * width))


def _json_twin(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's content as JSON holds it: figures by their data files, without the pixels."""
    kept = ("name", "title", "caption", "reading", "data", "facts")
    return {
        **{name: content[name] for name in ("fits", "standings", "experiments", "failures", "provenance")},
        "preset": {"name": content["preset"].name, "description": content["preset"].description},
        "claims": [{**claim.to_dict(), **verdict.to_dict()} for claim, verdict in content["verdicts"]],
        "figures": [{key: figure[key] for key in kept} for figure in content["figures"]],
    }


def claims_json(material: Material) -> dict[str, Any]:
    """Return what claims.json holds: preset, command, what is missing, and each claim with its rule and verdict."""
    return {
        "preset": material.study.preset.name,
        "command": material.command,
        "missing": {standing.experiment: standing.waiting for standing in material.standings if standing.waiting},
        "claims": [{**claim.to_dict(), **verdict.to_dict()} for claim, verdict in material.judged],
    }


def write_frame(path: Path, table: pd.DataFrame) -> None:
    """Write a frame as Parquet, atomically."""
    with atomic_path(path) as temporary:
        table.to_parquet(temporary, index=False)


def write_bytes(path: Path, content: bytes) -> None:
    """Write bytes, atomically."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def template(name: str, *, escape: bool = False) -> Any:
    """Return a page's template; HTML is escaped, Markdown has its bars escaped by the filter ``cell``."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=escape, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters["cell"] = cell
    return environment.get_template(name)


def cell(text: object) -> str:
    """Return ``text`` as a Markdown table holds it: on one line, its bars escaped."""
    return " ".join(str(text).split()).replace("|", "\\|")
