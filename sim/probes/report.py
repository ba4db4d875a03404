"""All probes of one set of weights, or of a run's snapshots over training, as results."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from sim.config import RunConfig
from sim.devices import choose_device
from sim.models import build_model
from sim.models.base import Model, Weights
from sim.models.reduced import ReducedLinear
from sim.probes import focus, layers, modes, rotation
from sim.probes.trace import trace
from sim.randomness import Source
from sim.store import Run
from theory.checks import FloatArray, choice, integer, reject
from theory.results import Result, axes_or_new

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

# Numbers that the passes of one piece of the contexts may hold, to bound memory.
NUMBERS_AT_ONCE = 2**24


@dataclasses.dataclass(frozen=True)
class ProbeSettings:
    """On what, and how, probes look.

    Parameters
    ----------
    contexts : int
        Contexts (inputs, for ``residual_mlp``) to average over.
    queries : int
        Query tokens in each, at least 2.
    relevant : int or None
        k of the relevant tokens; P / 8, at least 1, if omitted.
    relevance : {"cosine", "product"}
        What makes a token relevant: :func:`sim.probes.focus.relevance`.
    seed : int
        Of the draws, which are no part of the run's own.
    device : str
        As in :func:`sim.train`. Probes compute in float64.
    modes_only : bool
        Leave out what half-learning times do not read, half of the work: layers removed and swapped, and the attention.

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """

    contexts: int = 128
    queries: int = 16
    relevant: int | None = None
    relevance: str = "cosine"
    seed: int = 0
    device: str = "cpu"
    modes_only: bool = False

    def __post_init__(self) -> None:
        integer("contexts", self.contexts)
        integer("queries", self.queries, minimum=2)
        if self.relevant is not None:
            integer("relevant", self.relevant)
        choice("relevance", self.relevance, focus.RELEVANCES)
        integer("seed", self.seed, minimum=0)


@dataclasses.dataclass(frozen=True, eq=False)
class Probes(Result):
    """What one set of weights does, layer by layer; averages over contexts, query tokens and (where stated) heads.

    Arrays that mean nothing for the model at hand are empty.

    Parameters
    ----------
    step : int
        After which update.
    time : float
        Learning rate times step.
    loss : float
        Squared error on the probe's contexts; under cross-entropy that of the centred logits.
    eigenvalues, mode_error : array (D,)
        lambda_k, and the error along each eigen-direction (:mod:`sim.probes.modes`).
    nonlinear_error : float
        The loss less the sum of ``mode_error``: error that is not linear in the query.
    contribution : array (L,)
        :func:`sim.probes.layers.contributions`.
    layer_error : array (L, L)
        The matrix C of :func:`sim.probes.layers.layer_errors`.
    shared, specific : float
        Its split: loss = shared + specific / L.
    ablation : array (L,)
        Rise of the loss without each layer.
    swap : array (L - 1,)
        Rise of the loss when neighbours change places.
    entropy, participation, relevant_mass : array (L, H)
        Focus of each layer and head (:mod:`sim.probes.focus`).
    relevant : int
        k of ``relevant_mass``.
    ranked_focus : array (L, P)
        Share of a layer's attention on the most relevant token, the next, …; heads averaged.
    overlap : array (L, L)
        Whether layers look at the same tokens; heads averaged.
    rotation : array (L,)
        Angle by which each layer turns the hidden state, radians.
    update_correlation : array (L - 1,)
        Cosine between neighbouring updates.
    """

    step: int
    time: float
    loss: float
    eigenvalues: FloatArray
    mode_error: FloatArray
    nonlinear_error: float
    contribution: FloatArray
    layer_error: FloatArray
    shared: float
    specific: float
    ablation: FloatArray
    swap: FloatArray
    entropy: FloatArray
    participation: FloatArray
    relevant_mass: FloatArray
    relevant: int
    ranked_focus: FloatArray
    overlap: FloatArray
    rotation: FloatArray
    update_correlation: FloatArray

    def __str__(self) -> str:
        depth = len(self.contribution)
        lines = [f"Probes after step {self.step}: loss {self.loss:.5g}, depth {depth}"]
        if depth > 1:
            lines.append(f"layer errors: shared {self.shared:.4g}, specific {self.specific:.4g} / {depth}")
        if self.entropy.size:
            lines.append(
                f"attention: {self.participation.mean():.3g} tokens, {self.relevant_mass.mean():.3g} of it on the "
                f"{self.relevant} most relevant"
            )
        return "\n".join(lines)

    def to_frame(self) -> pd.DataFrame:
        """Return one row a layer (from 1); what lies between layers l and l + 1 is in row l, heads are averaged."""
        import pandas as pd

        depth = len(self.contribution)
        columns = {
            "contribution": self.contribution,
            "error_alone": self.layer_error.diagonal(),
            "ablation": self.ablation,
            "swap": self.swap,
            "entropy": self.entropy.mean(1) if self.entropy.size else [],
            "participation": self.participation.mean(1) if self.participation.size else [],
            "relevant_mass": self.relevant_mass.mean(1) if self.relevant_mass.size else [],
            "rotation": self.rotation,
            "update_correlation": self.update_correlation,
        }
        padded = {name: [*values, *[np.nan] * (depth - len(values))] for name, values in columns.items()}
        return pd.DataFrame({"layer": np.arange(1, depth + 1), **padded})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw contribution and ablation against the layer."""
        axes = axes_or_new(ax)
        layer = np.arange(1, len(self.contribution) + 1)
        axes.plot(layer, self.contribution, "o-", label="contribution")
        if self.ablation.size:
            axes.plot(layer, self.ablation, "s--", label="loss without it, rise")
        axes.set(xlabel="layer", title=f"step {self.step}")
        axes.legend(frameon=False)
        return axes


