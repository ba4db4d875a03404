"""A derivation: named steps, each an equation with its reason, verified when it is built."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sympy as sp

from theory.symbolic.checks import Identity, Mismatch
from theory.symbolic.formulas import Formula

Check = Callable[[sp.Basic, sp.Basic], str]
RELATIONS = {"=": "=", "~": r"\sim", "->": r"\to", "approx": r"\approx"}
GIVEN = "given"
# Characters of LaTeX beyond which an equation is set on two lines.
LONGEST_LINE = 260


class DerivationError(Exception):
    """A step does not follow; the message names the derivation and the step."""


@dataclasses.dataclass(frozen=True)
class Step:
    """One equation of a derivation.

    Attributes
    ----------
    name : str
    statement : str
        What the step says, in words (Markdown, inline mathematics in dollars).
    left, right : sympy expression or matrix
        The equation.
    relation : {"=", "~", "->", "approx"}
        Equality, asymptotic equality, limit, equality up to the order that ``remainder`` names.
    reason : str
        Why it holds.
    assumptions : tuple of str
    evidence : str
        How it was verified; ``given`` for a definition.
    remainder : str
        LaTeX of the order that was dropped, empty if nothing was.
    check : callable or None
        The verification itself, ``check(left, right)``; ``None`` for a definition.
    """

    name: str
    statement: str
    left: sp.Basic
    right: sp.Basic
    relation: str
    reason: str
    assumptions: tuple[str, ...]
    evidence: str
    remainder: str = ""
    check: Check | None = dataclasses.field(default=None, repr=False, compare=False)

    def lines(self) -> tuple[str, ...]:
        """Return the equation as LaTeX, without delimiters: one line, or two where one would be too long."""
        tail = f" + {self.remainder}" if self.remainder else ""
        left, right = to_latex(self.left), f"{RELATIONS[self.relation]} {to_latex(self.right)}{tail}"
        return (left, right) if len(left) + len(right) > LONGEST_LINE else (f"{left} {right}",)

    def latex(self) -> str:
        """Return the equation as LaTeX, without delimiters, on one line."""
        return " ".join(self.lines())

    def __str__(self) -> str:
        return f"{self.name}: {self.left} {self.relation} {self.right}  [{self.evidence}]"


@dataclasses.dataclass(frozen=True)
class Derivation:
    """A verified sequence of steps, and the formulas that come out of it.

    Attributes
    ----------
    name, title, summary : str
    steps : tuple of Step
    formulas : mapping of str to Formula
        What numeric code uses or is tested against.
    """

    name: str
    title: str
    summary: str
    steps: tuple[Step, ...]
    formulas: Mapping[str, Formula]

    def __getitem__(self, name: str) -> Step:
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def digest(self) -> str:
        """A hash of every equation and formula."""
        text = "\n".join(
            f"{step.name}|{sp.srepr(step.left)}|{step.relation}|{sp.srepr(step.right)}" for step in self.steps
        )
        text += "\n".join(f"{name}|{sp.srepr(formula.expression)}" for name, formula in self.formulas.items())
        return hashlib.sha256(text.encode()).hexdigest()

    def __str__(self) -> str:
        lines = [f"{self.title} ({len(self.steps)} steps)"]
        lines += [f"  {number}. {step.name}: {step.evidence}" for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)


class Builder:
    """Collects the steps of one derivation, verifying each as it comes.

    Parameters
    ----------
    name, title, summary : str
    known : mapping of str to str, optional
        Evidence already established for exactly these sources: those steps are not verified again.
    mutate : mapping of str to callable, optional
        For tests: a change made to a step before it is verified, ``(left, right) -> (left, right)``.
    """

    def __init__(
        self,
        name: str,
        title: str,
        summary: str,
        *,
        known: Mapping[str, str] | None = None,
        mutate: Mapping[str, Callable[[sp.Basic, sp.Basic], tuple[sp.Basic, sp.Basic]]] | None = None,
    ) -> None:
        self.name, self.title, self.summary = name, title, summary
        self._known = dict(known or {})
        self._mutate = dict(mutate or {})
        self._steps: list[Step] = []
        self._formulas: dict[str, Formula] = {}

    def given(self, name: str, left: Any, right: Any, *, statement: str, assumptions: tuple[str, ...] = ()) -> Any:
        """Add a definition and return its right side, from which later steps are computed."""
        return self._add(name, left, right, None, "=", statement, "Definition.", assumptions, "")

    def step(
        self,
        name: str,
        left: Any,
        right: Any,
        *,
        statement: str,
        reason: str,
        check: Check | None = None,
        relation: str = "=",
        assumptions: tuple[str, ...] = (),
        remainder: str = "",
    ) -> Any:
        """Verify an equation (an `Identity` unless another check is given), add it, and return its right side.

        Raises
        ------
        DerivationError
            If it does not follow.
        """
        return self._add(name, left, right, check or Identity(), relation, statement, reason, assumptions, remainder)

    def formula(self, name: str, expression: Any, arguments: tuple[Any, ...], *, summary: str) -> None:
        """Name a result that becomes functions: ``arguments`` fixes their order."""
        self._formulas[name] = Formula(
            f"{self.name}_{name}", sp.sympify(expression, strict=True), tuple(arguments), summary
        )

    def build(self) -> Derivation:
        """Return the derivation."""
        return Derivation(self.name, self.title, self.summary, tuple(self._steps), dict(self._formulas))

    def _add(
        self,
        name: str,
        left: Any,
        right: Any,
        check: Check | None,
        relation: str,
        statement: str,
        reason: str,
        assumptions: tuple[str, ...],
        remainder: str,
    ) -> Any:
        if any(step.name == name for step in self._steps):
            raise DerivationError(f"{self.name}: two steps are called {name!r}")
        left, right = sp.sympify(left, strict=True), sp.sympify(right, strict=True)
        if name in self._mutate:
            left, right = self._mutate[name](left, right)
        evidence = GIVEN if check is None else self._known.get(name)
        if evidence is None:
            assert check is not None
            try:
                evidence = check(left, right)
            except Mismatch as wrong:
                raise DerivationError(f"{self.name}: step {name!r} does not follow: {wrong}") from None
        self._steps.append(
            Step(name, statement, left, right, relation, reason, assumptions, evidence, remainder, check)
        )
        return right


def to_latex(expression: sp.Basic) -> str:
    """Return ``expression`` as LaTeX, in the project's notation."""
    return str(sp.latex(expression, fold_short_frac=False, mat_delim="(")).replace("+ - ", "- ")
