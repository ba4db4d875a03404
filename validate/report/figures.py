"""The register of the report's figures: each can be redrawn alone from the tables stored beside the report."""

from __future__ import annotations

from theory.checks import choice
from validate.report import (
    depth_figures,
    layer_figures,
    layer_readings,
    learning_figures,
    readings,
    region_figures,
    rivals,
)
from validate.report.drawing import Figure

DEPTHS = ("depth-linear", "depth-softmax")

FIGURES = (
    Figure(
        "depth-laws",
        "Loss against depth: linear and softmax attention on the same data",
        "Final loss on fresh contexts, bars of two standard errors, a point a seed. Hollow: not converged, left out of "
        "the fit. Lines: L_inf + c / L^alpha fitted to converged runs (to all runs where too few converged), with its "
        "95 % band.",
        ("depth_laws",),
        DEPTHS,
        depth_figures.draw_depth_laws,
        readings.read_depth_laws,
    ),
    Figure(
        "exponents",
        "Exponent against spectrum",
        "Fitted exponents with 95 % intervals, linear and softmax attention on the same spectra; hollow where the fit "
        "is provisional; an arrow where the exponent lies beyond the axis. The claim puts softmax on the dashed line "
        "on every spectrum.",
        ("exponents",),
        DEPTHS,
        depth_figures.draw_exponents,
        readings.read_exponents,
    ),
    Figure(
        "rivals",
        "Which law describes the losses best",
        "AICc of each law less that of the best, fitted to the same losses as above: 0 is the best, up to 2 as good, "
        "from 10 on hopeless. Grey: no answer, or too few losses for its parameters.",
        ("rivals",),
        DEPTHS,
        rivals.draw_rivals,
        rivals.read_rivals,
    ),
    Figure(
        "crossover",
        "From short to long contexts: where the exponent is 1",
        "Exponent through three depths L, 2 L and 4 L, whatever the plateau, against context length over dimension; "
        "bars of two standard errors; the deepest three depths that converged, hollow where none did; an arrow where "
        "the exponent lies beyond the axis. Is it 1: yes within two standard errors, ? where that says nothing because "
        "one is above 0.25 or there is no exponent, in brackets where not converged. Below, the loss at the largest "
        "depth.",
        ("region_exponents", "regions"),
        ("map-context",),
        region_figures.draw_crossover,
        layer_readings.read_crossover,
    ),
    Figure(
        "regions",
        "Where else the exponent is 1: label noise, fixed gains, data that are not Gaussian, kernels and architectures",
        "Exponent through the deepest three depths L, 2 L and 4 L that converged, ± its standard error over seeds and "
        "contexts. Hatched: none converged. Grey: losses that do not fall along a power law with plateau.",
        ("region_exponents",),
        ("map-noise", "map-gain", "map-data", "map-kernel", "map-architecture"),
        region_figures.draw_regions,
        layer_readings.read_regions,
    ),
    Figure(
        "curves",
        "Predicted and trained curves of linear attention",
        "Loss of the training batch before each step (thick, centred 11-step mean) and the recursion computed from the "
        "spectrum alone (thin). Nothing is fitted.",
        ("curves",),
        ("linear-curves",),
        depth_figures.draw_curves,
        readings.read_curves,
    ),
    Figure(
        "linear-optimum",
        "The depth law of linear attention follows the spectrum",
        "Linear runs at infinite context: tied (circles) on the exact tied optimum (lines), untied (squares) on the "
        "floor of untied gains (dotted). Hollow: not converged.",
        ("linear_optimum",),
        ("linear-optimum", "linear-untied"),
        depth_figures.draw_linear_optimum,
        readings.read_linear_optimum,
    ),
    Figure(
        "mode-maps",
        "Learning resolved by covariance direction",
        "Error along each eigen-direction (mode 1 is the strongest) as a share of its first value, at the deepest "
        "trained model; a slanted front is one direction after another, a vertical one all in parallel.",
        ("mode_maps",),
        ("dynamics-",),
        learning_figures.draw_mode_maps,
        readings.read_mode_maps,
    ),
    Figure(
        "half-times",
        "When each covariance direction is half learned",
        "Step at which a mode's squared error has fallen half of its way under plain gradient descent, against the "
        "mode's eigenvalue; the median over seeds. Dashed: predicted from the spectrum alone.",
        ("half_times",),
        ("dynamics-",),
        learning_figures.draw_half_times,
        readings.read_half_times,
    ),
    Figure(
        "focus",
        "How many tokens each layer attends to",
        "Participation number of the softmax attention over the context length: 1 is even attention, 1/P a single "
        "token. Converged runs.",
        ("focus",),
        ("depth-softmax",),
        layer_figures.draw_focus,
        layer_readings.read_focus,
    ),
    Figure(
        "focus-maps",
        "Which tokens each layer attends to",
        "Attention mass on the context tokens, ranked by their relevance to the query, at each layer of the deepest "
        "model.",
        ("focus_maps",),
        ("depth-softmax",),
        layer_figures.draw_focus_maps,
        layer_readings.read_focus_maps,
    ),
    Figure(
        "layer-split",
        "Error shared by all layers, and error of each layer alone",
        "The layer-error matrix C of each run split into its mean off-diagonal (shared: the plateau of the "
        "central-limit picture) and the mean diagonal less that (specific: its 1/L part), with the run's own loss; "
        "means over seeds.",
        ("layer_split",),
        ("depth-softmax",),
        layer_figures.draw_layer_split,
        layer_readings.read_layer_split,
    ),
    Figure(
        "layer-errors",
        "Does the error of single layers predict the loss at another depth?",
        "The layer-error matrix of a run predicts the loss of the next deeper run as shared + specific / L. On the "
        "dashed line the central-limit picture is exact.",
        ("layers",),
        ("depth-softmax",),
        layer_figures.draw_layer_errors,
        layer_readings.read_layer_errors,
    ),
)


def figure_named(name: str) -> Figure:
    """Return a figure of the report by its name.

    Raises
    ------
    ValueError
        If there is none.
    """
    choice("figure", name, [figure.name for figure in FIGURES])
    return next(figure for figure in FIGURES if figure.name == name)
