"""What-if tables: drafted and accepted tokens of recorded rounds, and tokens per second, under other values of two
knobs. A rule that drafts fewer nodes than were recorded is fully known; of one that drafts more, only the recorded part
is, and the result is a lower bound: the record does not say whether a wider or deeper tree would have had the target's
token. Also, every round is replayed from where it began, and the history rule is not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.analysis.round_costs import RoundCosts, fitted
from decoder.analysis.rule_replay import ReplayedRounds, TreeRecord, replay_rounds
from decoder.events import LENGTH, Round
from decoder.knobs import HIGHEST_DEPTH, HIGHEST_NODES, KNOB_GAP, KnobName
from decoder.methods import root_is_drafted
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.linear import Linear
from decoder.tree import depths
from decoder.tree_rules import Rules, used_depth

ROUNDS = 50
LEAST_SHARE = 0.5
LEAST_ROUNDS = 5
ALIKE = 0.005
"""Tokens per round below which two cells count as equal."""
GAIN = 0.03
"""Least relative gain of speed of a faster cell."""
_NODES = 6000
_DEEPEST = 128
"""No method drafts deeper trees."""
_LINES = 5
_SLACK = 1e-6


@dataclass(frozen=True)
class GridCell:
    """One pair of knob values over all replayed rounds. Rounds that are not fully known count with their lower bound;
    leaving them out would bias the mean, since rounds with many tokens are fully known least often.
    """

    rounds: int
    judged: int
    """Rounds whose tokens are known."""
    tokens: float
    """Per round, or a lower bound."""
    drafted_judged: int
    drafted: float
    """Per round, or a lower bound."""
    seconds: float | None = None
    """Per round; None if `drafted` is a lower bound or costs are unknown."""

    @property
    def rate(self) -> float | None:
        """None if tokens or seconds are unknown."""
        return self.tokens / self.seconds if self.exact and self.seconds else None

    @property
    def share(self) -> float:
        return self.judged / self.rounds if self.rounds else 0.0

    @property
    def exact(self) -> bool:
        return 0 < self.rounds == self.judged

    @property
    def drafted_exact(self) -> bool:
        return 0 < self.rounds == self.drafted_judged

    @property
    def known(self) -> bool:
        return self.judged >= LEAST_ROUNDS and self.share >= LEAST_SHARE


@dataclass(frozen=True)
class Grid:
    """A row for each value of the knob `down`, a column for each value of the knob `across`."""

    down: KnobName
    across: KnobName
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    """Whole numbers; D0 is rounded."""
    cells: tuple[tuple[GridCell, ...], ...]
    present: tuple[int, int]
    """(row, column) of the current values."""

    @property
    def here(self) -> GridCell:
        row, column = self.present
        return self.cells[row][column]

    def places(self) -> list[tuple[int, int]]:
        return [(i, j) for i, row in enumerate(self.cells) for j, cell in enumerate(row) if cell.known]


@dataclass(frozen=True)
class WhatIf:
    grids: tuple[Grid, ...]
    rounds: int
    by_costs: bool = False
    """Whether costs also limited the trees, as in `auto`."""

    @property
    def here(self) -> GridCell:
        """Of the current values."""
        return self.grids[0].here

    @property
    def cells(self) -> tuple[GridCell, ...]:
        return tuple(cell for grid in self.grids for row in grid.cells for cell in row)

    def faster(self) -> tuple[Grid, int, int] | None:
        """(table, row, column) of the highest estimated speed; None if it gains less than `GAIN` or the present speed
        is unknown.
        """
        rates = [
            (rate, grid, row, column)
            for grid in self.grids
            for row, column in grid.places()
            if (rate := grid.cells[row][column].rate) is not None
        ]
        here = self.here.rate
        fastest = max(rates, key=lambda each: each[0], default=None)
        if here is None or fastest is None or fastest[0] < (1 + GAIN) * here:
            return None
        return fastest[1:]

    def best(self) -> tuple[Grid, int, int] | None:
        """Known cell with the most tokens per round; of equal ones, first those with an exact number of drafted nodes,
        then with fewer nodes, then nearer to the current values.
        """
        places = [(grid, row, column) for grid in self.grids for row, column in grid.places()]
        return max(places, key=lambda place: _merit(*place), default=None)


def what_if(past: Sequence[Round], rules: Rules, plain_pass_s: float | None = None) -> WhatIf | None:
    """None for rules that are not replayed, and if no round can be. The rounds, oldest first, must have been drafted
    under the same rules, except for tau_h, tau_l and D0 of adaptive trees, which each round records.
    """
    axes, rounds = _axes(rules), _newest(past, adaptive=isinstance(rules, AdaptiveTree))
    if not axes or not rounds:
        return None
    record, costs = TreeRecord(rounds), fitted(past[-ROUNDS:], plain_pass_s)
    grids = tuple(_grid(record, rules, down, across, costs) for down, across in axes)
    return WhatIf(grids, len(rounds), rules.rule().budget.by_cost)


def _has_tree(event: Round, *, adaptive: bool) -> bool:
    """Also checks the accepted path, since recordings are untrusted."""
    if (adaptive and event.knobs is None) or root_is_drafted(event.method) or event.limited_by == LENGTH:
        return False
    if max(depths(event.parents)) > _DEEPEST:
        return False
    above = [0, *event.accepted]
    return all(event.parents[node] == parent for parent, node in zip(above, event.accepted, strict=False))


def _newest(past: Sequence[Round], *, adaptive: bool = True) -> list[Round]:
    rounds: list[Round] = []
    nodes = 0
    for event in reversed(past[-ROUNDS:]):
        nodes += len(event.tokens)
        if nodes > _NODES and rounds:
            break
        if _has_tree(event, adaptive=adaptive):
            rounds.append(event)
    return rounds[::-1]


@dataclass(frozen=True)
class _Axis:
    knob: KnobName
    value: float
    low: float
    high: float
    step: float = 1.0

    def values(self) -> tuple[float, ...]:
        """The value and its nearest neighbours within the bounds, whole numbers of steps away."""
        apart = [self.step * count for count in range(-_LINES, _LINES + 1)]
        low, high = self.low - _SLACK, self.high + _SLACK
        inside = [self.value + way for way in apart if low <= self.value + way <= high or way == 0]
        nearest = sorted(inside, key=lambda neighbour: abs(neighbour - self.value))[:_LINES]
        clamped = (each if each == self.value else min(self.high, max(self.low, each)) for each in nearest)
        return tuple(sorted(clamped))


def _axes(rules: Rules) -> Sequence[tuple[_Axis, _Axis]]:
    """Of each table, rows and columns; none for rules of which a record of trees says too little."""
    match rules:
        case AdaptiveTree():
            d0 = _Axis("d0", float(used_depth(rules.d0)), 1.0, rules.d_max - 1.0)
            return (
                (_Axis("tau_h", rules.tau_h, rules.tau_l + KNOB_GAP, 1.0, 0.1), d0),
                (_Axis("tau_l", rules.tau_l, KNOB_GAP, rules.tau_h - KNOB_GAP, 0.1), d0),
            )
        case Linear():
            return ((_Axis("p_min", rules.p_min, 0.0, 1.0, 0.1), _Axis("k", float(rules.k), 1.0, HIGHEST_DEPTH)),)
        case Eagle2():
            verified, steps = float(rules.draft_tokens), float(rules.steps)
            step = float(max(1, rules.draft_tokens // 4))
            levels = _Axis("eagle_steps", steps, 1.0, HIGHEST_DEPTH)
            return ((_Axis("draft_tokens", verified, 2.0, HIGHEST_NODES, step), levels),)
        case _:
            return ()


def _grid(record: TreeRecord, rules: Rules, down: _Axis, across: _Axis, costs: RoundCosts | None) -> Grid:
    rows, columns, recorded = down.values(), across.values(), rules.rule()
    cells = []
    for row in rows:
        turned = [rules.with_knobs({down.knob: row, across.knob: column}) for column in columns]
        cells.append(tuple(_cell(replay_rounds(record, other.rule(), recorded), costs) for other in turned))
    present = rows.index(down.value), columns.index(across.value)
    return Grid(down.knob, across.knob, rows, columns, tuple(cells), present)


def _cell(replayed: ReplayedRounds, costs: RoundCosts | None) -> GridCell:
    drafted = float(replayed.drafted.mean())
    sized = bool(replayed.drafted_known.all())
    return GridCell(
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
