"""The main job on a tiny preset, end to end: every claim judged, one offline page, data beside it, and it resumes."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pandas as pd
import pytest

from tests.validate.small_presets import CURVES
from validate.claims import UNDECIDED, VERDICTS, register
from validate.report.depth_figures import draw_curves
from validate.report.drawing import COLOURS
from validate.reproduction import Reproduction, reproduce

TINY = (
    f'description = "tiny"\n{CURVES}'
    + """
[[experiment]]
name = "depth-softmax"
purpose = "depths"
[experiment.base.task]
context = 4
[experiment.base.model]
attention = "softmax"
[experiment.base.training]
learning_rate = 0.05
batch = 32
steps = 80
eval_contexts = 256
[experiment.grid]
"task.spectrum" = [{ kind = "isotropic", dim = 2 }]
"model.depth" = [1, 2, 3, 4, 6]
"""
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Reproduction:
    folder = tmp_path_factory.mktemp("reproduction")
    (folder / "tiny.toml").write_text(TINY)
    return reproduce(folder / "tiny.toml", folder / "out", device="cpu")


def test_every_claim_has_a_verdict_and_its_rule(made: Reproduction) -> None:
    claims = json.loads(made.claims.read_text())["claims"]
    assert [claim["id"] for claim in claims] == [claim.id for claim in register()]
    assert all(claim["verdict"] in VERDICTS and claim["reason"] and claim["rule"] for claim in claims)
    assert [claim["verdict"] for claim in claims] == [verdict.verdict for verdict in made.verdicts]


def test_the_page_works_offline_and_names_every_run(made: Reproduction) -> None:
    page = made.report.read_text()
    assert not re.search(r"""(src|href)=["']?https?:|@import|<script""", page)
    runs = pd.read_parquet(made.report.parent / "runs.parquet")
    assert len(runs) == 7
    assert all(digest in page for digest in runs["digest"])
    drawn = {path.stem for path in (made.report.parent / "data").glob("*.parquet")}
    assert drawn >= {"curves", "depth_laws"}
    assert page.count("data:image/png;base64,") == len(drawn)


def test_figures_have_their_data_beside_them(made: Reproduction) -> None:
    curves = pd.read_parquet(made.report.parent / "data" / "curves.parquet")
    assert set(curves["depth"]) == {1, 2}
    laws = pd.read_parquet(made.report.parent / "data" / "depth_laws.parquet")
    assert sorted(laws.loc[laws["loss"].notna(), "depth"]) == [1, 2, 3, 4, 6]


def test_trained_curves_follow_the_prediction(made: Reproduction) -> None:
    (verdict,) = [verdict for verdict in made.verdicts if verdict.claim == "C0"]
    assert verdict.verdict == "supported", verdict.reason


def test_the_same_call_again_trains_nothing_and_judges_the_same(made: Reproduction) -> None:
    out = made.report.parent
    stamps = {path: path.stat().st_mtime_ns for path in (out / "store").rglob("weights.safetensors")}
    again = reproduce(out.parent / "tiny.toml", out, device="cpu")
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())
    assert again.verdicts == made.verdicts


ONLY_RESIDUAL = """
[[experiment]]
name = "residual"
[experiment.base]
model = { name = "residual_mlp" }
teacher = { dim = 3 }
training = { optimizer = "sgd", learning_rate = 0.1, batch = 4, steps = 3, eval_contexts = 64 }
[experiment.grid]
"teacher.correlation" = [0.0, 1.0]
"""


def test_a_study_without_attention_still_ends_in_a_report(tmp_path: Path) -> None:
    (tmp_path / "only residual.toml").write_text(ONLY_RESIDUAL)
    found = reproduce(tmp_path / "only residual.toml", tmp_path / "out", device="cpu")
    assert found.failures == {}
    assert {verdict.verdict for verdict in found.verdicts} == {UNDECIDED}
    # The command that makes it again survives the blank in the path.
    words = shlex.split(json.loads(found.claims.read_text())["command"])
    assert words[words.index("--preset") + 1] == str(tmp_path / "only residual.toml")


def test_a_study_whose_every_run_failed_still_ends_in_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no memory left")

    monkeypatch.setattr("sim.training.train_many", fail)
    (tmp_path / "tiny.toml").write_text(ONLY_RESIDUAL)
    found = reproduce(tmp_path / "tiny.toml", tmp_path / "out", device="cpu")
    assert len(found.failures) == 2
    assert {verdict.verdict for verdict in found.verdicts} == {UNDECIDED}
    assert "no memory left" in found.report.read_text()


def test_data_that_cannot_be_used_end_the_job_before_training(tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY)
    (tmp_path / "data").mkdir()
    with pytest.raises(ValueError, match="must be a folder with published_rrs_linear_L"):
        reproduce(tmp_path / "tiny.toml", tmp_path / "out", device="cpu", data=tmp_path / "data")
    (tmp_path / "data" / "published_rrs_linear_Lx.csv").write_text("step,loss\n0,1\n")
    with pytest.raises(ValueError, match=r"must be named published_rrs_linear_L<depth>\.csv"):
        reproduce(tmp_path / "tiny.toml", tmp_path / "out", device="cpu", data=tmp_path / "data")
    assert not (tmp_path / "out").exists()


def test_no_group_is_left_out_of_a_figure_for_want_of_colours() -> None:
    depths = range(1, 2 * len(COLOURS))
    table = pd.DataFrame([{"depth": d, "step": s, "trained": 1.0, "predicted": 1.0} for d in depths for s in (1, 2)])
    (axes,) = draw_curves(table).axes
    assert len(axes.lines) == 2 * len(depths)
