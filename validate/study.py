"""A study: the experiments of a preset, run once each into a store, read back as one tidy frame with their theory."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.checks import integer, reject

if TYPE_CHECKING:
    import pandas as pd

    from sim.config import RunConfig
    from sim.grid import Plan
    from sim.runs import Runs
    from sim.store import Run
    from validate.comparison import Comparison

PRESETS = ("smoke", "laptop", "paper")
FOLDER = Path(__file__).parent / "presets"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """Runs that share a purpose.

    Parameters
    ----------
    name, purpose : str
        As the report shows them.
    plans : tuple of Plan
        The grid, spelt out, as a sweep runs it.
    """

    name: str
    purpose: str
    plans: tuple[Plan, ...]


@dataclasses.dataclass(frozen=True)
class Preset:
    """What a preset file holds.

    Parameters
    ----------
    name, description : str
        As the report shows them.
    experiments : tuple of Experiment
        In the order of the file.
    """

    name: str
    description: str
    experiments: tuple[Experiment, ...]

    @property
    def plans(self) -> list[Plan]:
        """All runs, each once."""
        unique = {plan.digest: plan for experiment in self.experiments for plan in experiment.plans}
        return list(unique.values())


def load_preset(name: str | Path) -> Preset:
    """Return a preset by name (smoke, laptop, paper) or from a TOML file.

    Raises
    ------
    ValueError
        If there is no such preset, or the file is not one.
    OSError
        If the file cannot be read.
    """
    path = Path(name)
    if path.suffix != ".toml":
        if str(name) not in PRESETS:
            raise reject("preset", str(name), "one of " + ", ".join(PRESETS) + ", or a .toml file")
        path = FOLDER / f"{name}.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"preset={str(path)!r}: must be a TOML file ({error})") from None
    tables = content.get("experiment")
    if not isinstance(tables, list) or not tables:
        raise ValueError(f"preset={str(path)!r}: must have at least one [[experiment]]")
    experiments = tuple(_experiment(table, path) for table in tables)
    names = [experiment.name for experiment in experiments]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(
            f"preset={str(path)!r}: experiment {twice[0]!r} must be there once, its variations in its grid"
        )
    return Preset(path.stem, str(content.get("description", "")), experiments)


def _experiment(table: Mapping[str, Any], path: Path) -> Experiment:
    from sim.grid import plan_runs
    from validate.requirements import check_runs

    known = {"name", "purpose", "base", "grid"}
    if not isinstance(table, dict) or set(table) - known or not {"name", "base"} <= set(table):
        raise ValueError(f"preset={str(path)!r}: an experiment must be a table of name, purpose, base and grid only")
    if not isinstance(table["name"], str) or not isinstance(table.get("purpose", ""), str):
        raise ValueError(f"preset={str(path)!r}: name and purpose of an experiment must be texts")
    if not table["name"].strip():
        raise ValueError(f"preset={str(path)!r}: the name of an experiment must not be blank")
    try:
        plans = plan_runs({"base": table["base"], "grid": table.get("grid", {})})
    except ValueError as error:
        raise ValueError(f"preset={str(path)!r}, experiment {table['name']!r}: {error}") from None
    refused = [plan.error for plan in plans if plan.config is None]
    if refused:
        raise ValueError(f"preset={str(path)!r}, experiment {table['name']!r}: {refused[0]}")
    try:
        check_runs(table["name"], [plan.config for plan in plans if plan.config is not None])
    except ValueError as error:
        raise ValueError(f"preset={str(path)!r}, experiment {table['name']!r}: {error}") from None
    return Experiment(table["name"], table.get("purpose", ""), tuple(plans))


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """A preset and its runs.

    Parameters
    ----------
    preset : Preset
        What was asked.
    known : sim.runs.Runs
        What the store holds of it.
    rows : mapping
        The finished runs as `run_row` gives them, by digest.
    """

    preset: Preset
    known: Runs
    rows: Mapping[str, Mapping[str, Any]]

    @property
    def failures(self) -> dict[str, str]:
        """Error text of the runs that failed or are damaged, by digest."""
        return {record.digest: record.error for record in self.known.records if record.status in ("failed", "damaged")}

    def runs(self, experiment: str) -> list[Run]:
        """Return the finished runs of an experiment in the order of its grid; empty if the preset has no such."""
        finished = {record.digest for record in self.known.records if record.status == "finished"}
        for candidate in self.preset.experiments:
            if candidate.name == experiment:
                return [self.known.read(plan.digest) for plan in candidate.plans if plan.digest in finished]
        return []

    def to_frame(self) -> pd.DataFrame:
        """Return one row a run: experiment, config fields, losses, convergence, time, device."""
        import pandas as pd

        rows = [
            {"experiment": experiment.name, **self.rows[plan.digest]}
            for experiment in self.preset.experiments
            for plan in experiment.plans
            if plan.digest in self.rows
        ]
        return pd.DataFrame(rows)


def run_row(run: Run) -> dict[str, Any]:
    """Return the facts of a run as one table row."""
    config = run.config
    row: dict[str, Any] = {
        "digest": config.digest,
        "model": model_label(config),
        "attention": config.model.attention,
        "depth": config.model.depth,
        "tied": config.model.tied,
        "gain": config.model.gain_start if config.model.gain == "fixed" else None,
    }
    if config.task is not None:
        spectrum = config.task.spectrum
        row |= {
            "setting": config.task.setting,
            "spectrum": spectrum_label(config),
            "capacity": spectrum.capacity,
            "source": spectrum.source,
            "dim": config.task.build().dim,
            "context": config.task.context,
            "label_noise": config.task.label_noise,
            "covariates": config.task.covariates,
            "clusters": config.task.clusters,
            "spread": config.task.spread,
        }
    if config.teacher is not None:
        row |= {
            "spectrum": f"teacher ρ = {config.teacher.correlation:g}, {config.teacher.loss}",
            "correlation": config.teacher.correlation,
            "teacher_seed": config.teacher.seed,
        }
    return row | {
        "optimizer": config.training.optimizer,
        "learning_rate": config.training.learning_rate,
        "batch": config.training.batch,
        "steps": config.training.steps,
        "seed": config.training.seed,
        "dtype": config.training.dtype,
        "final_loss": run.final_loss,
        "standard_error": run.standard_error,
        "converged": run.converged,
        "convergence": str(run.convergence),
        # Runs that train as one program share its time.
        "seconds": run.seconds / run.machine.get("together", 1),
        "device": run.machine["device"],
    }


def model_label(config: RunConfig) -> str:
    """Return a short name of the run's architecture, such as ``transformer + MLP``."""
    return config.model.name + (" + MLP" if config.model.mlp else "")


