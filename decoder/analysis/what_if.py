"""What-if tables: drafted and accepted tokens of recorded rounds, and tokens per second, under other values of tau_h,
tau_l and D0.

A recorded tree contains the draft's probabilities of the drafted tokens only. So if a rule drafts fewer nodes than were
recorded, the result is fully known. If a rule drafts more nodes, only the recorded part of its tree is known, and the
result is a lower bound. At the end of the accepted path the target chose a token that was not drafted; the record does
not say whether a wider or deeper tree would have contained this token.

The tables are estimates for another reason too: every round is replayed from the position where it began, but under
other rules, rounds would begin at other positions. The history rule is not replayed. This module knows neither models
nor screens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from decoder.analysis.round_costs import RoundCosts, fitted
from decoder.analysis.rule_replay import ReplayedRounds, TreeRecord, replay
from decoder.events import LENGTH, Round
from decoder.knobs import KNOB_GAP
from decoder.methods import root_is_drafted
from decoder.methods.adaptive import AdaptiveTree
from decoder.tree import depths
from decoder.tree_rules import used_depth

ROUNDS = 50
"""Maximum number of replayed rounds; the newest rounds are replayed."""
LEAST_SHARE = 0.5
"""A cell is shown only if the tokens of at least this share of the rounds are known."""
LEAST_ROUNDS = 5
"""A cell is shown only if the tokens of at least this number of rounds are known."""
ALIKE = 0.005
"""Difference in tokens per round below which two cells count as equal."""
GAIN = 0.03
"""Least relative gain of speed for a cell to count as faster."""
_NODES = 6000
"""Largest number of nodes in all replayed rounds together."""
_DEEPEST = 128
"""A recorded tree with more levels than this is not replayed; no method drafts such deep trees."""
_LINES = 5
"""Maximum number of rows, and of columns, of a table."""
_SLACK = 1e-6
"""Tolerance for rounding of sums of steps."""

Axis: TypeAlias = Literal["tau_h", "tau_l"]


@dataclass(frozen=True)
class Cell:
    """Result of one pair of knob values over all replayed rounds.

    Rounds that are not fully known count with their lower bound, so a mean is exact if every round is known, and a
    lower bound otherwise. Leaving such rounds out would bias the mean, since rounds with many tokens are fully known
    least often.
    """

    rounds: int
    """Number of rounds."""
    judged: int
    """Number of rounds whose tokens are known."""
    tokens: float
    """Tokens per round (L-bar), or a lower bound."""
    drafted_judged: int
    """Number of rounds whose drafted nodes are known."""
    drafted: float
    """Drafted nodes per round, or a lower bound."""
    seconds: float | None = None
    """Estimated seconds per round; None if `drafted` is a lower bound, or if the costs of a round are unknown."""

    @property
    def rate(self) -> float | None:
        """Estimated tokens per second; None if tokens or seconds per round are unknown."""
        return self.tokens / self.seconds if self.exact and self.seconds else None

    @property
    def share(self) -> float:
        """Share of the rounds whose tokens are known."""
        return self.judged / self.rounds if self.rounds else 0.0

    @property
    def exact(self) -> bool:
        """Whether `tokens` is exact, not a lower bound."""
        return 0 < self.rounds == self.judged

    @property
    def drafted_exact(self) -> bool:
        """Whether `drafted` is exact, not a lower bound."""
        return 0 < self.rounds == self.drafted_judged

    @property
    def known(self) -> bool:
        """Whether the tokens of enough rounds are known for the cell to be shown."""
        return self.judged >= LEAST_ROUNDS and self.share >= LEAST_SHARE


@dataclass(frozen=True)
class Grid:
    """Table of cells over two knobs: a row for each value of the knob `down`, a column for each value of D0."""

    down: Axis
    """Knob whose value differs from row to row."""
    rows: tuple[float, ...]
    """Values of `down`, ascending."""
    columns: tuple[float, ...]
    """Values of D0 after rounding, ascending."""
    cells: tuple[tuple[Cell, ...], ...]
    """Cells by row and column."""
    present: tuple[int, int]
    """(row, column) of the cell for the current values."""

    @property
    def here(self) -> Cell:
        """Cell of the current values."""
        row, column = self.present
        return self.cells[row][column]

    def places(self) -> list[tuple[int, int]]:
        """(row, column) of each known cell."""
        return [(i, j) for i, row in enumerate(self.cells) for j, cell in enumerate(row) if cell.known]


@dataclass(frozen=True)
class WhatIf:
    """Two tables, whose knob values include the current values and their neighbours."""

    breadth: Grid
    """Table with tau_h in rows and D0 in columns."""
    doubt: Grid
    """Table with tau_l in rows and D0 in columns."""
    rounds: int
    """Number of replayed rounds."""
    by_costs: bool = False
    """Whether the costs of nodes also limited the trees, as in method `auto`."""

    @property
    def grids(self) -> tuple[Grid, Grid]:
        """Both tables."""
        return self.breadth, self.doubt

    @property
    def cells(self) -> tuple[Cell, ...]:
        """All cells of both tables."""
        return tuple(cell for grid in self.grids for row in grid.cells for cell in row)

    def faster(self) -> tuple[Grid, int, int] | None:
        """Table, row and column of the cell with the highest estimated speed; None if no cell is faster than the
        current values by at least `GAIN`, or if the speed under the current values is unknown.
        """
        rates = [
            (rate, grid, row, column)
            for grid in self.grids
            for row, column in grid.places()
            if (rate := grid.cells[row][column].rate) is not None
        ]
        here = self.breadth.here.rate
        fastest = max(rates, key=lambda each: each[0], default=None)
        if here is None or fastest is None or fastest[0] < (1 + GAIN) * here:
            return None
        return fastest[1:]

    def best(self) -> tuple[Grid, int, int] | None:
        """Table, row and column of the known cell with the most tokens per round.

        Of cells with equally many tokens, cells with an exact number of drafted nodes are preferred, then cells with
        fewer drafted nodes, then cells nearer to the current values.
        """
        places = [(grid, row, column) for grid in self.grids for row, column in grid.places()]
        return max(places, key=lambda place: _merit(*place), default=None)


def what_if(past: Sequence[Round], rules: AdaptiveTree, plain_pass_s: float | None = None) -> WhatIf | None:
    """Both tables, with the knob values of the current rules and their neighbours, computed from the newest rounds of
    one method; None if no round can be replayed. `plain_pass_s` is the time of a target pass of one token; None if it
    is unknown.

    The rounds, oldest first, must have been drafted under the same rules, except for tau_h, tau_l and D0, which each
    round records.
    """
    rounds = _newest(past)
    if not rounds:
        return None
    record, costs = TreeRecord(rounds), fitted(past[-ROUNDS:], plain_pass_s)
    by_cost = rules.rule().budget.by_cost
    return WhatIf(_grid(record, rules, "tau_h", costs), _grid(record, rules, "tau_l", costs), len(rounds), by_cost)


def _has_tree(event: Round) -> bool:
    """Whether a round has a complete tree of a growth rule and a valid accepted path. The path is checked since
    recordings are untrusted.
    """
    if event.knobs is None or root_is_drafted(event.method) or event.limited_by == LENGTH:
        return False
    if max(depths(event.parents)) > _DEEPEST:
        return False
    above = [0, *event.accepted]
    return all(event.parents[node] == parent for parent, node in zip(above, event.accepted, strict=False))


def _newest(past: Sequence[Round]) -> list[Round]:
    rounds: list[Round] = []
    nodes = 0
    for event in reversed(past[-ROUNDS:]):
        nodes += len(event.tokens)
        if nodes > _NODES and rounds:
            break
        if _has_tree(event):
            rounds.append(event)
    return rounds[::-1]


def _around(value: float, low: float, high: float, step: float) -> tuple[float, ...]:
    """The value and its nearest neighbours within the bounds, in ascending order. Neighbours are whole numbers of steps
    away from the value.
    """
    apart = [step * count for count in range(-_LINES, _LINES + 1)]
    inside = [value + way for way in apart if low - _SLACK <= value + way <= high + _SLACK or way == 0]
    nearest = sorted(inside, key=lambda neighbour: abs(neighbour - value))[:_LINES]
    return tuple(sorted(neighbour if neighbour == value else min(high, max(low, neighbour)) for neighbour in nearest))


def _grid(record: TreeRecord, rules: AdaptiveTree, down: Axis, costs: RoundCosts | None) -> Grid:
    value, low, high = rules.tau_h, rules.tau_l + KNOB_GAP, 1.0
    if down == "tau_l":
        value, low, high = rules.tau_l, KNOB_GAP, rules.tau_h - KNOB_GAP
    base_depth = float(used_depth(rules.d0))
    rows, columns = _around(value, low, high, 0.1), _around(base_depth, 1.0, rules.d_max - 1.0, 1.0)
    cells = []
    for row in rows:
        turned = replace(rules, tau_h=row) if down == "tau_h" else replace(rules, tau_l=row)
        cells.append(tuple(_cell(replay(record, replace(turned, d0=d0).rule()), costs) for d0 in columns))
    return Grid(down, rows, columns, tuple(cells), (rows.index(value), columns.index(base_depth)))


def _cell(replayed: ReplayedRounds, costs: RoundCosts | None) -> Cell:
    drafted = float(replayed.drafted.mean())
    sized = bool(replayed.drafted_known.all())
    return Cell(
        rounds=len(replayed.tokens),
        judged=int(replayed.tokens_known.sum()),
        tokens=float(replayed.tokens.mean()),
        drafted_judged=int(replayed.drafted_known.sum()),
        drafted=drafted,
        seconds=costs.seconds(float(replayed.levels.mean()), drafted) if costs and sized else None,
    )


def _merit(grid: Grid, row: int, column: int) -> tuple[int, bool, float, int]:
    cell, (here_row, here_column) = grid.cells[row][column], grid.present
    way = abs(row - here_row) + abs(column - here_column)
    return round(cell.tokens / ALIKE), cell.drafted_exact, -round(cell.drafted, 1), -way
