"""What the pages show, as texts and pictures: the same for HTML, Markdown, JSON and the results page."""

from __future__ import annotations

import io
import platform
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from validate.regions import covariates_label
from validate.report.drawing import Figure, NothingToDraw
from validate.report.figures import FIGURES

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure as Canvas

    from validate.report.material import Material

PACKAGES = ("torch", "numpy", "scipy", "numba", "lmfit", "matplotlib")


def page_content(material: Material, *, dpi: int) -> dict[str, Any]:
    """Return what the templates show; a figure whose tables hold nothing for it is left out.

    Parameters
    ----------
    material : Material
        A judged study.
    dpi : int
        Resolution of the pictures.
    """
    return {
        "preset": material.study.preset,
        "verdicts": material.judged,
        "standings": material.standings,
        "fits": [_fit_row(row) for row in material.fits],
        "figures": [shown for figure in FIGURES if (shown := _shown(figure, material, dpi)) is not None],
        "experiments": _experiments(material),
        "failures": material.study.failures,
        "provenance": provenance(material),
    }


def _shown(figure: Figure, material: Material, dpi: int) -> dict[str, Any] | None:
    try:
        frames = figure.frames(material.tables)
        image = image_bytes(figure.draw(*frames), dpi)
    except NothingToDraw:
        return None
    return {
        "name": figure.name,
        "title": figure.title,
        "caption": figure.caption,
        "reading": figure.read(*frames),
        "image": image,
        "data": [f"data/{name}.parquet" for name in figure.tables],
        "facts": figure_facts(figure, material),
    }


def image_bytes(canvas: Canvas, dpi: int) -> bytes:
    """Return a figure as PNG of at most 256 colours, a third of the size; the same data gives the same bytes."""
    from PIL import Image

    stream, small = io.BytesIO(), io.BytesIO()
    canvas.savefig(stream, format="png", dpi=dpi)
    palette = Image.open(stream).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    palette.save(small, format="png", optimize=True, dpi=(dpi, dpi))
    return small.getvalue()


def figure_facts(figure: Figure, material: Material) -> dict[str, str]:
    """Return where a figure comes from: data, command line, and its runs with their seeds, device and version."""
    runs = material.runs
    if len(runs):
        own = runs["experiment"].str.startswith(figure.experiments)
        runs = runs[own] if own.any() else runs
    return {
        "data": ", ".join(f"data/{name}.parquet" for name in figure.tables),
        "drawn by": shlex.join(["inverse-depth", "plot", figure.name, "--report", material.out]),
        "trained by": material.command,
        **_runs_facts(runs),
        "version": _own_version(),
    }


def _runs_facts(runs: pd.DataFrame) -> dict[str, str]:
    if runs.empty:
        return {}
    return {
        "runs": f"{len(runs)}, of which {int(runs['converged'].sum())} converged",
        "seeds": ", ".join(str(seed) for seed in sorted(runs["seed"].unique())),
        "device": ", ".join(sorted(runs["device"].unique())),
        "arithmetic": ", ".join(sorted(runs["dtype"].unique())),
    }


def provenance(material: Material) -> dict[str, str]:
    """Return how the report was made: command, versions, machines, arithmetic, seeds, time."""
    runs, records = material.runs, material.study.known.records
    machines = [record.summary["machine"] for record in records if "machine" in record.summary]
    facts = {
        "command": material.command,
        "report again": shlex.join(["inverse-depth", "report", "--out", material.out]),
        "version": f"{_own_version()}; Python {platform.python_version()}, "
        + ", ".join(_named(name) for name in PACKAGES),
        "runs": f"{len(runs)} finished, {len(material.study.failures)} failed, "
        f"{sum(standing.waiting for standing in material.standings)} missing",
    }
    if len(runs):
        facts |= {name: text for name, text in _runs_facts(runs).items() if name != "runs"}
        facts["converged"] = f"{int(runs['converged'].sum())} of {len(runs)}"
        facts["training time"] = duration(float(runs.drop_duplicates("digest")["seconds"].sum()))
    if machines:
        kinds = {f"{machine.get('device_name', '?')}, torch {machine.get('torch', '?')}" for machine in machines}
        facts["trained on"] = "; ".join(sorted(kinds))
    return facts


def duration(seconds: float) -> str:
    """Return a time in the two units that suit it."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def _own_version() -> str:
    from sim.code_version import code_version

    return f"{_named('inverse-depth')}, training code {code_version()}"


def _named(package: str) -> str:
    """Return a package with its version; from a source tree that is not installed it has none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"{package} (not installed)"


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


def _setting(row: pd.Series) -> str:
    """Return the spectrum of a run and what else its data and gain are."""
    symbols = {"context": "P", "label_noise": "σ²", "gain": "b", "teacher_seed": "teacher seed"}
    values = {symbol: row.get(name) for name, symbol in symbols.items()}
    extra = [f"{symbol} = {value:g}" for symbol, value in values.items() if value is not None and value == value]
    law = covariates_label(row.to_dict())
    extra += [] if law == "gaussian" else [law]
    return ", ".join([str(row["spectrum"]), *(text for text in extra if text != "σ² = 0")])


def _experiments(material: Material) -> list[dict[str, Any]]:
    shown = []
    for experiment, standing in zip(material.study.preset.experiments, material.standings, strict=True):
        runs = material.runs
        chosen = runs[runs["experiment"] == experiment.name] if len(runs) else runs
        rows = [
            {
                "spectrum": _setting(row),
                "depth": row["depth"],
                "attention": row["attention"] if row["model"] == "reduced" else f"{row['model']}, {row['attention']}",
                "loss": f"{row['final_loss']:.5g} ± {row['standard_error']:.1g}",
                "converged": bool(row["converged"]),
                "convergence": row["convergence"],
                "optimizer": f"{row['optimizer']}, rate {row['learning_rate']:g}, {row['steps']} × {row['batch']}",
                "seed": row["seed"],
                "seconds": f"{row['seconds']:.1f}",
                "digest": row["digest"],
            }
            for _, row in chosen.iterrows()
        ]
        converged = sum(row["converged"] for row in rows)
        shown.append(
            {
                "name": experiment.name,
                "purpose": experiment.purpose,
                "planned": standing.planned,
                "finished": standing.finished,
                "converged": converged,
                "failed": standing.failed,
                "waiting": standing.waiting,
                "seeds": ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows})) or "none",
                "depths": ", ".join(str(depth) for depth in sorted({row["depth"] for row in rows})) or "none",
                "time": duration(float(chosen["seconds"].sum())) if len(chosen) else "none",
                "runs": rows,
            }
        )
    return shown
