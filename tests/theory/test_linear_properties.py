"""Linear theory over drawn spectra, depths and contexts: repeated and zero modes, 300 decades, t = 1e15."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER, sampling
from theory import Spectrum, Task, predict, quadratic_loss, tied_optimum, untied_floor
from theory.equivalents import deterministic_limit
from theory.losses import tied

# Eigenvalues over 300 decades, repeated ones, and zeros, beside one that carries signal.
eigenvalues = st.lists(
    st.one_of(
        st.floats(0.0, 5.0),
        st.sampled_from([0.0, 1.0, 1.0, 0.5]),
        st.floats(-300.0, 0.0).map(lambda exponent: 10.0**exponent),
    ),
    max_size=6,
).map(lambda rest: [1.0, *rest])
depths = st.integers(1, 9)
# Small enough that the average over a context of one token has no heavy tail.
GAIN = 0.1
LONG = np.concatenate([[0.0], np.logspace(-3, 15, 25)])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(lam=eigenvalues, depth=depths, gains=st.lists(st.floats(-1.0, 8.0), min_size=9, max_size=9))
def test_loss_is_the_sum_at_fifty_digits(lam: list[float], depth: int, gains: list[float]) -> None:
    spectrum = Spectrum(lam)
    with mpmath.workdps(50):
        total = mpmath.mpf(0)
        for x, power in zip(spectrum.eigenvalues, spectrum.task_power, strict=True):
            q = mpmath.fprod(1 - mpmath.mpf(g) * mpmath.mpf(float(x)) / depth for g in gains[:depth])
            total += mpmath.mpf(float(x)) * mpmath.mpf(float(power)) * q**2
    # Factors near zero lose the digits that cancel in 1 - gamma x/L.
    scale = float(total) + ROUNDOFF
    assert abs(quadratic_loss(Task(spectrum), depth).value(gains[:depth]) - float(total)) <= ROUNDOFF_LONG * scale


@settings(max_examples=100, deadline=None, derandomize=True)
@given(lam=eigenvalues, depth=depths, setting=st.sampled_from(["rrs", "fs"]))
def test_flows_last_to_the_end_of_time(lam: list[float], depth: int, setting: str) -> None:
    task = Task(Spectrum(lam), setting)
    found = predict(task, depth, times=LONG)
    assert np.all(np.isfinite(found.loss))
    assert np.all(np.isfinite(found.gains))
    assert np.all(np.diff(found.loss) <= ROUNDOFF * found.loss[:-1])
    assert np.all(found.gains == found.gains[:, :1])
    if setting == "rrs":
        assert found.loss[-1] >= found.floor["tied"].loss * (1 - ROUNDOFF_LONG) - ROUNDOFF
        assert found.floor["untied"].loss <= found.floor["tied"].loss * (1 + ROUNDOFF_LONG) + ROUNDOFF


@settings(max_examples=15, deadline=None, derandomize=True)
@given(lam=eigenvalues, depth=st.integers(1, 5), context=st.integers(1, 30), noise=st.sampled_from([0.0, 0.5]))
def test_finite_context_flows_last_too(lam: list[float], depth: int, context: int, noise: float) -> None:
    task = Task(Spectrum(lam), "rrs", context, noise)
    for deterministic in (False, True):
        found = predict(task, depth, times=LONG, samples=120, deterministic=deterministic)
        assert np.all(np.isfinite(found.loss))
        assert np.all(np.diff(found.loss) <= ROUNDOFF_LONG * found.loss[:-1])
        assert np.all(found.gains == found.gains[:, :1])
        assert found.loss[-1] == pytest.approx(found.floor["tied"].loss, rel=10 * SOLVER)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(lam=eigenvalues, context=st.integers(1, 8), depth=st.integers(1, 3))
def test_wishart_average_agrees_with_drawn_tokens(lam: list[float], context: int, depth: int) -> None:
    rng = np.random.default_rng(depth * 1000 + context)
    task = Task(Spectrum(lam), "rrs", context)
    loss = quadratic_loss(task, depth, samples=1500)
    rows = rng.standard_normal((3000, context, task.dim)) * np.sqrt(task.spectrum.eigenvalues)
    step = np.eye(task.dim) - GAIN / depth * rows.transpose(0, 2, 1) @ rows / context
    maps = np.linalg.matrix_power(step, depth)
    values = np.einsum("i,sij,j,sij->s", task.spectrum.eigenvalues, maps, task.spectrum.task_power, maps)
    gains = tied(GAIN, depth)
    spread = np.hypot(values.std() / np.sqrt(3000), loss.standard_error(gains))
    assert abs(values.mean() - loss.value(gains)) <= sampling(spread) + ROUNDOFF
    limit = deterministic_limit(task, depth)
    assert np.isfinite(limit.loss(gains))
    assert np.isfinite(limit.missing(gains))


def test_a_mode_of_negligible_weight_is_what_the_floor_keeps() -> None:
    spectrum = Spectrum([3.0, 2.0, 1.0, 1e-41])
    floor = untied_floor(Task(spectrum), 3)
    assert floor.loss == pytest.approx(spectrum.signal[3], rel=ROUNDOFF_LONG)
    assert untied_floor(Task(spectrum), 2).loss > 1e-4
    assert len(floor.gains) == 3


def test_gradient_of_the_gains_is_the_autograd_gradient_of_the_trained_loss(rng: np.random.Generator) -> None:
    """The full matrices of the reduced model, at Gamma_l = gamma_l I: the trace of each layer's gradient."""
    torch = pytest.importorskip("torch")
    spectrum, gains = Spectrum.power_law(4, 1.2, 0.7), np.array([0.5, 1.7, 0.2])
    turn = torch.tensor(np.linalg.qr(rng.standard_normal((4, 4)))[0])
    sigma = turn @ torch.diag(torch.tensor(spectrum.eigenvalues.copy())) @ turn.T
    omega = turn @ torch.diag(torch.tensor(spectrum.task_power.copy())) @ turn.T
    gamma = [torch.nn.Parameter(gain * torch.eye(4, dtype=torch.float64)) for gain in gains]
    residual = torch.eye(4, dtype=torch.float64)
    for layer in gamma:
        residual = residual - layer @ sigma @ residual / 3
    loss = torch.trace(sigma @ residual @ omega @ residual.T)
    loss.backward()
    form = quadratic_loss(Task(spectrum), 3)
    assert loss.item() == pytest.approx(form.value(gains), rel=ROUNDOFF)
    traces = [torch.trace(layer.grad).item() for layer in gamma]
    np.testing.assert_allclose(form.gradient(gains), traces, rtol=ROUNDOFF_LONG)


