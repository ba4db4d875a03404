"""Strict config sections, and those that say what is learned: spectrum, task, teacher. Knows no torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Self

from theory.checks import choice, integer, real, reject, vector
from theory.results import plain
from theory.spectra import Spectrum
from theory.task import SETTINGS, Task

COEFFICIENTS = ("normal", "signs")
COVARIATES = ("gaussian", "signs", "sphere", "clusters")
TEACHER_LOSSES = ("mse", "cross_entropy")

# Parameters that each kind of spectrum takes besides an optional task_power.
SPECTRA: dict[str, tuple[str, ...]] = {
    "power_law": ("dim", "capacity", "source"),
    "isotropic": ("dim",),
    "exponential": ("dim", "rate"),
    "spiked": ("dim", "spikes", "bulk"),
    "log_uniform": ("dim", "decades"),
    "explicit": ("eigenvalues",),
}
_OWN_TASK_POWER = ("power_law", "isotropic")
_TUPLES = ("spikes", "eigenvalues", "task_power")
# What the covariates "clusters" take, and what they are if omitted.
_CLUSTERED: dict[str, Any] = {"clusters": 4, "spread": 0.25}


class Section:
    """A frozen dataclass that reads a mapping strictly: unknown keys are refused."""

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """Return the object that ``fields`` describe.

        Raises
        ------
        ValueError
            If a key is unknown, one is missing, or a value is not allowed.
        """
        known = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
        if not isinstance(fields, Mapping):
            raise reject(cls.__name__, fields, "a table of " + ", ".join(known))
        for key in fields:
            if key not in known:
                raise ValueError(f"{key!r} is not a field of {cls.__name__}: must be one of {', '.join(known)}")
        try:
            return cls(**fields)
        except TypeError as error:
            raise ValueError(f"{cls.__name__}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-ready values."""
        return {field.name: plain(getattr(self, field.name)) for field in dataclasses.fields(self)}  # type: ignore[arg-type]

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


@dataclasses.dataclass(frozen=True)
class SpectrumConfig(Section):
    """A spectrum by kind and parameters; ``build`` makes the :class:`theory.Spectrum`.

    Parameters
    ----------
    kind : {"power_law", "isotropic", "exponential", "spiked", "log_uniform", "explicit"}
        Which constructor.
    dim, capacity, source, rate, spikes, bulk, decades, eigenvalues
        What that constructor takes; the others must stay unset.
    task_power : tuple of float, optional
        omega_k, up to normalisation; not for ``power_law`` and ``isotropic``, which fix their own.

    Raises
    ------
    ValueError
        If a parameter is missing, does not belong to the kind, or is refused by the constructor.
    """

    kind: str = "isotropic"
    dim: int | None = None
    capacity: float | None = None
    source: float | None = None
    rate: float | None = None
    spikes: tuple[float, ...] | None = None
    bulk: float | None = None
    decades: float | None = None
    eigenvalues: tuple[float, ...] | None = None
    task_power: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        choice("spectrum.kind", self.kind, SPECTRA)
        for name in _TUPLES:
            value = getattr(self, name)
            if value is not None:
                self._set(name, tuple(vector(f"spectrum.{name}", value).tolist()))
        needed = SPECTRA[self.kind]
        allowed = {"kind", *needed} | (set() if self.kind in _OWN_TASK_POWER else {"task_power"})
        for field in dataclasses.fields(self):
            given = getattr(self, field.name) is not None
            if given and field.name not in allowed:
                raise ValueError(f"spectrum.{field.name} does not belong to the kind {self.kind!r}: must be left out")
            if not given and field.name in needed:
                raise ValueError(f"spectrum.{field.name} is missing: must be given for the kind {self.kind!r}")
        for name in ("capacity", "source", "rate", "bulk", "decades"):
            if getattr(self, name) is not None:
                self._set(name, real(f"spectrum.{name}", getattr(self, name)))
        if self.dim is not None:
            self._set("dim", integer("spectrum.dim", self.dim))
        self.build()

    def build(self) -> Spectrum:
        """Return the spectrum."""
        if self.kind == "explicit":
            return Spectrum(self.eigenvalues, self.task_power)  # type: ignore[arg-type]
        given = {name: getattr(self, name) for name in SPECTRA[self.kind]}
        if self.task_power is not None:
            given["task_power"] = self.task_power
        spectrum: Spectrum = getattr(Spectrum, self.kind)(**given)
        return spectrum

    def to_dict(self) -> dict[str, Any]:
        """Return the kind and the parameters that are set."""
        return {name: value for name, value in super().to_dict().items() if value is not None}


