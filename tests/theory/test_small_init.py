from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

from tests.tolerances import ROUNDOFF, ROUNDOFF_LONG, SOLVER, model_error, sampling
from theory import Spectrum, Task, quadratic_loss
from theory import small_init_flows as flows
from theory import small_init_heads as heads
from theory.floors import tied_optimum_of
from theory.small_init import haar_quadratic, one_layer_loss, plateaus
from theory.wishart import second_moment

# Starts of 0.01 and 0.02 are not infinitely small: what they leave of a plateau and of a 1/size law.
FINITE_START = 0.02
LAMBDA = [1.0, 0.6, 0.35]


def paper_task(context: int | None = 8, eigenvalues: list[float] | None = None, noise: float = 0.0) -> Task:
    """w ~ N(0, I): task power one, not normalised."""
    lam = LAMBDA if eigenvalues is None else eigenvalues
    return Task(Spectrum(lam, np.ones(len(lam)), normalise=False), "fs", context, noise)


def matrix_loss(task: Task, U: np.ndarray) -> float:
    """The exact loss of a full matrix U from the Gaussian moments, nothing diagonal assumed."""
    lam, omega = np.diag(task.spectrum.eigenvalues), np.diag(task.spectrum.task_power)
    p = np.inf if task.context is None else task.context
    moment = lam @ omega @ lam * (1 + 1 / p) + (np.trace(lam @ omega) + task.label_noise) * lam / p
    return float(np.trace(lam @ omega) - 2 * np.trace(U @ lam @ omega @ lam) + np.trace(U.T @ lam @ U @ moment))


@settings(max_examples=30, deadline=None)
@given(
    lam=st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=6),
    context=st.one_of(st.none(), st.integers(1, 1000)),
    learned=st.integers(0, 6),
)
def test_plateaus_are_the_published_formula(lam: list[float], context: int | None, learned: int) -> None:
    task = paper_task(context, lam)
    m = min(learned, len(lam))
    ordered = sorted(lam, reverse=True)
    inverse = 0.0 if context is None else 1 / context
    expected = sum(lam) - sum(x / (1 + (1 + sum(lam) / x) * inverse) for x in ordered[:m])
    np.testing.assert_allclose(plateaus(task).loss[m], expected, rtol=ROUNDOFF, atol=ROUNDOFF * sum(lam))


def test_the_quadratic_loss_is_that_of_sampled_contexts(rng: np.random.Generator) -> None:
    task = paper_task(5, noise=0.4)
    gains = np.array([0.5, 0.3, 0.8])
    lam = task.spectrum.eigenvalues
    rows = rng.standard_normal((40000, 5, 3)) * np.sqrt(lam)
    w = rng.standard_normal((40000, 3))
    labels = np.einsum("spi,si->sp", rows, w) + np.sqrt(0.4) * rng.standard_normal((40000, 5))
    beta = np.einsum("spi,sp->si", rows, labels) / 5
    losses = ((w - gains * beta) ** 2) @ lam
    form = one_layer_loss(task)
    exact = form.total - 2 * gains @ form.drive + gains**2 @ form.curvature
    np.testing.assert_allclose(exact, matrix_loss(task, np.diag(gains)), rtol=ROUNDOFF)
    assert abs(losses.mean() - exact) <= sampling(losses.std() / 200)


def test_the_flow_of_the_factors_is_the_autograd_gradient_of_the_loss(rng: np.random.Generator) -> None:
    torch = pytest.importorskip("torch")
    task = paper_task(4)
    lam = torch.tensor(task.spectrum.eigenvalues.copy())
    moment = torch.diag(torch.tensor(second_moment(task)))
    v = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    w = torch.tensor(rng.standard_normal(3), requires_grad=True)
    U = v * torch.diag(w)
    drive = torch.diag(lam**2)
    loss = lam.sum() - 2 * torch.trace(U @ drive) + torch.trace(U.T @ torch.diag(lam) @ U @ moment)
    loss.backward()
    form = one_layer_loss(task)
    force = form.drive - v.item() * form.curvature * w.detach().numpy()
    np.testing.assert_allclose(-v.grad.item(), 2 * w.detach().numpy() @ force, rtol=ROUNDOFF)
    np.testing.assert_allclose(-w.grad.numpy(), 2 * v.item() * force, rtol=ROUNDOFF)


