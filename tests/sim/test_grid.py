import ast
import subprocess

import pytest

from sim import code_version as code_version_module
from sim.code_version import bare, code_version
from sim.config import RunConfig
from sim.grid import plan_runs, read_grid, run_digest
from tests.conftest import ROOT
from tests.sim.sweeping import document, toml


def fields_of(plans, *names):
    return [tuple(plan.fields.get(name) for name in names) for plan in plans]


def test_a_grid_is_every_combination_in_order():
    plans = plan_runs(document(depths=(1, 2, 4), seeds=2))
    assert fields_of(plans, "model.depth", "training.seed") == [(1, 0), (1, 1), (2, 0), (2, 1), (4, 0), (4, 1)]
    assert all(isinstance(plan.config, RunConfig) and plan.error == "" for plan in plans)
    assert [plan.config.model.depth for plan in plans] == [1, 1, 2, 2, 4, 4]
    assert len({plan.digest for plan in plans}) == 6
    assert all(plan.digest == run_digest(plan.config) for plan in plans)


def test_extra_runs_replace_fields_of_the_base_and_may_have_a_grid():
    text = document(depths=(1,), seeds=1)
    text["extra"] = [
        {"model": {"depth": 8}},
        {"training": {"steps": 7}, "grid": {"model": {"depth": [1, 16]}}},
        {"model": {"depth": 1}, "training": {"seed": 0}},  # in the grid already
    ]
    plans = plan_runs(text)
    assert fields_of(plans, "model.depth", "training.steps") == [(1, 20), (8, 20), (1, 7), (16, 7)]
    del text["grid"]
    assert len(plan_runs(text)) == 4
    assert len(plan_runs({"base": text["base"]})) == 1


def test_a_spectrum_is_a_value_too_and_another_kind_drops_its_parameters():
    text = document(depths=(1,), seeds=1)
    kinds = [{"kind": "isotropic", "dim": 2}, {"kind": "power_law", "dim": 4, "capacity": 1.0, "source": 0.5}]
    text["grid"]["task"] = {"spectrum": kinds}
    text["extra"] = [{"task": {"spectrum": {"kind": "exponential", "dim": 5, "rate": 0.3}}}]
    text["base"]["task"]["spectrum"] = kinds[1]
    plans = plan_runs(text)
    assert [plan.config.task.spectrum.kind for plan in plans] == ["isotropic", "power_law", "exponential"]


def test_another_law_of_the_covariates_drops_the_fields_of_the_first():
    text = {
        "base": {"task": {"covariates": "clusters", "clusters": 2}},
        "grid": {"task": {"spread": [0.5, 1.0]}},
        "extra": [{"task": {"covariates": "signs"}}, {"task": {"label_noise": 0.1}}],
    }
    tasks = [plan.config.task for plan in plan_runs(text)]
    assert [(task.covariates, task.clusters) for task in tasks] == [
        ("clusters", 2),
        ("clusters", 2),
        ("signs", None),
        ("clusters", 2),
    ]
    laws = plan_runs({"grid": {"task": {"covariates": ["gaussian", "signs", "sphere", "clusters"]}}})
    assert [plan.config.task.covariates for plan in laws] == ["gaussian", "signs", "sphere", "clusters"]


def test_none_and_infinity_have_stand_ins(tmp_path):
    text = document(depths=(1,), seeds=1)
    text["base"]["model"] = {}
    text["grid"]["task"] = {"context": [4, "inf", "none"]}
    text["grid"]["training"]["clip"] = ["none", 1.0]
    plans = plan_runs(text)
    assert [(plan.config.task.context, plan.config.training.clip) for plan in plans] == [
        (4, None),
        (None, None),
        (4, 1.0),
        (None, 1.0),
    ]
    path = tmp_path / "literal.toml"
    path.write_text("base.task.context = inf\n")
    assert read_grid(path)[0].config.task.context is None


def test_a_file_is_read_as_written(tmp_path):
    assert read_grid(toml(tmp_path, document())) == plan_runs(document())


