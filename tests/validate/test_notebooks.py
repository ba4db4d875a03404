from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import nbformat
import pytest

from tests.conftest import ROOT
from theory.symbolic import NAMES, derive
from validate.cli import main
from validate.notebooks.build import build_notebook, derivation_page, index_page
from validate.notebooks.html import markdown, render_html
from validate.notebooks.script import NOTEBOOKS, read_script, read_settings
from validate.notebooks.write import write_notebooks


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_and_begins_with_its_parameters(name) -> None:
    notebook = build_notebook(name)
    nbformat.validate(nbformat.reads(json.dumps(notebook), as_version=4))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert notebook["cells"][1] is code[0]
    assert set(read_script(name).parameters) == set(re.findall(r"(?m)^(\w+) = ", "".join(code[0]["source"])))
    assert "Exercises" in "".join(notebook["cells"][-1]["source"])
    assert all(not cell["outputs"] for cell in code)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_in_the_notebook_in_latex(name) -> None:
    texts = "\n".join("".join(cell["source"]) for cell in build_notebook(name)["cells"])
    for step in derive(name):
        assert all(f"$$\n{line}\n$$" in texts for line in step.lines())
        assert step.evidence in texts or step.check is None


@pytest.mark.parametrize("name", NAMES)
def test_the_documentation_is_what_the_derivations_say(name) -> None:
    page = ROOT / "docs" / "derivations" / f"{name}.md"
    assert page.read_text(encoding="utf-8") == derivation_page(name), (
        "stale: run inverse-depth notebook all --docs docs/derivations"
    )


def test_the_index_is_current_and_no_page_is_left_over() -> None:
    folder = ROOT / "docs" / "derivations"
    assert (folder / "README.md").read_text(encoding="utf-8") == index_page()
    assert {path.stem for path in folder.glob("*.md")} == {"README", *NAMES}


def test_the_same_bytes_every_time(tmp_path) -> None:
    for place in ("one", "two"):
        write_notebooks("all", out=tmp_path / place, html=True)
    files = sorted((tmp_path / "one").iterdir())
    assert len(files) == 2 * len(NOTEBOOKS)
    for file in files:
        content = file.read_bytes()
        assert content == (tmp_path / "two" / file.name).read_bytes()
        assert str(ROOT).encode() not in content
        assert b"/tmp/" not in content


def test_settings_change_the_first_cell_and_nothing_else() -> None:
    changed = build_notebook("asymptotics", read_settings(["dim=256", "source=2"]))
    plain = build_notebook("asymptotics")
    differing = [
        place for place, pair in enumerate(zip(changed["cells"], plain["cells"], strict=True)) if pair[0] != pair[1]
    ]
    assert differing == [1]
    cell = "".join(changed["cells"][1]["source"])
    assert "dim = 256  #" in cell
    assert "source = 2.0  #" in cell


@pytest.mark.parametrize(
    "text",
    [
        "dim",
        "dim=",
        "=3",
        "dim=x",
        "dim=nan",
        "dim=inf",
        "dim=1e999",
        "dim=1+1",
        "dim=__import__('os').getcwd()",
        "dim=(1)",
        "dim=1_0",
        "dim=1;x=2",
        "dim=1\nx=2",
        "a b=1",
        "dim=１",
    ],
)
def test_settings_are_numbers_and_nothing_else(text) -> None:
    with pytest.raises(ValueError, match="must be name=number"):
        read_settings([text])


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main(["notebook", *arguments])
    said = capsys.readouterr()
    return end.value.code or 0, said.out, said.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nothing", "--out", "x"], "name='nothing': must be one of all, overview"),
        (["overview"], "out=None: must be a folder"),
        (["overview", "--out", "x", "--set", "depths=2"], "set depths: must be one of"),
        (["overview", "--out", "x", "--set", "dim=2.5"], "set dim=2.5: must be a whole number"),
        (["overview", "--out", "x", "--set", "dim=2", "--set", "dim=3"], "must be given once"),
        (["overview", "--out", "x", "--set", "dim=os.getcwd()"], "must be name=number"),
    ],
)
def test_bad_input_is_one_line_and_status_two(capsys, tmp_path, monkeypatch, arguments, complaint) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert complaint in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_json_names_the_files(capsys, tmp_path) -> None:
    status, out, _ = run(capsys, "overview", "--out", str(tmp_path), "--html", "--json")
    assert status == 0
    assert [Path(path).name for path in json.loads(out)["files"]] == ["overview.ipynb", "overview.html"]


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value for key, value in attrs if key in {"src", "href"}]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_page_needs_no_network_and_its_equations_are_typeset(name) -> None:
    page = render_html(build_notebook(name))
    reader = Reader()
    reader.feed(page)
    assert "script" not in reader.tags
    assert "link" not in reader.tags
    assert all(address.startswith("data:") for address in reader.addresses)
    assert "math" in reader.tags
    outside = re.sub(r"<pre.*?</pre>|<style.*?</style>|<code>.*?</code>|<math.*?</math>", "", page, flags=re.DOTALL)
    assert "$" not in outside
    assert "\\" not in outside
    # A command that the converter does not know stays in its output as text.
    assert not re.search(r"<m[ion]>\\", page)


def test_markup_in_texts_and_outputs_is_not_run() -> None:
    assert "<script>" not in markdown("a <script>alert(1)</script> $x$")
    notebook = build_notebook("overview")
    cell = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "<script>alert(1)</script>"}]
    assert "<script>" not in render_html(notebook)


def test_a_failing_cell_is_an_error_with_its_name(capsys, tmp_path) -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "validate.cli", "notebook", "depth_laws"),
            *("--out", str(tmp_path), "--execute", "--set", "deepest=999999999999"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    code, out, err = done.returncode, done.stdout, done.stderr
    assert (code, out) == (2, "")
    assert re.fullmatch(r"inverse-depth: error: notebook depth_laws: a cell failed: MemoryError: .*\n", err)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_runs_from_a_clean_kernel(name, tmp_path) -> None:
    """Twice, so that executed bytes are seen to be the same; nothing on stderr, no absolute path, figures there."""
    command = [sys.executable, "-m", "validate.cli", "notebook", name, "--execute", "--html", "--out"]
    for place in ("one", "two"):
        done = subprocess.run([*command, str(tmp_path / place)], cwd=ROOT, capture_output=True, text=True, check=True)
        assert re.fullmatch(rf"{name}: [\d.]+ s\n", done.stderr)
    content = (tmp_path / "one" / f"{name}.ipynb").read_text(encoding="utf-8")
    assert content == (tmp_path / "two" / f"{name}.ipynb").read_text(encoding="utf-8")
    notebook = json.loads(content)
    outputs = list(itertools.chain(*(cell.get("outputs", []) for cell in notebook["cells"])))
    assert all(output["output_type"] in {"stream", "display_data", "execute_result"} for output in outputs)
    assert not [output for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    text = "".join("".join(output.get("text", "")) for output in outputs)
    assert str(ROOT) not in content
    assert not re.search(r"(^|[\s'\"])/\w+/", text)
    assert "arning" not in text


def test_a_setting_that_a_later_notebook_refuses_leaves_nothing_behind(tmp_path):
    for setting in ("layers_seen=2.5", "layers_seen=0", "seed=-1", "source=0.0"):
        with pytest.raises(ValueError, match=setting.split("=")[0]):
            write_notebooks("all", out=tmp_path / "out", settings=[setting])
    assert not (tmp_path / "out").exists()