@dataclasses.dataclass(frozen=True)
class TaskConfig(Section):
    """The in-context regression task that a model is trained on.

    Parameters
    ----------
    setting : {"rrs", "fs", "iso"}
        As in :class:`theory.Task`.
    spectrum : SpectrumConfig or mapping
        Eigenvalues and task power.
    context : int or None
        P; ``None`` is the population covariance, for the reduced linear model only.
    label_noise : float
        sigma^2 >= 0.
    coefficients : {"normal", "signs"}
        Law of w_k / sqrt(omega_k): N(0, 1), or random signs.
    queries : int
        Query tokens a context. More of them lower the noise of the loss; each attends to the context alone.
    covariates : {"gaussian", "signs", "sphere", "clusters"}
        Law of z in x = O Lambda^(1/2) z, always with E z = 0 and E z z^T = I; see :mod:`sim.covariates`. An infinite
        context shows the covariance alone, which no law changes; ``clusters`` needs a finite one.
    clusters : int, optional
        K >= 1, cluster centres a context; 4 if omitted. For ``clusters`` only.
    spread : float, optional
        s in (0, 1], the share of a token's variance that lies within its cluster; 0.25 if omitted. For ``clusters``
        only.

    Raises
    ------
    ValueError
        For a value that is not allowed, or one that does not belong to the law of the covariates.
    """

    setting: str = "rrs"
    spectrum: SpectrumConfig = dataclasses.field(default_factory=lambda: SpectrumConfig("isotropic", dim=8))
    context: int | None = 32
    label_noise: float = 0.0
    coefficients: str = "normal"
    queries: int = 1
    covariates: str = "gaussian"
    clusters: int | None = None
    spread: float | None = None

    def __post_init__(self) -> None:
        choice("task.setting", self.setting, SETTINGS)
        if not isinstance(self.spectrum, SpectrumConfig):
            self._set("spectrum", SpectrumConfig.from_dict(self.spectrum))
        if self.context is not None:
            self._set("context", integer("task.context", self.context))
        self._set("label_noise", real("task.label_noise", self.label_noise, minimum=0))
        choice("task.coefficients", self.coefficients, COEFFICIENTS)
        self._set("queries", integer("task.queries", self.queries))
        self._check_covariates()
        self.build()

    def _check_covariates(self) -> None:
        choice("task.covariates", self.covariates, COVARIATES)
        if self.covariates == "clusters":
            if self.context is None:
                allowed = "a whole number >= 1 for the covariates 'clusters': Sigma alone tells no context's centres"
                raise reject("task.context", None, allowed)
            for name, value in _CLUSTERED.items():
                if getattr(self, name) is None:
                    self._set(name, value)
            self._set("clusters", integer("task.clusters", self.clusters))
            self._set("spread", real("task.spread", self.spread, above=0, maximum=1))
            return
        for name in _CLUSTERED:
            if getattr(self, name) is not None:
                raise ValueError(f"task.{name} does not belong to the covariates {self.covariates!r}: must be left out")

    @property
    def is_predicted(self) -> bool:
        """Whether theory's averages are this task's: its contexts are Gaussian, or seen by their covariance alone."""
        return self.covariates == "gaussian" or self.context is None

    def build(self) -> Task:
        """Return the task that theory reads, whose finite contexts are Gaussian."""
        return Task(self.spectrum.build(), self.setting, self.context, self.label_noise)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields, the spectrum as a small table; without those of another law of the covariates."""
        unset = {name for name in _CLUSTERED if getattr(self, name) is None}
        fields = {name: value for name, value in super().to_dict().items() if name not in unset}
        return {**fields, "spectrum": self.spectrum.to_dict()}


@dataclasses.dataclass(frozen=True)
class TeacherConfig(Section):
    """The teacher of ``residual_mlp``: a residual network with random layers.

    Parameters
    ----------
    depth : int
        Teacher layers.
    dim : int
        n, width of its stream, and the size of its Gaussian inputs; of the student's, too.
    hidden : int
        Units in each layer's branch, in teacher and student.
    strength : float
        > 0; scale of the teacher's branches.
    correlation : float
        rho in [0, 1] between the weights of any two layers: 0 independent, 1 identical.
    loss : {"mse", "cross_entropy"}
        Squared error of the final stream, or cross-entropy against the teacher's softmax.
    temperature : float
        > 0; divides teacher and student logits under cross-entropy.
    seed : int
        Seed of the teacher's weights, so that students of several seeds share one teacher.

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """

    depth: int = 64
    dim: int = 4
    hidden: int = 4
    strength: float = 1.0
    correlation: float = 0.0
    loss: str = "mse"
    temperature: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        self._set("depth", integer("teacher.depth", self.depth))
        self._set("dim", integer("teacher.dim", self.dim))
        self._set("hidden", integer("teacher.hidden", self.hidden))
        self._set("strength", real("teacher.strength", self.strength, above=0))
        self._set("correlation", real("teacher.correlation", self.correlation, minimum=0, maximum=1))
        choice("teacher.loss", self.loss, TEACHER_LOSSES)
        self._set("temperature", real("teacher.temperature", self.temperature, above=0))
        self._set("seed", integer("teacher.seed", self.seed, minimum=0))