def integrate_factors(
    task: Task,
    factors: list[np.ndarray],
    times: np.ndarray,
    *,
    merged: bool,
    accuracy: float = 1e-11,
    method: str = "DOP853",
) -> np.ndarray:
    """Loss along the full gradient flow of every matrix entry (DOP853), all heads coupled."""
    lam, omega = np.diag(task.spectrum.eigenvalues), np.diag(task.spectrum.task_power)
    moment = np.diag(second_moment(task))
    dim = task.dim
    count = len(factors)

    def unpack(state: np.ndarray) -> list[tuple[np.ndarray, ...]]:
        parts = state.reshape(count, -1)
        if merged:
            return [(p[0], p[1:].reshape(dim, dim)) for p in parts]
        return [(p[0], p[1 : dim + 1], p[dim + 1 :]) for p in parts]

    def total(state: np.ndarray) -> np.ndarray:
        if merged:
            return sum(v * w for v, w in unpack(state))
        return sum(v * np.outer(k, q) for v, k, q in unpack(state))

    def velocity(_t: float, state: np.ndarray) -> np.ndarray:
        U = total(state)
        force = 2 * (lam @ omega @ lam - lam @ U @ moment)
        out = []
        for part in unpack(state):
            if merged:
                v, w = part
                out.append(np.concatenate([[np.sum(force * w)], (v * force).ravel()]))
            else:
                v, k, q = part
                out.append(np.concatenate([[k @ force @ q], v * force @ q, v * force.T @ k]))
        return np.concatenate(out)

    start = np.concatenate([np.asarray(f).ravel() for f in factors])
    solution = solve_ivp(velocity, (0, times[-1]), start, method=method, t_eval=times, rtol=accuracy, atol=1e-15)
    return np.array([matrix_loss(task, total(s)) for s in solution.y.T])


def test_merged_curve_is_the_flow_of_the_full_matrix() -> None:
    task = paper_task(8)
    drive = task.spectrum.eigenvalues**2
    times = np.linspace(0.5, 12, 12)
    start = np.concatenate([[1e-3], (1e-3 * np.diag(drive) / np.linalg.norm(drive)).ravel()])
    expected = integrate_factors(task, [start], times, merged=True)
    curve = flows.merged_flow(task, times, size=1e-3)
    np.testing.assert_allclose(curve.loss, expected, rtol=1e3 * SOLVER)
    half = one_layer_loss(task)
    at_drop = flows.merged_flow(task, [curve.drop_time[0]], size=1e-3).loss[0]
    np.testing.assert_allclose(at_drop, (half.total + half.floor) / 2, rtol=1e3 * SOLVER)


def test_a_random_small_start_becomes_the_balanced_one(rng: np.random.Generator) -> None:
    task = paper_task(8)
    v, w = rng.standard_normal(), rng.standard_normal((3, 3))
    errors = []
    for size in (1e-2, 1e-3):
        effective = flows.merged_start(task, size * v, size * w)
        moment = flows.merged_drop_time(task, effective)
        start = np.concatenate([[size * v], (size * w).ravel()])
        times = np.array([0.98 * moment, moment, 1.02 * moment])
        found = integrate_factors(task, [start], times, merged=True)[1]
        form = one_layer_loss(task)
        errors.append(abs(found - (form.total + form.floor) / 2))
    # Entries of W orthogonal to the drive neither grow nor shrink at first: a relative error of the order of the size.
    assert errors[1] < errors[0] / 8
    assert errors[1] <= model_error(1e3, 1.0)


def test_merged_drop_time_is_logarithmic_in_the_start() -> None:
    task = paper_task(8)
    sizes = 10.0 ** -np.arange(2, 200, 30)
    moments = np.array([flows.merged_drop_time(task, s) for s in sizes])
    slopes = np.diff(moments) / np.diff(np.log(1 / sizes))
    np.testing.assert_allclose(slopes[1:], 1 / flows.merged_rate(task), rtol=ROUNDOFF_LONG)
    np.testing.assert_allclose(slopes[0], 1 / flows.merged_rate(task), rtol=sizes[0] ** 2)


