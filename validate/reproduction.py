"""The main job: run a preset, judge every claim, write the report; and to judge again what is already there."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from theory.checks import reject
from theory.files import write_text
from theory.results import Result, dump_json
from validate.claims import Verdict, judge, register
from validate.decisions import FEWEST_DEPTHS
from validate.evidence import collect, published_table
from validate.report.material import Material
from validate.report.render import write_report
from validate.report.results_page import check_results_path, write_results
from validate.report.rivals import rival_table
from validate.standing import Standing, hold_back, standings_of
from validate.study import Preset, Study, load_preset, run_preset, stored_study

if TYPE_CHECKING:
    import pandas as pd

# What was asked for, kept beside the store: a report can be made again without naming it.
REQUEST = "request.json"


@dataclasses.dataclass(frozen=True)
class Reproduction(Result):
    """What the main job leaves behind.

    Parameters
    ----------
    preset : str
        Its name.
    report, claims : Path
        The page, and the verdicts as JSON.
    verdicts : tuple of Verdict
        One a claim.
    failures : dict
        Error text of the runs that failed, by digest.
    standings : tuple of Standing
        How far each experiment has come.
    """

    preset: str
    report: Path
    claims: Path
    verdicts: tuple[Verdict, ...]
    failures: dict[str, str]
    standings: tuple[Standing, ...] = ()

    def __str__(self) -> str:
        lines = [str(verdict) for verdict in self.verdicts]
        lines += [f"failed run {digest}: {error}" for digest, error in self.failures.items()]
        lines += [str(standing) for standing in self.standings if standing.waiting]
        return "\n".join([*lines, f"report: {self.report}"])


@dataclasses.dataclass(frozen=True)
class Outlook(Result):
    """What the main job would train.

    Parameters
    ----------
    preset : str
        Its name.
    standings : tuple of Standing
        How far each experiment has come.
    to_run : int
        Runs that would be trained; one that experiments share counts once.
    """

    preset: str
    standings: tuple[Standing, ...]
    to_run: int

    def __str__(self) -> str:
        lines = [
            f"{one.experiment}: {one.planned} planned, {one.finished} finished, {one.failed} failed, "
            f"{one.waiting} to run"
            for one in self.standings
        ]
        return "\n".join([*lines, f"would train {self.to_run} runs"])


def preview(
    preset: str | Path,
    out: str | os.PathLike[str],
    *,
    device: str = "auto",
    data: str | os.PathLike[str] | None = None,
) -> Outlook:
    """Return what `reproduce` would train, writing nothing, and refuse what it would refuse.

    Parameters
    ----------
    preset, out, device, data
        As `reproduce` takes them.

    Raises
    ------
    ValueError
        For an unknown preset, device or data folder, an ``out`` that is a file, or a store of another format in it.
    OSError
        If the preset or the data cannot be read.
    """
    from sim.sweep import to_do

    chosen, folder, _ = _usable(preset, out, device, data)
    study = stored_study(chosen, folder / "store")
    return Outlook(study.preset.name, standings_of(study), len(to_do(study.known)))


def reproduce(
    preset: str | Path,
    out: str | os.PathLike[str],
    *,
    device: str = "auto",
    workers: int = 1,
    data: str | os.PathLike[str] | None = None,
) -> Reproduction:
    """Run every experiment of ``preset``, judge the claims and write the report.

    The same call again resumes: finished runs are read back, interrupted ones go on.

    Parameters
    ----------
    preset : str or path
        smoke, laptop, paper, or a TOML file.
    out : path
        Folder for the store of runs and the report.
    device : str
        ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.
    workers : int
        Local processes; 1 trains in this process.
    data : path, optional
        Folder with published data; without it the claim on it stays undecided.

    Raises
    ------
    ValueError
        For an unknown preset, device or data folder, or an ``out`` that is a file.
    OSError
        If ``out`` cannot be written.
    """
    chosen, folder, published = _usable(preset, out, device, data)
    write_text(folder / REQUEST, dump_json({"preset": str(preset), "data": None if data is None else str(data)}) + "\n")
    study = run_preset(chosen, folder / "store", device=device, workers=workers)
    return _judge(study, folder, published, _command(preset, out, data), out)[0]


def report(
    out: str | os.PathLike[str],
    *,
    preset: str | Path | None = None,
    data: str | os.PathLike[str] | None = None,
    results: str | os.PathLike[str] | None = None,
) -> Reproduction:
    """Judge the claims and write the report again from the runs that are there; nothing is trained.

    Runs that are missing are named, and the claims that rest on them stay undecided.

    Parameters
    ----------
    out : path
        Folder that `reproduce` was given.
    preset, data : path, optional
        As `reproduce` takes them; those it was given are kept in ``out``.
    results : path, optional
        Write the results there too, as a Markdown page (.md) with its pictures in ``docs/results`` beside it.

    Raises
    ------
    ValueError
        If ``out`` holds no store of the preset, no preset is known, or ``results`` is no name of a Markdown page.
    OSError
        If ``out`` cannot be read or written.
    """
    folder = Path(out)
    if results is not None:
        check_results_path(Path(results))
    if not (folder / "store").is_dir():
        raise reject("out", str(out), "a folder that inverse-depth reproduce has written: it holds no store")
    kept = _request(folder)
    preset = preset or kept.get("preset")
    if preset is None:
        raise reject("preset", preset, f"given: {folder / REQUEST} does not name it")
    if data is None and Path(kept.get("data") or "").is_dir():
        data = kept.get("data")
    study = stored_study(load_preset(preset), folder / "store")
    _refuse_others_runs(study, out)
    published = None if data is None else published_table(Path(data))
    found, material = _judge(study, folder, published, _command(preset, out, data), out)
    if results is not None:
        write_results(Path(results), material)
    return found


def _usable(
    preset: str | Path, out: str | os.PathLike[str], device: str, data: str | os.PathLike[str] | None
) -> tuple[Preset, Path, pd.DataFrame | None]:
    """Return preset, folder and published table; what cannot be used ends the job before hours of training."""
    from sim.devices import choose_device

    chosen, folder = load_preset(preset), _no_file(out)
    published = None if data is None else published_table(Path(data))
    choose_device(device)
    return chosen, folder, published


def _no_file(out: str | os.PathLike[str]) -> Path:
    """Return ``out`` as a path unless it is, or lies in, something that is no folder."""
    folder = Path(out)
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if there.exists() and not there.is_dir():
        raise reject("out", str(out), f"a folder, there or to be made: {there} is a file")
    return folder


def _refuse_others_runs(study: Study, out: str | os.PathLike[str]) -> None:
    """Raise if a store that is full holds nothing of this study: its preset or the code has changed since."""
    from sim.code_version import code_version
    from sim.runs import load

    stored = [record for record in load(study.known.store).records if record.status == "finished"]
    if stored and not study.known.counts()["finished"]:
        versions = ", ".join(sorted({record.code_version for record in stored} - {""}))
        asked = f"runs of the preset {study.preset.name!r} by code version {code_version()}"
        raise reject("out", str(out), f"a folder with {asked}: it holds {len(stored)} others (code version {versions})")


def _request(folder: Path) -> dict[str, str | None]:
    path = folder / REQUEST
    if not path.exists():
        return {}
    try:
        request = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        request = None
    if not isinstance(request, dict) or not all(value is None or isinstance(value, str) for value in request.values()):
        raise ValueError(f"{path}: must be an object with the texts preset and data")
    return request


def _command(preset: str | Path, out: str | os.PathLike[str], data: str | os.PathLike[str] | None) -> str:
    """Return the command that makes the report from nothing, or takes it up where it stopped."""
    words = ["inverse-depth", "reproduce", "--preset", str(preset), "--out", str(out)]
    return shlex.join(words + ([] if data is None else ["--data", str(data)]))


def _judge(
    study: Study, folder: Path, published: pd.DataFrame | None, command: str, out: str | os.PathLike[str]
) -> tuple[Reproduction, Material]:
    """Turn the runs of a study into verdicts and a report."""
    evidence, fits, tables = collect(study, published)
    ranked = rival_table(fits, FEWEST_DEPTHS)
    if len(ranked):
        tables["rivals"] = ranked
    standings = standings_of(study)
    claims = register()
    verdicts = [hold_back(*pair, standings) for pair in zip(claims, judge(evidence), strict=True)]
    judged = tuple(zip(claims, verdicts, strict=True))
    material = Material(study, evidence.runs, judged, tuple(fits), tables, standings, command, str(out))
    page = write_report(folder, material)
    name, failures = study.preset.name, study.failures
    return Reproduction(name, page, folder / "claims.json", tuple(verdicts), failures, standings), material
