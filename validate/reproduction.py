"""The main job: run a preset, judge every claim, write the report."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path

from theory.results import Result
from validate.claims import Verdict, judge, register
from validate.evidence import collect, published_table
from validate.report.render import write_report
from validate.study import load_preset, run_preset


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
    """

    preset: str
    report: Path
    claims: Path
    verdicts: tuple[Verdict, ...]
    failures: dict[str, str]

    def __str__(self) -> str:
        lines = [str(verdict) for verdict in self.verdicts]
        lines += [f"failed run {digest}: {error}" for digest, error in self.failures.items()]
        return "\n".join([*lines, f"report: {self.report}"])


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
        For an unknown preset, device or data folder.
    OSError
        If ``out`` cannot be written.
    """
    chosen = load_preset(preset)
    folder = Path(out)
    # Before hours of training: data that cannot be used ends the job here.
    published = None if data is None else published_table(Path(data))
    study = run_preset(chosen, folder / "store", device=device, workers=workers)
    evidence, fits, tables = collect(study, published)
    verdicts = judge(evidence)
    judged = list(zip(register(), verdicts, strict=True))
    command = shlex.join(
        ["inverse-depth", "reproduce", "--preset", str(preset), "--out", str(out)]
        + ([] if data is None else ["--data", str(data)])
    )
    report = write_report(folder, study, evidence.runs, judged, fits, tables, command)
    return Reproduction(chosen.name, report, folder / "claims.json", tuple(verdicts), study.failures)
