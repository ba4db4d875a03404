"""Spectral learning from a small start: one linear-attention layer whose weights are products of small factors.

The layer predicts f = x_query^T U beta with beta = (1/P) sum_mu x_mu y_mu, and U is built from small factors:

- merged key-query: U = v W, a scalar value times a matrix: the loss rests near that of zero, then falls once;
- separate rank-one heads: U = sum_i v_i k_i q_i^T: one principal direction after another, saddle to saddle.

Derived here from E[beta beta^T] (``theory.wishart.second_moment``), for the settings of arXiv 2501.16265 and with its
plateaus; the gradient flow is d theta/dt = - d loss / d theta with loss = E[(w.x - f)^2], twice as fast as with half
the loss. The time courses, and what is known for several layers, are in ``theory.small_init_flows`` (merged) and
``theory.small_init_heads``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from theory.checks import FloatArray
from theory.results import Result, axes_or_new
from theory.task import Task
from theory.wishart import second_moment

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class OneLayerLoss(Result):
    """loss(U) = total - 2 sum_k drive_k U_kk + sum_jk lambda_j m_k U_jk^2, the loss of one layer, settings FS and ISO.

    Attributes
    ----------
    total : float
        Loss of predicting zero.
    drive : array of shape (dim,)
        lambda_k^2 omega_k.
    curvature : array of shape (dim,)
        lambda_k m_k, with m the diagonal of E[beta beta^T].
    gain : array of shape (dim,)
        Best U_kk = drive/curvature, zero for modes without variance.
    drop : array of shape (dim,)
        Loss that learning mode k alone removes, drive^2/curvature.
    """

    total: float
    drive: FloatArray
    curvature: FloatArray
    gain: FloatArray
    drop: FloatArray

    @property
    def floor(self) -> float:
        """Loss with every mode learned."""
        return self.total - float(self.drop.sum())

    def loss(self, gains: FloatArray) -> FloatArray:
        """Return the loss at U_kk = ``gains``, shape (..., dim)."""
        missing = 1 - np.divide(gains, self.gain, out=np.zeros_like(gains), where=self.gain > 0)
        result: FloatArray = self.floor + missing**2 @ self.drop
        return result


def one_layer_loss(task: Task) -> OneLayerLoss:
    """Return the exact depth-1 loss as a quadratic form in U.

    Raises
    ------
    ValueError
        In the setting ``rrs``, where the rotation average couples the entries of U (see ``haar_quadratic``).
    """
    if task.setting == "rrs":
        raise ValueError("setting='rrs': must be fs or iso, whose eigenbasis is fixed")
    spectrum = task.spectrum
    lam, signal = spectrum.eigenvalues, spectrum.signal
    inverse = 0.0 if task.context is None else 1.0 / task.context
    # Divided by lambda^2 before the division, so that tiny eigenvalues do not underflow.
    spread = signal * (1 + inverse) + (spectrum.total + task.label_noise) * inverse
    live = (signal > 0) & (lam * signal > 0)
    gain = np.divide(spectrum.task_power, spread, out=np.zeros_like(lam), where=live)
    drop = np.divide(signal, spread, out=np.zeros_like(lam), where=live) * signal
    return OneLayerLoss(spectrum.total, lam * signal, lam * second_moment(task), gain, drop)


@dataclasses.dataclass(frozen=True)
class Plateaus(Result):
    """Where the loss rests with 0, 1, 2, ... directions learned.

    Attributes
    ----------
    order : int array of shape (dim,)
        Modes (from 0) in the order in which they are learned, by lambda_k^2 omega_k: for omega_k = 1 descending lambda.
    loss : array of shape (dim + 1,)
        ``loss[m]`` with the first m of ``order`` learned.
    """

    order: np.ndarray
    loss: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Return one row a plateau: learned, loss."""
        import pandas as pd

        return pd.DataFrame({"learned": np.arange(self.loss.size), "loss": self.loss})


def plateaus(task: Task) -> Plateaus:
    """Return the saddles that separate rank-one heads pass, one layer.

    With omega_k = 1 and no label noise: tr Lambda - sum_(d <= m) lambda_d / (1 + (1 + tr Lambda/lambda_d)/P). In the
    setting ``rrs`` every direction is equal and the heads share the trace of U:
    T - m b^2 / (s + m c), b the mean drive, s and c from ``haar_quadratic``.

    Source: arXiv 2501.16265 for omega_k = 1; here for any task power and label noise. For ``rrs``: minimum over the
    common gain of m orthonormal directions, derived from the rotation average.
    """
    lam, signal, total = task.spectrum.eigenvalues, task.spectrum.signal, task.spectrum.total
    if task.setting == "rrs":
        mean_drive = float(np.mean(lam * signal))
        own, cross = haar_quadratic(task)
        learned = np.arange(task.dim + 1)
        curvature = np.where(learned > 0, own + learned * cross, 1.0)
        return Plateaus(np.arange(task.dim), total - learned * mean_drive**2 / curvature)
    form = one_layer_loss(task)
    order = np.argsort(-form.drive, kind="stable")
    return Plateaus(order, total - np.concatenate([[0.0], np.cumsum(form.drop[order])]))


def haar_quadratic(task: Task) -> tuple[float, float]:
    """Return (s, c) with E_O tr(U O Lambda O^T U O M O^T) = s tr(U^2) + c (tr U)^2, U symmetric, M = E[beta beta^T].

    Notes
    -----
    E[O A O^T U O B O^T] = a U + c (U^T + tr(U) I) by invariance and the symmetry of A, B. Its traces against U = I and
    against all U give D a + (D^2 + D) c = tr(A B) and D^2 a + 2 D c = tr(A) tr(B); s = a + c. In dimension 1,
    where nothing rotates, the answer is (lambda m, 0).
    """
    lam, m, dim = task.spectrum.eigenvalues, second_moment(task), task.dim
    together = float(np.sum(lam * m))
    if dim == 1:
        return together, 0.0
    apart = float(lam.sum() * m.sum())
    cross = (dim * together - apart) / (dim * (dim - 1) * (dim + 2))
    own = (apart - 2 * dim * cross) / dim**2
    return own + cross, cross


@dataclasses.dataclass(frozen=True)
class SmallStartCurve(Result):
    """Loss against time from a small start.

    Attributes
    ----------
    kind : str
        ``merged`` or ``heads``.
    size : float
        Common modulus of the starting factors, in the balanced start that the functions describe.
    time, loss : arrays of shape (n,)
    gains : array of shape (n, dim)
        The diagonal of U in the covariance eigenbasis.
    drop_time : array
        Times at which a drop is half done: one entry (merged), or one a mode in spectrum order (heads; inf if never).
    """

    kind: str
    size: float
    time: FloatArray
    loss: FloatArray
    gains: FloatArray
    drop_time: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Return one row a time: time, loss."""
        import pandas as pd

        return pd.DataFrame({"time": self.time, "loss": self.loss})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the loss against time, the drops marked."""
        axes = axes_or_new(ax)
        axes.plot(self.time, self.loss, label=self.kind)
        for moment in self.drop_time[np.isfinite(self.drop_time) & (self.drop_time <= self.time[-1])]:
            axes.axvline(moment, color="0.8", lw=0.8, zorder=0)
        axes.set(xlabel="time", ylabel="loss")
        return axes
