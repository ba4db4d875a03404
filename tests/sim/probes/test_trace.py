import pytest
import torch

from sim.config import RunConfig
from sim.models import build_model
from sim.models.base import Weights
from sim.probes.layers import contributions, layer_errors
from sim.probes.trace import trace
from sim.randomness import Source
from sim.tasks import ContextSampler
from tests.tolerances import ROUNDOFF

TASK = {"context": 7, "queries": 3, "spectrum": {"kind": "power_law", "dim": 4, "capacity": 1.0, "source": 0.5}}
MODELS = {
    "linear": {"attention": "linear"},
    "softmax": {"attention": "softmax"},
    "fixed gain": {"attention": "relu", "gain": "fixed", "gain_start": 0.7, "gamma_start": "random"},
    "tied polynomial": {"attention": "polynomial", "tied": True, "degree": 2},
    "decoupled": {"name": "decoupled", "width": 6, "attention": "softmax"},
    "tied decoupled": {"name": "decoupled", "width": 6, "tied": True},
    "transformer": {"name": "transformer", "width": 8, "heads": 2, "attention": "softmax", "mlp": True},
    "plain transformer": {"name": "transformer", "width": 8, "heads": 4, "norm": False, "branch_exponent": 0.5},
    "residual_mlp": {"name": "residual_mlp", "branch_exponent": 0.5},
    "residual_mlp entropy": {"name": "residual_mlp"},
}


def built(name, depth=3, **task):
    """Return model, random weights of two runs, and a batch of five contexts."""
    own = {"model": {"depth": depth, **MODELS[name]}, "training": {"dtype": "float64"}}
    if name.startswith("residual"):
        own["teacher"] = {"depth": 4, "dim": 3, "temperature": 0.5} | (
            {"loss": "cross_entropy"} if "entropy" in name else {}
        )
    else:
        own["task"] = TASK | task
    model = build_model(RunConfig.from_dict(own), torch.device("cpu"), torch.float64)
    source = Source([1, 2], "test", torch.device("cpu"), torch.float64)
    weights: Weights = {
        part: value + 0.3 * source.normal(*value.shape[1:]) for part, value in model.start(source).items()
    }
    return model, weights, model.draw(source, 5)


@pytest.mark.parametrize("name", MODELS)
def test_a_trace_ends_where_the_model_does(name):
    model, weights, batch = built(name)
    traced = trace(model, weights, batch)
    losses = traced.losses
    if "entropy" in name:  # the loss is a divergence, a function of the logits that the trace holds
        root = 3**0.5
        right, ours = ((part * root).log_softmax(-1) for part in (traced.target, traced.prediction))
        losses = (right.exp() * (right - ours)).sum(-1)
    assert losses.numpy() == pytest.approx(model.losses(weights, batch).numpy(), rel=ROUNDOFF)
    assert traced.states.shape[2] == traced.contributions.shape[2] + 1 == 4


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_the_ensemble_of_its_layers(name):
    traced = trace(*built(name))
    errors = layer_errors(traced)
    loss = traced.losses.mean(1).numpy()
    assert errors.ensemble.numpy() == pytest.approx(loss, rel=ROUNDOFF)
    assert (errors.matrix.sum((1, 2)) / 9).numpy() == pytest.approx(loss, rel=ROUNDOFF)
    assert errors.matrix.numpy() == pytest.approx(errors.matrix.mT.numpy(), rel=ROUNDOFF)
    power = traced.target.square().sum(-1).mean(1)
    aligned = ((traced.prediction - traced.start) * traced.target).sum(-1).mean(1) / power
    assert contributions(traced).sum(1).numpy() == pytest.approx(aligned.numpy(), rel=ROUNDOFF)


@pytest.mark.parametrize("name", MODELS)
def test_layers_left_out_leave_the_shallower_part(name):
    model, weights, batch = built(name)
    whole, nothing, two = (trace(model, weights, batch, layers) for layers in (None, [], [0, 1]))
    assert torch.equal(nothing.prediction, nothing.start)
    assert torch.equal(two.states, whole.states[:, :, :3])
    with pytest.raises(ValueError, match=r"layers=\[3\]"):
        trace(model, weights, batch, [3])


def test_linear_attention_on_tokens_is_the_model_on_their_moments():
    model, weights, _ = built("linear")
    source = Source([1, 2], "tokens", torch.device("cpu"), torch.float64)
    tokens = ContextSampler(model.config.task, torch.device("cpu"), torch.float64).tokens(source, 4)
    traced = trace(model, weights, tokens)
    x, query = tokens.covariates[:, :, :7], tokens.covariates[:, :, 7:]
    weight = torch.linalg.lstsq(x, tokens.labels[..., None]).solution
    for layer in range(3):
        weight = weight - weights["gamma"][:, None, layer] @ (x.mT @ (x @ weight)) / 7 / 3
    # The error on a query is minus the residual weight along it.
    error = (traced.prediction - traced.target) * 3**0.5
    assert error.numpy() == pytest.approx(-(query @ weight).squeeze(-1).numpy(), rel=ROUNDOFF * 100, abs=ROUNDOFF)


@pytest.mark.parametrize("name", ["softmax", "decoupled", "transformer"])
def test_softmax_attention_is_kept_for_every_layer_head_and_query(name):
    model, weights, batch = built(name)
    attention = trace(model, weights, batch).attention
    assert attention.shape == (2, 5, 3, model.config.model.heads, 3, 7)
    assert attention.sum(-1).numpy() == pytest.approx(1.0, rel=ROUNDOFF)
    assert (attention > 0).all()
