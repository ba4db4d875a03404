"""Sentences under the figures state the numbers of their tables, computed here by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

from tests.tolerances import SAME_OPTIMUM
from tests.validate.report.tables import report_tables
from validate.claims import Evidence
from validate.decisions import strong_first
from validate.depth_fits import depth_law_fits
from validate.report.figures import FIGURES, figure_named
from validate.report.readings import listed, number, percent, span
from validate.report.region_figures import deepest_triples
from validate.report.rivals import rival_table


def reading(name: str, **changed: pd.DataFrame) -> list[str]:
    figure = figure_named(name)
    return figure.read(*figure.frames({**report_tables(), **changed}))


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES])
def test_every_figure_is_read_in_whole_sentences(name: str) -> None:
    sentences = reading(name)
    assert sentences
    for sentence in sentences:
        assert sentence.endswith(".")
        assert "nan" not in sentence.lower()
        assert "  " not in sentence


def test_unconverged_runs_are_counted_and_named() -> None:
    assert reading("depth-laws")[0] == (
        "4 of 16 runs have not converged (hollow, in no settled fit): linear on s at L = 8; softmax on s at L = 8."
    )
    two = pd.concat([report_tables()["depth_laws"], report_tables()["depth_laws"].assign(spectrum="t")])
    assert "linear on every spectrum at L = 8; softmax on every" in reading("depth-laws", depth_laws=two)[0]
    three = pd.concat([two, report_tables()["depth_laws"].assign(spectrum="u", converged=True)])
    assert "linear on each of 2 spectra (s and t) at L = 8" in reading("depth-laws", depth_laws=three)[0]
    table = report_tables()["depth_laws"]
    assert reading("depth-laws", depth_laws=table.assign(converged=True))[0] == "All 16 runs converged."


def test_diverged_runs_are_counted() -> None:
    table = report_tables()["depth_laws"]
    table.loc[0, "loss"] = np.nan
    assert "1 more run ended without a finite loss and is not drawn." in reading("depth-laws", depth_laws=table)


def test_losses_are_means_over_seeds() -> None:
    table = report_tables()["depth_laws"]
    table.loc[0, "loss"] = 0.8  # one of two seeds, whose other is 0.6
    sentences = reading("depth-laws", depth_laws=table)
    assert "linear attention, mean loss from L = 1 to 8: s: 0.7 to 0.163." in sentences
    assert sentences[-1].endswith("softmax ends below linear on 0 of 1 spectra.")


def test_intervals_that_contain_one_and_those_that_do_not() -> None:
    linear, provisional, softmax, open_end = reading("exponents")
    assert linear == "linear attention, fits of converged runs: none, too few depths converged."
    assert provisional.endswith("(hollow; no verdict rests on them): a: 2 [1.5, unbounded].")
    assert "contains 1 on a: 1 [0.9, 1.1]; it excludes 1 on b: 1.4 [1.1, 1.9]." in softmax
    assert open_end.endswith("c: 5 [4, unknown].")


def test_the_best_law_and_how_far_inverse_depth_is_behind() -> None:
    softmax, linear = reading("rivals")
    assert softmax == (
        "softmax attention, best law: inverse-depth (a), power (b). Inverse depth is within 2 of it on 1 of 2 "
        "spectra and more than 10 behind on 1."
    )
    assert linear.startswith(
        "linear attention, best law: power (a, provisional). Inverse depth is within 2 of it on 0 of 1"
    )


def test_rivals_are_ranked_on_the_losses_of_each_fit() -> None:
    """AICc from the sum of squares of the log residuals of a law that holds up to drawn noise."""
    depth = np.tile([1.0, 2, 3, 4, 6, 8], 2)
    loss = (0.1 + 0.5 / depth) * np.exp(0.02 * np.random.default_rng(3).standard_normal(depth.size))
    runs = {"experiment": "depth-softmax", "attention": "softmax", "spectrum": "s", "depth": depth, "final_loss": loss}
    fits = depth_law_fits(pd.DataFrame({**runs, "standard_error": 0.02 * loss, "converged": True}))
    table = rival_table(fits, 5).set_index("law")
    assert table["settled"].all()
    assert table["behind"].min() == 0
    # The power law nests inverse depth; it costs one more parameter and gains little.
    assert table.loc["inverse-depth", "behind"] < table.loc["discretisation", "behind"]
    design = np.stack([np.ones_like(depth), 1 / depth**2], axis=1)
    squares = [
        least_squares(lambda p, x=x: np.log(np.maximum(p[0] + p[1] * x, 1e-12) / loss), [0.1, 0.5], xtol=1e-14).cost
        for x in (1 / depth, design[:, 1])
    ]
    gap = depth.size * np.log(squares[1] / squares[0])
    found = table.loc["discretisation", "behind"] - table.loc["inverse-depth", "behind"]
    assert found == pytest.approx(gap, rel=SAME_OPTIMUM)
    assert rival_table([{"behind": {}, "attention": "a", "spectrum": "s", "depths": 0}], 5).empty


def test_deviations_of_curves_and_optima() -> None:
    curves = reading("curves")[0]
    # Deviations 0, 0.25, 0 at the three drawn steps: root mean square 0.25 / sqrt(3).
    assert "by 14 % root mean square, and by at most 25 % (L = 1, step 10)" in curves
    tied, untied, apart = reading("linear-optimum")
    assert tied.startswith("Tied layers. 1 of 4 runs have not converged (hollow, in no settled fit): s at L = 8.")
    assert "within 1 % of the exact optimum (the worst: s, L = " in tied
    # 1 % off at a standard error of 1.01 %.
    assert tied.endswith("3 of 3 within 2 standard errors.")
    assert untied.startswith("Untied layers. All 4 runs converged. Converged losses lie within 3 % of the exact floor")
    assert untied.endswith("0 of 4 within 2 standard errors.")
    exact = report_tables()["linear_optimum"].assign(standard_error=1e-13)
    assert reading("linear-optimum", linear_optimum=exact)[1].endswith("(the worst: s, L = 1).")
    assert apart == "At the largest depth the optimum of tied gains is 2 times the untied floor."


def test_learning_times() -> None:
    # k / (k + step) is at most half from step k on; recorded steps are 0, 1, 10, 100.
    assert reading("mode-maps")[0].endswith("is half of its first: s: 1, 100.")
    linear, predicted, softmax = reading("half-times")
    # Half-times 100 / eigenvalue^power, eigenvalues 1 to 0.1.
    assert linear.endswith("the slowest half-time is 10 times the fastest, where all are known.")
    assert predicted == "linear attention: 4 half-times are 2 times the predicted ones."
    assert softmax.endswith("the slowest half-time is 3.16 times the fastest, where all are known.")
    assert "eigenvalue -1 over 1 run" in linear


def test_a_mode_never_half_learned_comes_last() -> None:
    table = report_tables()["half_times"]
    table.loc[table["mode"] == 1, "half_time"] = np.nan  # the strongest
    linear, *_ = reading("half-times", half_times=table)
    # Ranks of times 4, 1, 2, 3 against eigenvalues 4, 3, 2, 1: three pairs agree, three do not.
    assert linear == (
        "linear attention: 1 of 4 modes were never half learned; rank correlation (gamma) of half-time and eigenvalue "
        "0 over 1 run."
    )


def test_the_sentence_and_the_claim_have_one_correlation() -> None:
    """Two modes never half learned tie: five pairs of strong and weak are decided, one of them the wrong way round."""
    table = report_tables()["half_times"]
    linear = table["attention"] == "linear"
    table.loc[linear, "half_time"] = [200.0, 100.0, np.nan, np.nan]
    evidence = Evidence(**{**{field.name: pd.DataFrame() for field in fields(Evidence)}, "half_times": table})
    assert "eigenvalue -0.6 over 1 run" in reading("half-times", half_times=table)[0]
    assert strong_first(evidence).number == (1 - 4) / 5


def test_attention() -> None:
    assert reading("focus")[0].startswith("Participation runs from 0.25 of the context (s, L = 2, layer 2) to 0.75")
    (maps,) = reading("focus-maps")
    assert "even attention gives each token 0.2" in maps
    assert maps.count("0.5 on the most relevant token, half of the mass on the first 1 of 5") == 2


def test_layer_errors() -> None:
    near, positive, negative = reading("layer-errors")
    assert near.startswith("1 of 3 predicted losses lie within 15 %")
    assert positive == "Those that are positive are 0.5 to 1.1 times the observed one."
    assert negative.startswith("1 is negative, which no loss can be")
    linear, softmax, negative = reading("layer-split")
    assert negative.endswith("at 8 of 16 points.")
    assert linear.count("shared + specific / L is 1 times the loss") == 2
    assert softmax.count("shared -0.05 to -0.05, specific 0.8 to 0.8 from L = 1 to 8") == 2
    # (-0.05 + 0.8 / 8) / (0.1 + 0.8 / 8)
    assert softmax.count("shared + specific / L is 0.25 times the loss") == 2


def test_a_single_layer_has_no_split() -> None:
    table = report_tables()["layer_split"]
    table.loc[table["depth"] == 1, ["shared", "specific"]] = np.nan
    linear, _, negative = reading("layer-split", layer_split=table)
    assert linear.count("specific 0.8 to 0.8 from L = 2 to 8") == 2
    assert negative.endswith("at 6 of 12 points.")
    figure = figure_named("layer-split")
    assert len(figure.draw(table).axes) == 2


def test_exponents_along_the_context() -> None:
    sentences = reading("crossover")
    # alpha = 0.5 + P / 28 with standard error 0.1: only P = 16 lies within two of 1, on both spectra.
    assert sentences[0] == (
        "linear attention, exponent ± standard error at P / D = 0.5 and 16. "
        "isotropic: 0.64 ± 0.10 and 5.07 ± 0.10; ν = 1, β = 1: 0.64 ± 0.10 and 5.07 ± 0.10."
    )
    assert "linear: 2 of 10 exponents of converged runs lie within 2 standard errors of 1." in sentences
    assert "softmax: 10 of 10 exponents of converged runs lie within 2 standard errors of 1." in sentences
    assert (
        "linear attention, P / D at which the exponent is 1 within two standard errors: isotropic: 2; ν = 1, β = 1: 2."
    ) in sentences
    # At L = 8, alpha < 1 leaves linear above softmax at P = 4 and 8, on both spectra.
    assert sentences[-1] == "At the largest depth softmax ends below linear at 4 of 10 points."


def test_where_the_exponent_is_one_is_said_in_words_and_in_the_picture() -> None:
    """Agreement for want of precision, or without an exponent, is none; 1.4 +- 0.15 is no 1.5 and no 1 either."""
    place = {"map": "context", "variant": "v", "model": "reduced", "attention": "softmax", "spectrum": "s", "dim": 4.0}
    cells = [
        (2, 1.1, 0.1, True, "yes"),
        (4, 1.1, 0.1, False, "(yes)"),
        (8, 1.1, 0.6, True, "?"),
        (16, 1.4, 0.15, True, "no"),
        (32, 4.0, 0.6, True, "no"),
        (64, np.nan, np.nan, True, "?"),
    ]
    table = pd.DataFrame(
        [
            {**place, "context": context, "label_noise": 0.0, "depth": 1, "loss": 0.1, "converged": converged}
            | {"exponent": exponent, "standard_error": error}
            for context, exponent, error, converged, _ in cells
        ]
    )
    changed = {"region_exponents": table.drop(columns="loss"), "regions": table.fillna({"standard_error": 0.1})}
    assert (
        "softmax attention, P / D at which the exponent is 1 within two standard errors: s: 0.5 and 1 (not converged), "
        "unknown at 2 and 16."
    ) in reading("crossover", **changed)
    figure = figure_named("crossover")
    above, between, below = figure.draw(*figure.frames({**report_tables(), **changed})).axes
    assert [text.get_text() for text in between.texts] == [cell[-1] for cell in cells]
    assert [text.get_position()[0] for text in between.texts] == [cell[0] / 4 for cell in cells]
    assert [label.get_text() for label in between.get_yticklabels()] == ["softmax"]
    assert above.get_xlim() == between.get_xlim() == below.get_xlim()


def test_each_map_names_its_settings() -> None:
    noise, gain, data, kernel, architecture = reading("regions")
    # alpha = 0.5 + 16 / 28 = 1.07 for linear attention, standard error 0.1: within two of 1.
    assert noise == ("Label noise: of 4 exponents of converged runs (1 to 1.07), 4 within 2 standard errors of 1.")
    assert gain.startswith("Softmax with a fixed gain b: of 6 exponents of converged runs (1), 6 within")
    assert (
        data == "Law of the covariates: of 8 exponents of converged runs (1 to 1.07), 8 within 2 standard errors of 1."
    )
    assert kernel.endswith("not converged: relu on isotropic; relu on ν = 1, β = 1.")
    assert architecture == (
        "Architecture: of 1 exponent of converged runs (1), 1 within 2 standard errors of 1; no power law through "
        "their losses: transformer softmax on s and transformer + MLP softmax on s."
    )
    wide = report_tables()["region_exponents"]
    wide.loc[(wide["map"] == "noise") & (wide["attention"] == "linear"), "exponent"] = 2.0
    noise, *_ = reading("regions", region_exponents=wide)
    assert noise.endswith("2 within 2 standard errors of 1 (softmax at σ² = 0.1 on s and softmax at σ² = 0.5 on s).")


def test_places_of_one_variant_have_rows_of_their_own() -> None:
    axes = figure_named("regions").draw(report_tables()["region_exponents"]).axes
    rows = {panel.get_title(loc="left"): [label.get_text() for label in panel.get_yticklabels()] for panel in axes[:5]}
    assert rows["label noise: exponent ± standard error"] == ["linear, s", "softmax, s"]
    assert rows["law of the covariates: exponent ± standard error"] == [
        *("linear, signs", "linear, clusters (4, s = 0.25)", "softmax, signs", "softmax, clusters (4, s = 0.25)")
    ]
    assert rows["kernel: exponent ± standard error"] == ["softmax", "exp", "relu", "cosine"]
    assert [label.get_text() for label in axes[1].get_xticklabels()] == ["b = 1", "b = 4", "b = 16"]


def test_the_deepest_converged_depths_are_chosen_whatever_their_exponent() -> None:
    base = {"map": "noise", "variant": "v", "model": "m", "attention": "a", "spectrum": "s", "dim": 4, "context": None}
    rows = [
        {"label_noise": noise, "depth": depth, "converged": converged, "exponent": depth}
        for noise, flags in ((0.0, [True, True, False]), (0.1, [False, False, False]))
        for depth, converged in zip((1, 2, 4), flags, strict=True)
    ]
    chosen = deepest_triples(pd.DataFrame([{**base, **row} for row in rows]))
    assert list(zip(chosen["label_noise"], chosen["depth"], strict=True)) == [(0.0, 2), (0.1, 4)]


def test_words_and_numbers() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(["a, b", "c"]) == "a, b; c"
    assert [number(x) for x in (0.0123456, 12.3456, 12345.6, np.nan, np.inf)] == [
        *("0.0123", "12.3", "12,346", "unknown", "unbounded")
    ]
    assert span([2.0, np.nan, 1.0]) == "1 to 2"
    assert span([1.0001, 1.0002]) == "1"
    assert percent(0.01234) == "1.2 %"
