import pytest

from sim.config import SPECTRA, ModelConfig, RunConfig, SpectrumConfig, TaskConfig, TeacherConfig, TrainingConfig
from theory import Spectrum

ARGUMENTS = {
    "dim": 5,
    "capacity": 1.5,
    "source": 0.7,
    "rate": 0.4,
    "spikes": (4.0, 2.0),
    "bulk": 0.5,
    "decades": 3.0,
    "eigenvalues": (3.0, 2.0, 1.0),
}


@pytest.mark.parametrize("kind", SPECTRA)
def test_every_kind_of_spectrum_is_what_theory_builds_and_survives_json(kind):
    given = {name: ARGUMENTS[name] for name in SPECTRA[kind]}
    config = RunConfig(task=TaskConfig(spectrum=SpectrumConfig(kind, **given)))
    build = Spectrum if kind == "explicit" else getattr(Spectrum, kind)
    assert config.task.spectrum.build() == build(*given.values()) if kind != "spiked" else True
    assert RunConfig.from_json(config.to_json()) == config
    assert RunConfig.from_json(config.to_json()).digest == config.digest


def test_a_digest_changes_with_every_field_and_never_with_key_order():
    config = RunConfig()
    changes = {
        "task.context": 33,
        "task.spectrum.dim": 9,
        "task.label_noise": 0.1,
        "model.depth": 2,
        "model.attention": "softmax",
        "training.seed": 1,
        "training.learning_rate": 0.02,
        "training.dtype": "float64",
    }
    digests = {config.override({path: value}).digest for path, value in changes.items()}
    assert len(digests | {config.digest}) == len(changes) + 1
    fields = {name: dict(reversed(table.items())) for name, table in reversed(config.to_dict().items())}
    assert RunConfig.from_dict(fields).digest == config.digest
    assert RunConfig.from_dict({"training": {"learning_rate": 1}}).digest == (
        RunConfig.from_dict({"training": {"learning_rate": 1.0}}).digest
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"modle": {}}, "modle"),
        ({"model": {"dpth": 2}}, "dpth"),
        ({"model": 3}, "ModelConfig"),
        ({"task": {"spectrum": {"kind": "power_law", "dim": 3, "capacity": 1.0}}}, "spectrum.source is missing"),
        ({"task": {"spectrum": {"kind": "isotropic", "dim": 3, "rate": 1.0}}}, "spectrum.rate"),
        ({"task": {"spectrum": {"kind": "flat"}}}, "spectrum.kind"),
        ({"task": {"context": 0}}, "context=0"),
        ({"task": {"context": None}, "model": {"attention": "softmax"}}, "context=None"),
        ({"task": {"setting": "iso", "spectrum": {"kind": "exponential", "dim": 3, "rate": 1.0}}}, "iso"),
        ({"task": {"label_noise": -1.0}}, "label_noise"),
        ({"model": {"depth": -1}}, "model.depth=-1"),
        ({"model": {"width": 32}}, "does not read it"),
        ({"model": {"name": "transformer", "width": 32, "heads": 3}}, "divisor"),
        ({"model": {"attention": "softmax", "gain_start": 0.0}}, "gain_start"),
        ({"model": {"attention": "cosine"}}, "gamma_start"),
        ({"model": {"gain_rate": 0.0}}, "gain_rate=0.0"),
        ({"model": {"gamma_shape": "diagonal"}}, "gamma_shape='diagonal'"),
        ({"model": {"gamma_shape": "identity"}, "task": {"setting": "fs"}}, "gamma_shape='identity': must be full"),
        ({"model": {"name": "transformer", "gain_rate": 2.0}}, "does not read it"),
        ({"model": {"name": "residual_mlp"}, "task": {}}, "task is given"),
        ({"teacher": {}}, "teacher is given"),
        ({"training": {"learning_rate": float("nan")}}, "learning_rate"),
        ({"training": {"steps": 0}}, "steps=0"),
        ({"training": {"compile": 1}}, "compile"),
        ({"training": {"seed": -1}}, "seed"),
    ],
)
def test_a_bad_config_is_one_clear_complaint(fields, words):
    with pytest.raises(ValueError, match=words):
        RunConfig.from_dict(fields)


def test_override_names_the_field_it_does_not_know():
    with pytest.raises(ValueError, match="nothing"):
        RunConfig().override({"model.nothing": 1})
    with pytest.raises(ValueError, match=r"model\.depth\.deeper"):
        RunConfig().override({"model.depth.deeper": 1})
    with pytest.raises(ValueError, match="not JSON"):
        RunConfig.from_json("{")


def test_a_config_is_frozen_and_hashable():
    assert len({RunConfig(), RunConfig(), RunConfig(model=ModelConfig(depth=2))}) == 2
    with pytest.raises(AttributeError):
        RunConfig().model.depth = 3
    assert TeacherConfig.from_dict({"correlation": 1}).correlation == 1.0
    assert TrainingConfig().to_dict()["optimizer"] == "adam"
