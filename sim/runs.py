"""Many runs on disk: a store holds one folder a run, named by its digest, and reads back as one tidy frame."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim import store
from sim.config import RunConfig
from sim.grid import Fields, Plan, flatten
from theory.files import TEMPORARY_PREFIX, write_text
from theory.results import Result, axes_or_new, dump_json

if TYPE_CHECKING:
    import pandas as pd
    from filelock import BaseFileLock
    from matplotlib.axes import Axes

    from sim.store import Run

# Raised when the layout changes meaning; a store of another format is refused, never misread.
FORMAT = 1
MARKER, IDENTITY, FAILURE, LOCKS = "store.json", "identity.json", "failed.json", ".locks"
STATUSES = ("finished", "failed", "damaged", "running", "interrupted", "waiting")


@dataclasses.dataclass(frozen=True)
class Record:
    """What a store knows of one run.

    Parameters
    ----------
    digest : str
        Its name.
    status : str
        ``finished``; ``failed`` (it raised); ``damaged`` (finished, but a file cannot be read); ``running`` (a
        process holds its lock); ``interrupted`` (it has a checkpoint to resume from); ``waiting``.
    fields : dict
        Its config, by dotted name.
    folder : Path
        Where it lies.
    summary : dict
        ``summary.json`` of a finished run.
    code_version : str
        Of the code that began it, empty if not begun by a sweep.
    error : str
        Why it failed, or is damaged.
    """

    digest: str
    status: str
    fields: Fields
    folder: Path
    summary: dict[str, Any] = dataclasses.field(default_factory=dict)
    code_version: str = ""
    error: str = ""

    def row(self) -> dict[str, Any]:
        """Return the record as one row of the frame."""
        verdict = self.summary.get("convergence", {})
        return {
            "run": self.digest,
            "status": self.status,
            "depth": self.fields.get("model.depth"),
            "seed": self.fields.get("training.seed"),
            **{name: tuple(value) if isinstance(value, list) else value for name, value in self.fields.items()},
            "final_loss": _number(self.summary.get("final_loss")),
            "standard_error": _number(self.summary.get("standard_error")),
            "converged": verdict.get("converged"),
            "convergence": verdict.get("reason", ""),
            "seconds": _number(self.summary.get("seconds")),
            "device": self.summary.get("machine", {}).get("device", ""),
            "torch": self.summary.get("machine", {}).get("torch", ""),
            "notes": "; ".join(self.summary.get("notes", [])),
            "code_version": self.code_version,
            "error": self.error,
            "folder": str(self.folder),
        }


@dataclasses.dataclass(frozen=True)
class Runs(Result):
    """The runs of a store, or those of a sweep in it.

    Parameters
    ----------
    store : Path
        The folder.
    records : tuple of Record
        One a run.
    """

    store: Path
    records: tuple[Record, ...]

    def __len__(self) -> int:
        return len(self.records)

    def __str__(self) -> str:
        counts = self.counts()
        listed = ", ".join(f"{count} {status}" for status, count in counts.items() if count) or "no runs"
        lines = [f"{self.store}: {listed}"]
        lines += [f"{record.status} {record.digest}: {record.error}" for record in self.records if record.error]
        return "\n".join(lines)

    def counts(self) -> dict[str, int]:
        """Return how many runs have each status."""
        found = Counter(record.status for record in self.records)
        return {status: found[status] for status in STATUSES}

    def read(self, digest: str) -> Run:
        """Return the finished run named ``digest``, with its loss at every step and its weights.

        Raises
        ------
        ValueError
            If there is none, or it is not finished.
        """
        for record in self.records:
            if record.digest == digest:
                return store.read_run(record.folder)
        raise ValueError(f"digest={digest!r}: must be a run of {self.store}")

    def to_dict(self) -> dict[str, Any]:
        """Return the counts and one object a run."""
        rows: list[dict[str, Any]] = json.loads(dump_json([record.row() for record in self.records]))
        return {"store": str(self.store), "counts": self.counts(), "runs": rows}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a run: run, status, depth, seed, every config field, losses, verdict, time, machine, notes.

        Columns of the config have dotted names (``task.context``); ``depth`` and ``seed`` repeat ``model.depth`` and
        ``training.seed``. Without a value: NaN, or None where the field does not belong to that run's config.
        """
        import pandas as pd

        empty = Record("", "", {}, Path())
        columns: dict[str, None] = {}
        rows = [record.row() for record in self.records]
        for row in rows or [empty.row()]:
            columns |= dict.fromkeys(row)
        tail = [name for name in empty.row() if name not in ("run", "status", "depth", "seed")]
        order = [name for name in columns if name not in tail] + tail
        frame = pd.DataFrame(rows, columns=order)
        frame["converged"] = frame["converged"].astype("boolean")
        for name in ("final_loss", "standard_error", "seconds"):
            frame[name] = frame[name].astype(float)
        return frame

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw final loss against depth; runs that have not converged are hollow."""
        axes = axes_or_new(ax)
        frame = self.to_frame()
        frame = frame[frame["status"] == "finished"]
        for converged, fill in ((True, "C0"), (False, "none")):
            part = frame[frame["converged"].fillna(False) == converged]
            axes.errorbar(
                part["depth"].astype(float),
                part["final_loss"],
                part["standard_error"],
                fmt="o",
                color="C0",
                mfc=fill,
                label="converged" if converged else "not converged",
            )
        axes.set(xlabel="depth L", ylabel="loss")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.legend(frameon=False)
        return axes


def load(place: str | os.PathLike[str]) -> Runs:
    """Return all runs in a store, or in any folder whose subfolders are run folders, or in one run folder.

    Raises
    ------
    ValueError
        If it holds no runs and is no store, or is a store of another format.
    """
    folder = Path(place)
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a store of runs: there is no such folder")
    if (folder / store.CONFIG).exists():
        return Runs(folder, (read_record(folder),))
    is_store = check_format(folder)
    found = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    records = tuple(read_record(path) for path in found if _is_run(path))
    if not records and not is_store:
        raise ValueError(f"{folder} is not a store of runs: no folder in it holds one")
    return Runs(folder, records)


def check_format(folder: Path) -> bool:
    """Return whether ``folder`` is marked as a store.

    Raises
    ------
    ValueError
        If it is no folder, a store of another format, or the marker cannot be read.
    """
    marker = folder / MARKER
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"store={str(folder)!r}: must be a folder")
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))["format"]
    except FileNotFoundError:
        return False
    except (ValueError, TypeError, KeyError):
        raise ValueError(f"{marker} cannot be read: it should say {{'format': {FORMAT}}}") from None
    if found != FORMAT:
        raise ValueError(
            f"{folder} is a store of format {found}: this version reads format {FORMAT}; use another --store"
        )
    return True


def open_store(folder: Path) -> None:
    """Make ``folder`` a store, unless it is one, and see that it can be written.

    Raises
    ------
    ValueError
        If it is a store of another format, or a folder of other things.
    OSError
        If it cannot be written.
    """
    is_store = check_format(folder)
    if (
        not is_store
        and folder.is_dir()
        and any(not (path.name.startswith(".") or _is_run(path)) for path in folder.iterdir())
    ):
        raise ValueError(f"store={str(folder)!r}: must be a store, or a new or empty folder")
    (folder / LOCKS).mkdir(parents=True, exist_ok=True)
    with lock(folder, "store", timeout=10):
        for stray in folder.glob(f"{TEMPORARY_PREFIX}*"):
            stray.unlink(missing_ok=True)
        if not is_store:
            write_text(folder / MARKER, dump_json({"format": FORMAT}) + "\n")


def lock(folder: Path, name: str, timeout: float = 0) -> BaseFileLock:
    """Return the lock of run ``name``: a context manager that raises ``filelock.Timeout`` if another holds it.

    It is the operating system's lock on an open file, so a holder that is killed lets go of it; the file that stays
    behind means nothing.
    """
    from filelock import FileLock

    return FileLock(folder / LOCKS / f"{name}.lock", timeout=timeout)


def is_locked(folder: Path, name: str) -> bool:
    """Return whether some process is at work on run ``name``."""
    from filelock import Timeout

    if not (folder / LOCKS / f"{name}.lock").exists():
        return False
    try:
        with lock(folder, name):
            return False
    except Timeout:
        return True
    except OSError:  # a store that cannot be written has nobody at work in it
        return False


def read_record(folder: Path) -> Record:
    """Return what the run folder ``folder`` says."""
    identity, failure = _read(folder / IDENTITY), _read(folder / FAILURE)
    digest = identity.get("digest", folder.name)
    fields, summary, error = identity.get("fields", {}), {}, ""
    if (folder / store.CONFIG).exists():
        try:
            fields = config_fields(store.read_config(folder))
        except ValueError as complaint:
            error = str(complaint)
    status = "waiting"
    if store.is_done(folder):
        status = "finished"
        try:
            summary = store.read_summary(folder)
        except ValueError as complaint:
            error = str(complaint)
        status = "damaged" if error else "finished"
    elif is_locked(folder.parent, digest):
        status, error = "running", ""
    elif failure:
        status, error = "failed", str(failure.get("error", "no error was recorded"))
    elif store.checkpoints(folder):
        status, error = "interrupted", ""
    return Record(digest, status, fields, folder, summary, identity.get("code_version", ""), error)


def record_of(folder: Path, plan: Plan) -> Record:
    """Return what the store ``folder`` says of a planned run."""
    own = folder / plan.digest
    if own.is_dir():
        return dataclasses.replace(read_record(own), digest=plan.digest, fields=planned_fields(plan))
    status = "running" if is_locked(folder, plan.digest) else "waiting"
    return Record(plan.digest, status, planned_fields(plan), own)


def planned_fields(plan: Plan) -> Fields:
    """Return every field of a plan by dotted name, defaults filled in where they make a config."""
    return config_fields(plan.config) if plan.config is not None else plan.fields


def config_fields(config: RunConfig) -> Fields:
    """Return a config's fields by dotted name."""
    return flatten(config.to_dict())


