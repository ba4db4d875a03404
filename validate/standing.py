"""How far a study has come: which runs of each experiment are missing, and the verdicts that must wait for them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from theory.results import Result
from validate.claims import UNDECIDED, Claim, Verdict
from validate.regions import covariates_label
from validate.study import Experiment, Study, model_label, spectrum_label

if TYPE_CHECKING:
    from sim.grid import Plan


@dataclasses.dataclass(frozen=True)
class Standing(Result):
    """How far an experiment has come.

    Parameters
    ----------
    experiment : str
        Its name.
    planned, finished, failed : int
        Runs: those that the preset asks for, that have a result, and that raised or are damaged.
    missing : tuple of str
        The others in words, those that differ in depth and seed only together.
    """

    experiment: str
    planned: int
    finished: int
    failed: int
    missing: tuple[str, ...] = ()

    @property
    def waiting(self) -> int:
        """Runs that have neither a result nor an error."""
        return self.planned - self.finished - self.failed

    def __str__(self) -> str:
        return f"{self.experiment}: {self.waiting} of {self.planned} runs are missing"


def standings_of(study: Study) -> tuple[Standing, ...]:
    """Return how far each experiment of ``study`` has come, in the order of its preset."""
    return tuple(_standing(study, experiment) for experiment in study.preset.experiments)


def _standing(study: Study, experiment: Experiment) -> Standing:
    status = {record.digest: record.status for record in study.known.records}
    found = [status[plan.digest] for plan in experiment.plans]
    finished, failed = found.count("finished"), found.count("failed") + found.count("damaged")
    missing = [plan for plan in experiment.plans if status[plan.digest] not in ("finished", "failed", "damaged")]
    return Standing(experiment.name, len(found), finished, failed, _in_words(missing))


def _in_words(plans: Sequence[Plan]) -> tuple[str, ...]:
    groups: dict[str, dict[int, list[int]]] = {}
    for plan in plans:
        assert plan.config is not None  # a preset with a refused combination is no preset
        config = plan.config
        if config.task is not None:
            name = f"{config.model.attention} on {spectrum_label(config)}"
            name += f", P = {'inf' if config.task.context is None else config.task.context}"
            name += f", σ² = {config.task.label_noise:g}" if config.task.label_noise else ""
            law = covariates_label(dataclasses.asdict(config.task))
            name += "" if law == "gaussian" else f", {law}"
            name += f", b = {config.model.gain_start:g}" if config.model.gain == "fixed" else ""
        else:
            assert config.teacher is not None
            name = f"teacher ρ = {config.teacher.correlation:g}, teacher seed {config.teacher.seed}"
        model = model_label(config)
        name = name if model == "reduced" else f"{model}, {name}"
        groups.setdefault(name, {}).setdefault(config.model.depth, []).append(config.training.seed)
    return tuple(f"{name}: " + "; ".join(_depth(*item) for item in depths.items()) for name, depths in groups.items())


def _depth(depth: int, seeds: Sequence[int]) -> str:
    listed = ", ".join(str(seed) for seed in dict.fromkeys(seeds))
    return f"L = {depth} (seed{'s' if len(seeds) > 1 else ''} {listed})"


def hold_back(claim: Claim, verdict: Verdict, standings: Sequence[Standing]) -> Verdict:
    """Return ``verdict``, undecided while runs of the claim's experiments are missing.

    A rule that is met by the runs at hand may be broken by those still to come, and a report can be asked for at any
    time: to stop at a moment that pleases would be to choose the verdict.
    """
    words = set(re.split(r"[,\s]+", claim.experiment))
    waiting = [standing for standing in standings if standing.waiting and standing.experiment in words]
    if not waiting:
        return verdict
    reason = f"{'; '.join(str(standing) for standing in waiting)}. So far: {verdict.reason}"
    return dataclasses.replace(verdict, verdict=UNDECIDED, reason=reason)
