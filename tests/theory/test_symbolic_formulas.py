from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp

from tests.tolerances import ROUNDOFF
from theory.symbolic import NAMES, derive
from theory.symbolic.formulas import Formula, identifier

FORMULAS = [(name, result) for name in NAMES for result in derive(name).formulas]
COUNTS = {"D": 3, "L": 4, "P": 7, "j": 2}


def arguments(formula: Formula, rng: np.random.Generator) -> list:
    """Random values: sizes from COUNTS, vectors of D or L entries, matrices where an entry has two indices."""
    values = []
    for argument, name in zip(formula.arguments, formula.names, strict=True):
        if isinstance(argument, sp.IndexedBase):
            indices = next(item.indices for item in formula.expression.atoms(sp.Indexed) if item.base == argument)
            over_modes = name in {"eigenvalues", "task_power"}
            shape = (3,) if over_modes else (4,) if len(indices) == 1 else (4, 4)
            values.append(rng.uniform(0.1, 0.9, shape))
        elif name in COUNTS:
            values.append(COUNTS[name])
        else:
            values.append(float(rng.uniform(0.1, 0.9)))
    return values


def exact(formula: Formula, values: list) -> float:
    """The formula's value at 30 digits: sums carried out by sympy, numbers put in entry by entry."""
    sizes = {a: v for a, v in zip(formula.arguments, values, strict=True) if identifier(a) in COUNTS}
    expression = formula.expression.xreplace({a: sp.Integer(v) for a, v in sizes.items()}).doit()
    point: dict = {}
    for argument, value in zip(formula.arguments, values, strict=True):
        if isinstance(argument, sp.IndexedBase):
            for item in expression.atoms(sp.Indexed):
                if item.base == argument:
                    point[item] = sp.Float(float(value[tuple(int(i) - 1 for i in item.indices)]), 40)
        elif argument not in sizes:
            point[argument] = sp.Float(value, 40)
    return float(expression.xreplace(point).evalf(30))


@pytest.mark.parametrize(("name", "result"), FORMULAS)
def test_the_numpy_function_gives_the_formula(name, result, rng) -> None:
    formula = derive(name).formulas[result]
    values = arguments(formula, rng)
    assert formula.function(*values) == pytest.approx(exact(formula, values), rel=ROUNDOFF)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "result"), FORMULAS)
def test_the_compiled_function_gives_the_formula(name, result, rng) -> None:
    formula = derive(name).formulas[result]
    values = arguments(formula, rng)
    assert formula.compiled(*values) == pytest.approx(exact(formula, values), rel=ROUNDOFF)


def test_a_compiled_function_is_generated_once_and_kept(rng) -> None:
    formula = derive("population_loss").formulas["loss"]
    values = arguments(formula, rng)
    compiled = formula.compiled
    assert compiled(*values) == pytest.approx(formula.function(*values), rel=ROUNDOFF)
    assert compiled(*values) == pytest.approx(compiled.py_func(*values), rel=ROUNDOFF)
    from pathlib import Path

    source = Path(compiled.py_func.__code__.co_filename)
    assert source.read_text(encoding="utf-8") == formula.source()
    assert list((source.parent / "__pycache__").glob(f"{source.stem}.{formula.name}*.nbi"))
    before = source.stat().st_mtime_ns
    again = Formula(formula.name, formula.expression, formula.arguments, formula.summary)
    assert again.compiled(*values) == compiled(*values)
    assert source.stat().st_mtime_ns == before


@pytest.mark.parametrize(("name", "result"), FORMULAS)
def test_arguments_are_ordered_and_documented(name, result) -> None:
    formula = derive(name).formulas[result]
    assert formula.function.__code__.co_varnames[: len(formula.names)] == formula.names
    assert formula.summary in formula.function.__doc__
    assert str(formula.expression) in formula.function.__doc__
    for argument in formula.names:
        assert f"\n{argument} : " in formula.function.__doc__
    assert formula.latex()


def test_scalars_broadcast_where_no_sum_runs() -> None:
    gain = np.geomspace(1, 1e4, 5)
    function = derive("asymptotics").formulas["loss_in_gain"].function
    np.testing.assert_allclose(
        function(0.5, 1.5, 1.0, gain), [function(0.5, 1.5, 1.0, value) for value in gain], rtol=ROUNDOFF
    )
    assert function(0.5, 1.5, 1.0, 10.0) == pytest.approx(0.5 / 1.5 * math.gamma(1.0) / 20.0, rel=ROUNDOFF)


def test_a_forgotten_argument_is_named() -> None:
    x, y = sp.symbols("x y")
    with pytest.raises(ValueError, match="arguments of f: must include y"):
        _ = Formula("f", x + y, (x,), "f").function
