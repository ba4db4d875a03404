"""The pages: every figure with its sentences and origins; pictures for a repository, small, linked, always the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from tests.validate.report.tables import report_tables
from validate.claims import SUPPORTED, Verdict, register
from validate.report.content import duration, image_bytes
from validate.report.drawing import new_canvas
from validate.report.figures import FIGURES
from validate.report.material import Material
from validate.report.render import IMAGE_DPI, _shape, cell, write_report
from validate.report.results_page import PICTURES, write_results
from validate.standing import Standing
from validate.study import Experiment, Preset, Study

MOST_BYTES = 120_000
ERROR = "no memory | left"


def material() -> Material:
    runs = pd.DataFrame(
        [
            {
                "experiment": experiment,
                "digest": f"{index:016x}",
                "spectrum": "ν = 1",
                "context": 16 if seed else np.nan,
                "label_noise": 0.1,
                "gain": None,
                "model": "reduced" if seed else "transformer + MLP",
                "depth": 2,
                "attention": "softmax",
                "final_loss": 0.25,
                "standard_error": 0.01,
                "converged": index % 2 == 0,
                "convergence": "converged | <b>",
                "optimizer": "adam",
                "learning_rate": 0.1,
                "steps": 10,
                "batch": 4,
                "seed": seed,
                "seconds": 60.0,
                "device": device,
                "dtype": "float32",
            }
            for index, (experiment, seed, device) in enumerate(
                [("depth-softmax", 0, "cpu"), ("depth-softmax", 1, "cuda"), ("linear-curves", 7, "cpu")]
            )
        ]
    )
    machine = {"device_name": "an abacus", "torch": "2.9"}
    records = (SimpleNamespace(summary={"machine": machine}), SimpleNamespace(summary={}))
    preset = Preset("tiny", "A few runs.", tuple(Experiment(n, "why", ()) for n in ("depth-softmax", "linear-curves")))
    study = SimpleNamespace(preset=preset, known=SimpleNamespace(records=records), failures={"ab": ERROR})
    assert set(vars(study)) == {"preset", "known", "failures"} <= set(dir(Study)) | set(Study.__dataclass_fields__)
    judged = tuple((claim, Verdict(claim.id, SUPPORTED, 0.5, "one | two < three")) for claim in register())
    standings = (
        Standing("depth-softmax", 4, 2, 1, ("softmax on s: L = 8 (seed 0)",)),
        Standing("linear-curves", 1, 1, 0),
    )
    return Material(
        study,  # type: ignore[arg-type]
        runs,
        judged,
        ({"attention": "softmax", "spectrum": "s", "depths": 1, "status": "no fit", "fit": None},),
        report_tables(),
        standings,
        "inverse-depth reproduce --preset tiny --out out/tiny",
        "out/tiny",
    )


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write_report(folder / "report", material())
    write_results(folder / "RESULTS.md", material())
    return folder


def test_every_link_of_the_results_is_a_small_picture_beside_them(written: Path) -> None:
    text = (written / "RESULTS.md").read_text()
    links = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert links == [(PICTURES / f"{figure.name}.png").as_posix() for figure in FIGURES]
    for link in links:
        assert (written / link).stat().st_size < MOST_BYTES
        height, width, _ = matplotlib.image.imread(written / link).shape
        assert width > 400
        assert height > 200
    assert {path.name for path in (written / PICTURES).iterdir()} == {Path(link).name for link in links}


def test_results_open_with_the_verdicts_and_end_with_their_origin(written: Path) -> None:
    text = (written / "RESULTS.md").read_text()
    table = text.index("| claim | verdict |")
    assert table < text.index("## What is missing") < text.index("![") < text.index("## The rules")
    for claim in register():
        assert (
            f"| **{claim.id}** {cell(claim.statement)} ({claim.source}) | **supported** | one \\| two < three |" in text
        )
        assert claim.rule in text
    for words in (
        "softmax on s: L = 8 (seed 0)",
        "| depth-softmax | why | 2 of 4 | 1 | 1 | 1 | 2 | 0, 1 | 2 min 0 s |",
        "- failed run `ab`: no memory \\| left",
        "inverse-depth report --out out/tiny --results",
        "- command: `inverse-depth reproduce --preset tiny --out out/tiny`",
        "trained on: an abacus, torch 2.9",
        "training time: 3 min 0 s",
    ):
        assert words in text, words


def test_a_figure_names_the_runs_it_rests_on(written: Path) -> None:
    figures = {figure["name"]: figure for figure in json.loads((written / "report/report.json").read_text())["figures"]}
    facts = figures["focus"]["facts"]
    assert facts["data"] == "data/focus.parquet"
    assert facts["drawn by"] == "inverse-depth plot focus --report out/tiny"
    assert facts["trained by"] == "inverse-depth reproduce --preset tiny --out out/tiny"
    assert (facts["seeds"], facts["device"], facts["arithmetic"]) == ("0, 1", "cpu, cuda", "float32")
    assert facts["runs"] == "2, of which 1 converged"
    assert (figures["curves"]["facts"]["seeds"], figures["curves"]["facts"]["device"]) == ("7", "cpu")
    assert all(figure["reading"] for figure in figures.values())


def test_the_page_escapes_and_is_whole(written: Path) -> None:
    page = (written / "report/report.html").read_text()
    assert "one | two &lt; three" in page
    assert "converged | &lt;b&gt;" in page
    assert "<b>converged" not in page
    assert page.count("data:image/png;base64,") == len(FIGURES)
    assert '<td class="s">ν = 1, P = 16, σ² = 0.1</td>' in page
    assert "<td>transformer + MLP, softmax</td>" in page
    assert 'name="viewport"' in page
    assert "@media print" in page
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= anchors
    assert page.count("<table") == page.count("</table>")


def test_bars_do_not_break_the_tables_of_the_markdown_twin(written: Path) -> None:
    for name in ("report/report.md", "RESULTS.md"):
        width = None
        for line in (written / name).read_text().splitlines():
            bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else None
            assert width is None or bars is None or bars == width, line
            width = bars


def test_the_same_runs_give_the_same_bytes(written: Path, tmp_path: Path) -> None:
    write_results(tmp_path / "RESULTS.md", material())
    for path in [PICTURES / f"{figure.name}.png" for figure in FIGURES]:
        assert (tmp_path / path).read_bytes() == (written / path).read_bytes()
    again = (tmp_path / "RESULTS.md").read_text().replace(str(tmp_path), str(written))
    assert again == (written / "RESULTS.md").read_text()


def test_a_figure_without_rows_is_left_out(tmp_path: Path) -> None:
    full = material()
    tables = dict(full.tables)
    del tables["regions"]
    tables["region_exponents"] = tables["region_exponents"].query("map == 'context'")
    tables["half_times"] = tables["half_times"].assign(eigenvalue=1.0)
    few = Material(full.study, full.runs, full.judged, full.fits, tables, full.standings, full.command, full.out)
    write_results(tmp_path / "RESULTS.md", few)
    shown = {path.stem for path in (tmp_path / PICTURES).iterdir()}
    assert {figure.name for figure in FIGURES} - shown == {"crossover", "regions", "half-times"}


def test_only_markdown_is_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"results=.*must be a file name ending in \.md"):
        write_results(tmp_path / "results.html", material())
    assert not any(tmp_path.iterdir())


def test_durations() -> None:
    assert [duration(seconds) for seconds in (0.4, 59.4, 61, 3599.6, 7325)] == [
        *("0 s", "59 s", "1 min 1 s", "1 h 0 min", "2 h 2 min")
    ]


def test_wide_pictures_scroll_and_tall_ones_fill_a_printed_page() -> None:
    def png(width: float, height: float) -> bytes:
        return image_bytes(new_canvas(width, height), IMAGE_DPI)

    assert [_shape(png(*size)) for size in ((9, 4), (6, 4), (6, 8), (8, 9))] == ["wide", "", "tall", "wide tall"]
