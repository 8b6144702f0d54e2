"""A knob that is turned on the default screen acts within ten rounds, in the events and on what is drawn.

The embedded pair in a terminal of 120x40, with the settings that hold without options. Decoding is paused while a knob
is turned, so that all steps of a turn count from one round and the screen stands still when it is looked at.
"""

import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest

from decoder.events import Knob, Round
from decoder.levels import depths
from dynatui.keep.runs import read
from tests.dynatui.screen.pty_terminal import Start, Terminal, assert_left_clean, terminals

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

WITHIN = 10
"""Rounds after which a turn has acted."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts Python with arguments in a terminal."""
    with terminals(tmp_path) as begin:
        yield begin


@dataclass
class Live:
    """The program, and the watched method's rounds that it has recorded."""

    terminal: Terminal
    path: Path

    @property
    def rounds(self) -> list[Round]:
        """Those of dynatree so far."""
        events = read(self.path) if self.path.exists() and self.path.stat().st_size else []
        return [event for event in events if isinstance(event, Round) and event.method == "dynatree"]

    def turn(self, keys: str, shown: str) -> str:
        """Turns a knob while decoding is paused, lets at least ten rounds pass, and pauses; the screen then."""
        self.terminal.send(keys)
        self.terminal.wait_for(shown)
        return self.play(len(self.rounds) + WITHIN)

    def play(self, rounds: int) -> str:
        """Decodes until so many rounds are recorded, and pauses; the screen then."""
        if " PAUSED" in self.terminal.shown:
            self.terminal.send("P")
        assert self.terminal.wait_until(lambda: len(self.rounds) >= rounds), self.terminal.shown
        self.terminal.send("P")
        self.terminal.wait_for(" PAUSED")
        assert self.terminal.wait_until(lambda: f"Tree ─ round {len(self.rounds) - 1}:" in self.terminal.shown)
        return self.terminal.read(0.5)


@dataclass(frozen=True)
class Chart:
    """The lower right chart as it is drawn: D0 on the left scale, tau_h on the right one, turns as flags below."""

    rows: list[str]

    @classmethod
    def on(cls, screen: str) -> "Chart":
        """The chart of a screen."""
        lines = screen.splitlines()
        top = next(number for number, line in enumerate(lines) if re.search("╭─ D0 (base depth )?━━", line))
        begin = lines[top].index("╭", 10)
        bottom = next(number for number, line in enumerate(lines) if number > top and line[begin : begin + 1] == "╰")
        return cls([line[begin + 7 : -7] for line in lines[top + 1 : bottom]])

    @property
    def flags(self) -> list[int]:
        """The columns of the turns."""
        return [column for column, cell in enumerate(self.rows[-1]) if cell == "▲"]

    def drawn(self, row: int) -> set[int]:
        """The columns of a row in which there is a line; row 0 is the highest."""
        return {column for column, cell in enumerate(self.rows[row]) if "\u2800" < cell <= "\u28ff"}


def depth(rounds: list[Round]) -> float:
    return fmean(max(depths(event.parents)) for event in rounds)


def nodes(rounds: list[Round]) -> float:
    return fmean(len(event.tokens) - 1 for event in rounds)


def guesses_where_sure(rounds: list[Round]) -> list[int]:
    """Children of each node whose best one is more probable than the lower tau_h, and less than the higher."""
    found = []
    for event in rounds:
        for node in range(len(event.tokens)):
            children = [child for child, parent in enumerate(event.parents) if parent == node]
            if children and 0.52 < math.exp(event.logprobs[children[0]]) < 0.88:
                found.append(len(children))
    return found


def gain(screen: str) -> float:
    """B - A of L-bar, as the knobs panel writes it."""
    found = re.search(r"L-bar: B - A ([+-][\d.]+) \(", screen)
    assert found, screen
    return float(found[1])


def test_turns_of_d0_and_tau_h_and_back_act_within_ten_rounds(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    terminal = start("-m", "dynatui", "--record", str(path), size=(120, 40))
    live = Live(terminal, path)
    screens = [
        live.play(22),
        live.turn("[" * 8, "→.50"),
        live.turn("]" * 8, "→.90"),
        live.turn("-" * 3, "→1.00"),
        live.turn("=" * 3, "→4.00"),
    ]
    terminal.send("q")
    assert terminal.end() == 0
    assert_left_clean(terminal)

    events = read(path)
    turns = [event for event in events if isinstance(event, Knob) and event.source == "user"]
    begins = sorted({turn.round for turn in turns})
    ends = {begin: [turn for turn in turns if turn.round == begin][-1] for begin in begins}
    assert [(end.name, round(end.new, 2)) for end in ends.values()] == [
        ("tau_h", 0.5),
        ("tau_h", 0.9),
        ("d0", 1),
        ("d0", 4),
    ]
    spans = [live.rounds[begin:end] for begin, end in pairwise((0, *begins, None))]
    assert all(len(span) >= WITHIN for span in spans)

    before, fewer, more = (guesses_where_sure(span) for span in spans[:3])
    assert max(before) == max(more) == 2
    assert set(fewer) == {1}
    deep, shallow, deeper_again = spans[2][-WITHIN:], spans[3][:WITHIN], spans[4][:WITHIN]
    assert depth(shallow) + 0.8 < min(depth(deep), depth(deeper_again))
    assert nodes(shallow) + 4 < min(nodes(deep), nodes(deeper_again))

    assert "B - A" not in screens[0]
    assert gain(screens[3]) < 0 < gain(screens[4])
    assert len({gain(screen) for screen in screens[1:]}) == 4

    chart = Chart.on(screens[-1])
    down, up, shallower, deeper = chart.flags
    high, middle, low = chart.drawn(0), chart.drawn((len(chart.rows) - 1) // 2), chart.drawn(-2)
    assert high.isdisjoint(range(down + 2, up - 1)), "tau_h left the height of .9"
    assert high & set(range(down)), "it was there before"
    assert high & set(range(up + 2, shallower)), "and came back"
    assert low >= set(range(shallower + 2, deeper - 1)), "D0 went down to 1"
    assert low.isdisjoint(range(shallower - 1)), "not before"
    assert middle & set(range(deeper + 1, 99)), "and back to 4"
