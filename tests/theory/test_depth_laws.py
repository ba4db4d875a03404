"""Depth laws: gradients against 40-digit differences, limits, domains, and the derivations they name."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, model_error
from theory.depth_laws import DEPTH_LAWS, DepthLaw, additive_law, depth_law
from theory.ensembles import ensemble_loss

VALUES = {
    "plateau": 1.7,
    "coefficient": 2.3,
    "exponent": 0.83,
    "decay_depth": 3.7,
    "correlation": 0.61,
    "second_coefficient": -0.4,
}
DEPTHS = np.array([1.0, 2.0, 3.5, 8.0, 40.0])
EXACT = {
    "inverse-depth": lambda x, a, c: a + c / x,
    "power": lambda x, a, c, e: a + c * x**-e,
    "exponential": lambda x, a, c, d: a + c * mpmath.exp(-x / d),
    "discretisation": lambda x, a, c: a + c / x**2,
    "spectral": lambda x, c, e: c * x**-e,
    "ar1": lambda x, a, c, r: a + c / x * ((1 + r) / (1 - r) - 2 * r * (1 - r**x) / (x * (1 - r) ** 2)),
    "inverse-depth-corrected": lambda x, a, c, s: a + c / x + s / x**2,
}


def values_of(law: DepthLaw) -> list[float]:
    return [VALUES[name] for name in law.parameter_names]


@pytest.mark.parametrize("name", list(DEPTH_LAWS))
def test_values_and_gradients_against_forty_digits(name: str) -> None:
    law = DEPTH_LAWS[name]
    given = values_of(law)
    got = law.function(DEPTHS, *given)
    slopes = law.gradient(DEPTHS, *given)
    assert len(slopes) == len(law.parameters)
    with mpmath.workdps(40):
        for row, depth in enumerate(DEPTHS):
            x = mpmath.mpf(float(depth))
            numbers = [mpmath.mpf(value) for value in given]
            assert float(got[row]) == pytest.approx(float(EXACT[name](x, *numbers)), rel=ROUNDOFF)
            for place in range(len(given)):

                def along(value: mpmath.mpf, place: int = place, x: mpmath.mpf = x, n: list = numbers) -> mpmath.mpf:
                    return EXACT[name](x, *n[:place], value, *n[place + 1 :])

                slope = float(mpmath.diff(along, numbers[place]))
                assert float(slopes[place][row]) == pytest.approx(slope, rel=ROUNDOFF_LONG, abs=ROUNDOFF)


@pytest.mark.parametrize("name", list(DEPTH_LAWS))
def test_batches_broadcast(name: str) -> None:
    law = DEPTH_LAWS[name]
    columns = [np.array([[value], [1.01 * value]]) for value in values_of(law)]
    batch = law.function(DEPTHS, *columns)
    assert batch.shape == (2, DEPTHS.size)
    np.testing.assert_allclose(batch[0], law.function(DEPTHS, *values_of(law)), rtol=ROUNDOFF)
    for part in law.gradient(DEPTHS, *columns):
        assert np.broadcast_shapes(part.shape, batch.shape) == batch.shape


@pytest.mark.parametrize("name", [name for name in DEPTH_LAWS if name != "spectral"])
def test_every_law_tends_to_its_plateau(name: str) -> None:
    law = DEPTH_LAWS[name]
    far = 1e12 if name == "power" else 1e9
    assert float(law(far, **dict(zip(law.parameter_names, values_of(law), strict=True)))) == pytest.approx(
        VALUES["plateau"], abs=model_error(far, 0.8, constant=100)
    )


def test_ar1_is_the_average_over_its_covariance() -> None:
    for depth in (1, 2, 5, 30):
        lag = np.abs(np.subtract.outer(np.arange(depth), np.arange(depth)))
        for r in (0.0, 0.4, 0.98):
            assert float(depth_law("ar1")(depth, plateau=0.1, coefficient=2.0, correlation=r)) == pytest.approx(
                0.1 + ensemble_loss(2.0 * r**lag), rel=ROUNDOFF_LONG
            )


def test_ar1_without_correlation_is_inverse_depth() -> None:
    ar1 = depth_law("ar1")(DEPTHS, plateau=1.0, coefficient=2.0, correlation=0.0)
    np.testing.assert_allclose(ar1, depth_law("inverse-depth")(DEPTHS, plateau=1.0, coefficient=2.0), rtol=ROUNDOFF)


@pytest.mark.parametrize(
    "variables", [("depth",), ("width", "depth"), ("parameters", "tokens"), ("width", "depth", "tokens")]
)
def test_additive_laws(variables: tuple[str, ...]) -> None:
    law = additive_law(variables)
    columns = {name: np.array([3.0, 20.0, 500.0]) * (place + 1) for place, name in enumerate(variables)}
    given = {"plateau": 1.5}
    for place, name in enumerate(variables):
        given |= {f"{name}_coefficient": 2.0 + place, f"{name}_exponent": 0.4 + 0.3 * place}
    expected = 1.5 + sum(
        given[f"{name}_coefficient"] * columns[name] ** -given[f"{name}_exponent"] for name in variables
    )
    np.testing.assert_allclose(law(columns, **given), expected, rtol=ROUNDOFF)
    values = [given[name] for name in law.parameter_names]
    slopes = law.gradient(*columns.values(), *values)
    # A complex step of 1e-30 has no cancellation and no truncation.
    for place in range(len(values)):
        stepped = [complex(value) for value in values]
        stepped[place] += 1e-30j
        numeric = law.function(*columns.values(), *stepped).imag / 1e-30
        np.testing.assert_allclose(np.broadcast_to(slopes[place], numeric.shape), numeric, rtol=ROUNDOFF)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(ValueError, match="law='cubic'"):
        depth_law("cubic")
    with pytest.raises(ValueError, match="variables"):
        additive_law(("depth", "colour"))
    with pytest.raises(ValueError, match="different names"):
        additive_law(("depth", "depth"))
    with pytest.raises(ValueError, match="must be plateau, coefficient"):
        depth_law("inverse-depth")(3.0, plateau=1.0)


@pytest.mark.parametrize("law", [*DEPTH_LAWS.values(), additive_law(("width", "depth"))], ids=lambda law: law.name)
def test_every_law_says_what_it_is(law: DepthLaw) -> None:
    assert law.formula
    assert law.limits
    assert law.derivation
    for parameter in law.parameters:
        assert parameter.lower < parameter.upper
        assert parameter.scale in {"log", "linear"}
        assert parameter.lower >= 0 or parameter.scale == "linear"
        assert parameter.meaning
