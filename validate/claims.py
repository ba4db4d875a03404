"""The claim register: each claim with its source, its experiment, its statistic and the rule that decides it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from theory.results import Result

if TYPE_CHECKING:
    import pandas as pd

SUPPORTED, NOT_SUPPORTED, UNDECIDED = "supported", "not supported", "undecided"
VERDICTS = (SUPPORTED, NOT_SUPPORTED, UNDECIDED)


@dataclasses.dataclass(frozen=True, eq=False)
class Evidence:
    """The tables that decisions read; a table that a preset does not produce is empty.

    Parameters
    ----------
    runs : frame
        One row a run, as `validate.study.Study.to_frame` gives it.
    curves : frame
        One row a predicted curve: depth, rms, largest (relative deviations from training), standard_error.
    half_times : frame
        One row a run and mode: attention, spectrum, depth, seed, mode, eigenvalue, half_time and predicted (steps, NaN
        for a mode never half learned, or without a prediction), steps (the run's).
    focus : frame
        One row a run and layer: attention, spectrum, depth, layer, context, participation, overlap.
    layers : frame
        One row a predicted depth: spectrum, depth, predicted, observed.
    published : frame
        One row a published quantity: name, value, and the bounds low and high that must hold ``expected``.
    regions : frame
        One row a place on a map: map, attention, spectrum, context, depth, exponent, standard_error, converged.
    depth_fits : frame
        One row a fitted group of runs, as `validate.depth_fits.depth_fit_table` gives it: experiment, attention,
        spectrum, depths (converged), the power law's exponent with its interval low and high (NaN: none, or a bound
        not known), behind (AICc of inverse depth less that of the best law, NaN without an answer), status.
    """

    runs: pd.DataFrame
    curves: pd.DataFrame
    half_times: pd.DataFrame
    focus: pd.DataFrame
    layers: pd.DataFrame
    published: pd.DataFrame
    regions: pd.DataFrame
    depth_fits: pd.DataFrame


@dataclasses.dataclass(frozen=True)
class Verdict(Result):
    """The outcome for one claim.

    Parameters
    ----------
    claim : str
        Its id.
    verdict : {"supported", "not supported", "undecided"}
        By the claim's rule.
    number : float or None
        The number that decides, or None without evidence.
    reason : str
        The number in words, or what is missing.
    details : mapping
        Further numbers, by name.
    """

    claim: str
    verdict: str
    number: float | None
    reason: str
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.claim}: {self.verdict}. {self.reason}"


@dataclasses.dataclass(frozen=True)
class Claim(Result):
    """A statement that the study can support, refute or leave undecided.

    Parameters
    ----------
    id : str
        C0, C1, …
    statement, source : str
        What is claimed, and where.
    experiment, statistic, rule : str
        What is trained, what is measured, and the decision rule, all fixed before the data.
    decide : callable
        From the evidence to (verdict, number, reason, details).
    """

    id: str
    statement: str
    source: str
    experiment: str
    statistic: str
    rule: str
    decide: Callable[[Evidence], Verdict]

    def to_dict(self) -> dict[str, Any]:
        """Return the texts, without the callable."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "decide"}


