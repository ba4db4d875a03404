"""A small safe grammar for choosing rows: comparisons of columns joined by and, or, not; nothing is evaluated as code.

``n_layers >= 8 and (d_model < 2048 or not family == "wide") and seed in (1, 2, 3)``
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from validate.tables import MISSING, RunTable, read_number

_TOKEN = re.compile(
    r"\s*(?:(?P<op><=|>=|==|!=|<|>|=|\(|\)|,)|(?P<text>\"[^\"]*\"|'[^']*')|`(?P<quoted>[^`]+)`"
    r"|(?P<word>[^\s<>=!(),\"'`]+))"
)
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "=": operator.eq,
    "!=": operator.ne,
}
WORDS = {"and", "or", "not", "in"}
GRAMMAR = 'comparisons such as n_layers >= 8 or family == "wide" or seed in (1, 2), joined by and, or, not, ( )'


@dataclass(frozen=True)
class _Token:
    kind: str
    value: str
    position: int


def matching_rows(table: RunTable, condition: str) -> np.ndarray:
    """Return which rows of ``table`` satisfy ``condition``, (n,) of bool.

    Parameters
    ----------
    table
        As `read_table` returns it.
    condition
        A column, one of ``< <= > >= == !=`` or ``in``, and a number (in any form that `read_number` takes), a quoted
        text or a list of these in parentheses; joined by ``and``, ``or``, ``not`` and parentheses. A column whose name
        has spaces stands between backticks. A missing entry satisfies no comparison.

    Raises
    ------
    ValueError
        If the condition cannot be read, or names a column that is not there; the message says where.
    """
    return _Reader(table, condition).whole()


class _Reader:
    def __init__(self, table: RunTable, condition: str) -> None:
        self.table, self.condition = table, condition
        self.tokens = self._tokens()
        self.place = 0

    def whole(self) -> np.ndarray:
        rows = self._either()
        if self.place < len(self.tokens):
            raise self._complaint("expected the end")
        return rows

    def _tokens(self) -> list[_Token]:
        tokens, position, text = [], 0, self.condition.rstrip()
        while position < len(text):
            match = _TOKEN.match(text, position)
            if match is None:
                raise ValueError(f"where={self.condition!r}: cannot read {text[position:]!r}; must be {GRAMMAR}")
            kind = str(match.lastgroup)
            value = match[kind]
            if kind == "word" and value.lower() in WORDS:
                kind, value = "op", value.lower()
            tokens.append(_Token(kind, value, match.start(kind)))
            position = match.end()
        if not tokens:
            raise ValueError(f"where={self.condition!r}: must be {GRAMMAR}")
        return tokens

    def _complaint(self, what: str) -> ValueError:
        found = f"{self.tokens[self.place].value!r}" if self.place < len(self.tokens) else "the end"
        return ValueError(f"where={self.condition!r}: {what}, found {found}; must be {GRAMMAR}")

    def _next_is(self, value: str) -> bool:
        here = self.tokens[self.place] if self.place < len(self.tokens) else None
        if here is not None and here.kind == "op" and here.value == value:
            self.place += 1
            return True
        return False

    def _either(self) -> np.ndarray:
        rows = self._both()
        while self._next_is("or"):
            rows = rows | self._both()
        return rows

    def _both(self) -> np.ndarray:
        rows = self._one()
        while self._next_is("and"):
            rows = rows & self._one()
        return rows

    def _one(self) -> np.ndarray:
        if self._next_is("not"):
            return ~self._one()
        if self._next_is("("):
            rows = self._either()
            if not self._next_is(")"):
                raise self._complaint("expected )")
            return rows
        return self._comparison()

    def _comparison(self) -> np.ndarray:
        column = self._take(("word", "quoted"), "expected a column")
        if self._next_is("in"):
            if not self._next_is("("):
                raise self._complaint("expected ( after in")
            values = [self._take(("word", "text"), "expected a value")]
            while self._next_is(","):
                values.append(self._take(("word", "text"), "expected a value"))
            if not self._next_is(")"):
                raise self._complaint("expected )")
            return np.any([self._compared(column, "==", value) for value in values], axis=0)
        sign = self._take(("op",), "expected one of < <= > >= == != in")
        if sign.value not in _COMPARE:
            self.place -= 1
            raise self._complaint("expected one of < <= > >= == != in")
        return self._compared(column, sign.value, self._take(("word", "text"), "expected a number or a quoted text"))

    def _take(self, kinds: tuple[str, ...], complaint: str) -> _Token:
        if self.place >= len(self.tokens) or self.tokens[self.place].kind not in kinds:
            raise self._complaint(complaint)
        self.place += 1
        return self.tokens[self.place - 1]

    def _compared(self, column: _Token, sign: str, value: _Token) -> np.ndarray:
        name = self.table.name_of(column.value)
        entries = self.table.columns[name]
        present = np.array([entry is not None and str(entry).strip().lower() not in MISSING for entry in entries])
        if value.kind == "text":
            wanted = value.value[1:-1]
            return present & np.array([bool(_COMPARE[sign](str(entry).strip(), wanted)) for entry in entries])
        try:
            number = read_number(value.value)
        except ValueError:
            raise ValueError(f"where={self.condition!r}: {value.value!r} is no number; texts stand in quotes") from None
        numbers = self.table.numbers(name)
        return present & np.asarray(_COMPARE[sign](numbers, number), dtype=bool)