@pytest.mark.parametrize("depth", [2, 4])
def test_merged_layers_are_the_flow_of_every_factor(depth: int) -> None:
    task = paper_task(None)
    lam, size = task.spectrum.eigenvalues, 1e-2
    times = np.linspace(1.0, 25.0, 7)
    drive = lam**2

    def speed(_t: float, flat: np.ndarray) -> np.ndarray:
        parts = flat.reshape(depth, 4)
        factors = 1 - parts[:, :1] * parts[:, 1:] * lam / depth
        slopes = [
            -2 / depth * drive * np.prod(factors, axis=0) * np.prod(np.delete(factors, m, 0), axis=0)
            for m in range(depth)
        ]
        return np.concatenate([np.append(-slopes[m] @ parts[m, 1:], -slopes[m] * parts[m, 0]) for m in range(depth)])

    one = np.append(size, size * drive / np.linalg.norm(drive))
    found = solve_ivp(speed, (0, 25), np.tile(one, depth), t_eval=times, method="DOP853", rtol=1e-11, atol=1e-14).y.T
    parts = found.reshape(-1, depth, 4)
    expected = np.prod(1 - parts[:, :, :1] * parts[:, :, 1:] * lam / depth, axis=1) ** 2 @ lam
    curve = flows.merged_flow(task, times, size=size, depth=depth)
    np.testing.assert_allclose(curve.loss, expected, rtol=1e3 * SOLVER)
    tiny = [flows.merged_drop_time(task, s, depth) for s in (1e-50, 1e-90)]
    np.testing.assert_allclose(np.diff(tiny), 40 * np.log(10) / flows.merged_rate(task, depth), rtol=ROUNDOFF_LONG)


@pytest.mark.parametrize(("context", "depth"), [(None, 1), (None, 3), (20, 4)])
def test_merged_layers_in_turning_contexts_follow_their_factors(context: int | None, depth: int) -> None:
    loss = quadratic_loss(Task(Spectrum.power_law(6, 1.0, 0.8), "rrs", context), depth, samples=100)
    times, size, root = np.array([0.0, 3.0, 20.0, 60.0]), 0.05, np.sqrt(6)

    def speed(_t: float, state: np.ndarray) -> np.ndarray:
        slope = loss.gradient(np.full(depth, state[0] * state[1] / root)).mean()
        return -slope / root * state[::-1]

    found = solve_ivp(speed, (0, 60), [size, size], t_eval=times, method="DOP853", rtol=1e-11, atol=1e-14).y
    curve = flows.merged_gain_flow(loss, depth, times, size=size)
    np.testing.assert_allclose(curve.gains[:, 0], found[0] * found[1] / root, rtol=1e3 * SOLVER)
    late = flows.merged_gain_flow(loss, depth, [1e15], size=1e-100)
    np.testing.assert_allclose(late.loss[-1], tied_optimum_of(loss, depth).loss, rtol=ROUNDOFF)
    assert np.isfinite(late.drop_time[0])


@pytest.mark.parametrize("dim", [1, 4])
def test_equal_eigenvalues_give_the_logistic_curve(dim: int) -> None:
    task = Task(Spectrum(np.ones(dim), np.ones(dim), normalise=False), "iso", 6)
    times = np.linspace(0, 6, 25)
    curve = flows.merged_flow(task, times, size=1e-2)
    expected = flows.logistic_gain(task, times, size=1e-2)
    np.testing.assert_allclose(curve.gains, np.repeat(expected[:, None], dim, axis=1), rtol=1e3 * SOLVER)


def test_separate_heads_follow_the_flow_of_the_full_matrices() -> None:
    task = paper_task(8)
    size = 0.08
    starts = [np.concatenate([[size], size * np.eye(3)[d], size * np.eye(3)[d]]) for d in range(3)]
    curve_times = np.linspace(1.0, 90.0, 30)
    expected = integrate_factors(task, starts, curve_times, merged=False)
    curve = heads.heads_flow(task, curve_times, size=size)
    np.testing.assert_allclose(curve.loss, expected, rtol=1e3 * SOLVER)
    assert np.all(np.diff(curve.drop_time) > 0)


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_head_clock_is_the_integral_of_its_velocity(depth: int) -> None:
    lam = 0.7
    task = paper_task(None, [lam])
    size, progress = 0.05, 0.9
    final = mpmath.cbrt(depth / mpmath.mpf(lam))
    with mpmath.workdps(30):
        end = final * mpmath.cbrt(progress)
        speed = lambda s: 2 / mpmath.mpf(depth) * s**2 * lam**2 * (1 - s**3 / final**3) ** (2 * depth - 1)  # noqa: E731
        expected = float(mpmath.quad(lambda s: 1 / speed(s), mpmath.linspace(size, end, 8)))
    found = heads.head_times(task, progress, size=size, depth=depth)[0]
    np.testing.assert_allclose(found, expected, rtol=ROUNDOFF_LONG)
    loss = heads.heads_flow(task, [expected], size=size, depth=depth).loss[0]
    np.testing.assert_allclose(loss, lam * (1 - progress) ** (2 * depth), rtol=1e2 * ROUNDOFF_LONG)


