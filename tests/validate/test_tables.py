"""Reading tables as people have them: every format gives the same numbers, every unreadable row is named."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from validate import matching_rows, read_number, read_table

CSV = """\ufeff# runs of March
N_Layers, d_model ,Loss,tokens,
2,"1,024",3.5,1.3B,

# a second comment
4,2048,45%,6.7e9,
8,4_096,1.9,"1,234,567",
"""


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.3B", 1.3e9),
        ("70b", 70e9),
        ("6.7e9", 6.7e9),
        ("1,234", 1234.0),
        ("1,234,567.5", 1234567.5),
        ("45%", 0.45),
        (" 12 ", 12.0),
        ("512M", 512e6),
        ("16k", 16e3),
        ("1.4 T", 1.4e12),
        ("1_000", 1000.0),
        ("1 000", 1000.0),
        ("\u22123.5", -3.5),
        (".5", 0.5),
        (7, 7.0),
        (np.float32(0.5), 0.5),
        ("inf", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_numbers_as_people_write_them(text: object, number: float) -> None:
    assert read_number(text) == number


@pytest.mark.parametrize("text", ["", "NaN", "n/a", None, "-", "null"])
def test_missing_entries_are_nan(text: object) -> None:
    assert math.isnan(read_number(text))


@pytest.mark.parametrize("text", ["abc", "1,23", "1.2.3", "12 layers", "e5", "B", "%", True, "1,2345"])
def test_what_is_no_number_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="no number"):
        read_number(text)


def test_a_messy_file(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text(CSV, encoding="utf-8")
    table = read_table(path)
    assert len(table) == 3
    assert table.lines == [3, 6, 7]
    np.testing.assert_array_equal(table.numbers("n_layers"), [2, 4, 8])
    np.testing.assert_array_equal(table.numbers("D_MODEL"), [1024, 2048, 4096])
    np.testing.assert_array_equal(table.numbers("loss"), [3.5, 0.45, 1.9])
    np.testing.assert_array_equal(table.numbers("tokens"), [1.3e9, 6.7e9, 1234567])
    assert any("2 comment lines" in note for note in table.notes)


def test_every_format_gives_the_same_numbers(tmp_path: Path) -> None:
    rows = [{"depth": 2, "loss": 3.5}, {"depth": 4, "loss": 2.5}]
    frame = pd.DataFrame(rows)
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.tsv", index=False, sep="\t")
    frame.to_csv(tmp_path / "semicolon.csv", index=False, sep=";")
    frame.to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "columns.json").write_text(json.dumps({"depth": [2, 4], "loss": [3.5, 2.5]}), encoding="utf-8")
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    names = ("a.csv", "a.tsv", "semicolon.csv", "a.parquet", "a.json", "columns.json", "a.jsonl")
    for table in (read_table(frame), *(read_table(tmp_path / name) for name in names)):
        np.testing.assert_array_equal(table.numbers("depth"), [2, 4])
        np.testing.assert_array_equal(table.numbers("loss"), [3.5, 2.5])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "depth,loss\n1,2\n3,x\n", "line 3: 'x'"),
        ("a.csv", "depth,loss\n1,2\n3\n", "line 3 has 1 entries for 2 columns"),
        ("a.csv", "depth,loss\n1,1,234\n", "line 2 has 3 entries for 2 columns.*quotes"),
        ("a.csv", "depth,loss\n", "at least one row"),
        ("a.csv", "", "at least one row"),
        ("a.csv", "loss,Loss\n1,2\n", "name each column once"),
        ("a.csv", "depth,,loss\n1,2,3\n", "name each column once"),
        ("a.json", "{", "line 1 is not JSON"),
        ("a.json", "[1, 2]", "must hold rows"),
        ("a.json", '{"a": [1], "b": [1, 2]}', "one length"),
        ("a.jsonl", '{"loss": 1}\n{"loss"\n', "line 2 is not JSON"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_table(tmp_path / name).numbers("loss")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"depth,loss\n1,\xff\xfe\n")
    with pytest.raises(ValueError, match="UTF-8"):
        read_table(tmp_path / "a.csv")


def test_a_broken_parquet_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"a\.parquet"):
        read_table(tmp_path / "a.parquet")


def test_unknown_columns_list_the_known() -> None:
    table = read_table(pd.DataFrame({"Depth": [1], "loss": [2]}))
    with pytest.raises(ValueError, match="column='width': must be one of Depth, loss"):
        table.numbers("width")


FILTERED = pd.DataFrame(
    {
        "n_layers": [2, 4, 8, 16],
        "family": ["wide", "deep", "wide", "deep"],
        "tokens": ["1B", "2B", "4B", None],
        "a b": [1, 2, 3, 4],
    }
)


@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("n_layers >= 8", [0, 0, 1, 1]),
        ("N_LAYERS < 8", [1, 1, 0, 0]),
        ('family == "wide"', [1, 0, 1, 0]),
        ("family != 'wide' and n_layers > 4", [0, 0, 0, 1]),
        ("n_layers = 2 or n_layers = 16", [1, 0, 0, 1]),
        ("not n_layers in (2, 4)", [0, 0, 1, 1]),
        ("tokens > 1.5B", [0, 1, 1, 0]),
        ("not tokens > 1.5B", [1, 0, 0, 1]),
        ("n_layers > 2 and (family == 'deep' or n_layers == 8)", [0, 1, 1, 1]),
        ("n_layers > 2 or n_layers < 2 and family == 'deep'", [0, 1, 1, 1]),
        ("`a b` >= 3", [0, 0, 1, 1]),
        ("family in ('deep', 'tall')", [0, 1, 0, 1]),
    ],
)
def test_filters(condition: str, kept: list[int]) -> None:
    np.testing.assert_array_equal(matching_rows(read_table(FILTERED), condition), np.array(kept, dtype=bool))


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("", "must be comparisons"),
        ("n_layers", "expected one of <"),
        ("n_layers >", "expected a number"),
        ("n_layers > 2 and", "expected a column"),
        ("(n_layers > 2", r"expected \)"),
        ("n_layers > 2)", "expected the end"),
        ("width > 2", "column='width'"),
        ("n_layers > two", "'two' is no number"),
        ("__import__('os').system('true')", "expected one of <"),
        ("n_layers in 2", r"expected \("),
        ("n_layers ( 2", "expected one of <"),
        ("family > 3", "no numbers"),
        ('family == "wide', "cannot read"),
    ],
)
def test_filters_that_cannot_be_read(condition: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        matching_rows(read_table(FILTERED), condition)
