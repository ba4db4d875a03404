"""One formula, three readings: LaTeX, a numpy function, a compiled numba function cached on disk.

Sums and products over modes and layers run over the axes of array arguments; an index from 1 to n in the mathematics
is a position from 0 to n - 1 in the arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.util
import sys
from collections.abc import Callable
from typing import Any

import sympy as sp
from sympy.printing.numpy import SciPyPrinter
from sympy.printing.pycode import PythonCodePrinter

from theory.symbolic.cache import cache_folder, write_if_other


@dataclasses.dataclass(frozen=True)
class Formula:
    """A result of a derivation as something to call.

    Attributes
    ----------
    name : str
    expression : sympy expression
    arguments : tuple
        Symbols (scalars) and indexed bases (arrays of shape (n,), or (n, m) for two indices), in calling order.
        A symbol that only bounds a sum, such as D or L, is an argument too, unless it is the size of an array:
        then pass the array's length.
    summary : str
    """

    name: str
    expression: sp.Expr
    arguments: tuple[Any, ...]
    summary: str

    def latex(self) -> str:
        """Return the formula as LaTeX."""
        from theory.symbolic.derivation import to_latex

        return to_latex(self.expression)

    @property
    def names(self) -> tuple[str, ...]:
        """Argument names as Python identifiers, in calling order."""
        return tuple(identifier(argument) for argument in self.arguments)

    def docstring(self) -> str:
        """Return a NumPy-style docstring with the formula in it."""
        lines = [f"{self.summary}", "", f"    {self.expression}", "", "Parameters", "----------"]
        for argument, name in zip(self.arguments, self.names, strict=True):
            lines.append(f"{name} : {'array' if isinstance(argument, sp.IndexedBase) else 'float'}")
        return "\n".join(lines)

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        """The numpy function, by lambdify on the ordered arguments; scalars broadcast where no sum runs."""
        named = self._named()
        made: Callable[..., Any] = sp.lambdify(
            [sp.Symbol(name) for name in self.names], named, modules=["scipy", "numpy"], printer=_ArrayPrinter
        )
        made.__name__, made.__doc__ = self.name, self.docstring()
        return made

    def source(self) -> str:
        """Return the Python source, with loops, from which the compiled function is made."""
        writer = _LoopPrinter()
        value = writer.doprint(self._named())
        body = [*writer.lines, f"    return {value}"]
        head = '"""Generated from a derivation."""\n\nimport math\n\nfrom numba import njit\n\n\n@njit(cache=True)\n'
        return f"{head}def {self.name}({', '.join(self.names)}):\n" + "\n".join(body) + "\n"

    @functools.cached_property
    def compiled(self) -> Callable[..., Any]:
        """The numba function, compiled on first call and cached on disk with its generated source; scalars only."""
        source = self.source()
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        path = cache_folder() / "functions" / f"{self.name}_{digest}.py"
        write_if_other(path, source)
        spec = importlib.util.spec_from_file_location(f"inverse_depth_generated_{self.name}_{digest}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
        made: Callable[..., Any] = getattr(module, self.name)
        return made

    def _named(self) -> sp.Expr:
        """Return the expression with every argument renamed to its Python identifier."""
        replace: dict[Any, Any] = {}
        for argument, name in zip(self.arguments, self.names, strict=True):
            if not isinstance(argument, sp.IndexedBase):
                replace[argument] = sp.Symbol(name)
        bases = {item.base: sp.IndexedBase(identifier(item.base)) for item in self.expression.atoms(sp.Indexed)}
        replace |= {item: bases[item.base][item.indices] for item in self.expression.atoms(sp.Indexed)}
        named = self.expression.xreplace(replace)
        known = set(self.names)
        bound = {limit[0] for loop in named.atoms(sp.Sum, sp.Product) for limit in loop.limits}
        free = {str(name) for name in named.free_symbols if not isinstance(name, sp.Indexed)} - {str(b) for b in bound}
        if not free <= known:
            raise ValueError(f"arguments of {self.name}: must include {', '.join(sorted(free - known))}")
        return named


def identifier(argument: Any) -> str:
    """Return the Python name of a symbol or indexed base."""
    text = str(argument.label if isinstance(argument, sp.IndexedBase) else argument)
    text = {"lambda": "eigenvalues", "omega": "task_power"}.get(text, text)
    return "".join(letter if letter.isalnum() else "_" for letter in text).strip("_")


class _ArrayPrinter(SciPyPrinter):
    """Prints sums and products as numpy reductions: each index runs along a new leading axis."""

    _depth = 0

    def _reduce(self, loop: Any, function: str) -> str:
        (index, low, high), *outer = loop.limits
        inner = loop.function
        if outer:
            inner = loop.func(inner, (index, low, high))
            (index, low, high), *_ = outer
        if any(index in limit.free_symbols for part in inner.atoms(sp.Sum, sp.Product) for limit in part.limits):
            # An inner loop that ends at this index: one number at a time.
            numbers = f"range({self._print(low)}, {self._print(high)} + 1)"
            return f"numpy.{function}([{self._print(inner)} for {self._print(index)} in {numbers}], axis=0)"
        self._depth += 1
        body = self._print(inner)
        self._depth -= 1
        shape = ", ".join(["-1"] + ["1"] * self._depth)
        numbers = f"numpy.arange({self._print(low)}, {self._print(high)} + 1).reshape(({shape},))"
        one = f"numpy.ones({numbers}.shape)"
        return f"(lambda {self._print(index)}: numpy.{function}(({body}) * {one}, axis=0))({numbers})"

    def _print_Sum(self, loop: Any) -> str:
        return self._reduce(loop, "sum")

    def _print_Product(self, loop: Any) -> str:
        return self._reduce(loop, "prod")

    def _print_Indexed(self, item: Any) -> str:
        places = ", ".join(f"{self._print(index)} - 1" for index in item.indices)
        return f"{self._print(item.base.label)}[{places}]"


class _LoopPrinter(PythonCodePrinter):
    """Prints sums and products as loops that numba compiles; the loops come before the expression that uses them."""

    def __init__(self) -> None:
        super().__init__({"fully_qualified_modules": True})
        self.lines: list[str] = []
        self._indent = "    "
        self._count = 0

    def _loop(self, loop: Any, start: str, sign: str) -> str:
        (index, low, high), *outer = loop.limits
        inner = loop.function
        if outer:
            inner = loop.func(inner, (index, low, high))
            (index, low, high), *_ = outer
        name = f"total_{self._count}"
        self._count += 1
        first, last = self._print(low), self._print(high)
        self.lines.append(f"{self._indent}{name} = {start}")
        self.lines.append(f"{self._indent}for {self._print(index)} in range(int({first}), int({last}) + 1):")
        before, self._indent = self._indent, self._indent + "    "
        value = self._print(inner)
        self.lines.append(f"{self._indent}{name} {sign}= {value}")
        self._indent = before
        return name

    def _print_Sum(self, loop: Any) -> str:
        return self._loop(loop, "0.0", "+")

    def _print_Product(self, loop: Any) -> str:
        return self._loop(loop, "1.0", "*")

    def _print_Indexed(self, item: Any) -> str:
        places = ", ".join(f"{self._print(index)} - 1" for index in item.indices)
        return f"{self._print(item.base.label)}[{places}]"
