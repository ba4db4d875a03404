"""Floors: the lowest loss that tied or untied gains of a given depth can reach.

Tied: the minimum of the loss over one gain. Untied: the minimum over polynomials q with deg q <= L and q(0) = 1, in the
population the Christoffel function of the measure sum_k lambda_k omega_k delta(lambda_k) at 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from theory.checks import FloatArray, integer
from theory.losses import QuadraticLoss, jackknife_error, quadratic_loss, tied
from theory.results import Result
from theory.task import Task

# Points of a measure closer than this, relatively, are one to the recurrence of its polynomials.
SAME_POINT = 1e-10


@dataclasses.dataclass(frozen=True)
class Floor(Result):
    """A lowest reachable loss.

    Parameters
    ----------
    loss : float
        The floor.
    standard_error : float
        Of its Wishart average, the optimism included; 0 in the population.
    gains : tuple of float, length depth
        Gains that reach it; empty if no real gains do (then the floor is a lower bound).
    optimism : float
        Half of what the optimum costs more on draws that it was not fitted to: the floor lies about this much higher.
        Where it is not small against the floor, the draws do not determine it: ask for more.
    """

    loss: float
    standard_error: float
    gains: tuple[float, ...]
    optimism: float = 0.0

    def __str__(self) -> str:
        return f"floor {self.loss:.6g} ± {self.standard_error:.2g}"


def tied_optimum(task: Task, depth: int, *, samples: int | None = None, seed: int = 0) -> Floor:
    """Return the minimum of the loss over one gain shared by ``depth`` layers.

    Raises
    ------
    ValueError
        For ``depth`` < 1 or a setting whose gains differ from mode to mode.
    """
    return tied_optimum_of(quadratic_loss(task, depth, samples=samples, seed=seed), depth)


def tied_optimum_of(loss: QuadraticLoss, depth: int) -> Floor:
    """Return the tied optimum of a quadratic form; see `tied_optimum`."""
    depth = integer("depth", depth)
    return _sampled_floor(
        loss,
        lambda part: tied(_tied_gain(part, depth), depth),
        QuadraticLoss.value,
        lambda gains: tuple(float(gain) for gain in gains),
    )


def _tied_gain(loss: QuadraticLoss, depth: int) -> float:
    """Return the gain at which the tied loss is lowest."""
    from scipy.optimize import brentq

    def slope(gain: float) -> float:
        return loss.tied_slope(gain, depth)

    low, high = 0.0, depth / float(loss.nodes.max())
    # Beyond 2 L / x_max the largest direction diverges; the slope is positive there unless it carries no signal.
    while slope(high) <= 0.0 and high < np.finfo(float).max / 4:
        low, high = high, 2.0 * high
    if slope(low) >= 0.0:
        return low
    return float(brentq(slope, low, high, xtol=4 * np.finfo(float).tiny, rtol=8 * np.finfo(float).eps))


def _sampled_floor(
    loss: QuadraticLoss,
    solve: Callable[[QuadraticLoss], FloatArray],
    cost: Callable[[QuadraticLoss, FloatArray], float],
    gains: Callable[[FloatArray], tuple[float, ...]],
) -> Floor:
    """Return the floor that ``solve`` finds on all draws, its error from optima without each block, and its optimism.

    With G_0 the average over all draws and G_b that without block b, the block itself is B G_0 - (B - 1) G_b.
    """

    def part(form: FloatArray | None, index: int, missed: bool = False) -> FloatArray | None:
        if form is None or loss.gram.ndim == 1:
            return form
        blocks = form.shape[0] - 1
        return blocks * form[:1] - (blocks - 1) * form[index, None] if missed else form[index, None]

    def replicate(index: int, missed: bool = False) -> QuadraticLoss:
        gram = part(loss.gram, index, missed)
        assert gram is not None
        return dataclasses.replace(loss, gram=gram, noise=part(loss.noise, index, missed))

    found = [solve(replicate(index)) for index in range(loss.replicates)]
    values = np.array([cost(replicate(index), solution) for index, solution in enumerate(found)])
    optimism = 0.0
    if len(found) > 1:
        # A few blocks can cost without bound where gains meet larger eigenvalues than they were fitted to.
        nothing = float(loss.gram[0].sum())
        held_out = [cost(replicate(index, missed=True), solution) for index, solution in enumerate(found) if index]
        optimism = max(float(np.minimum(held_out, nothing).mean()) - float(values[0]), 0.0) / 2.0
    error = float(np.hypot(jackknife_error(values), optimism))
    return Floor(float(values[0]), error, gains(found[0]), optimism)


def untied_floor(task: Task, depth: int, *, samples: int | None = None, seed: int = 0) -> Floor:
    """Return the minimum of the loss over ``depth`` free gains.

    In the population, 1 / sum_(j<=L) p_j(0)^2 with p_j orthonormal in sum_k lambda_k omega_k delta(lambda_k); zero once
    depth reaches the number of distinct positive eigenvalues. At finite context, least squares over polynomials.

    Raises
    ------
    ValueError
        For ``depth`` < 1 or a setting whose gains differ from mode to mode.
    """
    return untied_floor_of(quadratic_loss(task, depth, samples=samples, seed=seed), depth)


def untied_floor_of(loss: QuadraticLoss, depth: int) -> Floor:
    """Return the untied floor of a quadratic form; see `untied_floor`."""
    depth = integer("depth", depth)
    return _christoffel(loss, depth) if loss.gram.ndim == 1 else _least_squares(loss, depth)


def jacobi_matrix(nodes: FloatArray, weights: FloatArray, size: int) -> tuple[FloatArray, FloatArray]:
    """Return the Jacobi coefficients of the discrete measure sum_k weights_k delta(nodes_k), by Lanczos.

    Returns
    -------
    diagonal : array of shape (m,)
    off_diagonal : array of shape (m - 1,)
        m <= size; smaller when the measure has fewer distinct points that carry weight. Full reorthogonalisation keeps
        them accurate to rounding.
    """
    vectors = [np.sqrt(weights / weights.sum())]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    scale = float(np.abs(nodes).max())
    for _ in range(size):
        step = nodes * vectors[-1]
        diagonal.append(float(vectors[-1] @ step))
        basis = np.stack(vectors)
        for _ in range(2):
            step = step - basis.T @ (basis @ step)
        norm = float(np.linalg.norm(step))
        if len(diagonal) == size or norm <= 64 * np.finfo(float).eps * scale:
            break
        off_diagonal.append(norm)
        vectors.append(step / norm)
    return np.array(diagonal), np.array(off_diagonal)


def _christoffel(loss: QuadraticLoss, depth: int) -> Floor:
    """Return the population floor: the extremal polynomial vanishes at the Gauss nodes of the measure x dmu(x).

    Minimality of q in int q^2 dmu with q(0) = 1 means int q r x dmu = 0 for every r of lower degree, so the zeros of q
    are the nodes of the L-point Gauss rule of x dmu, all inside the support: real gains gamma_l = L / node_l reach it.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    weights = loss.gram * loss.nodes
    carried = weights > 0
    distinct = int(np.unique(loss.nodes[carried]).size)
    if depth >= distinct:
        zeros = np.unique(loss.nodes[carried])
        gains = np.concatenate([depth / zeros, np.zeros(depth - distinct)])
        return Floor(0.0, 0.0, tuple(float(gain) for gain in gains))
    diagonal, off_diagonal = jacobi_matrix(loss.nodes[carried], weights[carried], depth)
    gains = depth / eigvalsh_tridiagonal(diagonal, off_diagonal)
    gains = np.concatenate([gains, np.zeros(depth - gains.size)])
    return Floor(_christoffel_function(loss, depth), 0.0, tuple(float(gain) for gain in gains[::-1]))


