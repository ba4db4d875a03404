"""What the figures of losses and learning say, in sentences made from the numbers of their tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from validate.mode_order import order_of_modes

if TYPE_CHECKING:
    import pandas as pd

# A standard error below this share of the loss is rounding, not sampling.
ROUNDING = 1e-9


def listed(parts: Iterable[object]) -> str:
    """Return ``a, b and c``; with commas or semicolons inside a part, ``a; b; c``."""
    texts = [str(part) for part in parts]
    if any("," in text or ";" in text for text in texts):
        return "; ".join(texts)
    return " and ".join(filter(None, [", ".join(texts[:-1]), *texts[-1:]]))


def counted(count: int, noun: str) -> str:
    """Return ``1 run``, ``2 runs``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """Return three digits of ``value``, in plain decimals where they can be read; thousands are whole."""
    if not np.isfinite(value):
        return "unknown" if np.isnan(value) else "unbounded"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def span(values: Iterable[float]) -> str:
    """Return ``low to high``, or the one value."""
    array = np.asarray(list(values), dtype=float)
    low, high = number(float(np.nanmin(array))), number(float(np.nanmax(array)))
    return low if low == high else f"{low} to {high}"


def percents(values: Iterable[float]) -> str:
    """Return shares as ``low to high`` per cent, or the one value."""
    array = np.asarray(list(values), dtype=float)
    low, high = percent(float(np.nanmin(array))), percent(float(np.nanmax(array)))
    return low if low == high else f"{low[:-2]} to {high}"


def percent(value: float) -> str:
    """Return a share in per cent, two digits."""
    return f"{number(float(f'{100 * value:.2g}'))} %"


def left_out(runs: pd.DataFrame, names: Sequence[str]) -> str:
    """Return how many runs have not converged, and which: ``names`` ends with the spectrum; those alike together."""
    open_ = runs[~runs["converged"].astype(bool)]
    if open_.empty:
        return f"All {len(runs)} runs converged."
    alike: dict[tuple[str, ...], list[str]] = {}
    for key, group in open_.groupby(list(names), sort=False):
        depths = listed(f"{depth:g}" for depth in np.unique(group["depth"]))
        alike.setdefault((*(str(part) for part in key[:-1]), depths), []).append(str(key[-1]))
    groups = []
    for (*first, depths), spectra in alike.items():
        several = spectra[0] if len(spectra) == 1 else f"each of {len(spectra)} spectra ({listed(spectra)})"
        several = "every spectrum" if 1 < len(spectra) == runs["spectrum"].nunique() else several
        groups.append(
            f"{' '.join([*first, 'on'])} {several} at L = {depths}" if first else f"{several} at L = {depths}"
        )
    return f"{len(open_)} of {len(runs)} runs have not converged (hollow, in no settled fit): {'; '.join(groups)}."


def read_curves(table: pd.DataFrame) -> list[str]:
    """Say how far the trained curves lie from the predicted ones."""
    shown = table[table["step"] > 0]
    deviation = (shown["trained"] / shown["predicted"] - 1).abs()
    worst = shown.iloc[int(np.nanargmax(deviation))]
    rms = np.sqrt((deviation**2).groupby(shown["depth"]).mean())
    last = shown.sort_values("step").groupby("depth")["trained"].last()
    return [
        f"At the drawn steps ({shown['step'].min():,} to {shown['step'].max():,}) the trained loss differs from the "
        f"prediction by {percents(rms)} root mean square, and by at most "
        f"{percent(deviation.max())} (L = {worst['depth']:g}, step {worst['step']:,.0f}).",
        f"The last loss is {listed(f'{number(loss)} at L = {depth:g}' for depth, loss in last.items())}.",
    ]


def read_depth_laws(table: pd.DataFrame) -> list[str]:
    """Say what converged, how far the loss falls, and which attention ends lower."""
    runs = table[table["loss"].notna()]
    means = runs.groupby(["attention", "spectrum", "depth"])["loss"].mean()
    sentences = [left_out(runs, ["attention", "spectrum"])]
    diverged = int((table["loss"].isna() & table["fitted"].isna()).sum())
    if diverged:
        verb = "is" if diverged == 1 else "are"
        sentences.append(f"{counted(diverged, 'more run')} ended without a finite loss and {verb} not drawn.")
    ends: dict[Any, Any] = {}
    for attention in dict.fromkeys(runs["attention"]):
        falls = []
        for spectrum in dict.fromkeys(runs.loc[runs["attention"] == attention, "spectrum"]):
            losses = means.xs((attention, spectrum))
            ends.setdefault(spectrum, {})[attention] = losses
            falls.append(f"{spectrum}: {number(losses.iloc[0])} to {number(losses.iloc[-1])}")
        depths = runs.loc[runs["attention"] == attention, "depth"]
        head = f"{attention} attention, mean loss from L = {depths.min():g} to {depths.max():g}"
        sentences.append(f"{head}: {'; '.join(falls)}.")
    both = [(spectrum, pair) for spectrum, pair in ends.items() if {"linear", "softmax"} <= set(pair)]
    if both:
        below = []
        for spectrum, pair in both:
            shared = pair["linear"].index.intersection(pair["softmax"].index)
            if len(shared) and pair["softmax"][shared.max()] < pair["linear"][shared.max()]:
                below.append(spectrum)
        which = f" ({listed(below)})" if below and len(below) < len(both) else ""
        sentences.append(
            f"At the largest depth that both were trained at, softmax ends below linear on {len(below)} of "
            f"{len(both)} spectra{which}."
        )
    return sentences


