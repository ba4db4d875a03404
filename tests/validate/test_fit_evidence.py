"""Probabilities of laws: plain integrals over all parameters, tables drawn from the prior, and where there are none."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tolerances import ROUNDOFF_LONG, SAME_OPTIMUM, model_error, sampling
from theory.depth_laws import DEPTH_LAWS
from validate import fit_depth_law, rank_laws
from validate.fit_evidence import law_probabilities, log_evidence, log_integrals
from validate.fit_problem import FitProblem
from validate.fit_starts import CORRELATIONS, EXPONENTS

DEPTH = np.array([1.0, 2, 2, 4, 8, 8, 16])


def evidence_of(law: str, loss: np.ndarray, depth: np.ndarray = DEPTH, **options: object) -> float:
    given = FitProblem(DEPTH_LAWS[law], {"depth": depth}, loss, **options)  # type: ignore[arg-type]
    count = len(given.law.parameters)
    return log_evidence(given, np.ones(depth.size), np.zeros(count, dtype=bool), np.zeros(count))


def test_integrals_of_known_functions() -> None:
    """A narrow Gaussian, an exponential at an end, two peaks, a constant, and nothing."""
    width = 1e-7

    def function(rows: np.ndarray, u: np.ndarray) -> np.ndarray:
        every = np.stack(
            [
                -0.5 * ((u - 0.3) / width) ** 2,
                -u / 1e-4,
                np.logaddexp(-0.5 * ((u - 0.2) / 0.01) ** 2, -0.5 * ((u - 0.8) / 0.003) ** 2),
                np.full(u.shape, -700.0),
                np.full(u.shape, -np.inf),
            ]
        )
        return np.asarray(every[rows, np.arange(rows.size)])

    found = log_integrals(function, 5)
    root = np.sqrt(2 * np.pi)
    expected = np.log([root * width, 1e-4, root * 0.013])
    np.testing.assert_allclose(found[:3], expected, atol=20 * SAME_OPTIMUM)
    assert found[3] == pytest.approx(-700.0, rel=ROUNDOFF_LONG)
    assert found[4] == -np.inf


@pytest.mark.parametrize(("known", "residuals"), [(False, "log"), (True, "log"), (False, "linear"), (True, "linear")])
def test_evidence_is_the_plain_integral(rng: np.random.Generator, known: bool, residuals: str) -> None:
    """Power against inverse depth: the likelihood of every row, summed over a grid of all parameters and the noise."""
    noise = 0.1
    loss = (1.0 + 2.0 / DEPTH) * np.exp(noise * np.array([1, -1, 1.5, 0.5, -1.5, 1, -0.5]))
    error = noise * loss if residuals == "linear" else np.full(DEPTH.size, noise)
    # Midpoints of equal steps: as accurate as their resolution of the peak, here a tenth of its width.
    share = (np.arange(100) + 0.5) / 100
    unit = (np.arange(50) + 0.5) / 50
    sizes = 3.0 * np.exp(np.linspace(-1.5, 1.0, 120))
    noises = np.ones(1) if known else np.exp(np.linspace(np.log(5e-3), np.log(50.0), 60))

    def plain(shapes: np.ndarray) -> float:
        total = 0.0
        for shape in shapes:
            law = sizes[:, None, None] * (share[:, None] + (1 - share[:, None]) * DEPTH**-shape)
            residual = np.log(law / loss) if residuals == "log" else law - loss
            if known:
                total += float(np.sum(np.exp(-0.5 * np.sum((residual / error) ** 2, axis=-1))))
            else:
                squares = np.sum(residual**2, axis=-1)
                total += sum(float(np.sum(s**-DEPTH.size * np.exp(-0.5 * squares / s**2))) for s in noises)
        return float(np.log(total / len(shapes)))

    expected = plain(EXPONENTS[0] * (EXPONENTS[1] / EXPONENTS[0]) ** unit) - plain(np.ones(1))
    sigma = error if known else None
    found = evidence_of("power", loss, sigma=sigma, residuals=residuals)
    found -= evidence_of("inverse-depth", loss, sigma=sigma, residuals=residuals)
    # On linear residuals the size is integrated as if its relative error, at most that of one row, were small.
    allowed = 100 * SAME_OPTIMUM + (model_error(1 / noise, 2) if residuals == "linear" else 0.0)
    assert abs(found - expected) < allowed


def test_promises_are_kept_on_tables_from_the_prior(rng: np.random.Generator) -> None:
    """Laws and parameters drawn as assumed: the first law is the true one as often as its probability says."""
    names = list(DEPTH_LAWS)
    depth = np.array([1.0, 2, 3, 4, 6, 8, 12, 16])
    promised, right = [], []
    for _ in range(200):
        law = names[rng.integers(len(names))]
        unit, share = rng.uniform(size=2)
        shape = {
            "power": EXPONENTS[0] * (EXPONENTS[1] / EXPONENTS[0]) ** unit,
            "spectral": EXPONENTS[0] * (EXPONENTS[1] / EXPONENTS[0]) ** unit,
            "exponential": 0.2 * (5 * 16 / 0.2) ** unit,
            "ar1": CORRELATIONS[0] + unit * (CORRELATIONS[1] - CORRELATIONS[0]),
        }.get(law, 1.0)
        if law == "inverse-depth-corrected":
            ratio = np.tan(np.pi * (unit - 0.5))
            term = (1 / depth + ratio / depth**2) / (1 + abs(ratio))
        else:
            given = {"plateau": 0.0, "coefficient": 1.0, "exponent": shape, "decay_depth": shape, "correlation": shape}
            term = DEPTH_LAWS[law](depth, **{name: given[name] for name in DEPTH_LAWS[law].parameter_names})
            term = term / term[0]
        level = (0.0 if law == "spectral" else share) + (1 if law == "spectral" else 1 - share) * term
        if level.min() <= 0:
            continue
        noise = np.exp(rng.uniform(np.log(1e-3), np.log(0.1)))
        loss = level * np.exp(noise * rng.standard_normal(depth.size))
        chances = law_probabilities([evidence_of(name, loss, depth) for name in names])
        assert chances.sum() == pytest.approx(1.0, rel=ROUNDOFF_LONG)
        promised.append(chances.max())
        right.append(names[int(np.argmax(chances))] == law)
    off = np.array(right) - np.array(promised)
    assert abs(off.mean()) < sampling(off.std() / np.sqrt(off.size))
    # And among those sure of themselves, and among those that are not.
    for part in (np.array(promised) > 0.8, np.array(promised) <= 0.8):
        assert part.sum() > 25
        assert abs(off[part].mean()) < sampling(off[part].std() / np.sqrt(part.sum()))


def test_units_and_order_of_rows_change_nothing(rng: np.random.Generator) -> None:
    loss = (1.0 + 2.0 / DEPTH) * np.exp(0.02 * rng.standard_normal(DEPTH.size))
    order = rng.permutation(DEPTH.size)
    for residuals in ("log", "linear"):
        rankings = [
            rank_laws(depth, values, residuals=residuals, intervals="none", starts=16)
            for depth, values in ((DEPTH, loss), (DEPTH, 1e4 * loss), (DEPTH[order], loss[order]))
        ]
        chances = [{fit.law: fit.probability for fit in ranking} for ranking in rankings]
        for other in chances[1:]:
            for law, chance in chances[0].items():
                assert other[law] == pytest.approx(chance, rel=ROUNDOFF_LONG, abs=ROUNDOFF_LONG)
        assert sum(chances[0].values()) == pytest.approx(1.0, rel=ROUNDOFF_LONG)
        assert [fit.probability for fit in rankings[0]] == sorted(chances[0].values(), reverse=True)


def test_a_given_exponent_is_no_free_one(rng: np.random.Generator) -> None:
    """A power whose exponent is held at 1 is the inverse depth law."""
    loss = (1.0 + 2.0 / DEPTH) * np.exp(0.02 * rng.standard_normal(DEPTH.size))
    fixed = {"power": {"exponent": 1.0}}
    ranking = rank_laws(DEPTH, loss, laws=["power", "inverse-depth"], fixed=fixed, intervals="none")
    assert ranking[0].probability == pytest.approx(0.5, rel=ROUNDOFF_LONG)


def test_where_there_is_no_probability(rng: np.random.Generator) -> None:
    """A robust cost, a plateau held or free below 0: then AICc ranks. Rows no more than parameters: that law alone."""
    loss = (1.0 + 2.0 / DEPTH) * np.exp(0.02 * rng.standard_normal(DEPTH.size))
    for options in (
        {"robust": "soft_l1"},
        {"plateau_minimum": -np.inf},
        {"fixed": {"power": {"plateau": 1.0}}},
        {"fixed": {"power": {"coefficient": 2.0}}},
        {"fixed": {"inverse-depth-corrected": {"second_coefficient": 0.1}}},
    ):
        ranking = rank_laws(DEPTH, loss, intervals="none", starts=16, **options)  # type: ignore[arg-type]
        assert all(np.isnan(fit.probability) for fit in ranking)
        assert [fit.aicc for fit in ranking] == sorted(fit.aicc for fit in ranking)
    few = rank_laws([1.0, 2, 4], [3.0, 2.0, 1.45], laws=["power", "inverse-depth"], intervals="none")
    assert [fit.law for fit in few] == ["inverse-depth", "power"]
    assert few[0].probability == 1.0
    assert np.isnan(few[1].probability)
    assert np.isnan(fit_depth_law(DEPTH, loss, intervals="none").probability)
    zero = {law: {"plateau": 0.0} for law in DEPTH_LAWS if law != "spectral"}
    flat = rank_laws(DEPTH, 2 / DEPTH**0.7, fixed=zero, intervals="none")
    assert flat[0].law in {"power", "spectral"}
