"""A knob turned on the default screen takes effect within ten rounds, in the events and on the screen.

The embedded pair runs in a terminal of 120x40 with wide trees. Decoding is paused during a turn, so that all
steps of a turn take effect in the same round and the screen is constant while it is checked.
"""

import math
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from decoder.events import Knob, Round
from dynatui.record.reader import read_events
from tests.dynatui.pty_terminal import Start, Terminal, leave

LIVELY = (
    *("--d0", "2", "--tau-h", "0.9", "--tau-l", "0.05", "--rho-stop", "0.025", "--rho-deep", "0.3", "--n-max", "10"),
    *("--preset", "tuned", "--sharpness", "1", "--speed", "1"),
)
WITHIN = 10
WIDE = 30


@dataclass
class Live:
    terminal: Terminal
    path: Path

    @property
    def rounds(self) -> list[Round]:
        events = read_events(self.path) if self.path.exists() and self.path.stat().st_size else []
        return [event for event in events if isinstance(event, Round) and event.method == "dynatree"]

    def stands_still(self) -> bool:
        return " PAUSED" in self.terminal.shown or " HELD" in self.terminal.shown

    def shows_the_newest(self) -> bool:
        count, shown = len(self.rounds), re.search(r" round (\d+) of \d+", self.terminal.shown)
        return shown is not None and int(shown[1]) in (count, count + 1)

    def turn(self, keys: str, shown: str) -> str:
        self.terminal.send(keys)
        self.terminal.wait_for(shown)
        return self.play(WITHIN + 1)  # the first may be the round in progress, which began before the turn

    def play(self, rounds: int) -> str:
        before = len(self.rounds)
        if self.stands_still():
            self.terminal.send("P")

        def done() -> bool:
            new = self.rounds[before:]
            wide = sum(len(event.committed) for event in new) >= WIDE
            return len(new) >= rounds and wide

        assert self.terminal.wait_until(done), self.terminal.shown
        self.terminal.send("P")
        assert self.terminal.wait_until(self.stands_still), self.terminal.shown
        assert self.terminal.wait_until(self.shows_the_newest), self.terminal.shown
        return self.terminal.read(0.5)


def guesses_where_sure(rounds: list[Round]) -> list[int]:
    found = []
    for event in rounds:
        for node in range(len(event.tokens)):
            children = [child for child, parent in enumerate(event.parents) if parent == node]
            if children and 0.501 < math.exp(event.logprobs[children[0]]) < 0.899:
                found.append(len(children))
    return found


def grows_where_unlikely(rounds: list[Round]) -> bool:
    found = False
    for event in rounds:
        paths = [1.0]
        for parent, logprob in zip(event.parents[1:], event.logprobs[1:], strict=True):
            found |= parent > 0 and paths[parent] < 0.29
            paths.append(paths[parent] * math.exp(logprob))
    return found


def gain(screen: str) -> float:
    found = re.search(r"L-bar ([+-]?[\d.]+) \(", screen)
    assert found, screen
    return float(found[1])


def test_turns_of_d0_and_tau_h_and_back_act_within_ten_rounds(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "live.jsonl"
    options = (*LIVELY, "--methods", "dynatree,ar", "--max-new-tokens", "999")
    terminal = start("-m", "dynatui", "--record", str(path), *options, size=(120, 40))
    live = Live(terminal, path)
    screens = [
        live.play(WITHIN + 1),
        live.turn("[" * 8, "→0.50"),
        live.turn("]" * 8, "→0.90"),
        live.turn("-", "→1.00"),
        live.turn("=", "→2.00"),
    ]
    leave(terminal)

    events = read_events(path)
    turns = [event for event in events if isinstance(event, Knob) and event.source == "user"]
    begins = sorted({turn.round for turn in turns})
    ends = {begin: [turn for turn in turns if turn.round == begin][-1] for begin in begins}
    assert [(end.name, round(end.new, 2)) for end in ends.values()] == [
        ("tau_h", 0.5),
        ("tau_h", 0.9),
        ("d0", 1),
        ("d0", 2),
    ]
    spans = [live.rounds[begin:end] for begin, end in pairwise((0, *begins, None))]
    assert all(len(span) >= WITHIN for span in spans)

    assert max(guesses_where_sure(spans[0][-WITHIN:])) == 2
    assert set(guesses_where_sure(spans[1][:WITHIN])) == {1}
    assert max(guesses_where_sure(spans[2][:WITHIN])) == 2
    deep, shallow, deep_again = spans[2:]
    assert grows_where_unlikely(deep[-WITHIN:])
    assert not grows_where_unlikely(shallow)
    assert grows_where_unlikely(deep_again[:WITHIN])

    assert not re.search(r"L-bar [+-]", screens[0])
    assert len({gain(screen) for screen in screens[1:]}) >= 3, "two decimals may agree"

    assert "D0 1 → 2" in screens[-1], "the turn back is told at its flag"


def test_every_key_counts_that_is_typed_while_it_decodes(start_new: Start, tmp_path: Path) -> None:
    path, prompt = tmp_path / "live.jsonl", tmp_path / "prompt.txt"
    prompt.write_text("The captain went down to the harbour, and there he saw\n")
    options = (*LIVELY, "--prompt-file", str(prompt), "--record", str(path), "--max-new-tokens", "999")
    terminal = start_new("-m", "dynatui", *options, size=(120, 40))
    live = Live(terminal, path)
    terminal.wait_for("Tree ─ round")
    for key in "[[[[[[[[]]]]]]]]=-==":
        terminal.send(key)
        terminal.read(0.04)
    terminal.wait_for("D0 2 → 4")
    seen = len(live.rounds)
    assert terminal.wait_until(lambda: len(live.rounds) > seen)
    leave(terminal)
    down = [0.85, 0.8, 0.75, 0.7, 0.65, 0.6, 0.55, 0.5]
    values = [event.new for event in read_events(path) if isinstance(event, Knob) and event.source == "user"]
    assert values == [*down, *down[-2::-1], 0.9, 3, 2, 3, 4]
    last = live.rounds[-1].knobs
    assert last is not None
    assert (last.tau_h, last.d0) == pytest.approx((0.9, 4))