@pytest.mark.parametrize("context", [None, 1])
def test_one_mode_one_layer_one_token(context: int | None) -> None:
    task = Task(Spectrum([2.0]), "rrs", context)
    # S = 2 chi^2_1: E S = 2, E S^2 = 12 at one token; the population has S = 2.
    second = 4.0 if context is None else 12.0
    floor = 1 - 4.0 / second
    assert tied_optimum(task, 1).loss == pytest.approx(floor, abs=ROUNDOFF)
    assert untied_floor(task, 1).loss == pytest.approx(floor, abs=ROUNDOFF)


@pytest.mark.parametrize("lam", [[1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 1e-150, 1e-300], [1e-200, 1e-201]])
@pytest.mark.parametrize("setting", ["rrs", "fs"])
@pytest.mark.parametrize("context", [None, 2])
def test_every_option_answers_degenerate_spectra(lam: list[float], setting: str, context: int | None) -> None:
    task = Task(Spectrum(lam), setting, context, 0.1)
    times = [0.0, 1.0, 1e3]
    options: list[dict[str, object]] = [
        {"times": times},
        {"times": times, "untied": True, "break_size": 1e-3},
        {"times": times, "half_times": True},
        {"times": times, "width": 1},
        {"steps": [0, 2], "method": "sgd", "learning_rate": 0.1},
    ]
    if setting == "rrs" or context is None:
        options.append({"times": times, "deterministic": True})
        options.append({"times": times, "start": "merged"})
    for option in options:
        found = predict(task, 2, samples=60, **option)  # type: ignore[arg-type]
        assert np.all(np.isfinite(found.loss)), option
        assert np.all(np.diff(found.loss) <= ROUNDOFF_LONG), option
        found.to_json()
