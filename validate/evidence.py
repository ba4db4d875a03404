"""From the runs of a study to the tables that claims and figures read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from theory.checks import reject
from validate.claims import Evidence
from validate.decisions import FEWEST_DEPTHS
from validate.depth_fits import depth_fit_table, depth_groups, depth_law_fits
from validate.probing import probe_tables
from validate.regions import region_exponents, region_table
from validate.study import Study, compare_with_theory

if TYPE_CHECKING:
    import pandas as pd

# Points of a drawn curve or law: enough to look smooth.
DRAWN_POINTS = 200
# What C7 asks of the published training curves, on every step of the range.
PUBLISHED_STEPS = (1, 2990)
PUBLISHED_TOLERANCE = 0.006
PUBLISHED_DIM = 45
PUBLISHED_EXPONENTS = (1.75, 0.5)
PUBLISHED_CONTEXT = 512
PUBLISHED_RATE = 3.0
LARGEST_CHINCHILLA_LOSS = 2.998680336233436

# What decisions and figures read of a run.
RUN_COLUMNS = (
    *("experiment", "digest", "model", "attention", "depth", "tied", "spectrum", "capacity", "source", "dim"),
    *("setting", "context", "label_noise", "gain", "correlation", "teacher_seed", "seed"),
    *("final_loss", "standard_error", "converged", "tied_optimum", "untied_floor"),
)

Tables = dict[str, "pd.DataFrame"]


def collect(study: Study, published: pd.DataFrame | None = None) -> tuple[Evidence, list[dict[str, Any]], Tables]:
    """Return the evidence for the claims, the fitted depth laws, and the tables of the figures by name.

    Parameters
    ----------
    study : Study
        Finished runs.
    published : frame, optional
        As `published_table` gives it; without it the claim on the published data stays undecided.
    """
    import pandas as pd

    runs = _with_optima(study.to_frame())
    summary, points = _curves(study)
    probed = probe_tables(study)
    regions = region_table(runs)
    exponents = region_exponents(regions)
    fits = depth_law_fits(runs)
    evidence = Evidence(
        runs=runs,
        curves=summary,
        half_times=probed["half_times"],
        focus=probed["focus"],
        layers=probed["layers"],
        published=pd.DataFrame() if published is None else published,
        regions=exponents,
        depth_fits=depth_fit_table(fits),
    )
    tables = {
        "curves": points,
        "depth_laws": _depth_laws(runs, fits),
        "exponents": _exponents(fits),
        "linear_optimum": _linear_optimum(runs),
        "regions": regions,
        "region_exponents": exponents,
        **probed,
    }
    return evidence, fits, {name: table for name, table in tables.items() if len(table)}


def _with_optima(runs: pd.DataFrame) -> pd.DataFrame:
    """Add the exact tied optimum and untied floor of every reduced linear run on rotated data at infinite context."""
    from theory import Spectrum, Task, tied_optimum, untied_floor

    # Columns that no run of the study fills are still asked for.
    runs = runs.reindex(columns=list(dict.fromkeys([*runs.columns, *RUN_COLUMNS])))
    chosen = (runs["model"] == "reduced") & (runs["attention"] == "linear") & (runs["setting"] == "rrs")
    chosen &= runs["context"].isna()
    for index, row in runs[chosen & runs["source"].notna()].iterrows():
        task = Task(Spectrum.power_law(int(row["dim"]), float(row["capacity"]), float(row["source"])))
        runs.loc[index, "tied_optimum"] = tied_optimum(task, int(row["depth"])).loss
        runs.loc[index, "untied_floor"] = untied_floor(task, int(row["depth"])).loss
    return runs


def _curves(study: Study) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row a predicted curve, and its drawn points."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    points = []
    for run in study.runs("linear-curves"):
        comparison = compare_with_theory(run)
        # A run that diverged follows no curve, however far its last finite losses are off.
        deviation = comparison.relative_deviation if np.isfinite(run.final_loss) else np.full(1, np.nan)
        rows.append(
            {
                "digest": run.config.digest,
                "depth": run.config.model.depth,
                "rms": float(np.sqrt(np.mean(deviation**2))),
                "largest": float(np.abs(deviation).max()),
                "standard_error": float(np.max(comparison.prediction.standard_error / comparison.prediction.loss)),
            }
        )
        spaced = np.unique(np.geomspace(1, comparison.step.size - 1, DRAWN_POINTS).astype(int))
        points.append(
            pd.DataFrame(
                {
                    "depth": run.config.model.depth,
                    "step": comparison.step[spaced].astype(int),
                    "trained": comparison.observed[spaced],
                    "predicted": comparison.predicted[spaced],
                }
            )
        )
    return pd.DataFrame(rows), pd.concat(points, ignore_index=True) if points else pd.DataFrame()


def _exponents(fits: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the fitted exponents with their intervals; settled where converged runs alone made the fit."""
    import pandas as pd

    rows = []
    for row in fits:
        if row["fit"] is None or not row["fit"].answered:
            continue
        exponent = row["fit"].parameters["exponent"]
        low, high = exponent.interval
        numbers = {"exponent": exponent.value, "low": low, "high": high, "settled": row["depths"] >= FEWEST_DEPTHS}
        rows.append({"attention": row["attention"], "spectrum": row["spectrum"], **numbers})
    return pd.DataFrame(rows)