@dataclasses.dataclass(frozen=True, eq=False)
class ProbeHistory(Result):
    """Probes over training.

    Parameters
    ----------
    probes : tuple of Probes
        By increasing step, all on the same contexts.
    half_time : array (D,)
        When the error of each mode first fell to half of what it was at the first of them, in units of learning rate
        times step; NaN if it did not (:func:`sim.probes.modes.half_learning_times`).
    """

    probes: tuple[Probes, ...]
    half_time: FloatArray

    def to_frame(self) -> pd.DataFrame:
        """Return one row a step and mode (from 1): step, time, mode, eigenvalue, error."""
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "step": one.step,
                    "time": one.time,
                    "mode": np.arange(1, one.mode_error.size + 1),
                    "eigenvalue": one.eigenvalues,
                    "error": one.mode_error,
                }
            )
            for one in self.probes
        ]
        return pd.concat(parts, ignore_index=True)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw each mode's error, as a share of its first, against time, for up to eight modes."""
        axes = axes_or_new(ax)
        time = np.array([one.time for one in self.probes])
        errors = np.array([one.mode_error for one in self.probes])
        for mode in np.unique(np.geomspace(1, errors.shape[1], 8).astype(int)) - 1:
            axes.plot(time, errors[:, mode] / errors[0, mode], label=f"k = {mode + 1}")
        axes.set(xlabel="time", ylabel="error / first error", xscale="symlog", yscale="log")
        axes.legend(frameon=False)
        return axes


def probe_weights(
    config: RunConfig, weights: Mapping[str, np.ndarray], settings: ProbeSettings | None = None, *, step: int = 0
) -> Probes:
    """Return the probes of one set of weights.

    Parameters
    ----------
    config : RunConfig
        Of the run.
    weights : dict of arrays
        As ``Run.weights``, without a run axis.
    settings : ProbeSettings, optional
        On what to look.
    step : int
        After which update, for the record.

    Raises
    ------
    ValueError
        If there are more relevant tokens asked for than the context holds, or the device is not there.
    """
    own = settings or ProbeSettings()
    device = choose_device(own.device)
    stacked = {
        name: torch.as_tensor(value, dtype=torch.float64, device=device)[None] for name, value in weights.items()
    }
    return _probe(config, stacked, own, step, device)


def probe_run(run: Run, settings: ProbeSettings | None = None) -> Probes:
    """Return the probes of a run's final weights.

    Raises
    ------
    ValueError
        As :func:`probe_weights`.
    """
    return probe_weights(run.config, run.weights, settings, step=int(run.step[-1]))


def probe_training(run: Run, settings: ProbeSettings | None = None) -> ProbeHistory:
    """Return the probes of a run's snapshots, all on the same contexts.

    Raises
    ------
    ValueError
        If the run kept no snapshots (``training.snapshots``); as :func:`probe_weights`.
    """
    if not run.snapshots:
        raise reject("training.snapshots", 0, "at least 1 for probes over training")
    return history([probe_weights(run.config, kept, settings, step=step) for step, kept in run.snapshots.items()])


def history(probes: list[Probes]) -> ProbeHistory:
    """Return probes at increasing steps with the half-learning times of the modes."""
    time = np.array([one.time for one in probes])
    return ProbeHistory(tuple(probes), modes.half_learning_times(time, np.array([one.mode_error for one in probes])))


class LiveProbes:
    """Probes taken while a run trains: ``sim.train(config, watch=LiveProbes())``, at the steps of its snapshots.

    They draw from generators of their own, and change no number of the run.

    Parameters
    ----------
    settings : ProbeSettings, optional
        On what to look.
    """

    def __init__(self, settings: ProbeSettings | None = None) -> None:
        self.settings = settings or ProbeSettings()
        self.probes: list[list[Probes]] = []

    def __call__(self, step: int, model: Model, weights: Weights) -> None:
        """Probe every run of ``weights`` after ``step`` updates."""
        device = choose_device(self.settings.device)
        runs = len(next(iter(weights.values())))
        self.probes = self.probes or [[] for _ in range(runs)]
        for run, kept in enumerate(self.probes):
            own = {name: value[run : run + 1].to(device, torch.float64) for name, value in weights.items()}
            kept.append(_probe(model.config, own, self.settings, step, device))

    def history(self, run: int = 0) -> ProbeHistory:
        """Return what was seen of one of the runs that trained together."""
        return history(self.probes[run])


