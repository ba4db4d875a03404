"""``inverse-depth simulate``: train one model and say where it ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from validate.cli import options

if TYPE_CHECKING:
    from sim.config import RunConfig
    from sim.store import Run

EXAMPLE = """
Train a reduced model and evaluate it on fresh contexts.

Example: inverse-depth simulate --setting rrs --dim 45 --capacity 1.75 --source 0.5 --context 512 --depth 1
--attention linear --optimizer sgd --learning-rate 3.0 --batch 512 --steps 150 --out runs/L1 --json
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def simulate(
        setting: options.Setting = "rrs",
        dim: options.Dim = 45,
        capacity: options.Capacity = 1.75,
        source: options.Source = 0.5,
        context: options.Context = "512",
        label_noise: options.LabelNoise = 0.0,
        covariates: Annotated[
            str, typer.Option(help="gaussian, signs, sphere or clusters; theory predicts gaussian, or --context inf.")
        ] = "gaussian",
        clusters: Annotated[
            int | None, typer.Option(help="Cluster centres a context (default 4), for --covariates clusters.")
        ] = None,
        spread: Annotated[
            float | None,
            typer.Option(help="Share of the variance within a cluster (default 0.25), for --covariates clusters."),
        ] = None,
        spectrum: options.SpectrumPath = None,
        labels: options.Labels = None,
        depth: options.Depth = 1,
        attention: Annotated[
            str, typer.Option(help="linear, softmax, relu, exp, polynomial or cosine; only linear knows --context inf.")
        ] = "linear",
        tied: Annotated[bool, typer.Option("--tied", help="One Gamma for all layers instead of one each.")] = False,
        batch: Annotated[int, typer.Option(help="Contexts a step, drawn afresh.")] = 512,
        steps: Annotated[int, typer.Option(help="Number of updates.")] = 150,
        optimizer: Annotated[str, typer.Option(help="sgd or adam.")] = "sgd",
        learning_rate: Annotated[float, typer.Option(help="Rate on every entry of Gamma.")] = 3.0,
        schedule: Annotated[str, typer.Option(help="constant, linear, cosine, or tail (falls in the last half).")] = (
            "constant"
        ),
        dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
        device: Annotated[str, typer.Option(help="auto (CUDA where there is one), cpu, cuda or cuda:N.")] = "auto",
        out: Annotated[
            Path | None, typer.Option(help="Run folder; the same command again resumes or reads it.")
        ] = None,
        seed: options.Seed = 0,
        as_json: options.AsJson = False,
    ) -> None:
        from theory.results import dump_json

        config = _config(
            task={
                "setting": setting,
                "spectrum": _spectrum(setting, dim, capacity, source, spectrum, labels),
                "context": options.read_context(context),
                "label_noise": label_noise,
                "covariates": covariates,
                "clusters": clusters,
                "spread": spread,
            },
            model={"attention": attention, "depth": depth, "tied": tied},
            training={
                "optimizer": optimizer,
                "learning_rate": learning_rate,
                "batch": batch,
                "steps": steps,
                "schedule": schedule,
                "dtype": dtype,
                "seed": seed,
            },
        )
        from sim.progress import default_progress
        from sim.training import train

        run = train(config, device=device, out=out, progress=default_progress())
        answer = _answer(run)
        typer.echo(dump_json(answer) if as_json else _text(run, answer))


def _spectrum(
    setting: str, dim: int, capacity: float, source: float, file: Path | None, labels: str | None
) -> dict[str, Any]:
    """Return the spectrum's section of the config."""
    if file is not None or labels is not None:
        found = options.build_spectrum(setting, dim, capacity, source, file, labels)
        return {"kind": "explicit", "eigenvalues": found.eigenvalues.tolist(), "task_power": found.task_power.tolist()}
    if setting == "iso":
        return {"kind": "isotropic", "dim": dim}
    return {"kind": "power_law", "dim": dim, "capacity": capacity, "source": source}


def _config(**sections: dict[str, Any]) -> RunConfig:
    from sim.config import RunConfig

    return RunConfig.from_dict(sections)


def _answer(run: Run) -> dict[str, Any]:
    """Return what --json prints."""
    return {
        "digest": run.config.digest,
        "depth": run.config.model.depth,
        "step": run.step,
        "loss": run.loss,
        "final_loss": run.final_loss,
        "standard_error": run.standard_error,
        "predicted_loss": predicted_loss(run.config),
        "converged": run.converged,
        "convergence": str(run.convergence),
        "seconds": run.seconds,
        "device": run.machine["device"],
        "notes": list(run.notes),
    }


def predicted_loss(config: RunConfig) -> float | None:
    """Return theory's loss after the last step, where it has one: a reduced linear model under plain SGD from zero.

    Untied layers are predicted by the tied recursion, which they follow until noise breaks the tie; tied layers share
    one Gamma, whose gradient is the sum over layers.
    """
    from validate.study import has_prediction, predicted_rate

    if config.task is None or not has_prediction(config):
        return None
    from theory.prediction import predict

    steps = [config.training.steps]
    prediction = predict(
        config.task.build(), config.model.depth, method="sgd", steps=steps, learning_rate=predicted_rate(config)
    )
    return float(prediction.loss[-1])


def _text(run: Run, answer: dict[str, Any]) -> str:
    predicted = answer["predicted_loss"]
    contexts = run.config.training.eval_contexts
    lines = [
        f"final loss      {run.final_loss:.6g} ± {run.standard_error:.2g} on {contexts} fresh contexts",
        f"predicted       {predicted:.6g}" if predicted is not None else "predicted       (theory has none here)",
        f"convergence     {run.convergence}",
        f"time            {run.seconds:.3g} s on {run.machine['device']}",
    ]
    return "\n".join([*lines, *run.notes])
