"""What a fit returns: parameters with intervals, a status sentence, information criteria, predictions, a picture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from theory.checks import FloatArray, reject
from theory.results import Result, plain
from validate.fit_intervals import NoiseScale
from validate.fit_problem import FitProblem

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


class FitError(ValueError):
    """A fit that has no answer to give: it stopped early, or its starts disagree."""


@dataclass(frozen=True)
class ParameterEstimate:
    """One fitted parameter.

    Attributes
    ----------
    value
        Estimate; NaN where there is none.
    stderr
        Asymptotic standard error; NaN at a bound, for a fixed parameter, or without degrees of freedom.
    interval
        ``(low, high)``; an end is infinite where the profile never rises, NaN where no interval can be given.
    status
        ``ok``, ``fixed``, ``at bound``, ``one-sided``, ``not identified`` or ``no interval``, with the reason.
    """

    value: float
    stderr: float
    interval: tuple[float, float]
    status: str

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: ``value``, ``stderr``, ``ci95`` and ``status``."""
        return plain({"value": self.value, "stderr": self.stderr, "ci95": list(self.interval), "status": self.status})


@dataclass(frozen=True)
class FitResult(Result):
    """A fitted law.

    Attributes
    ----------
    law
        Its name.
    n
        Rows used.
    objective
        Sum of the rows' costs, as `scipy.optimize.least_squares` counts it.
    parameters
        Name -> estimate.
    answered
        Whether the data support an answer; if not, the estimates are NaN and ``status`` says why.
    status
        One sentence.
    warnings
        Further sentences that a reader of the numbers must know.
    aicc, bic
        Information criteria; infinite where there are too few rows for one.
    weight
        Share of the AICc weights among the laws ranked together; NaN for a law fitted alone.
    probability
        Probability among the laws ranked together, parameters and noise integrated out (`validate.fit_evidence`); NaN
        for a law fitted alone, or where the cost or the parameters held leave no such integral.
    left_out_error
        Root mean square relative error of each depth predicted from the others; NaN where too few are left.
    interval_method, level
        How the intervals were made and what they should hold.
    agreeing_starts, starts
        How many starts ended in the optimum reported, of how many.
    """

    law: str
    n: int
    objective: float
    parameters: dict[str, ParameterEstimate]
    answered: bool
    status: str
    warnings: tuple[str, ...]
    aicc: float
    bic: float
    weight: float
    probability: float
    left_out_error: float
    interval_method: str
    level: float
    agreeing_starts: int
    starts: int
    problem: FitProblem = field(repr=False)
    point: FloatArray = field(repr=False)
    held: np.ndarray = field(repr=False)
    spread: FloatArray = field(repr=False)
    noise: NoiseScale = field(repr=False)
    row_weights: FloatArray = field(repr=False)
    groups: np.ndarray | None = field(repr=False, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return law, n, objective, parameters and the rest as JSON-ready values."""
        return plain(
            {
                "law": self.law,
                "n": self.n,
                "objective": self.objective,
                "parameters": {name: estimate.to_dict() for name, estimate in self.parameters.items()},
                "answered": self.answered,
                "status": self.status,
                "warnings": list(self.warnings),
                "aicc": self.aicc,
                "bic": self.bic,
                "aicc_weight": self.weight,
                "probability": self.probability,
                "left_out_error": self.left_out_error,
                "residuals": self.problem.residuals,
                "robust": {"loss": self.problem.robust, "scale": self.problem.robust_scale},
                "intervals": {"method": self.interval_method, "level": self.level},
                "starts": {"agreeing": self.agreeing_starts, "total": self.starts},
                "formula": self.problem.law.formula,
            }
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row a parameter."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"parameter": name, "value": e.value, "stderr": e.stderr, "low": e.interval[0], "high": e.interval[1]}
                | {"status": e.status}
                for name, e in self.parameters.items()
            ]
        )

    def __str__(self) -> str:
        """Return a short table."""
        lines = [f"{self.law}: {self.problem.law.formula}", self.status]
        if self.answered:
            for name, e in self.parameters.items():
                low, high = e.interval
                state = "" if e.status == "ok" else f"  ({e.status})"
                lines.append(f"  {name:>20} = {e.value:.6g}  [{low:.4g}, {high:.4g}]{state}")
            lines.append(f"  objective {self.objective:.6g} on {self.n} rows, AICc {self.aicc:.2f}")
        return "\n".join([*lines, *(f"warning: {text}" for text in self.warnings)])

    def loss_at(self, depth: npt.ArrayLike, **others: npt.ArrayLike) -> FloatArray:
        """Return the fitted law at ``depth`` (and, for a joint law, at the other variables by name).

        Raises
        ------
        ValueError
            If a variable is missing, or not positive.
        """
        columns = self._columns(depth, others)
        values = self.problem.natural(self.point)
        out = self.problem.law.function(*(columns[name] for name in self.problem.law.variables), *values)
        return np.asarray(out, dtype=np.float64)

    def predict(self, depth: npt.ArrayLike = (), **others: npt.ArrayLike) -> FitPrediction:
        """Return the fitted law at new depths with an interval for the law's value there.

        Parameters
        ----------
        depth
            Depths, (m,) or one number.
        others
            The other variables of a joint law, by name, broadcast against ``depth``.

        Returns
        -------
        FitPrediction
            ``loss``, ``low``, ``high``, each (m,): the law's value and its interval at ``level``, by the profile of
            the predicted value; NaN bounds where the fit has no interval.

        Raises
        ------
        ValueError
            If the fit has no answer, a variable is missing or unknown, or a value is not positive.
        """
        from validate.fit_prediction import predict_loss

        if not self.answered:
            raise ValueError(f"law={self.law!r} has no fit to predict from: {self.status}")
        return predict_loss(self, self._columns(depth, others))

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw losses against depth with the law and the interval of its value."""
        from validate.fit_pictures import draw_fit

        return draw_fit(self, ax)

    def _columns(self, depth: npt.ArrayLike, others: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        names = self.problem.law.variables
        given: dict[str, npt.ArrayLike] = dict(others)
        if "depth" in names:
            given["depth"] = depth
        if set(given) != set(names):
            raise ValueError(f"variables={sorted(given)}: must be {', '.join(names)}")
        arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(given[name], dtype=np.float64)) for name in names))
        columns = {name: np.array(array) for name, array in zip(names, arrays, strict=True)}
        for name, column in columns.items():
            bad = ~(np.isfinite(column) & (column > 0))
            if column.ndim != 1 or bad.any():
                raise reject(name, column[bad][0] if bad.any() else column.tolist(), "positive numbers")
        return columns


@dataclass(frozen=True)
class FitPrediction(Result):
    """A fitted law's value at new points, each array (m,)."""

    columns: dict[str, FloatArray]
    loss: FloatArray
    low: FloatArray
    high: FloatArray
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row a point."""
        import pandas as pd

        return pd.DataFrame({**self.columns, "loss": self.loss, "low": self.low, "high": self.high})

    def __str__(self) -> str:
        """Return one line a point."""
        return self.to_frame().to_string(index=False)
