"""A study: the experiments of a preset, run once each into a store, read back as one tidy frame with their theory."""

from __future__ import annotations

import dataclasses
import itertools
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from theory.checks import reject
from theory.results import dump_json

if TYPE_CHECKING:
    import pandas as pd

    from sim.config import RunConfig
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
    configs : tuple of RunConfig
        The grid, spelt out.
    """

    name: str
    purpose: str
    configs: tuple[RunConfig, ...]


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
    def configs(self) -> list[RunConfig]:
        """All runs, each once."""
        unique = {config.digest: config for experiment in self.experiments for config in experiment.configs}
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
    return Preset(path.stem, str(content.get("description", "")), experiments)


def _experiment(table: Mapping[str, Any], path: Path) -> Experiment:
    unknown = set(table) - {"name", "purpose", "base", "grid"}
    if unknown or "name" not in table or "base" not in table:
        raise ValueError(f"preset={str(path)!r}: an experiment must have name, purpose, base and grid only")
    return Experiment(str(table["name"]), str(table.get("purpose", "")), tuple(expand(table["base"], table["grid"])))


def expand(base: Mapping[str, Any], grid: Mapping[str, list[Any]]) -> Iterator[RunConfig]:
    """Yield the config of every combination of the grid's values, the last key fastest.

    Parameters
    ----------
    base : mapping
        Sections of a run's config; ``context = "inf"`` is the population.
    grid : mapping
        Lists of values by dotted field name, such as ``"model.depth"``.

    Raises
    ------
    ValueError
        If a field is unknown or a value not allowed.
    """
    from sim.config import RunConfig

    for values in itertools.product(*grid.values()):
        fields: dict[str, dict[str, Any]] = {section: dict(table) for section, table in base.items()}
        for path, value in zip(grid, values, strict=True):
            section, _, leaf = path.partition(".")
            fields.setdefault(section, {})[leaf] = value
        task = fields.get("task")
        if task is not None and task.get("context") == "inf":
            task["context"] = None
        yield RunConfig.from_dict(fields)


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """A preset and its runs.

    Parameters
    ----------
    preset : Preset
        What was asked.
    store : Path
        One folder a run, named by the digest of its config.
    failures : dict
        Error text of the runs that failed, by digest.
    """

    preset: Preset
    store: Path
    failures: dict[str, str]

    def run(self, config: RunConfig) -> Run:
        """Return a finished run from the store."""
        from sim.store import read_run

        return read_run(self.store / config.digest)

    def runs(self, experiment: str) -> list[Run]:
        """Return the finished runs of an experiment in the order of its grid; empty if the preset has no such."""
        for candidate in self.preset.experiments:
            if candidate.name == experiment:
                return [self.run(config) for config in candidate.configs if config.digest not in self.failures]
        return []

    def to_frame(self) -> pd.DataFrame:
        """Return one row a run: experiment, config fields, losses, convergence, theory's floors, time, device."""
        import pandas as pd

        rows = []
        for experiment in self.preset.experiments:
            for config in experiment.configs:
                if config.digest in self.failures:
                    continue
                rows.append({"experiment": experiment.name, **run_row(self.run(config))})
        return pd.DataFrame(rows)


def run_row(run: Run) -> dict[str, Any]:
    """Return the facts of a run as one table row."""
    config = run.config
    row: dict[str, Any] = {
        "digest": config.digest,
        "model": config.model.name,
        "attention": config.model.attention,
        "depth": config.model.depth,
        "tied": config.model.tied,
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
        }
    if config.teacher is not None:
        row |= {
            "spectrum": f"teacher ρ = {config.teacher.correlation:g}, {config.teacher.loss}",
            "correlation": config.teacher.correlation,
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
        "seconds": run.seconds,
        "device": run.machine["device"],
    }


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
        If the run is another model, another optimiser or another start: theory has no curve then.
    """
    from validate.comparison import compare_curve

    config = run.config
    plain_sgd = config.training.optimizer == "sgd" and config.training.schedule == "constant"
    if not (config.is_reduced_linear and plain_sgd and config.model.gamma_start == "zero" and config.task is not None):
        raise ValueError(f"run {config.digest}: must be reduced linear attention trained by plain SGD from zero")
    # A Gamma shared by L layers collects the gradients of all of them.
    rate = config.training.learning_rate * (config.model.depth if config.model.tied else 1)
    return compare_curve(
        run.to_frame(), config.task.build(), config.model.depth, learning_rate=rate, seed=config.training.seed
    )


def run_preset(preset: Preset, store: Path, *, device: str = "auto", say: Callable[[str], None] | None = None) -> Study:
    """Train every run of ``preset`` that ``store`` does not hold yet; the same call again resumes.

    Parameters
    ----------
    preset : Preset
        What to run.
    store : path
        One folder a run, named by its digest.
    device : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    say : callable, optional
        Told one line a run; stderr if omitted.

    Raises
    ------
    ValueError
        If the device is not there.
    OSError
        If the store cannot be written.
    """
    from sim.devices import choose_device
    from sim.training import train

    tell = say or (lambda text: print(text, file=sys.stderr, flush=True))
    choose_device(device)
    store.mkdir(parents=True, exist_ok=True)
    failures: dict[str, str] = {}
    configs = preset.configs
    for number, config in enumerate(configs, start=1):
        try:
            run = train(config, device=device, out=store / config.digest)
        except (RuntimeError, ValueError) as error:
            failures[config.digest] = f"{type(error).__name__}: {error}"
            tell(f"[{number}/{len(configs)}] {config.digest} failed: {error}")
            continue
        tell(f"[{number}/{len(configs)}] {run} ({run.seconds:.1f} s)")
    return Study(preset, store, failures)


def write_runs(study: Study, folder: Path) -> Path:
    """Write the study's table as runs.parquet and the failures as failures.json; return the table's path."""
    from theory.files import atomic_path, write_text

    path = folder / "runs.parquet"
    with atomic_path(path) as temporary:
        study.to_frame().to_parquet(temporary, index=False)
    write_text(folder / "failures.json", dump_json(study.failures, indent=2) + "\n")
    return path
