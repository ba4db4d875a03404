"""What the runs of an experiment must be for its analysis to read them: asked before hours of training, not after."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from theory.checks import reject

if TYPE_CHECKING:
    from sim.config import RunConfig

# Experiments whose analysis asks for a spectrum, a context or attention weights; the other maps take any model.
ON_ATTENTION = (
    *("linear-curves", "linear-optimum", "linear-untied", "dynamics-linear", "dynamics-softmax"),
    *("depth-linear", "depth-softmax", "map-context", "map-noise", "map-gain", "map-data", "map-kernel"),
)
OVER_TRAINING = ("dynamics-linear", "dynamics-softmax")


def check_runs(experiment: str, configs: Iterable[RunConfig]) -> None:
    """Refuse runs that the analysis of an experiment of this name could not read; any other name takes any run.

    Raises
    ------
    ValueError
        If a run is of another kind than the experiment's name promises.
    """
    from validate.study import has_prediction

    for config in configs:
        model, training = config.model, config.training
        if experiment in ON_ATTENTION and config.task is None:
            raise reject("model.name", model.name, "an attention model")
        if experiment == "residual" and config.teacher is None:
            raise reject("model.name", model.name, "residual_mlp")
        if experiment == "linear-curves" and config.task is not None and not config.task.is_predicted:
            raise reject("task.covariates", config.task.covariates, "gaussian at finite context: others have no theory")
        if experiment == "linear-curves" and not has_prediction(config):
            found = f"{model.name}, {model.attention}, {training.optimizer}"
            raise reject(
                "base", found, "reduced linear attention trained by plain SGD from zero: others have no theory"
            )
        if experiment in OVER_TRAINING and training.snapshots < 1:
            raise reject("training.snapshots", training.snapshots, "at least 1: half-learning times are read from them")
        if experiment == "map-gain" and model.gain != "fixed":
            raise reject("model.gain", model.gain, "fixed: the map is over the gain")