def spectrum_label(config: RunConfig) -> str:
    """Return a short name of the run's spectrum, such as ``ν = 1, β = 1``."""
    assert config.task is not None
    spectrum = config.task.spectrum
    if spectrum.kind == "power_law":
        return f"ν = {spectrum.capacity:g}, β = {spectrum.source:g}"
    details = {
        "exponential": f" {spectrum.rate}",
        "log_uniform": f" {spectrum.decades}",
        "spiked": f" {spectrum.spikes}",
    }
    return spectrum.kind.replace("_", "-") + details.get(spectrum.kind, "")


def compare_with_theory(run: Run) -> Comparison:
    """Hold the training curve of reduced linear attention, trained by plain SGD from zero, against its prediction.

    Raises
    ------
    ValueError
        If the run is another model, another optimiser or another start, or its contexts are not Gaussian: theory has no
        curve then.
    """
    from validate.comparison import compare_curve

    config = run.config
    if config.task is not None and not config.task.is_predicted:
        allowed = "gaussian at finite context, for which alone theory has a curve"
        raise ValueError(f"run {config.digest}: " + str(reject("task.covariates", config.task.covariates, allowed)))
    if config.task is None or not has_prediction(config):
        raise ValueError(f"run {config.digest}: must be reduced linear attention trained by plain SGD from zero")
    return compare_curve(
        run.to_frame(),
        config.task.build(),
        config.model.depth,
        learning_rate=predicted_rate(config),
        seed=config.training.seed,
    )


def has_prediction(config: RunConfig) -> bool:
    """Return whether theory predicts the run's curve: reduced linear attention, rotated data, plain SGD from zero.

    Contexts must be Gaussian, or infinite.
    """
    training, model = config.training, config.model
    plain = training.optimizer == "sgd" and training.schedule == "constant" and training.warmup == 0
    from_zero = model.gamma_start == "zero" and not model.depth_transfer
    rotated = config.task is not None and config.task.setting != "fs" and config.task.is_predicted
    return config.is_reduced_linear and rotated and plain and from_zero and training.clip is None


def predicted_rate(config: RunConfig) -> float:
    """Return the learning rate of the prediction: a Gamma shared by L layers collects the gradients of all of them."""
    return config.training.learning_rate * (config.model.depth if config.model.tied else 1)


def run_preset(preset: Preset, store: Path, *, device: str = "auto", workers: int = 1) -> Study:
    """Train every run of ``preset`` that ``store`` does not hold yet; the same call again resumes.

    Parameters
    ----------
    preset : Preset
        What to run.
    store : path
        One folder a run.
    device : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    workers : int
        Local processes; 1 trains in this process.

    Raises
    ------
    ValueError
        If the device is not there.
    OSError
        If the store cannot be written.
    """
    from sim.devices import choose_device
    from sim.executors import InProcess, LocalProcesses
    from sim.sweep import run_sweep
    from sim.sweep_progress import default_sweep_progress

    choose_device(device)
    executor = InProcess() if integer("workers", workers) == 1 else LocalProcesses(workers)
    known = run_sweep(preset.plans, store, executor=executor, device=device, progress=default_sweep_progress())
    return _read_study(preset, known)


def stored_study(preset: Preset, store: Path) -> Study:
    """Return what ``store`` holds of ``preset``, training nothing.

    Raises
    ------
    ValueError
        If it is a store of another format.
    """
    from sim.sweep import survey

    return _read_study(preset, survey(preset.plans, store))


def _read_study(preset: Preset, known: Runs) -> Study:
    """Read every finished run once; one whose files cannot be read is damaged, and does not end the report."""
    records, rows = [], {}
    for record in known.records:
        if record.status == "finished":
            try:
                rows[record.digest] = run_row(known.read(record.digest))
            except (ValueError, OSError, LookupError, TypeError) as error:
                text = str(error) if isinstance(error, (ValueError, OSError)) else f"a field is amiss: {error!r}"
                damage = text if str(record.folder) in text else f"{record.folder}: {text}"
                record = dataclasses.replace(record, status="damaged", error=damage)
        records.append(record)
    return Study(preset, dataclasses.replace(known, records=tuple(records)), rows)
