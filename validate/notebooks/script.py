"""The scripts notebooks are made from: Python files in cells, a first cell of parameters that can be set."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from theory.checks import choice, reject
from theory.symbolic import NAMES
from validate.notebooks import OVERVIEW
from validate.notebooks.ranges import RANGES, Value

NOTEBOOKS: tuple[str, ...] = (OVERVIEW, *NAMES)
FOLDER = Path(__file__).resolve().parent / "cells"
MARK = re.compile(r"^# %%(?: \[?(?P<kind>\w+)\]?)?$")
KINDS = {"code", "markdown", "parameters", "derivation"}
# Numbers only: no name, call or expression is ever read from the command line.
NUMBER = re.compile(r"[+-]?(\d+|\d+\.\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell: ``kind`` is code, markdown, parameters, or derivation (where the steps go)."""

    kind: str
    source: str


@dataclasses.dataclass(frozen=True)
class Script:
    """A notebook's script: its title line and its cells."""

    name: str
    title: str
    cells: tuple[Cell, ...]

    @property
    def parameters(self) -> dict[str, Value]:
        """Names and defaults of the first cell."""
        tree = ast.parse(next(cell.source for cell in self.cells if cell.kind == "parameters"))
        found: dict[str, Value] = {}
        for node in tree.body:
            assert isinstance(node, ast.Assign)
            assert isinstance(node.targets[0], ast.Name)
            found[node.targets[0].id] = ast.literal_eval(node.value)
        return found


def read_script(name: str) -> Script:
    """Return the script of the notebook ``name``.

    Raises
    ------
    ValueError
        If there is no such notebook.
    """
    choice("name", name, NOTEBOOKS)
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    title = (ast.get_docstring(ast.parse(text)) or "").split("\n")[0].rstrip(".")
    cells: list[Cell] = []
    kind, lines = "", []
    for line in [*text.splitlines(), "# %%"]:
        mark = MARK.match(line)
        if mark is None:
            lines.append(line)
            continue
        if kind:
            source = "\n".join(lines).strip("\n")
            if kind == "markdown":
                source = "\n".join(re.sub(r"^# ?", "", part) for part in source.splitlines())
            cells.append(Cell(kind, source))
        kind, lines = mark["kind"] or "code", []
        assert kind in KINDS, f"{name}: unknown cell {line!r}"
    return Script(name, title, tuple(cells))


def read_settings(settings: Sequence[str]) -> dict[str, Value]:
    """Return ``--set name=value`` options as numbers.

    Raises
    ------
    ValueError
        If one is not ``name=number``, or a name comes twice.
    """
    values: dict[str, Value] = {}
    for text in settings:
        name, equals, number = text.partition("=")
        name, number = name.strip(), number.strip()
        if not equals or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) or not NUMBER.fullmatch(number):
            raise reject("set", text, "name=number, such as dim=256 or source=0.5")
        value: Value = int(number) if re.fullmatch(r"[+-]?\d{1,18}", number, re.ASCII) else float(number)
        if not math.isfinite(value):
            raise reject("set", text, "name=number with a finite number")
        if name in values:
            raise ValueError(f"set={text!r}: must be given once for each name")
        values[name] = value
    return values


def with_parameters(script: Script, values: Mapping[str, Value]) -> str:
    """Return the source of the first cell, with ``values`` in place of the defaults they name.

    Raises
    ------
    ValueError
        If a value is outside the range of its parameter (`validate.notebooks.ranges`).
    """
    allowed, wanted = RANGES[script.name], {**script.parameters, **values}
    source = next(cell.source for cell in script.cells if cell.kind == "parameters")
    for name in script.parameters if values else ():
        # Those left as they are too: a parameter may be bounded by another.
        value = allowed[name].check(f"set {name}", wanted[name], wanted)
        if name not in values:
            continue
        source = re.sub(rf"(?m)^{name} = [^\s#]+", f"{name} = {value!r}", source)
    return source
