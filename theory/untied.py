"""The untied population flow on few nodes: L coupled stiff equations, solved with their exact Jacobian.

The loss of depth L is a polynomial of degree 2L in the eigenvalue for any gains, so the L + 1 nodes of a Gauss rule
reproduce it, its gradient and its Hessian exactly, whatever the number of modes.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray
from theory.kernels import untied_stiffness, untied_sums

# Relative and absolute error asked of the solver at every step; a breaking tie magnifies them a thousandfold.
RELATIVE, ABSOLUTE = 1e-11, 1e-14
# The path ends where the rounding of the gains alone would move the loss by more than this share.
RESOLVED = 1e-7


def untied_path(
    nodes: FloatArray, weights: FloatArray, dim: float, start: npt.ArrayLike, times: FloatArray
) -> tuple[FloatArray, FloatArray, str]:
    """Return gains, losses and a status sentence of d gamma_l / dt = -(1/D) d loss / d gamma_l.

    Parameters
    ----------
    nodes, weights : arrays of shape (n,)
        Points and weights of the measure; a Gauss rule of depth + 1 nodes is exact (`theory.gauss.gauss_rule`).
    dim : float
        D in the rate.
    start : array of shape (depth,)
        Gains at time 0. Layers that start equal stay equal to the last digit.
    times : array of shape (n,)
        Strictly increasing, >= 0.

    Returns
    -------
    gains : array of shape (n, depth)
    losses : array of shape (n,)
    status : str
        Where float64 gains cannot follow the flow further, both arrays are NaN from there on, and this says when:
        deep below the tied optimum of a spectrum of separate eigenvalues, the zeros of the residual polynomial must sit
        on the largest ones more exactly than gains of 53 bits can say.
    """
    from scipy.integrate import LSODA

    x, s = np.ascontiguousarray(nodes), np.ascontiguousarray(weights)
    first = np.atleast_1d(np.asarray(start, dtype=np.float64))
    depth = first.size
    levels, member = np.unique(first, return_inverse=True)
    counts = np.bincount(member)
    expand = (member[:, None] == np.arange(levels.size)).astype(np.float64)
    average = expand.T / counts[:, None]
    rate = 2.0 / (dim * depth)
    force, stiffness = np.empty(depth), np.empty((depth, depth))

    def speed(_t: float, state: FloatArray) -> FloatArray:
        untied_sums(x, s, state[member], force)
        # Equal layers feel equal forces; the average keeps rounding from telling them apart.
        return rate * (np.bincount(member, force) / counts)

    def jacobian(_t: float, state: FloatArray) -> FloatArray:
        untied_stiffness(x, s, state[member], stiffness)
        result: FloatArray = average @ stiffness @ expand * (-rate / depth)
        return result

    def resolved(state: FloatArray) -> bool:
        """Whether rounding the gains leaves the loss alone: its first and second order both count."""
        gains = state[member]
        loss = untied_sums(x, s, gains, force)
        untied_stiffness(x, s, gains, stiffness)
        blur = np.finfo(float).eps * np.abs(gains)
        lost = 2.0 / depth * float(np.abs(force) @ blur) + float(np.diag(stiffness) @ blur**2) / depth**2
        return lost <= RESOLVED * loss

    gains = np.full((times.size, depth), math.nan)
    gains[times == 0] = first
    status = "Followed to the last time."
    done = int(np.count_nonzero(times == 0))
    if done < times.size:
        solver = LSODA(speed, 0.0, levels, float(times[-1]), rtol=RELATIVE, atol=ABSOLUTE, jac=jacobian)
        while done < times.size:
            complaint = solver.step()
            if solver.status == "failed":
                status = f"The solver stopped at t={solver.t:.6g}: {complaint}"
                break
            if not resolved(solver.y):
                status = f"Float64 gains cannot follow the flow beyond t={solver.t:.6g}; NaN from there on."
                break
            between = solver.dense_output()
            while done < times.size and times[done] <= solver.t:
                gains[done] = between(times[done])[member]
                done += 1
    losses = np.array([untied_sums(x, s, row, force) for row in np.ascontiguousarray(gains)])
    return gains, losses, status