def _depth_laws(runs: pd.DataFrame, rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the points and the drawn laws of the depth experiments."""
    import pandas as pd

    fits = {(row["experiment"], row["attention"], row["spectrum"]): row["fit"] for row in rows}
    parts = []
    for (experiment, attention, spectrum), group in depth_groups(runs):
        points = group[["depth", "final_loss", "standard_error", "converged"]].rename(columns={"final_loss": "loss"})
        parts.append(points.assign(attention=attention, spectrum=spectrum))
        fit = fits[(experiment, attention, spectrum)]
        if fit is not None and fit.answered:
            depth = np.geomspace(points["depth"].min(), points["depth"].max(), DRAWN_POINTS)
            band = fit.predict(depth)
            drawn = {"depth": depth, "fitted": band.loss, "low": band.low, "high": band.high}
            parts.append(pd.DataFrame(drawn).assign(attention=attention, spectrum=spectrum, converged=True))
    if not parts:
        return pd.DataFrame()
    table = pd.concat(parts, ignore_index=True)
    return table.reindex(columns=[*table.columns, *({"fitted", "low", "high"} - set(table.columns))])


def _linear_optimum(runs: pd.DataFrame) -> pd.DataFrame:
    if runs.empty:
        return runs
    chosen = runs[runs["experiment"].isin(["linear-optimum", "linear-untied"])]
    columns = {"final_loss": "loss", "tied_optimum": "optimum", "untied_floor": "floor"}
    kept = [
        "spectrum",
        "source",
        "tied",
        "depth",
        "final_loss",
        "standard_error",
        "converged",
        "tied_optimum",
        "untied_floor",
    ]
    return chosen[kept].rename(columns=columns).reset_index(drop=True)


def check_data_folder(folder: Path) -> None:
    """Refuse what is no folder.

    Raises
    ------
    ValueError
        If ``folder`` is not there, or is a file.
    """
    if not folder.is_dir():
        raise reject("data", str(folder), "a folder")


def published_table(folder: Path) -> pd.DataFrame:
    """Hold the published training curves and the language-model table against the predictions.

    Parameters
    ----------
    folder : path
        Holds ``published_rrs_linear_L<depth>.csv`` and ``chinchilla_depth_width.csv``, any of them.

    Raises
    ------
    ValueError
        If ``folder`` is no folder, holds none of these, or one cannot be used.
    """
    import pandas as pd

    from theory import Spectrum, Task
    from validate.comparison import compare_curve, read_curve

    check_data_folder(folder)
    rows: list[dict[str, Any]] = []
    task = Task(Spectrum.power_law(PUBLISHED_DIM, *PUBLISHED_EXPONENTS), "rrs", PUBLISHED_CONTEXT)
    for path in sorted(folder.glob("published_rrs_linear_L*.csv")):
        number = path.stem.rpartition("L")[2]
        if not number.isdecimal():
            raise reject("data", path.name, "named published_rrs_linear_L<depth>.csv")
        depth = int(number)
        first, last = PUBLISHED_STEPS
        result = compare_curve(
            read_curve(path), task, depth, learning_rate=PUBLISHED_RATE, first_step=first, last_step=last
        )
        worst = float(np.abs(result.relative_deviation).max())
        rows.append(
            {
                "name": f"largest deviation at L = {depth}",
                "value": worst,
                "low": -PUBLISHED_TOLERANCE,
                "high": PUBLISHED_TOLERANCE,
                "expected": worst,
            }
        )
    table = folder / "chinchilla_depth_width.csv"
    if table.exists():
        rows.append(_language_models(table))
    if not rows:
        raise reject("data", str(folder), f"a folder with published_rrs_linear_L<depth>.csv or {table.name}")
    return pd.DataFrame(rows)


def _language_models(path: Path) -> dict[str, Any]:
    """Return the depth exponent of the language-model table, with its interval."""
    from validate import FitError, fit_table, read_table

    columns = {"depth": "n_layers", "width": "d_model", "tokens": "num_tokens"}
    value = low = high = float("nan")
    try:
        exponent = fit_table(read_table(path), columns, "loss", max_loss=LARGEST_CHINCHILLA_LOSS).best.parameters[
            "depth_exponent"
        ]
        value, (low, high) = exponent.value, exponent.interval
    except FitError:
        pass  # no interval: the claim stays undecided
    return {"name": "depth exponent", "value": value, "low": low, "high": high, "expected": 1.0}