def test_drops_wait_for_a_time_inverse_to_the_start() -> None:
    task = paper_task(8)
    for size in (1e-3, 1e-6, 1e-90):
        moments = heads.heads_flow(task, [1.0], size=size).drop_time
        leading = 1 / (2 * task.spectrum.eigenvalues**2 * size)
        np.testing.assert_allclose(moments, leading, rtol=model_error(1 / size, 1.0) + ROUNDOFF)


def test_a_random_small_start_passes_the_predicted_saddles(rng: np.random.Generator) -> None:
    task = paper_task(8, [1.0, 0.3])
    curves = {}
    starts = [rng.standard_normal(5) for _ in range(2)]
    for size in (0.02, 0.01):
        times = np.linspace(0.0, 60 / size, 3000)[1:]
        curves[size] = (
            times,
            integrate_factors(task, [size * h for h in starts], times, merged=False, accuracy=1e-8, method="LSODA"),
        )
    levels = plateaus(task).loss
    for times, loss in curves.values():
        assert np.all(np.diff(loss) <= FINITE_START**4)
        speed = -np.gradient(loss, times)
        # Slowest while the loss is between two drops: that is where it rests.
        for upper, lower, rest in ((levels[0], levels[1], levels[1]),):
            between = (loss < (upper + lower) / 2) & (loss > (levels[1] + levels[2]) / 2)
            assert between.any()
            assert abs(loss[between][np.argmin(speed[between])] - rest) <= FINITE_START * (levels[1] - levels[2])
    crossing = [t[np.argmax(c < (levels[0] + levels[1]) / 2)] for t, c in curves.values()]
    assert abs(crossing[1] / crossing[0] - 2) <= 5 * FINITE_START


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_the_rotation_average_is_that_of_sampled_rotations(dim: int, rng: np.random.Generator) -> None:
    lam = np.linspace(1.0, 0.2, dim)
    task = Task(Spectrum(lam, np.ones(dim), normalise=False), "rrs", 6)
    own, cross = haar_quadratic(task)
    U = np.diag(rng.uniform(0.2, 1.0, dim))
    basis, upper = np.linalg.qr(rng.standard_normal((20000, dim, dim)))
    basis = basis * np.sign(np.diagonal(upper, axis1=1, axis2=2))[:, None, :]
    a = np.einsum("sij,j,skj->sik", basis, lam, basis)
    b = np.einsum("sij,j,skj->sik", basis, second_moment(task), basis)
    values = np.einsum("ij,sjk,kl,sli->s", U.T, a, U, b)
    expected = own * np.trace(U @ U) + cross * np.trace(U) ** 2
    assert abs(values.mean() - expected) <= sampling(values.std() / np.sqrt(values.size)) + ROUNDOFF
    full = plateaus(task).loss[-1]
    drive = lam**2
    np.testing.assert_allclose(full, lam.sum() - drive.sum() ** 2 / (lam @ second_moment(task)), rtol=ROUNDOFF)


def test_long_times_and_wide_spectra_stay_finite_and_never_rise() -> None:
    times = np.concatenate([[0.0], np.logspace(-3, 15, 60)])
    for depth in (1, 3):
        curve = heads.heads_flow(paper_task(None, [1.0, 1e-3, 1e-150, 1e-300, 0.0]), times, size=1e-4, depth=depth)
        assert np.all(np.isfinite(curve.loss))
        assert np.all(np.diff(curve.loss) <= 0)
    merged = flows.merged_flow(paper_task(8), times, size=1e-3)
    assert np.all(np.isfinite(merged.loss))
    assert np.all(np.diff(merged.loss) <= ROUNDOFF_LONG * merged.loss[0])
    np.testing.assert_allclose(merged.loss[-1], one_layer_loss(paper_task(8)).floor, rtol=ROUNDOFF_LONG)


def test_what_the_theory_does_not_cover_is_refused() -> None:
    rrs = Task(Spectrum(LAMBDA), "rrs", 8)
    with pytest.raises(ValueError, match="setting='rrs'"):
        one_layer_loss(rrs)
    with pytest.raises(ValueError, match="context=8"):
        heads.heads_flow(paper_task(8), [1.0], size=0.01, depth=2)
    with pytest.raises(ValueError, match="size"):
        heads.heads_flow(paper_task(8), [1.0], size=5.0)
    with pytest.raises(ValueError, match="modes that differ"):
        flows.logistic_gain(paper_task(8), [1.0], size=0.1)
    with pytest.raises(ValueError, match="W has shape"):
        flows.merged_start(paper_task(8), 0.1, np.eye(2))
