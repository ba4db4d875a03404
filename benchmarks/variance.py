"""Variance of the Wishart-averaged loss: plain draws against antithetic ones and against known moments regressed out.

Run ``python -m benchmarks.variance``. A gain of g means that as many draws give what g times as many plain ones would.
"""

from __future__ import annotations

import numpy as np

from theory import Spectrum, Task, tied_optimum
from theory.finite_context import draw_covariances, known_deviations

SETTINGS = ((45, 512, 1.75, 0.5), (45, 64, 1.75, 0.5), (100, 100, 1.0, 1.0))
SAMPLES = 1000


def antithetic_gain(task: Task, gain: float, depth: int, rng: np.random.Generator) -> float:
    """Return var(one draw)/2 over var(mean of a draw and its mirror image)."""
    from scipy.stats import chi2

    assert task.context is not None
    rank = min(task.dim, task.context)
    k = np.arange(rank)
    normal = np.tril(rng.standard_normal((SAMPLES // 2, task.dim, rank)), -1)
    uniform = rng.uniform(size=(SAMPLES // 2, rank))

    def losses(sign: int) -> np.ndarray:
        factor = sign * normal
        factor[:, k, k] = np.sqrt(chi2.ppf(uniform if sign > 0 else 1 - uniform, task.context - k))
        factor *= np.sqrt(task.spectrum.eigenvalues / task.context)[:, None]
        step = np.eye(task.dim) - gain / depth * factor @ factor.transpose(0, 2, 1)
        residual = np.linalg.matrix_power(step, depth)
        power, lam = task.spectrum.task_power, task.spectrum.eigenvalues
        return np.einsum("sij,j,sij,i->s", residual, power, residual, lam, optimize=True)

    first, second = losses(1), losses(-1)
    return float(first.var() / 2 / ((first + second) / 2).var())


def main() -> None:
    """Print the table."""
    rng = np.random.default_rng(0)
    print(f"{'dim':>5}{'context':>9}{'depth':>7}{'gain/best':>11}{'known moments':>15}{'antithetic':>12}")
    for dim, context, capacity, source in SETTINGS:
        task = Task(Spectrum.power_law(dim, capacity, source), "rrs", context)
        values, basis = np.linalg.eigh(draw_covariances(task, SAMPLES, rng))
        turn = basis.transpose(0, 2, 1)
        spectrum = task.spectrum
        weights = (turn @ (spectrum.eigenvalues[:, None] * basis)) * (turn @ (spectrum.task_power[:, None] * basis))
        controls = known_deviations(task, values, weights)
        for depth in (2, 4, 8):
            best = tied_optimum(task, depth, samples=200).gains[0]
            for share in (0.1, 0.4, 1.0):
                q = (1 - share * best * values / depth) ** depth
                losses = np.einsum("si,sij,sj->s", q, weights, q)
                design = np.column_stack([np.ones(SAMPLES), controls / np.abs(controls).max(axis=0)])
                left = losses - design @ np.linalg.lstsq(design, losses, rcond=None)[0]
                known = losses.var() / left.var()
                mirrored = antithetic_gain(task, share * best, depth, rng)
                print(f"{dim:5}{context:9}{depth:7}{share:11}{known:15.1f}{mirrored:12.1f}")


if __name__ == "__main__":
    main()