def write_failure(folder: Path, error: BaseException | str, *, trace: str = "") -> str:
    """Record in a run folder that the run failed, and return the error as one line."""
    if isinstance(error, str):
        text = error
    else:
        said = " ".join(str(error).split())
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    attempts = int(_read(folder / FAILURE).get("attempts", 0)) + 1
    body = {"error": text, "attempts": attempts, "traceback": trace}
    write_text(folder / FAILURE, dump_json(body, indent=2) + "\n")
    return text


def write_identity(folder: Path, digest: str, code_version: str, fields: Fields) -> None:
    """Write which run a folder is, unless it says so."""
    body = {"digest": digest, "code_version": code_version, "fields": fields}
    if _read(folder / IDENTITY).get("digest") != digest:
        write_text(folder / IDENTITY, dump_json(body, indent=2) + "\n")


@contextlib.contextmanager
def held(folder: Path, digests: list[str]) -> Iterator[list[str]]:
    """Hold the locks of those of ``digests`` that nobody else holds, and yield these."""
    from filelock import Timeout

    with contextlib.ExitStack() as stack:
        mine = []
        for digest in digests:
            with contextlib.suppress(Timeout):
                stack.enter_context(lock(folder, digest))
                mine.append(digest)
        yield mine


def _is_run(path: Path) -> bool:
    return any((path / name).exists() for name in (store.CONFIG, IDENTITY, FAILURE))


def _read(path: Path) -> dict[str, Any]:
    """Return a small JSON file, empty if it is missing or cannot be read."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)
