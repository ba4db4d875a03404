import io

import pytest

from sim import sweep_progress
from sim.jobs import Outcome
from sim.sweep_progress import SweepBar, SweepLines, default_sweep_progress, sentence

GOOD = Outcome("aa", "finished", "", 0.25, 0.001, 3.0, True)
BAD = Outcome("bb", "failed", "RuntimeError: no")


def follow(teller):
    teller.start(2, 100)
    teller.advance(0, 30)
    teller.advance(1, 60)
    teller.ended(GOOD, "depth=1")
    teller.note("a note [with brackets]")
    teller.advance(2, 100)
    teller.ended(BAD, "depth=2")
    teller.stop()


def test_lines_say_what_is_done_and_what_is_left(capsys):
    follow(SweepLines())
    output, errors = capsys.readouterr()
    lines = errors.splitlines()
    assert output == ""
    assert lines[0].startswith("2 runs to do")
    assert lines[1].startswith("[1/2] aa depth=1: loss 0.25 ± 0.001, converged, 3 s; ")
    assert lines[1].endswith(" s left")
    assert lines[2] == "a note [with brackets]"
    assert lines[3].startswith("[2/2] bb depth=2: failed: RuntimeError: no")


def test_the_bar_shows_runs_rate_and_time_left_and_failures_above_it(monkeypatch):
    from rich.console import Console

    screen = io.StringIO()
    monkeypatch.setattr(SweepBar, "_console", lambda self: Console(file=screen, force_terminal=True, width=120))
    bar = SweepBar()
    bar.note("before it begins")
    follow(bar)
    text = screen.getvalue()
    for part in (
        "before it begins",
        "2/2 runs",
        "layer steps/s",
        "left",
        "a note [with brackets]",
        "bb depth=2: failed",
    ):
        assert part in text
    assert "aa depth=1" not in text


def test_a_terminal_gets_the_bar_and_a_file_the_lines(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    assert isinstance(default_sweep_progress(), SweepLines)
    monkeypatch.setattr(sweep_progress.sys, "stderr", Terminal())
    assert isinstance(default_sweep_progress(), SweepBar)


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (GOOD, "aa x: loss 0.25 ± 0.001, converged, 3 s"),
        (Outcome("cc", "finished"), "cc x: diverged"),
        (Outcome("cc", "finished", trained=False), "cc x: finished by another process"),
        (BAD, "bb x: failed: RuntimeError: no"),
    ],
)
def test_outcomes_in_words(outcome, words):
    assert sentence(outcome, "x") == words
