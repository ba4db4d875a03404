"""Every number of every notebook has a range: outside it is refused before anything runs, at its ends cells run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from validate.cli import main
from validate.notebooks.ranges import RANGES, Real, Whole
from validate.notebooks.script import NOTEBOOKS, Cell, Script, read_script, with_parameters
from validate.notebooks.write import write_notebooks

# Sizes at which a notebook runs in about a second.
SMALL: dict[str, int] = {
    "layers_seen": 20,
    "contexts": 50,
    "rotations": 50,
    "steps": 50,
    "draws": 25,
    "samples": 50,
    "starts": 1,
    "kernel_dim": 20,
    "kernel_tokens": 40,
    "largest_context": 128,
}
SMALLER = {"asymptotics": {"dim": 400, "deepest": 16}, "untied_optimum": {"dim": 400, "deepest": 8}}


def ends() -> Iterator[tuple[str, str, float, list[float]]]:
    """Notebook, parameter, an allowed value at an end of its range, and values just outside."""
    for notebook, ranges in RANGES.items():
        defaults = {**read_script(notebook).parameters, **SMALL, **SMALLER.get(notebook, {})}
        for name, one in ranges.items():
            if isinstance(one, Whole):
                low = one.minimum if one.above is None else max(one.minimum, int(defaults[one.above]) + 1)
                yield notebook, name, low, [low - 1, low + 0.5]
                continue
            yield notebook, name, one.low, [np.nextafter(one.low, -np.inf), -1.0]
            last = float(np.nextafter(one.high, 0)) if one.open_end else one.high
            yield notebook, name, last, [float(np.nextafter(last, np.inf)), 1e9 * one.high]


ENDS = list(ends())


def test_every_parameter_has_a_range_that_holds_its_default() -> None:
    assert set(RANGES) == set(NOTEBOOKS)
    for name, ranges in RANGES.items():
        script = read_script(name)
        assert set(ranges) == set(script.parameters)
        first = with_parameters(script, script.parameters)
        assert Script("", "", (Cell("parameters", first),)).parameters == script.parameters
        for parameter, default in script.parameters.items():
            assert isinstance(ranges[parameter], Whole if isinstance(default, int) else Real)


@pytest.mark.parametrize(("notebook", "name", "allowed", "refused"), ENDS)
def test_outside_of_its_range_a_value_is_refused(
    notebook: str, name: str, allowed: float, refused: list[float], tmp_path: Path
) -> None:
    others = {key: value for key, value in SMALLER.get(notebook, {}).items() if key != name}
    set_so = Script("", "", (Cell("parameters", with_parameters(read_script(notebook), {**others, name: allowed})),))
    assert set_so.parameters[name] == allowed
    for value in refused:
        settings = [f"{key}={number!r}" for key, number in {**others, name: float(value)}.items()]
        with pytest.raises(ValueError, match=rf"^set {name}=\S+: must be a (whole|finite) number"):
            write_notebooks(notebook, out=tmp_path / "out", settings=settings)
    assert list(tmp_path.iterdir()) == []


def test_as_many_layers_as_modes_are_refused_whichever_is_set(tmp_path: Path) -> None:
    for setting, complaint in (
        ("dim=16", "set dim=16: must be a whole number >= 17"),
        ("deepest=4000", "set dim=4000"),
    ):
        with pytest.raises(ValueError, match=complaint):
            write_notebooks("untied_optimum", out=tmp_path / "out", settings=[setting])


def test_the_command_says_it_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as end:
        main(["notebook", "depth_laws", "--out", str(tmp_path / "out"), "--execute", "--set", "correlation=5"])
    said = capsys.readouterr()
    assert (end.value.code, said.out) == (2, "")
    assert said.err == "inverse-depth: error: set correlation=5: must be a finite number and >= 0 and <= 1\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("notebook", "name", "allowed"), [row[:3] for row in ENDS if row[:2] != ("overview", "context")]
)
def test_at_the_ends_of_its_range_a_notebook_runs_without_a_warning(
    notebook: str, name: str, allowed: float, tmp_path: Path
) -> None:
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    script = read_script(notebook)
    sizes = {**SMALL, **SMALLER.get(notebook, {}), name: allowed}
    values = {key: value for key, value in sizes.items() if key in script.parameters}
    space: dict[str, object] = {}
    for cell in script.cells:
        if cell.kind == "parameters":
            exec(with_parameters(script, values), space)
        elif cell.kind == "code":
            exec(cell.source.replace("plt.show()", ""), space)
    assert plt.get_fignums()
    for number in plt.get_fignums():
        plt.figure(number).savefig(tmp_path / f"{number}.png")
    plt.close("all")
