"""What a run is: task, model and training as frozen, strict objects that go to JSON and back. Knows no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sim.sections import SPECTRA, Section, SpectrumConfig, TaskConfig, TeacherConfig
from theory.checks import choice, integer, real, reject

__all__ = [
    "ATTENTIONS",
    "MODELS",
    "OPTIMIZERS",
    "SPECTRA",
    "ModelConfig",
    "RunConfig",
    "Section",
    "SpectrumConfig",
    "TaskConfig",
    "TeacherConfig",
    "TrainingConfig",
]

MODELS = ("reduced", "decoupled", "transformer", "residual_mlp")
ATTENTIONS = ("linear", "softmax", "relu", "exp", "polynomial", "cosine")
STARTS = ("zero", "identity", "random")
SHAPES = ("full", "identity")
OPTIMIZERS = ("sgd", "adam", "lbfgs", "levenberg_marquardt")
SECOND_ORDER = ("lbfgs", "levenberg_marquardt")
SCHEDULES = ("constant", "linear", "cosine", "tail")
DTYPES = ("float32", "float64")
PRECISIONS = ("full", "tf32", "bf16")
DRAWS = ("device", "cpu")

# Fields of ModelConfig that only some models read; elsewhere they must keep their default.
_READ_BY: dict[str, tuple[str, ...]] = {
    "attention": ("reduced", "decoupled", "transformer"),
    "tied": ("reduced", "decoupled"),
    "gain": ("reduced",),
    "gain_start": ("reduced",),
    "gamma_start": ("reduced",),
    "gamma_scale": ("reduced",),
    "gamma_shape": ("reduced",),
    "gain_rate": ("reduced",),
    "degree": ("reduced",),
    "width": ("decoupled", "transformer"),
    "heads": ("transformer",),
    "norm": ("transformer",),
    "mlp": ("transformer",),
    "branch_exponent": ("transformer", "residual_mlp"),
    "depth_transfer": ("reduced", "decoupled", "transformer", "residual_mlp"),
}


@dataclasses.dataclass(frozen=True)
class ModelConfig(Section):
    """Which network, how deep, and how it starts.

    Parameters
    ----------
    name : {"reduced", "decoupled", "transformer", "residual_mlp"}
        The architecture (``sim.models``).
    attention : {"linear", "softmax", "relu", "exp", "polynomial", "cosine"}
        Kernel of the scores; ``transformer`` and ``decoupled`` know linear and softmax.
    depth : int
        L.
    tied : bool
        One set of weights for all layers (True), or one for each (False).
    gain : {"learned", "fixed"}
        Whether the gains b_l of a nonlinear reduced model are trained.
    gain_start : float
        b_l at the start. Zero together with Gamma = 0 would be a stationary point.
    gain_rate : float
        > 0; factor on the learning rate of the gains. Where the optimum has a small Gamma, gains have far to go.
    gamma_start : {"zero", "identity", "random"}
        Gamma_l at the start: 0, gamma_scale I, or gamma_scale N(0, 1/D) entries.
    gamma_scale : float
        See ``gamma_start``.
    gamma_shape : {"full", "identity"}
        A full D x D matrix, or gamma_l I with one number a layer. The optimum on rotated and isotropic data has that
        form by symmetry, and training is spared the noise of D^2 - 1 idle directions. A ``random`` start is then
        gamma_l ~ gamma_scale N(0, 1).
    degree : int
        Degree of the polynomial kernel.
    width : int
        N, residual-stream width.
    heads : int
        Attention heads; divides ``width``.
    norm, mlp : bool
        RMSNorm before each branch; an MLP after each attention.
    branch_exponent : float
        Residual branches are divided by L^branch_exponent, between 0 and 1.
    depth_transfer : bool
        Scale the learning rate of layer weights with depth, so that a rate tuned at depth 1 carries over.

    Raises
    ------
    ValueError
        For a value that is not allowed, or one that this model does not read.
    """

    name: str = "reduced"
    attention: str = "linear"
    depth: int = 1
    tied: bool = False
    gain: str = "learned"
    gain_start: float = 1.0
    gain_rate: float = 1.0
    gamma_start: str = "zero"
    gamma_scale: float = 1.0
    gamma_shape: str = "full"
    degree: int = 3
    width: int = 64
    heads: int = 1
    norm: bool = True
    mlp: bool = False
    branch_exponent: float = 1.0
    depth_transfer: bool = False

    def __post_init__(self) -> None:
        choice("model.name", self.name, MODELS)
        choice("model.attention", self.attention, ATTENTIONS)
        self._set("depth", integer("model.depth", self.depth))
        choice("model.gain", self.gain, ("learned", "fixed"))
        self._set("gain_start", real("model.gain_start", self.gain_start))
        self._set("gain_rate", real("model.gain_rate", self.gain_rate, above=0))
        choice("model.gamma_start", self.gamma_start, STARTS)
        choice("model.gamma_shape", self.gamma_shape, SHAPES)
        self._set("gamma_scale", real("model.gamma_scale", self.gamma_scale))
        self._set("degree", integer("model.degree", self.degree))
        self._set("width", integer("model.width", self.width))
        self._set("heads", integer("model.heads", self.heads))
        self._set("branch_exponent", real("model.branch_exponent", self.branch_exponent, minimum=0, maximum=1))
        for name in ("tied", "norm", "mlp", "depth_transfer"):
            if not isinstance(getattr(self, name), bool):
                raise reject(f"model.{name}", getattr(self, name), "true or false")
        for field in dataclasses.fields(self):
            readers = _READ_BY.get(field.name, MODELS)
            if self.name not in readers and getattr(self, field.name) != field.default:
                raise ValueError(
                    f"model.{field.name}={getattr(self, field.name)!r}: the model {self.name!r} does not read it; "
                    f"must be left out"
                )
        if self.name in ("decoupled", "transformer"):
            choice("model.attention", self.attention, ("linear", "softmax"))
        if self.width % self.heads:
            raise reject("model.heads", self.heads, f"a divisor of width={self.width}")
        if self.name == "reduced" and self.attention != "linear" and self.gain_start == 0 and self._starts_still():
            raise reject("model.gain_start", 0.0, "not 0 where Gamma starts at 0: training would never leave it")
        if self.attention == "cosine" and self._starts_still():
            raise reject("model.gamma_start", self.gamma_start, "identity or random for cosine: 0 has no direction")

    def _starts_still(self) -> bool:
        return self.gamma_start == "zero" or self.gamma_scale == 0


@dataclasses.dataclass(frozen=True)
class TrainingConfig(Section):
    """How a model is trained and evaluated.

    Parameters
    ----------
    optimizer : {"sgd", "adam", "lbfgs", "levenberg_marquardt"}
        The last two minimise the loss of one fixed batch of ``batch`` contexts in float64, in at most ``steps``
        iterations, without a learning rate; an interrupted run starts again.
    learning_rate : float
        eta > 0, at the top of the schedule. Theory's time is eta times the step.
    batch : int
        Contexts a step, drawn afresh.
    steps : int
        Number of updates; the loss is recorded before each, and once more after the last.
    schedule : {"constant", "linear", "cosine", "tail"}
        ``linear`` and ``cosine`` fall to zero at the end; ``tail`` is constant for the first half, then falls linearly.
    warmup : int
        Steps over which the rate rises from zero.
    clip : float or None
        Largest norm of a run's gradient.
    seed : int
        Seed of every draw: start, contexts, evaluation.
    dtype : {"float32", "float64"}
        Arithmetic of data, weights and optimiser.
    eval_contexts : int
        Fresh contexts for the final loss.
    snapshots : int
        Steps, evenly spaced in log(1 + step) from first to last, whose weights are kept for probes.
    precision : {"full", "tf32", "bf16"}
        Matrix products on CUDA: exact, TF32, or bfloat16 autocast.
    compile : bool
        Compile the loss with torch.compile.
    draws : {"device", "cpu"}
        Where random numbers are made; ``cpu`` gives CPU and CUDA runs the same data.

    Raises
    ------
    ValueError
        For a value that is not allowed.
    """

    optimizer: str = "adam"
    learning_rate: float = 0.01
    batch: int = 256
    steps: int = 1000
    schedule: str = "constant"
    warmup: int = 0
    clip: float | None = None
    seed: int = 0
    dtype: str = "float32"
    eval_contexts: int = 8192
    snapshots: int = 0
    precision: str = "full"
    compile: bool = False
    draws: str = "device"

    def __post_init__(self) -> None:
        choice("training.optimizer", self.optimizer, OPTIMIZERS)
        self._set("learning_rate", real("training.learning_rate", self.learning_rate, above=0))
        self._set("batch", integer("training.batch", self.batch))
        self._set("steps", integer("training.steps", self.steps))
        choice("training.schedule", self.schedule, SCHEDULES)
        self._set("warmup", integer("training.warmup", self.warmup, minimum=0))
        if self.clip is not None:
            self._set("clip", real("training.clip", self.clip, above=0))
        self._set("seed", integer("training.seed", self.seed, minimum=0, maximum=2**53))
        choice("training.dtype", self.dtype, DTYPES)
        self._set("eval_contexts", integer("training.eval_contexts", self.eval_contexts, minimum=2))
        self._set("snapshots", integer("training.snapshots", self.snapshots, minimum=0))
        choice("training.precision", self.precision, PRECISIONS)
        choice("training.draws", self.draws, DRAWS)
        if not isinstance(self.compile, bool):
            raise reject("training.compile", self.compile, "true or false")
        if self.is_second_order:
            if self.dtype != "float64":
                raise reject("training.dtype", self.dtype, f"float64 for {self.optimizer}")
            for name in ("schedule", "warmup", "clip", "snapshots"):
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    raise ValueError(f"training.{name}: {self.optimizer} does not read it; must be left out")

    @property
    def is_second_order(self) -> bool:
        """Whether one fixed batch is minimised, in place of steps on fresh ones."""
        return self.optimizer in SECOND_ORDER


@dataclasses.dataclass(frozen=True)
class RunConfig(Section):
    """One run, completely: what its folder's config.json holds and its digest names.

    Parameters
    ----------
    task : TaskConfig or mapping, optional
        For the attention models; the default where neither task nor teacher is given.
    model : ModelConfig or mapping
        The network.
    training : TrainingConfig or mapping
        The optimisation.
    teacher : TeacherConfig or mapping, optional
        For ``residual_mlp``, in place of the task.

    Raises
    ------
    ValueError
        If a section is refused, or sections do not fit together.
    """

    task: TaskConfig | None = None
    model: ModelConfig = dataclasses.field(default_factory=ModelConfig)
    training: TrainingConfig = dataclasses.field(default_factory=TrainingConfig)
    teacher: TeacherConfig | None = None

    def __post_init__(self) -> None:
        for name, kind in _SECTIONS.items():
            value = getattr(self, name)
            if value is not None and not isinstance(value, kind):
                self._set(name, kind.from_dict(value))  # type: ignore[attr-defined]
        learns_teacher = self.model.name == "residual_mlp"
        if learns_teacher and self.task is not None:
            raise ValueError("task is given for the model 'residual_mlp': must be left out, it learns a teacher")
        if not learns_teacher and self.teacher is not None:
            raise ValueError(f"teacher is given for the model {self.model.name!r}: must be left out, it learns a task")
        if learns_teacher and self.teacher is None:
            self._set("teacher", TeacherConfig())
        if not learns_teacher and self.task is None:
            self._set("task", TaskConfig())
        kernel = self.model.name == "reduced" and not self.is_reduced_linear
        if self.training.optimizer == "levenberg_marquardt" and not kernel:
            raise reject("training.optimizer", "levenberg_marquardt", "another but for a nonlinear reduced model")
        if self.model.gamma_shape == "identity" and self.task is not None:
            if self.task.setting == "fs":
                raise reject(
                    "model.gamma_shape", "identity", "full in the setting fs: no symmetry makes Gamma γ I there"
                )
            if self.training.optimizer == "levenberg_marquardt":
                raise reject("model.gamma_shape", "identity", "full for levenberg_marquardt")
        if self.task is not None and self.task.context is None and not self.is_reduced_linear:
            raise reject("task.context", None, "a whole number >= 1: only the reduced linear model has no tokens")

    @property
    def is_reduced_linear(self) -> bool:
        """Whether only (w, Sigma, Sigma_hat) of a context matters."""
        return self.model.name == "reduced" and self.model.attention == "linear"

    @property
    def digest(self) -> str:
        """Sixteen hex digits of the hash of the config: equal configs, equal digests. The device is not part of it."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """Return the sections as nested tables; the unused one of task and teacher is left out."""
        sections = {name: getattr(self, name) for name in _SECTIONS}
        return {name: section.to_dict() for name, section in sections.items() if section is not None}

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the config as JSON; ``from_json`` reads it back."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Read a config that ``to_json`` wrote.

        Raises
        ------
        ValueError
            If it is not JSON, or not a config.
        """
        try:
            fields = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"config is not JSON: {error}") from None
        return cls.from_dict(fields)

    def override(self, changes: Mapping[str, Any]) -> RunConfig:
        """Return a config with fields changed by dotted name, such as ``{"model.depth": 4, "task.context": 16}``.

        Raises
        ------
        ValueError
            If a name is unknown or a value not allowed.
        """
        fields = self.to_dict()
        for path, value in changes.items():
            *parents, leaf = path.split(".")
            table = fields
            for name in parents:
                table = table.setdefault(name, {}) if isinstance(table, dict) else table
                if not isinstance(table, dict):
                    raise reject("field", path, "section.name, such as model.depth")
            table[leaf] = value.to_dict() if isinstance(value, Section) else value
        return RunConfig.from_dict(fields)


_SECTIONS = {"task": TaskConfig, "model": ModelConfig, "training": TrainingConfig, "teacher": TeacherConfig}