def test_combinations_that_make_no_config_come_with_their_error():
    text = document(depths=(1,), seeds=1)
    text["grid"]["training"]["batch"] = [4, -1]
    good, bad = plan_runs(text)
    assert good.config is not None
    assert bad.config is None
    assert "batch=-1" in bad.error
    assert good.digest != bad.digest


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"bass": {}}, r"\[bass\]"),
        ({"base": {"model": {"dept": 3}}}, "'dept' is not a field"),
        ({"grid": {"model": {"dept": [3]}}}, "'dept' is not a field"),
        ({"grid": {"models": {"depth": [3]}}}, "'models' is not a field"),
        ({"grid": {"model": {"depth": 3}}}, r"grid.model.depth=3: must be a list"),
        ({"grid": {"model": {"depth": []}}}, "not empty"),
        ({"grid": {"model": {"depth": [0, -1]}}}, "model.depth=0"),
        ({"grid": {"training": {"seed": list(range(1001)), "steps": list(range(1, 1001))}}}, "1001000 runs"),
        ({"base": {"model": 3}, "grid": {"model": {"depth": [1]}}}, "model.depth"),
        ({"grid": 3}, "grid=3"),
        ({"extra": {"model": {"depth": 1}}}, r"\[\[extra\]\]"),
    ],
)
def test_slips_are_named_before_anything_runs(change, complaint):
    with pytest.raises(ValueError, match=complaint):
        plan_runs(change)


def test_what_is_not_toml_is_one_line_with_the_file(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text("[base\n")
    with pytest.raises(ValueError, match=r"a\.toml is not TOML"):
        read_grid(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="not TOML"):
        read_grid(path)
    with pytest.raises(FileNotFoundError):
        read_grid(tmp_path / "nowhere.toml")


def test_the_shipped_examples_are_sweeps():
    examples = sorted((ROOT / "docs" / "examples").glob("*.toml"))
    assert examples
    for path in examples:
        assert all(plan.config is not None for plan in read_grid(path))


def test_the_shipped_job_script_is_one():
    (script,) = (ROOT / "docs" / "examples").glob("*.sh")
    assert subprocess.run(["bash", "-n", script], capture_output=True, check=True).stderr == b""


def test_words_about_the_code_are_no_part_of_its_version():
    code = 'def f(x):\n    y = "a # b"\n    return x + 1\n'
    told = (
        '"""Module."""\n\ndef f(x):  # é what\n    """One.\n\n    Two é."""  # and\n\n    y = "a # b"   \n'
        '    # why\n    return x + 1\n"""loose"""\n'
    )
    assert bare(told) == bare(code) == code.rstrip()
    assert bare(code.replace("+ 1", "+ 2")) != bare(code)
    assert bare('x = """kept\n# kept"""\n') == 'x = """kept\n# kept"""'
    assert bare('class A:\n    """É"""; y = 1\n') == "class A:\n    ; y = 1"


def imported_from_theory(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    # What theory imports inside a function serves that function, such as spectra from samples, which no config names.
    for node in tree.body if path.parent.name == "theory" else ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names += (
                [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "theory" else [node.module]
            )
        yield from (name.split(".")[1] for name in names if name.startswith("theory."))


def test_the_version_covers_all_that_training_reads():
    sources = code_version_module.sources()
    read = {name for path in sources for name in imported_from_theory(path)}
    assert read <= set(code_version_module.READ_FROM_THEORY), "add what training reads to READ_FROM_THEORY"
    names = {path.relative_to(ROOT).as_posix() for path in sources}
    assert {"sim/loop.py", "sim/training.py", "sim/models/transformer.py", "theory/spectra.py"} <= names
    assert not {"sim/sweep.py", "sim/probes/trace.py", "sim/progress.py", "theory/flow.py"} & names
    assert len(code_version()) == 12
    # What is said to change no number is read by nothing that does, but to write results down or to show progress.
    silent = {path.relative_to(ROOT).as_posix() for path in (ROOT / "sim").rglob("*.py")} - names
    for path in sources:
        for module in silent - {"sim/devices.py", "sim/progress.py"}:
            dotted = module.removesuffix(".py").replace("/", ".")
            assert f"from {dotted} import" not in path.read_text(encoding="utf-8"), (path, module)