def _christoffel_function(loss: QuadraticLoss, depth: int) -> float:
    """Return 1 / sum_(j<=L) p_j(0)^2 from the recurrence of the orthonormal polynomials.

    The loss of the gains themselves will not do: where large eigenvalues stand apart, q must vanish on them more
    exactly than rounded gains can make it, and the product over layers magnifies the rest without bound. Where the
    recurrence ends early, only its few points carry weight to within rounding: q vanishes on them, and what the other
    modes hold is the floor.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    carried = loss.gram > 0
    diagonal, off_diagonal = jacobi_matrix(loss.nodes[carried], loss.gram[carried], depth + 1)
    if diagonal.size <= depth:
        points = eigvalsh_tridiagonal(diagonal, off_diagonal)
        apart = np.abs(np.subtract.outer(loss.nodes, points)).min(axis=1) > SAME_POINT * loss.nodes
        rest = np.prod(1.0 - np.multiply.outer(loss.nodes, 1 / points), axis=1)
        return float(np.sum((loss.gram * rest**2)[apart]))
    before, value, total = 0.0, 1.0, 1.0
    for j, step in enumerate(off_diagonal):
        before, value = value, -(diagonal[j] * value + (off_diagonal[j - 1] * before if j else 0.0)) / step
        total += value**2
    return float(loss.gram.sum() / total)


def _least_squares(loss: QuadraticLoss, depth: int) -> Floor:
    """Return the finite-context floor: q = 1 - x r(x), linear least squares for r of degree < depth."""
    nodes = loss.nodes
    top = float(nodes.max())
    basis = np.polynomial.chebyshev.chebvander(2.0 * nodes / top - 1.0, depth - 1)
    one = np.ones_like(nodes)

    def solve(part: QuadraticLoss) -> FloatArray:
        root = _square_root(part.gram[0])
        rows, target = root @ (nodes[:, None] * basis), root @ one
        if part.noise is not None:
            rows = np.vstack([rows, _square_root(part.noise[0]) @ basis])
            target = np.concatenate([target, np.zeros(nodes.size)])
        return np.asarray(np.linalg.lstsq(rows, target, rcond=None)[0], dtype=np.float64)

    def cost(part: QuadraticLoss, coefficients: FloatArray) -> float:
        r = basis @ coefficients
        q = one - nodes * r
        value = q @ part.gram[0] @ q
        return float(value if part.noise is None else value + r @ part.noise[0] @ r)

    return _sampled_floor(loss, solve, cost, lambda best: _real_gains(best, top, depth))


def _real_gains(coefficients: FloatArray, top: float, depth: int) -> tuple[float, ...]:
    """Return gamma_l = L / zero_l of q = 1 - x r(x), largest first; empty if a zero is not real."""
    chebyshev = np.polynomial.chebyshev
    # x = top (u + 1) / 2 in the Chebyshev variable u.
    q = -chebyshev.chebmul([top / 2, top / 2], coefficients)
    q[0] += 1.0
    zeros = top * (chebyshev.chebroots(chebyshev.chebtrim(q, tol=1e-300)) + 1.0) / 2.0
    if np.any(np.abs(zeros.imag) > 1e-8 * np.abs(zeros)) or np.any(zeros.real == 0):
        return ()
    gains = np.sort(depth / zeros.real)[::-1]
    return tuple(float(gain) for gain in np.concatenate([gains, np.zeros(depth - gains.size)]))


def _square_root(matrix: FloatArray) -> FloatArray:
    """Return R with R^T R = matrix for a positive semi-definite matrix."""
    values, basis = np.linalg.eigh(matrix)
    return np.sqrt(np.clip(values, 0.0, None))[:, None] * basis.T
