"""What the figures of layers and regions say, in sentences made from the numbers of their tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from validate.report.readings import counted, listed, number, span
from validate.report.region_figures import MAPS, PLACE, TITLES, agreement_with_one, context_map, deepest_triples

if TYPE_CHECKING:
    import pandas as pd


def read_layer_errors(table: pd.DataFrame) -> list[str]:
    """Say how far the loss predicted from other depths lies from the observed one."""
    ratio = table["predicted"] / table["observed"]
    near = int(((ratio - 1).abs() <= 0.15).sum())
    sentences = [f"{near} of {len(table)} predicted losses lie within 15 % of the observed one."]
    positive = ratio[ratio > 0]
    if len(positive):
        sentences.append(f"Those that are positive are {span(positive)} times the observed one.")
    negative = len(table) - len(positive)
    if negative:
        sentences.append(
            f"{negative} {'is' if negative == 1 else 'are'} negative, which no loss can be: shared error is negative "
            f"there, so layers cancel each other's errors, and shared + specific / L is no loss of theirs."
        )
    return sentences


def read_layer_split(table: pd.DataFrame) -> list[str]:
    """Say how shared and specific error move with depth, and what they make of the loss at their own depth."""
    split = table.dropna(subset=["shared", "specific"])  # a single layer shares with none
    means = split.groupby(["attention", "spectrum", "depth"])[["shared", "specific", "loss"]].mean()
    sentences = []
    for attention, runs in split.groupby("attention", sort=False):
        words = []
        for spectrum in dict.fromkeys(runs["spectrum"]):
            rows = means.xs((attention, spectrum))
            first, last = rows.iloc[0], rows.iloc[-1]
            made = (last["shared"] + last["specific"] / rows.index[-1]) / last["loss"]
            words.append(
                f"{spectrum}: shared {number(first['shared'])} to {number(last['shared'])}, specific "
                f"{number(first['specific'])} to {number(last['specific'])} from L = {rows.index[0]:g} to "
                f"{rows.index[-1]:g}, where shared + specific / L is {number(made)} times the loss"
            )
        sentences.append(f"{attention} attention, means over seeds. {'; '.join(words)}.")
    negative = int((split["shared"] < 0).sum())
    sentences.append(
        f"The shared error is negative, layers cancelling each other's errors, at {negative} of {len(split)} points."
    )
    return sentences


def read_focus(table: pd.DataFrame) -> list[str]:
    """Say how many tokens the layers attend to, and how alike the layers are."""
    share = table["participation"] / table["context"]
    low, high = table.iloc[int(np.nanargmin(share))], table.iloc[int(np.nanargmax(share))]
    sentences = [
        f"Participation runs from {number(share.min())} of the context ({_layer(low)}) to {number(share.max())} "
        f"({_layer(high)}); {int((share <= 0.5).sum())} of {len(share)} layers attend to at most half of it."
    ]
    if "overlap" in table and table["overlap"].notna().any():
        sentences.append(f"The mean overlap of a model's layers is {span(table['overlap'].dropna())}.")
    return sentences


def _layer(row: pd.Series) -> str:
    return f"{row['spectrum']}, L = {row['depth']:g}, layer {row['layer']:g}"


def read_focus_maps(table: pd.DataFrame) -> list[str]:
    """Say how much of the attention the most relevant tokens get at the deepest model."""
    words = []
    for spectrum, part in table.groupby("spectrum", sort=False):
        deepest = part[part["depth"] == part["depth"].max()]
        mass = deepest.pivot_table(index="layer", columns="token", values="mass").mean()
        half = int(np.searchsorted(np.cumsum(mass.to_numpy(dtype=float)), 0.5 * mass.sum()) + 1)
        words.append(
            f"{spectrum}, L = {deepest['depth'].max():g}: {number(mass.iloc[0])} on the most relevant token, half "
            f"of the mass on the first {half} of {len(mass)}"
        )
    even = 1 / table["token"].max()
    return [f"Means over layers, where even attention gives each token {number(even)}. {'; '.join(words)}."]


def read_crossover(exponents: pd.DataFrame, losses: pd.DataFrame) -> list[str]:
    """Say the exponent at the ends of the range of P / D, how many agree with 1, and which attention ends lower."""
    chosen = deepest_triples(context_map(exponents))
    losses = context_map(losses)
    ratios = losses["context"] / losses["dim"]
    ends = sorted({float(ratios.min()), float(ratios.max())})
    sentences = []
    for attention, part in chosen.groupby("attention", sort=False):
        words = []
        for spectrum, line in part.groupby("spectrum", sort=False):
            found = [line[np.isclose(line["context"] / line["dim"], end)] for end in ends]
            words.append(
                f"{spectrum}: " + " and ".join(_exponent(rows.iloc[0]) if len(rows) else "no run" for rows in found)
            )
        where = " and ".join(f"{end:.3g}" for end in ends)
        sentences.append(f"{attention} attention, exponent ± standard error at P / D = {where}. {'; '.join(words)}.")
    sentences += _agreement(chosen)
    sentences += [_where_one(str(attention), part) for attention, part in chosen.groupby("attention", sort=False)]
    largest = losses[losses["depth"] == losses.groupby(PLACE, dropna=False)["depth"].transform("max")]
    means = largest.groupby(["attention", "spectrum", "context"], sort=False)["loss"].mean().unstack("attention")
    if {"linear", "softmax"} <= set(means.columns):
        pairs = means[["linear", "softmax"]].dropna()
        below = int((pairs["softmax"] < pairs["linear"]).sum())
        sentences.append(f"At the largest depth softmax ends below linear at {below} of {len(pairs)} points.")
    return sentences


def _exponent(row: pd.Series) -> str:
    if np.isnan(row["exponent"]):
        return "none"
    value = f"{row['exponent']:.2f} ± {row['standard_error']:.2f}"
    return value if row["converged"] else f"{value} (not converged)"


def read_regions(exponents: pd.DataFrame) -> list[str]:
    """Say for each map which settings agree with 1, and which have no exponent or have not converged."""
    chosen = deepest_triples(exponents)
    sentences = []
    for name in MAPS:
        part = chosen[chosen["map"] == name]
        if part.empty:
            continue
        names = _place_names(part)
        good = (part["converged"].astype(bool) & part["exponent"].notna()).to_numpy()
        near = good & ((part["exponent"] - 1).abs() <= 2 * part["standard_error"]).to_numpy()
        none = part["exponent"].isna().to_numpy()
        open_ = ~part["converged"].to_numpy(dtype=bool)
        text = f"{TITLES[name].capitalize()}: of {counted(int(good.sum()), 'exponent')} of converged runs"
        text += f" ({span(part.loc[good, 'exponent'])})" if good.any() else ""
        text += f", {int(near.sum())} within 2 standard errors of 1"
        text += f" ({listed(names[near])})" if near.any() and not (near == good).all() else ""
        for mask, words in ((open_, "not converged"), (none, "no power law through their losses")):
            text += f"; {words}: {listed(names[mask])}" if mask.any() else ""
        sentences.append(text + ".")
    return sentences


def _place_names(part: pd.DataFrame) -> np.ndarray:
    """Return a short name for each place of one map: attention only where places differ in nothing else."""
    several = part.groupby(["variant", "spectrum"], dropna=False)["attention"].nunique().max() > 1
    names = [
        f"{row['attention']} at {row['variant']} on {row['spectrum']}"
        if several
        else f"{row['variant']} on {row['spectrum']}"
        for row in part.to_dict("records")
    ]
    return np.array(names, dtype=object)


def _where_one(attention: str, chosen: pd.DataFrame) -> str:
    """Say at which P / D the exponent is 1 within its error, spectrum by spectrum, and at which that is not known."""
    words = []
    for spectrum, line in chosen.assign(answer=agreement_with_one(chosen)).groupby("spectrum", sort=False):
        yes: list[str] = []
        unknown: list[str] = []
        for row in line.sort_values("context").to_dict("records"):
            ratio = f"{row['context'] / row['dim']:.3g}"
            if row["answer"] == "yes":
                yes.append(ratio if row["converged"] else f"{ratio} (not converged)")
            elif row["answer"] == "?":
                unknown.append(ratio)
        text = f"{spectrum}: {listed(yes) if yes else 'nowhere'}"
        words.append(text + (f", unknown at {listed(unknown)}" if unknown else ""))
    return f"{attention} attention, P / D at which the exponent is 1 within two standard errors: {'; '.join(words)}."


def _agreement(chosen: pd.DataFrame) -> list[str]:
    """Return how many exponents of converged runs lie within two standard errors of 1, by attention."""
    sentences = []
    for attention, part in chosen.groupby("attention", sort=False):
        good = part[part["converged"].astype(bool) & part["exponent"].notna()]
        near = (good["exponent"] - 1).abs() <= 2 * good["standard_error"]
        text = (
            f"{attention}: {int(near.sum())} of {len(good)} exponents of converged runs lie within 2 standard errors "
        )
        text += "of 1"
        open_ = int((~part["converged"].astype(bool)).sum())
        none = int(part["exponent"].isna().sum())
        text += f"; {open_} of {len(part)} settings have not converged" if open_ else ""
        text += f"; through the losses of {none} no power law runs" if none else ""
        sentences.append(text + ".")
    return sentences