@torch.no_grad()
def _probe(config: RunConfig, weights: Weights, settings: ProbeSettings, step: int, device: torch.device) -> Probes:
    model = build_model(_with_queries(config, settings.queries), device, torch.float64)
    source = Source([settings.seed], "probe", device, torch.float64, on_cpu=True)
    context = config.task.context if config.task is not None else None
    count = 0
    if context is not None:
        count = integer("relevant", settings.relevant or max(1, context // 8), maximum=context)
    sums: dict[str, Tensor] = {}
    done = 0
    while done < settings.contexts:
        piece = min(_piece(config, settings), settings.contexts - done)
        for name, value in _measure(model, weights, source, piece, count, settings).items():
            sums[name] = sums.get(name, torch.zeros(())) + value * piece
        done += piece
    mean = {name: (value / done).cpu().numpy() for name, value in sums.items()}
    empty = np.zeros(0)
    errors = layers.split_errors(torch.as_tensor(mean["layer_error"])[None])
    loss, mode_error = float(mean["loss"]), mean.get("mode_error", empty)
    eigenvalues = config.task.spectrum.build().eigenvalues if config.task is not None else empty
    return Probes(
        step=step,
        time=step * config.training.learning_rate,
        loss=loss,
        eigenvalues=eigenvalues,
        mode_error=mode_error,
        nonlinear_error=loss - float(mode_error.sum()) if mode_error.size else float("nan"),
        contribution=mean["contribution"] / mean["target"],
        layer_error=mean["layer_error"],
        shared=float(errors.shared),
        specific=float(errors.specific),
        ablation=mean.get("ablation", empty),
        swap=mean.get("swap", empty),
        entropy=mean.get("entropy", np.zeros((0, 0))),
        participation=mean.get("participation", np.zeros((0, 0))),
        relevant_mass=mean.get("relevant_mass", np.zeros((0, 0))),
        relevant=count if "entropy" in mean else 0,
        ranked_focus=mean.get("ranked_focus", np.zeros((0, 0))),
        overlap=mean.get("overlap", np.zeros((0, 0))),
        rotation=mean["rotation"],
        update_correlation=mean["update_correlation"],
    )


def _measure(
    model: Model, weights: Weights, source: Source, contexts: int, count: int, settings: ProbeSettings
) -> dict[str, Tensor]:
    """Return means over ``contexts`` fresh contexts, for the single run of ``weights``."""
    batch = model.draw(source, contexts)
    traced = trace(model, weights, batch)
    found: dict[str, Tensor] = {
        "loss": traced.losses.mean(),
        "target": traced.target.square().sum(-1).mean(),
        "contribution": (traced.contributions * traced.target[:, :, None]).sum(-1).mean(1)[0],
        "layer_error": layers.layer_errors(traced).matrix[0],
        "rotation": rotation.rotations(traced.states)[0].nanmean(-1).nanmean(0),
        "update_correlation": rotation.update_correlations(traced.states)[0].nanmean(-1).nanmean(0),
    }
    if not settings.modes_only:
        found["ablation"] = layers.ablations(model, weights, batch)[0]
        found["swap"] = layers.swaps(model, weights, batch)[0]
    if model.config.task is None:
        return found
    found["mode_error"] = modes.mode_errors(model, batch, traced)[0]
    if model.config.task.context is None or settings.modes_only:
        return found
    if isinstance(model, ReducedLinear):  # trained on moments, but it has tokens to look at
        batch = model.sampler.tokens(source, contexts)
        traced = trace(model, weights, batch)
    assert traced.attention is not None
    shares = focus.focus(traced.attention[0])  # (B, L, H, Q, P)
    relevant = focus.relevance(batch.covariates[0], shares.shape[-1], settings.relevance)
    of_layer = shares.mean(2).transpose(1, 2)  # (B, Q, L, P)
    return found | {
        "entropy": focus.entropy(shares).nanmean(-1).nanmean(0),
        "participation": focus.participation(shares).nanmean(-1).nanmean(0),
        "relevant_mass": focus.relevant_mass(shares, relevant[:, None, None], count).nanmean(-1).nanmean(0),
        "ranked_focus": focus.by_relevance(of_layer, relevant[:, :, None]).nanmean(1).nanmean(0),
        "overlap": focus.overlap(of_layer).nanmean(1).nanmean(0),
    }


def _with_queries(config: RunConfig, queries: int) -> RunConfig:
    return config if config.task is None else config.override({"task.queries": queries})


def _piece(config: RunConfig, settings: ProbeSettings) -> int:
    """Return how many contexts to take at once."""
    model = config.model
    if config.task is None or config.task.context is None:
        return settings.contexts
    context = config.task.context
    tokens = context + settings.queries
    numbers = (
        model.depth * (tokens * model.width + settings.queries * context * model.heads) + model.heads * tokens * context
    )
    return max(1, min(settings.contexts, NUMBERS_AT_ONCE // numbers))
