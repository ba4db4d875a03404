"""``inverse-depth sweep``: train every run of a grid, resuming and never redoing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from theory.checks import integer, reject
from validate.cli import options

if TYPE_CHECKING:
    from sim.executors import Executor
    from sim.runs import Runs

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130
EXAMPLE = """
Example: inverse-depth sweep docs/examples/depth_sweep.toml --store runs --workers 4; the same command again resumes.
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(epilog=EXAMPLE)
    def sweep(
        file: Annotated[
            Path | None, typer.Argument(help="TOML file with [base], [grid] and [[extra]]; 'status' for --status.")
        ] = None,
        store: Annotated[Path, typer.Option(help="Folder that holds one folder a run; made if missing.")] = Path(
            "runs"
        ),
        workers: Annotated[
            int, typer.Option(help="Local processes; 0: one a GPU, or else one a CPU core; 1: in this process.")
        ] = 0,
        scheduler: Annotated[
            str | None, typer.Option(help="Address or scheduler file of a Dask cluster that sees the store.")
        ] = None,
        device: Annotated[str, typer.Option(help="auto (CUDA where there is one), cpu, cuda or cuda:N.")] = "auto",
        threads: Annotated[
            int, typer.Option(help="CPU threads a job; a run's last bits depend on it, not on --workers.")
        ] = 1,
        together: Annotated[
            int, typer.Option(help="Most runs, differing in seed or learning rate only, trained as one program.")
        ] = 1,
        retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Take up failed runs as well.")] = False,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be run; write nothing.")] = False,
        status: Annotated[bool, typer.Option("--status", help="Say how the runs stand; run nothing.")] = False,
        checkpoint_seconds: Annotated[float, typer.Option(help="Time between checkpoints.")] = 60.0,
        as_json: options.AsJson = False,
    ) -> None:
        """Train every run of a grid; exit status 1 if any run failed."""
        if file is not None and str(file) == "status" and not file.exists():
            file, status = None, True
        if status:
            _show(_standing(file, store), as_json)
            return
        if file is None:
            raise ValueError("FILE is missing: must be a TOML file, or give --status")
        from sim.grid import read_grid

        plans = read_grid(file)
        if dry_run:
            _preview(plans, store, retry_failed, as_json)
            return
        from sim.sweep import run_sweep, survey, to_do
        from sim.sweep_progress import default_sweep_progress

        integer("workers", workers, minimum=0)
        if scheduler is None:
            from sim.devices import choose_device

            choose_device(device)
        left = len(to_do(survey(plans, store), retry_failed=retry_failed))
        options.stop_as_ctrl_c()
        try:
            found = run_sweep(
                plans,
                store,
                executor=_executor(workers, scheduler, device, -(-left // max(together, 1))),
                device=device,
                threads=threads,
                together=together,
                retry_failed=retry_failed,
                checkpoint_seconds=checkpoint_seconds,
                progress=default_sweep_progress(),
            )
        except KeyboardInterrupt:
            print("inverse-depth: interrupted; the same command resumes", file=sys.stderr)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        _show(found, as_json)
        counts = found.counts()
        if counts["failed"] or counts["damaged"]:
            if not retry_failed:
                print("failed runs are not taken up again without --retry-failed", file=sys.stderr)
            raise typer.Exit(EXIT_FAILED)


def _executor(workers: int, scheduler: str | None, device: str, jobs: int) -> Executor:
    from sim import executors

    if scheduler is not None:
        if workers:
            raise reject("workers", workers, "left out with --scheduler: the cluster has its own")
        return executors.Dask(scheduler)
    devices = executors.visible_devices() if device in ("auto", "cuda") else []
    count = min(workers or len(devices) or os.cpu_count() or 1, max(jobs, 1))
    return executors.InProcess() if count == 1 else executors.LocalProcesses(count, devices)


def _standing(file: Path | None, store: Path) -> Runs:
    from sim.runs import load

    if file is None:
        return load(store)
    from sim.grid import read_grid
    from sim.sweep import survey

    return survey(read_grid(file), store)


def _show(found: Runs, as_json: bool) -> None:
    typer.echo(found.to_json() if as_json else str(found))


def _preview(plans: Any, store: Path, retry_failed: bool, as_json: bool) -> None:
    from sim.sweep import labels, survey, to_do
    from theory.results import dump_json

    known = survey(plans, store)
    wanted = to_do(known, retry_failed=retry_failed)
    if as_json:
        typer.echo(dump_json({**known.to_dict(), "to_run": wanted}))
        return
    names = labels(known)
    typer.echo(str(known))
    typer.echo(f"would run {len(wanted)}:")
    for digest in wanted:
        typer.echo(f"  {digest} {names[digest]}")
