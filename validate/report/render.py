"""The report as files: an offline HTML page, its Markdown and JSON twins, figures as PNG and their tables."""

from __future__ import annotations

import base64
import io
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.files import atomic_path, write_text
from theory.results import dump_json
from validate.report.figures import FIGURES, Figure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

    from validate.report.material import Material
    from validate.study import Study

TEMPLATES = Path(__file__).parent
IMAGE_DPI = 144


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
    study, runs, judged, tables = material.study, material.runs, material.judged, material.tables
    figures = []
    for figure in FIGURES:
        if figure.table in tables:
            data = folder / "data" / f"{figure.table}.parquet"
            write_frame(data, tables[figure.table])
            image = image_bytes(figure.draw(tables[figure.table]))
            with atomic_path(folder / "figures" / f"{figure.name}.png") as temporary:
                temporary.write_bytes(image)
            figures.append(_shown(figure, image, data.relative_to(folder)))
    write_frame(folder / "runs.parquet", runs)
    write_text(folder / "claims.json", dump_json(claims_json(material), indent=2) + "\n")
    content = {
        "preset": study.preset,
        "verdicts": judged,
        "fits": [_fit_row(row) for row in material.fits],
        "figures": figures,
        "experiments": _experiments(study, runs),
        "failures": study.failures,
        "standings": material.standings,
        "provenance": provenance(study, runs, material.command),
    }
    write_text(folder / "report.md", _template("page.md.j2", escape=False).render(content))
    write_text(folder / "report.json", dump_json(_json_twin(content), indent=2) + "\n")
    return write_text(folder / "report.html", _template("page.html.j2", escape=True).render(content))


def _json_twin(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the page's content as JSON holds it: figures by their data files, without the pixels."""
    return {
        **{name: content[name] for name in ("fits", "standings", "experiments", "failures", "provenance")},
        "preset": {"name": content["preset"].name, "description": content["preset"].description},
        "claims": [{**claim.to_dict(), **verdict.to_dict()} for claim, verdict in content["verdicts"]],
        "figures": [
            {key: figure[key] for key in ("name", "title", "caption", "data")} for figure in content["figures"]
        ],
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


def image_bytes(canvas: Canvas) -> bytes:
    """Return a figure as PNG."""
    stream = io.BytesIO()
    canvas.savefig(stream, format="png", dpi=IMAGE_DPI)
    return stream.getvalue()


def provenance(study: Study, runs: pd.DataFrame, command: str) -> dict[str, str]:
    """Return how the report was made: command, versions, devices, arithmetic, seeds, time."""
    from importlib.metadata import PackageNotFoundError, version

    def version_of(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return "not installed"

    packages = ("inverse-depth", "torch", "numpy", "numba", "lmfit")
    facts = {
        "command": command,
        "versions": ", ".join(f"{name} {version_of(name)}" for name in packages)
        + f", Python {platform.python_version()}",
        "runs": f"{len(runs)} finished, {len(study.failures)} failed",
    }
    if len(runs):
        facts |= {
            "converged": f"{int(runs['converged'].sum())} of {len(runs)}",
            "devices": ", ".join(sorted(runs["device"].unique())),
            "arithmetic": ", ".join(sorted(runs["dtype"].unique())),
            "seeds": ", ".join(str(seed) for seed in sorted(runs["seed"].unique())),
            "training time": f"{runs['seconds'].sum():.0f} s",
        }
    return facts


def _template(name: str, *, escape: bool) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=escape, undefined=StrictUndefined, keep_trailing_newline=True
    ).get_template(name)


def _shown(figure: Figure, image: bytes, data: Path) -> dict[str, str]:
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "image": base64.b64encode(image).decode("ascii"),
        "data": data.as_posix(),
    }


def _fit_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a fit as the page's table shows it; a number that is not known is its reason, never 0."""
    shown = {key: row[key] for key in ("attention", "spectrum", "depths", "status")}
    for name in ("plateau", "coefficient", "exponent"):
        if row["fit"] is None or not row["fit"].answered:
            shown[name] = "none"
            continue
        parameter = row["fit"].parameters[name]
        low, high = parameter.interval
        shown[name] = f"{parameter.value:.4g} [{_bound(low)}, {_bound(high)}]"
    return shown


def _bound(value: float) -> str:
    return "?" if np.isnan(value) else f"{value:.3g}"


def _experiments(study: Study, runs: pd.DataFrame) -> list[dict[str, Any]]:
    shown = []
    for experiment in study.preset.experiments:
        chosen = runs[runs["experiment"] == experiment.name] if len(runs) else runs
        rows = [
            {
                "spectrum": row["spectrum"],
                "depth": row["depth"],
                "attention": row["attention"],
                "loss": f"{row['final_loss']:.5g} ± {row['standard_error']:.1g}",
                "convergence": row["convergence"],
                "optimizer": f"{row['optimizer']}, rate {row['learning_rate']:g}, {row['steps']} × {row['batch']}",
                "seed": row["seed"],
                "seconds": f"{row['seconds']:.1f}",
                "digest": row["digest"],
            }
            for _, row in chosen.iterrows()
        ]
        shown.append({"name": experiment.name, "purpose": experiment.purpose, "runs": rows})
    return shown