def register() -> list[Claim]:
    """Return the claims, in the order of the report."""
    from validate import decisions

    return [
        Claim(
            "C0",
            "Linear attention trained by SGD follows the predicted curve at every depth.",
            "arXiv 2510.01098; theory.predict",
            "linear-curves",
            "Root mean square relative deviation of the predicted from the trained loss, centred 11-step mean on both.",
            "Supported if at most 3 % at every depth; not supported if above 6 % at any; undecided between.",
            decisions.curves,
        ),
        Claim(
            "C1",
            "Linear attention's depth law follows the spectrum: tied layers fall like L^-beta, untied ones faster, to "
            "the untied floor.",
            "arXiv 2510.01098",
            "linear-optimum, linear-untied",
            "Relative deviation of converged tied losses from the exact tied optimum and of converged untied losses "
            "from the untied floor, and the optimum's slope in depth.",
            "Supported if, on at least two power laws, every converged loss, tied and untied, lies within 2 % or 4 "
            "standard errors of its optimum and the tied optimum's log-log slope over L = 32 … 256 at dim 10^5 is beta "
            "within 10 %; not supported if one lies beyond 5 % and 4 standard errors, or a slope is off by more than "
            "20 %; undecided otherwise.",
            decisions.linear_optimum,
        ),
        Claim(
            "C2",
            "Linear attention learns strong covariance directions first, when the tied gradient flow predicts.",
            "arXiv 2610.11063, 2510.01098",
            "dynamics-linear",
            "Rank correlation (Goodman and Kruskal's gamma) of a mode's half-learning time with its eigenvalue, the "
            "weakest over runs (modes never half learned come last, tied), and the rms of log(measured / predicted "
            "half-time) over modes that are half learned in both.",
            "Supported if the correlation is at most -0.9 on every structured spectrum and the rms at most 0.2; not "
            "supported if the correlation is above -0.5 on any or the rms above 0.5; undecided between, or without "
            "modes that are half learned.",
            decisions.strong_first,
        ),
        Claim(
            "C3",
            "Nonlinear attention: loss = L_inf + c / L^alpha with alpha = 1 on every spectrum.",
            "arXiv 2610.11063",
            "depth-softmax",
            "95 % interval of alpha, and AICc of the inverse-depth law against its rivals, converged runs only.",
            "On each spectrum: holds if the interval contains 1, is no wider than 1 and no rival beats inverse "
            "depth by 2 in "
            "AICc; fails if the interval excludes 1 or a rival beats it by 10. Supported if it holds on all (at "
            "least two), "
            "not supported if it fails on any, undecided otherwise. Fewer than five converged depths decide nothing.",
            decisions.inverse_depth,
        ),
        Claim(
            "C4",
            "Nonlinear attention learns strong and weak directions in parallel.",
            "arXiv 2610.11063",
            "dynamics-linear, dynamics-softmax",
            "Log spread of half-times (largest over smallest over modes) of nonlinear attention, over that of linear "
            "attention at the same depth, spectrum and seed. A mode that linear attention never half learns counts "
            "with the last step; one that only nonlinear attention never learns makes the ratio infinite; pairs in "
            "which both leave modes unlearned are left out and counted.",
            "Supported if at most 0.5 for every pair; not supported if above 0.8 for any; undecided otherwise.",
            decisions.parallel,
        ),
        Claim(
            "C5",
            "Attention focuses on few relevant tokens, similarly across layers.",
            "arXiv 2610.11063",
            "depth-softmax",
            "Participation number of the attention over the context length, and its overlap between layers.",
            "Supported if participation is at most half of the context and the overlap at least 0.5 in every run; not "
            "supported if participation exceeds 0.8 of the context in any; undecided otherwise.",
            decisions.focus,
        ),
        Claim(
            "C6",
            "Central limit: shared layer error predicts the plateau and layer-specific error the slope, at other "
            "depths.",
            "arXiv 2610.11063, 2602.05970",
            "depth-softmax",
            "Relative deviation of the loss predicted from another depth's layer errors.",
            "Supported if at most 15 % at every depth; not supported if above 30 % at any; undecided between.",
            decisions.central_limit,
        ),
        Claim(
            "C7",
            "Published curves and the table of real language models follow the predictions.",
            "arXiv 2510.01098, 2602.05970",
            "published data (option --data)",
            "Deviation from the published training curves, and the depth exponent of the language-model table.",
            "Supported if every published quantity lies within its tolerance or interval; not supported if one lies "
            "outside; undecided without the data.",
            decisions.published,
        ),
        Claim(
            "C8",
            "Residual toy model: independent teacher layers give 1/L, identical ones a steeper law.",
            "arXiv 2602.05970",
            "residual",
            "Exponents of loss against depth for teacher correlation 0 and 1, for each draw of the teacher.",
            "Supported if, for every draw, the independent interval contains 1 and lies wholly below the identical "
            "one; not supported if, for any, the identical exponent is at most the independent one; undecided "
            "otherwise.",
            decisions.residual,
        ),
        Claim(
            "C9",
            "Softmax crosses over from linear attention's depth law at long contexts to inverse depth at short ones.",
            "derivation h; arXiv 2610.11063",
            "map-context",
            "Plateau-free exponent over L = 1, 2, 4 of softmax and of linear attention, at the shortest and the "
            "longest context.",
            "On each spectrum: holds if, at the longest context, the two exponents agree within 0.25 or two standard "
            "errors and, at the shortest, softmax's is within 0.25 or two standard errors of 1; fails if they differ "
            "by more than 0.5 and two standard errors at the longest, or softmax's differs from 1 by as much at the "
            "shortest. Supported if it holds on all, not supported if it fails on any, undecided otherwise. Exponents "
            "of unconverged runs, or with a standard error above 0.25, support nothing.",
            decisions.crossover,
        ),
    ]


def judge(evidence: Evidence) -> list[Verdict]:
    """Return a verdict for every claim of the register."""
    verdicts = []
    for claim in register():
        verdict = claim.decide(evidence)
        verdicts.append(dataclasses.replace(verdict, claim=claim.id))
    return verdicts
