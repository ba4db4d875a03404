import dataclasses
import json

import numpy as np
import pytest

from sim.config import RunConfig
from sim.probes import LiveProbes, ProbeSettings, probe_run, probe_training, probe_weights, report
from sim.training import train, train_many
from tests.sim.probes.test_trace import MODELS, TASK
from tests.tolerances import ROUNDOFF, sampling

SETTINGS = ProbeSettings(contexts=24, queries=4)


def trained(name, depth=3, **training):
    own = {"optimizer": "adam", "learning_rate": 0.02, "batch": 8, "steps": 6, "snapshots": 4, "eval_contexts": 8}
    text = {"model": {"depth": depth, **MODELS[name]}, "training": own | training}
    if name.startswith("residual"):
        text["teacher"] = {"depth": 4, "dim": 3, "loss": "cross_entropy" if "entropy" in name else "mse"}
    else:
        text["task"] = {**TASK, "queries": 1}
    return train(RunConfig.from_dict(text), device="cpu")


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_probed_during_training_and_after(name):
    run = trained(name)
    seen = probe_training(run, SETTINGS)
    assert [one.step for one in seen.probes] == sorted(run.snapshots) == [0, 1, 3, 6]
    last = probe_run(run, SETTINGS)
    assert last.to_json() == seen.probes[-1].to_json()
    assert last.time == pytest.approx(6 * 0.02)
    assert last.shared + last.specific / 3 == pytest.approx(last.loss, rel=ROUNDOFF)
    frame = last.to_frame()
    assert frame["layer"].tolist() == [1, 2, 3]
    assert frame[["contribution", "error_alone", "ablation", "rotation"]].notna().all(axis=None)
    assert frame["swap"].isna().tolist() == [False, False, True]
    assert json.loads(last.to_json())["shared"] == last.shared
    assert "shared" in str(last)
    assert last.plot().get_xlabel() == "layer"
    if name.startswith("residual"):
        assert last.entropy.size == last.mode_error.size == seen.half_time.size == 0
        return
    assert seen.plot().get_xlabel() == "time"
    assert len(seen.to_frame()) == 4 * 4
    assert last.mode_error.sum() + last.nonlinear_error == pytest.approx(last.loss, rel=ROUNDOFF)
    assert last.entropy.shape == (3, run.config.model.heads)
    assert np.all(last.entropy <= np.log(7) + ROUNDOFF)
    assert np.all((last.participation >= 1) & (last.participation <= 7 + ROUNDOFF))
    assert last.relevant == 1
    assert np.all((last.relevant_mass >= 0) & (last.relevant_mass <= 1))
    assert last.overlap.shape == (3, 3)
    if run.config.model.heads == 1:
        assert last.overlap.diagonal() == pytest.approx(1.0, rel=ROUNDOFF)


@pytest.mark.parametrize("name", MODELS)
def test_modes_alone_are_the_same_modes(name):
    run = trained(name)
    full, only = probe_training(run, SETTINGS), probe_training(run, dataclasses.replace(SETTINGS, modes_only=True))
    assert np.array_equal(full.half_time, only.half_time, equal_nan=True)
    for whole, part in zip(full.probes, only.probes, strict=True):
        assert np.array_equal(whole.mode_error, part.mode_error)
        assert (part.loss, part.shared, part.specific) == (whole.loss, whole.shared, whole.specific)
        assert part.ablation.size == part.swap.size == part.entropy.size == part.overlap.size == part.relevant == 0
    last = only.probes[-1]
    assert last.to_frame()[["ablation", "swap", "entropy"]].isna().all(axis=None)
    assert [line.get_label() for line in last.plot().lines] == ["contribution"]
    assert json.loads(last.to_json())["ablation"] == []


def test_even_attention_at_the_start_has_the_focus_of_even_attention():
    start = probe_training(trained("softmax"), ProbeSettings(contexts=8, relevant=3)).probes[0]
    assert start.entropy == pytest.approx(np.log(7), rel=ROUNDOFF)
    assert start.participation == pytest.approx(7, rel=ROUNDOFF)
    assert start.relevant_mass == pytest.approx(3 / 7, rel=ROUNDOFF)
    assert start.overlap == pytest.approx(1, rel=ROUNDOFF)


def test_probes_while_training_are_those_of_the_snapshots_and_change_no_number():
    run = trained("softmax", dtype="float64")
    live = LiveProbes(SETTINGS)
    watched = train(run.config, device="cpu", watch=live)
    assert np.array_equal(watched.loss, run.loss)
    assert (watched.final_loss, watched.standard_error) == (run.final_loss, run.standard_error)
    assert live.history().to_frame().equals(probe_training(run, SETTINGS).to_frame())


def test_runs_trained_together_are_probed_one_by_one():
    run = trained("linear", dtype="float64")
    configs = [run.config, run.config.override({"training.seed": 1})]
    live = LiveProbes(SETTINGS)
    both = train_many(configs, device="cpu", watch=live)
    for i, one in enumerate(both):
        assert live.history(i).probes[-1].to_json() == probe_run(one, SETTINGS).to_json()


def test_contexts_in_pieces_are_as_many_as_asked_for(monkeypatch):
    run = trained("transformer")
    many = ProbeSettings(contexts=400, queries=2)
    whole = probe_run(run, many)
    monkeypatch.setattr(report, "NUMBERS_AT_ONCE", 20_000)
    pieces = probe_run(run, many)
    assert pieces.to_json() != whole.to_json()  # other contexts
    assert pieces.shared + pieces.specific / 3 == pytest.approx(pieces.loss, rel=ROUNDOFF)
    # One squared error of a nearly zero prediction of a unit-variance target has a standard deviation of about 2.
    assert abs(pieces.loss - whole.loss) < sampling(2 * np.sqrt(2 / 400))


def test_a_single_layer_has_no_pairs_and_an_infinite_context_no_tokens():
    text = {"task": {"context": None, "spectrum": TASK["spectrum"]}, "training": {"steps": 2, "batch": 4}}
    run = train(RunConfig.from_dict(text), device="cpu")
    one = probe_run(run, SETTINGS)
    assert np.isnan(one.shared)
    assert one.swap.size == one.entropy.size == one.overlap.size == 0
    assert json.loads(one.to_json())["shared"] is None
    with pytest.raises(ValueError, match=r"training.snapshots=0"):
        probe_training(run)


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ({"contexts": 0}, "contexts=0"),
        ({"queries": 1}, "queries=1"),
        ({"relevant": 0}, "relevant=0"),
        ({"relevance": "angle"}, "relevance='angle'"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_settings_are_checked(fields, complaint):
    with pytest.raises(ValueError, match=complaint):
        ProbeSettings(**fields)


def test_more_relevant_tokens_than_there_are_is_refused():
    config = RunConfig.from_dict({"task": TASK, "model": MODELS["softmax"]})
    weights = {"gamma": np.zeros((1, 4, 4)), "gain": np.ones(1)}
    with pytest.raises(ValueError, match="relevant=8"):
        probe_weights(config, weights, ProbeSettings(relevant=8))
