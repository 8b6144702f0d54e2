"""Tests of a sweep's progress: a heat map on a terminal, lines of text elsewhere."""

from io import StringIO

import pytest
from rich.console import Console

from dynatui.lab.bench.sweep.report import SweepReport, Trial
from dynatui.lab.commands import sweep_progress
from dynatui.lab.commands.sweep_progress import SweepDisplay, drawn
from tests.lab.bench.sweep.sweeps import outcome, request

GRID = request(axes={"D": (3, 4), "B": (2, 3), "tau": (0.05,), "T": (100, 200)})
KEYS = [setting.key for setting in GRID.settings]


def report(done: int, running: int = 0) -> SweepReport:
    states = ["done"] * done + ["running"] * running
    return SweepReport(
        folder="",
        request=GRID,
        machines={},
        trials=tuple(
            Trial(setting=each, state="done", outcome=outcome(1 + number / 10))
            if state == "done"
            else Trial(setting=each, state="running")
            if state == "running"
            else Trial(setting=each, state="waiting")
            for number, (each, state) in enumerate(zip(GRID.settings, states + ["waiting"] * 8, strict=False))
        ),
    )


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    """Makes standard error a terminal of 80 columns; returns the text written to it."""
    screen = StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24, legacy_windows=False)
    monkeypatch.setattr(sweep_progress, "Console", lambda **_: console)
    monkeypatch.delenv("TERM", raising=False)
    return screen


def test_elsewhere_each_new_setting_is_a_line() -> None:
    said: list[str] = []
    progress = SweepDisplay(said.append)
    with progress.shown():
        for done in (2, 2, 4, 8):
            progress.update(report(done))
    assert said[0] == "2 of 8 settings of fixed are measured"
    assert [line.split(": ")[0] for line in said[1:]] == [f"{number} of 8" for number in range(3, 9)]
    assert said[1].startswith(f"3 of 8: {KEYS[2]}: x ar 1.20 1.10-1.30, ")
    assert said[1].endswith(" left")
    assert said[-1].endswith("x ar 1.70 1.60-1.80")


def test_a_setting_without_a_speed_is_told_with_the_reason() -> None:
    said: list[str] = []
    refused = Trial(setting=GRID.settings[0], state="refused", reason="its text differs")
    progress = SweepDisplay(said.append)
    progress.update(report(0))
    progress.update(SweepReport(folder="", request=GRID, machines={}, trials=(refused, *report(0).trials[1:])))
    assert said[1].startswith(f"1 of 8: {KEYS[0]}: its text differs")


def test_a_terminal_shows_a_heat_map_that_needs_no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_terminal(monkeypatch)
    said: list[str] = []
    progress = SweepDisplay(said.append)
    with progress.shown():
        progress.update(report(3, running=1))
    assert said == ["3 of 8 settings of fixed are measured"]
    assert "1.20*" in screen.getvalue()
    plain = Console(file=StringIO(), width=80, no_color=True, force_terminal=False)
    plain.print(drawn(report(3, running=1), ", 3 min left"))
    assert isinstance(plain.file, StringIO)
    text = plain.file.getvalue()
    assert "T=100, B across" in text
    assert "T=200, B across" in text
    assert "1.20*" in text
    assert "+" in text
    assert f"measuring {KEYS[3]}" in text
    assert f"best so far {KEYS[2]}: x ar 1.20" in text
    assert "3 of 8 settings of fixed, 3 min left" in text


def test_the_paper_s_grid_fits_a_terminal_of_24_lines() -> None:
    question = request(
        axes={"D": tuple(range(3, 9)), "B": (2, 3, 4), "tau": (0.01, 0.1), "T": (100, 200, 300, 500, 1000)}
    )
    trials = tuple(Trial(setting=each, state="done", outcome=outcome(1.5)) for each in question.settings)
    found = SweepReport(folder="", request=question, machines={}, trials=trials)
    page = Console(file=StringIO(), width=80, no_color=True)
    page.print(drawn(found, ", 3 min left"))
    assert isinstance(page.file, StringIO)
    assert len(page.file.getvalue().splitlines()) <= 23