def read_exponents(table: pd.DataFrame) -> list[str]:
    """Say on which spectra the interval of the exponent contains 1."""
    sentences = []
    for attention, group in table.groupby("attention", sort=False):
        settled = group[group["settled"].astype(bool)]
        holds = ~((settled["low"] > 1) | (settled["high"] < 1))
        words = []
        for inside, verb in ((True, "contains 1 on"), (False, "excludes 1 on")):
            chosen = settled[holds == inside]
            if len(chosen):
                words.append(f"{verb} {listed(_interval(row) for _, row in chosen.iterrows())}")
        found = "the 95 % interval of alpha " + "; it ".join(words) if words else "none, too few depths converged"
        sentences.append(f"{attention} attention, fits of converged runs: {found}.")
        open_ = group[~group["settled"].astype(bool)]
        if len(open_):
            found = listed(_interval(row) for _, row in open_.iterrows())
            sentences.append(f"{attention} attention, provisional fits (hollow; no verdict rests on them): {found}.")
    return sentences


def _interval(row: pd.Series) -> str:
    return f"{row['spectrum']}: {number(row['exponent'])} [{number(row['low'])}, {number(row['high'])}]"


def read_linear_optimum(table: pd.DataFrame) -> list[str]:
    """Say how far converged losses lie from the exact optimum of tied gains, and from the floor of untied ones."""
    table = table if "tied" in table else table.assign(tied=True)
    sentences = []
    for tied, name, optimum in ((True, "Tied", "optimum"), (False, "Untied", "floor")):
        runs = table[table["tied"].astype(bool) == tied]
        if runs.empty:
            continue
        text = f"{name} layers. {left_out(runs, ['spectrum'])}"
        good = runs[runs["converged"].astype(bool)]
        if len(good):
            deviation = (good["loss"] / good[optimum] - 1).abs()
            worst = good.iloc[int(np.nanargmax(deviation))]
            scores = ((good["loss"] - good[optimum]) / good["standard_error"]).abs()
            text += (
                f" Converged losses lie within {percent(deviation.max())} of the exact {optimum} (the worst: "
                f"{worst['spectrum']}, L = {worst['depth']:g})"
            )
            # Losses that are averaged exactly have errors of rounding alone.
            drawn = (good["standard_error"] > ROUNDING * good["loss"]).all()
            text += f", {int((scores <= 2).sum())} of {len(good)} within 2 standard errors." if drawn else "."
        sentences.append(text)
    deepest = table[table["depth"] > 1].sort_values("depth").groupby("spectrum", sort=False).tail(1)
    if len(deepest) and (deepest["floor"] > 0).all():
        ratio = deepest["optimum"] / deepest["floor"]
        sentences.append(f"At the largest depth the optimum of tied gains is {span(ratio)} times the untied floor.")
    return sentences


def read_mode_maps(table: pd.DataFrame) -> list[str]:
    """Say when the strongest and the weakest mode lost half of their error."""
    sentences = []
    for attention, maps in table.groupby("attention", sort=False):
        words = []
        for spectrum, group in maps.groupby("spectrum", sort=False):
            first, last = (_first_half(group[group["mode"] == mode]) for mode in (1, group["mode"].max()))
            words.append(f"{spectrum}: {first}, {last}")
        sentences.append(
            f"{attention} attention, first recorded step at which the error of the strongest and of the weakest mode "
            f"is half of its first: {'; '.join(words)}."
        )
    return sentences


def _first_half(mode: pd.DataFrame) -> str:
    reached = mode.loc[mode["share"] <= 0.5, "step"]
    return "never" if reached.empty else f"{reached.min():,}"


def read_half_times(table: pd.DataFrame) -> list[str]:
    """Say how half-times are ordered and spread over the modes, and how far they lie from the predicted ones."""
    sentences = []
    for attention, part in table.groupby("attention", sort=False):
        structured = part[part.groupby(["spectrum", "depth", "seed"])["eigenvalue"].transform("nunique") > 1]
        if structured.empty:
            continue
        correlations, spreads = order_of_modes(table, str(attention)), []
        for _, run in structured.groupby(["spectrum", "depth", "seed"], sort=False):
            if run["half_time"].notna().all() and run["half_time"].min() > 0:
                spreads.append(float(run["half_time"].max() / run["half_time"].min()))
        text = (
            f"{attention} attention: {int(structured['half_time'].isna().sum())} of {len(structured)} modes were never "
        )
        text += "half learned"
        if correlations:
            runs = counted(len(correlations), "run")
            text += f"; rank correlation (gamma) of half-time and eigenvalue {span(correlations.values())} over {runs}"
        if spreads:
            text += f"; the slowest half-time is {span(spreads)} times the fastest, where all are known"
        sentences.append(text + ".")
        if "predicted" in structured and (both := structured.dropna(subset=["half_time", "predicted"])).size:
            ratio = both["half_time"] / both["predicted"]
            sentences.append(
                f"{attention} attention: {len(both)} half-times are {span(ratio)} times the predicted ones."
            )
    return sentences
