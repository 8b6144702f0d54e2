"""Generates random trees, and reads the parent of each node from a drawn tree by following its lines."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from string import ascii_letters

from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Round
from tests.dynatui.scripted_runs import tree_round

_NAMES = ascii_letters + "".join(map(chr, range(0x3B1, 0x3C2))) + "".join(map(chr, range(0x430, 0x450)))
ROOT = _NAMES[0]
_LINES = "─┬├╰│"


def name(node: int) -> str:
    return _NAMES[node]


def tree_of(parents: Sequence[int], logprobs: Sequence[float] | None = None, accepted: Sequence[int] = ()) -> Round:
    count = len(parents)
    return structs.replace(
        tree_round(0),
        tokens=list(range(count)),
        parents=list(parents),
        logprobs=list(logprobs or [0.0, *[math.log(0.5)] * (count - 1)]),
        pieces=[f" {name(node)}" for node in range(count)],
        accepted=list(accepted),
    )


@st.composite
def trees(draw: st.DrawFn, most: int = 60) -> Round:
    size, reach = draw(st.integers(1, most)), draw(st.integers(1, most))
    parents = [-1, *(draw(st.integers(max(0, node - reach), node - 1)) for node in range(1, size))]
    logprobs = [0.0, *(draw(st.floats(-5, 0)) for _ in range(1, size))]
    path, node = list[int](), draw(st.integers(0, size - 1))
    while node > 0:
        path.insert(0, node)
        node = parents[node]
    return tree_of(parents, logprobs, path)


@dataclass(frozen=True)
class Picture:
    rows: Sequence[str]

    @cached_property
    def marks(self) -> Mapping[tuple[int, int], str]:
        found = {
            (row, label.start()): label[1]
            for row, text in enumerate(self.rows)
            for label in re.finditer(r"[●○] (\w)", text)
        }
        assert len(set(found.values())) == len(found), "a node is shown twice"
        return found

    @property
    def left_out(self) -> int:
        told = re.fullmatch(r"\+ (\d+)(?: more(?: nodes)?)?", self.rows[-1].rstrip())
        return int(told[1]) if told else 0

    def parents(self) -> dict[str, str]:
        return {guess: self._parent(*place) for place, guess in self.marks.items()}

    def loose_ends(self) -> list[tuple[int, int]]:
        below = [*self.rows[1:], ""]
        return [
            (row, cell)
            for row, text in enumerate(self.rows)
            for cell, sign in enumerate(text)
            if sign in "┬├│" and below[row][cell : cell + 1] not in ("│", "├", "╰")
        ]

    def _parent(self, row: int, cell: int) -> str:
        cell -= 1
        while True:
            sign = self.rows[row][cell]
            if sign in "├╰":
                row, cell = self._up(row - 1, cell)
                if (row, cell) in self.marks:
                    return self.marks[row, cell]
                if row == 0:
                    return ROOT
            elif sign == "→":
                row, cell = self._other_end(row, cell)
                return self._label_before(row, len(self.rows[row][:cell].rstrip()))
            elif sign == " ":
                return self._label_before(row, cell)
            else:
                assert sign in "─┬", f"{sign!r} is no line to the left"
            cell -= 1

    def _up(self, row: int, cell: int) -> tuple[int, int]:
        while row > 0 and (row, cell) not in self.marks and self.rows[row][cell] != "┬":
            assert self.rows[row][cell] in "│├", f"{self.rows[row][cell]!r} is no line up"
            row -= 1
        return row, cell

    def _other_end(self, row: int, cell: int) -> tuple[int, int]:
        arrow = f" →{self.rows[row][:cell]}"
        ends = [(number, len(text) - len(arrow)) for number, text in enumerate(self.rows) if text.endswith(arrow)]
        assert len(ends) == 1, f"{arrow!r} is there {len(ends)} times"
        assert ends[0][0] < row, "the tree goes on above its beginning"
        return ends[0]

    def _label_before(self, row: int, cell: int) -> str:
        before = [place for place in self.marks if place[0] == row and place[1] < cell]
        start = max(before)[1]
        assert not set(self.rows[row][start:cell]) & set(_LINES), "a line begins at no label"
        assert self.rows[row][cell - 1] != " ", "a line begins after a gap"
        return self.marks[row, start]
