"""Options that several subcommands share, and the readers of their values."""

from __future__ import annotations

import itertools
import math
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from theory.checks import reject

if TYPE_CHECKING:
    from theory.spectra import Spectrum
    from theory.task import Task

# More steps than this in one --steps-at range is a typing slip, not a wish.
MOST_STEPS = 10_000_000

Setting = Annotated[str, typer.Option(help="rrs (fresh rotation each context), fs (fixed eigenbasis), or iso.")]
Dim = Annotated[int, typer.Option(help="Covariate dimension D.")]
LargeDim = Annotated[str, typer.Option(help="Covariate dimension D, of any size, or inf (rrs, infinite context).")]
Capacity = Annotated[float, typer.Option(help="nu: eigenvalues fall like k^-nu.")]
Source = Annotated[float, typer.Option(help="beta: eigenvalue x task power falls like k^-(nu beta + 1).")]
Context = Annotated[str, typer.Option(help="P, labelled tokens a context; 'inf' is the population covariance.")]
LabelNoise = Annotated[float, typer.Option(help="Variance of the noise on the context labels.")]
Depth = Annotated[int, typer.Option(help="Number of layers L.")]
SpectrumPath = Annotated[
    Path | None,
    typer.Option("--spectrum", help="FILE (.npy, .csv, .parquet) with eigenvalues, a covariance or samples."),
]
Labels = Annotated[str | None, typer.Option(help="Column of the labels, by name or number, where FILE holds samples.")]
SpectrumKind = Annotated[str, typer.Option(help="What FILE holds: auto, eigenvalues, covariance or samples.")]
Seed = Annotated[int, typer.Option(help="Seed of every random draw.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]


def read_context(text: str) -> int | None:
    """Return ``--context`` as a count of tokens, ``None`` for ``inf``.

    Raises
    ------
    ValueError
        If it is neither a whole number >= 1 nor ``inf``.
    """
    if text.strip().lower() in {"inf", "infinity", "none"}:
        return None
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise reject("context", text, "a whole number >= 1, or inf")
    return number


def read_steps(text: str) -> list[int]:
    """Return ``--steps-at``: ``0,1,10``, ``0:3001`` or ``0:3001:10``, or a mixture separated by commas.

    Raises
    ------
    ValueError
        If a part is not a whole number >= 0 or a range, or the steps are not strictly increasing.
    """
    allowed = "steps such as 0,1,10 or a range such as 0:3001 or 0:3001:10"
    steps: list[int] = []
    for part in text.split(","):
        if not re.fullmatch(r"\s*\d{1,12}(:\d{1,12}(:\d{1,12})?)?\s*", part):
            raise reject("steps-at", text, allowed)
        numbers = [int(piece) for piece in part.split(":")]
        span = range(numbers[0], numbers[0] + 1) if len(numbers) == 1 else None
        if span is None:
            stride = numbers[2] if len(numbers) == 3 else 1
            if stride < 1:
                raise reject("steps-at", text, allowed + " with a stride >= 1")
            span = range(numbers[0], numbers[1], stride)
        if len(span) > MOST_STEPS or len(span) == 0:
            raise reject("steps-at", text, f"ranges of 1 to {MOST_STEPS} steps")
        steps.extend(span)
    if any(later <= earlier for earlier, later in itertools.pairwise(steps)):
        raise reject("steps-at", text, "strictly increasing")
    return steps


def read_times(text: str) -> list[float]:
    """Return ``--times`` as increasing numbers >= 0, such as ``10,1e3,1e5``.

    Raises
    ------
    ValueError
        If a part is not a finite number >= 0, or they do not increase.
    """
    times = []
    for part in text.split(","):
        try:
            value = float(part)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= 0):
            raise reject("times", text, "finite numbers >= 0 separated by commas, such as 10,1e3,1e5")
        times.append(value)
    if any(later <= earlier for earlier, later in itertools.pairwise(times)):
        raise reject("times", text, "strictly increasing")
    return times


def read_depths(text: str) -> list[int]:
    """Return depths written ``4,64``, each once.

    Raises
    ------
    ValueError
        If a part is not a whole number >= 1, or occurs twice.
    """
    parts = [part.strip() for part in text.split(",")]
    depths = [int(part) for part in parts if re.fullmatch(r"\d{1,9}", part)]
    if len(depths) < len(parts) or len(set(depths)) < len(depths) or min(depths) < 1:
        raise reject("depth", text, "different whole numbers >= 1 separated by commas, such as 4,64")
    return depths


def read_dim(text: str) -> int | float:
    """Return ``--dim`` as a whole number, such as 45, 1e9 or 1_000_000, or ``math.inf`` for ``inf``.

    Raises
    ------
    ValueError
        If it is neither.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isinf(number) and number > 0:
        return number
    if not number.is_integer() or number < 1:
        raise reject("dim", text, "a whole number >= 1, or inf")
    return int(number)


def large_task(task: Task, dim: int | float, depth: int) -> Task:
    """Return ``task`` with its power law carried to ``dim`` modes, too many to hold one by one.

    Raises
    ------
    ValueError
        If the task has no power law, a finite context, or another setting than ``rrs``.
    """
    from theory.measure import SpectralMeasure
    from theory.task import LARGEST_DIM, Task

    spectrum = task.spectrum
    if spectrum.capacity is None or spectrum.source is None:
        raise reject("dim", dim, f"at most {LARGEST_DIM} in the setting {task.setting!r}")
    # Untied layers put their zeros on the first eigenvalues one by one.
    measure: Any = SpectralMeasure.power_law(dim, spectrum.capacity, spectrum.source, head=max(64, 2 * depth))
    return Task(measure, task.setting, task.context, task.label_noise)


def build_spectrum(
    setting: str, dim: int, capacity: float, source: float, file: Path | None = None, labels: str | None = None
) -> Spectrum:
    """Return the spectrum that the task flags describe: that of ``file``, isotropic for ``iso``, else the power law.

    Raises
    ------
    ValueError
        If a value is out of range, or ``file`` holds no spectrum.
    OSError
        If ``file`` cannot be read.
    """
    from theory.spectra import Spectrum

    if file is not None:
        from validate.spectrum_files import read_spectrum_file

        return read_spectrum_file(file, labels=labels).spectrum()
    if labels is not None:
        raise reject("labels", labels, "left out without --spectrum FILE")
    return Spectrum.isotropic(dim) if setting == "iso" else Spectrum.power_law(dim, capacity, source)


def build_task(
    setting: str,
    dim: int,
    capacity: float,
    source: float,
    context: str,
    label_noise: float,
    file: Path | None = None,
    labels: str | None = None,
) -> Task:
    """Return the task that the task flags describe; ``file`` replaces dim, capacity and source.

    Raises
    ------
    ValueError
        If a value is out of range, or ``file`` holds no spectrum.
    OSError
        If ``file`` cannot be read.
    """
    from theory.checks import choice
    from theory.task import SETTINGS, Task

    choice("setting", setting, SETTINGS)
    spectrum = build_spectrum(setting, dim, capacity, source, file, labels)
    return Task(spectrum, setting, read_context(context), label_noise)


def stop_as_ctrl_c() -> None:
    """Let SIGTERM, which a batch system sends before it kills, end the command as Ctrl-C does: checkpoints written."""

    def interrupt(_signal: int, _frame: object) -> None:
        signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGTERM, interrupt)
