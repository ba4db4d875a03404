"""``inverse-depth fit``: a depth law, or a joint law with width and tokens, on a table of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from validate.cli import options

EXAMPLE = """
Fit how loss depends on depth in a table of runs (CSV, TSV, JSON, JSON lines, Parquet).

With depth alone, rival laws are ranked; with width, tokens or parameters, the additive joint law is fitted on log loss
with a soft L1 cost.

Example: inverse-depth fit runs.csv --depth n_layers --loss loss --width d_model --tokens num_tokens --max-loss 3 --json
"""


def register(app: typer.Typer) -> None:
    """Add the subcommand to ``app``."""

    @app.command(help=EXAMPLE)
    def fit(
        file: Annotated[Path, typer.Argument(help="Table of runs, one a row.")],
        loss: Annotated[str, typer.Option(help="Column of losses.")],
        depth: Annotated[str | None, typer.Option(help="Column of depths.")] = None,
        width: Annotated[str | None, typer.Option(help="Column of widths.")] = None,
        tokens: Annotated[str | None, typer.Option(help="Column of training tokens.")] = None,
        parameters: Annotated[str | None, typer.Option(help="Column of parameter counts.")] = None,
        standard_error: Annotated[str | None, typer.Option(help="Column of the losses' standard errors.")] = None,
        group: Annotated[str | None, typer.Option(help="Column whose equal entries are resampled together.")] = None,
        max_loss: Annotated[float | None, typer.Option(help="Use rows with loss below this.")] = None,
        where: Annotated[
            str | None, typer.Option(help='Use rows that satisfy this, such as "n_layers >= 8 and seed in (1, 2)".')
        ] = None,
        law: Annotated[str, typer.Option(help="A law's name, or all: every law, ranked.")] = "all",
        fix: Annotated[list[str] | None, typer.Option(help="NAME=VALUE, a parameter that is not fitted.")] = None,
        spectral_exponent: Annotated[
            float | None, typer.Option(help="Exponent of the spectral law from a spectrum (default: free).")
        ] = None,
        robust: Annotated[
            str | None, typer.Option(help="linear, soft_l1 or huber (default: soft_l1 for joint laws).")
        ] = None,
        robust_scale: Annotated[float, typer.Option(help="Residual at which the robust cost bends.")] = 0.01,
        intervals: Annotated[str, typer.Option(help="profile, bootstrap or asymptotic.")] = "profile",
        residuals: Annotated[
            str | None, typer.Option(help="log or linear (default: linear with standard errors, else log).")
        ] = None,
        plateau_minimum: Annotated[float, typer.Option(help="Smallest plateau allowed; -inf for none.")] = 0.0,
        predict_at: Annotated[str | None, typer.Option(help="Depths, such as 16,32, whose loss is predicted.")] = None,
        exhausted_within: Annotated[
            float | None, typer.Option(help="Find the depth within this share of the plateau, such as 0.05.")
        ] = None,
        budget: Annotated[
            str | None, typer.Option(help="Layer parameters, such as 1.3B: the best width and depth of the joint law.")
        ] = None,
        drop_diverged: Annotated[bool, typer.Option(help="Leave out runs without a finite loss, and say so.")] = False,
        seed: options.Seed = 0,
        as_json: options.AsJson = False,
        plot: Annotated[Path | None, typer.Option(help="Draw the fit to FILE.png, .pdf or .svg.")] = None,
        profile_plot: Annotated[Path | None, typer.Option(help="Draw the profiles of the parameters.")] = None,
        exclusion_plot: Annotated[
            Path | None, typer.Option(help="Draw the depth exponent without the largest losses.")
        ] = None,
    ) -> None:
        from theory.results import dump_json, save_figure
        from validate.fit_advice import best_shape, exhausted_depth
        from validate.fit_exclusion import exclusion_path
        from validate.fit_pictures import draw_profiles
        from validate.fit_report import fit_table, predictions
        from validate.tables import read_number, read_table

        names = {"depth": depth, "width": width, "tokens": tokens, "parameters": parameters}
        report = fit_table(
            read_table(file),
            {name: column for name, column in names.items() if column is not None},
            loss,
            standard_error=standard_error,
            group=group,
            max_loss=max_loss,
            where=where,
            law=law,
            fix=fix or [],
            spectral_exponent=spectral_exponent,
            robust=robust,
            robust_scale=robust_scale,
            intervals=intervals,
            residuals=residuals,
            plateau_minimum=plateau_minimum,
            diverged="drop" if drop_diverged else "refuse",
            seed=seed,
        )
        best, answer = report.best, report.to_dict()
        if predict_at is not None:
            answer["predictions"] = predictions(best, predict_at)
        if exhausted_within is not None:
            answer["exhausted"] = exhausted_depth(best, within=exhausted_within, seed=seed).to_dict()
        if budget is not None:
            answer["shape"] = best_shape(best, read_number(budget), seed=seed).to_dict()
        if plot is not None:
            save_figure(best.plot(), plot)
        if profile_plot is not None:
            save_figure(draw_profiles(best), profile_plot)
        if exclusion_plot is not None:
            whole = best if report.all_rows is None else report.all_rows
            most = max(min(100, whole.n - len(whole.parameters) - 2), 0)
            save_figure(exclusion_path(whole, most).plot(), exclusion_plot)
        for text in report.notes:
            typer.echo(f"note: {text}", err=True)
        if as_json:
            typer.echo(dump_json(answer))
        else:
            extra = {name: answer[name] for name in ("predictions", "exhausted", "shape") if name in answer}
            typer.echo("\n".join([str(report), *(f"{name}: {value}" for name, value in extra.items())]))
