"""Flow and recursion against reference values, closed forms, another solver and each other."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import solve_ivp

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER
from theory import Spectrum, Task, predict, quadratic_loss
from theory.flow import tied_flow, tied_sgd

# Independent reference values: dim 1000, capacity 1.5, source 1, depth 8, infinite context.
FLOW = {1e1: 0.9967568172823, 1e3: 0.7605508201203, 1e5: 0.1099406699341, 1e7: 0.0244220095161}
# Half-width of the band for a measured first-order rate.
RATE_BAND = 0.05


def test_tied_flow_matches_reference() -> None:
    prediction = predict(Task(Spectrum.power_law(1000, 1.5, 1.0)), 8, times=list(FLOW))
    np.testing.assert_allclose(prediction.loss, list(FLOW.values()), rtol=SOLVER)


def test_depth_one_flow_is_an_exponential() -> None:
    spectrum = Spectrum.power_law(5, 1.0, 0.5)
    second, third = (float(np.sum(spectrum.signal * spectrum.eigenvalues**m)) for m in (1, 2))
    times = np.array([0.5, 3.0, 20.0])
    gain = second / third * (1 - np.exp(-2 * third / 5 * times))
    path = tied_flow(quadratic_loss(Task(spectrum), 1), 1, times)
    np.testing.assert_allclose(path.gains[0], gain, rtol=SOLVER)


def test_tied_flow_is_the_flow_of_all_layers() -> None:
    """The L coupled equations, integrated by another method from the same start, stay tied and agree."""
    loss = quadratic_loss(Task(Spectrum.power_law(6, 1.4, 0.6), "rrs", 12, 0.1), 3, samples=100)
    times = np.array([1.0, 30.0])
    layers = solve_ivp(
        lambda _, g: -loss.gradient(g) / 6,
        (0, 30),
        np.zeros(3),
        method="DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-14,
    )
    path = tied_flow(loss, 3, times)
    np.testing.assert_allclose(layers.y, np.broadcast_to(path.gains[0], (3, 2)), rtol=SOLVER)


@pytest.mark.parametrize(("context", "noise"), [(None, 0.0), (10, 0.0), (10, 0.4)])
def test_sgd_recursion_is_the_plain_loop(context: int | None, noise: float) -> None:
    loss = quadratic_loss(Task(Spectrum.power_law(6, 1.4, 0.6), "rrs", context, noise), 3, samples=100)
    gains = np.zeros(3)
    for _ in range(50):
        gains = gains - 1.5 / 6 * loss.gradient(gains)
    path = tied_sgd(loss, 3, 1.5, np.array([0, 50]))
    assert path.gains[0, 1] == pytest.approx(gains[0], rel=ROUNDOFF)
    assert path.losses[0, 1] == pytest.approx(loss.value(gains), rel=ROUNDOFF)


def test_small_steps_approach_the_flow_at_first_order() -> None:
    loss = quadratic_loss(Task(Spectrum.power_law(10, 1.0, 1.0)), 4)
    exact = tied_flow(loss, 4, np.array([20.0])).losses[0, 0]
    rates = np.array([0.4, 0.2, 0.1])
    errors = [abs(tied_sgd(loss, 4, rate, np.array([round(20 / rate)])).losses[0, 0] - exact) for rate in rates]
    slope = np.polyfit(np.log(rates), np.log(errors), 1)[0]
    assert abs(slope - 1) <= RATE_BAND


def test_divergence_is_a_sentence_not_a_number() -> None:
    prediction = predict(Task(Spectrum.isotropic(2), "iso"), 3, method="sgd", learning_rate=1e3, steps=[0, 1000])
    assert np.isnan(prediction.loss[1])
    assert "Diverged by step 1000" in prediction.status
    assert prediction.to_dict()["loss"] == [pytest.approx(1.0, rel=ROUNDOFF), None]


def test_last_time_is_exactly_the_one_asked_for() -> None:
    times = np.geomspace(1e-3, 11.0040020010005, 50)
    times[-1] = 11.0040020010005
    prediction = predict(Task(Spectrum.isotropic(2), "iso"), 1, times=times)
    assert prediction.time[-1] == 11.0040020010005
    # gamma = 1 - exp(-2 t / D), and the loss is (1 - gamma)^2.
    np.testing.assert_allclose(prediction.loss, np.exp(-2 * times), rtol=ROUNDOFF_LONG * 10)


def test_losses_below_the_rounding_of_a_gain_are_marked_and_not_drawn():
    """One isotropic mode at depth 1: loss = exp(-4 t), but 1 - gamma is a rounding from t = 17 on."""
    times = np.array([1.0, 5.0, 9.0, 20.0, 50.0])
    found = predict(Task(Spectrum.isotropic(1), "iso"), 1, times=times)
    marked = np.array(found.notes["below_rounding"])
    assert marked.tolist() == [False, False, False, True, True]
    lost = 1e-6
    assert found.loss[~marked] == pytest.approx(np.exp(-4 * times[~marked]), rel=lost)
    assert "From 20 on" in found.status
    drawn = found.plot().lines[0]
    assert drawn.get_xdata().tolist() == times[~marked].tolist()
    assert "below_rounding" not in predict(Task(Spectrum.isotropic(1), "iso"), 1, times=[1.0]).notes


def test_flow_with_rare_contexts_equals_the_untransformed_equation():
    """Stretched draws have nodes of 20 whose terms cancel; the gain's own equation is not stiff before its optimum."""
    task = Task(Spectrum.power_law(6, 1.0, 1.0), "rrs", 3)
    loss = quadratic_loss(task, 4, samples=64)
    times = np.array([1.0, 10.0, 30.0, 100.0, 300.0])

    def slope(_: float, gain: np.ndarray) -> list[float]:
        return [-float(loss.gradient(np.full(4, gain[0])).mean()) / loss.dim]

    whole = solve_ivp(slope, (0, 300), [0.0], method="DOP853", t_eval=times, rtol=1e-12, atol=1e-14)
    path = tied_flow(loss, 4, times)
    assert path.gains[0] == pytest.approx(whole.y[0], rel=10 * SOLVER)
    assert path.losses[0] == pytest.approx([loss.value(np.full(4, gain)) for gain in whole.y[0]], rel=10 * SOLVER)
