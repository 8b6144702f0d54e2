"""What-if tables: drafted and accepted tokens of recorded rounds, and tokens per second, if two knobs had other values.
Results are exact if these values draft only recorded nodes. Otherwise, numbers of tokens are lower bounds, since it is
unknown whether nodes that were not recorded would be accepted, and times are upper bounds, for the largest possible
tree. Each round is replayed at its recorded position in the text, with constant knobs. If the history rule moved the
knobs, the rounds as recorded are the baseline. Intervals come from bootstrap samples of rounds and of costs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from decoder.analysis.interval import COVERAGE, resampled
from decoder.analysis.round_costs import Floats, RoundCosts, fitted
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
"""Unit to which tokens per round are rounded when cells are compared."""
GAIN = 0.03
"""Least relative gain in speed for which a faster cell is reported."""
_NODES = 6000
_DEEPEST = 128
"""Rounds with deeper trees are not replayed; no method drafts such trees."""
_LINES = 5
_SLACK = 1e-6
_LEAST_S = 1e-9
"""Lower bound on a round's time, whose estimate may be negative in bootstrap samples."""


@dataclass(frozen=True)
class GridCell:
    """Results of all replayed rounds under one pair of knob values. A round without an exact result counts with its
    lower bound; leaving it out would bias the mean, since exact results are rarest for rounds with many tokens.
    """

    rounds: int
    judged: int
    """Number of rounds whose number of tokens is known exactly."""
    tokens: float
    """Mean tokens per round, or a lower bound of this mean."""
    drafted_judged: int
    drafted: float
    """Mean drafted nodes per round, or a lower bound of this mean."""
    seconds: float | None = None
    """Mean seconds per round, or an upper bound of this mean; None if costs are unknown."""
    rates: tuple[float, float] | None = None
    """95 % interval of tokens per second or of its lower bound; None if costs are unknown."""
    gains: tuple[float, float] | None = None
    """95 % interval of the speed-up over the present knobs, or of its lower bound; None if it is unknown."""
    levels_exact: bool = True
    """Whether the number of draft passes is known exactly in all rounds."""

    @property
    def rate(self) -> float | None:
        """Tokens per second, or a lower bound; None if costs are unknown."""
        return self.tokens / self.seconds if self.seconds else None

    @property
    def rate_exact(self) -> bool:
        return self.exact and self.drafted_exact and self.levels_exact

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
    """A table with a row for each value of the knob `down` and a column for each value of the knob `across`."""

    down: KnobName
    across: KnobName
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    """Whole numbers; values of D0 are rounded."""
    cells: tuple[tuple[GridCell, ...], ...]
    present: tuple[int, int]
    """(row, column) of the cell with the present knob values."""

    def places(self) -> "list[Place]":
        return [Place(self, i, j) for i, row in enumerate(self.cells) for j, cell in enumerate(row) if cell.known]


class Place(NamedTuple):
    """A cell of a table, with its row and column numbers."""

    grid: Grid
    row: int
    column: int

    @property
    def cell(self) -> GridCell:
        return self.grid.cells[self.row][self.column]

    @property
    def knobs(self) -> Mapping[KnobName, float]:
        """The two knobs of the table, with their values in this cell."""
        return {self.grid.down: self.grid.rows[self.row], self.grid.across: self.grid.columns[self.column]}

    @property
    def present(self) -> bool:
        return (self.row, self.column) == self.grid.present


@dataclass(frozen=True)
class WhatIf:
    grids: tuple[Grid, ...]
    rounds: int
    here: GridCell
    """Results under the present knob values; if the history rule moves the knobs, results of the rounds as recorded."""
    by_costs: bool = False
    """Whether costs also limited the trees, as in `auto`."""
    by_history: bool = False
    """Whether the history rule moves the knobs; no cell then has the knob values of all recorded rounds."""

    @property
    def cells(self) -> tuple[GridCell, ...]:
        return tuple(cell for grid in self.grids for row in grid.cells for cell in row)

    def by_rate(self) -> list[Place]:
        """Known cells by tokens per second or its lower bound, the fastest first; empty if costs are unknown. Both
        tables have a row of the present values; the row of the first table is used.
        """
        places = [place for grid in self.grids for place in grid.places() if place.cell.rate is not None]
        distinct = [place for place in places if place.grid is self.grids[0] or place.row != place.grid.present[0]]
        return sorted(distinct, key=lambda place: -(place.cell.rate or 0.0))

    def faster(self) -> Place | None:
        """The cell with the highest estimated speed; None if its gain is below `GAIN` or not significant."""
        fastest, here = next(iter(self.by_rate()), None), self.here.rate
        if fastest is None or here is None or (fastest.cell.rate or 0.0) < (1 + GAIN) * here:
            return None
        return fastest if fastest.cell.gains is not None and fastest.cell.gains[0] > 1 else None

    def best(self) -> Place | None:
        """The known cell with the most tokens per round. Of equal cells, those with an exact number of drafted nodes
        come first, then those with fewer nodes, then those closer to the present values.
        """
        return max((place for grid in self.grids for place in grid.places()), key=_merit, default=None)


def what_if(past: Sequence[Round], rules: Rules, plain_pass_s: float | None = None) -> WhatIf | None:
    """None if `rules` or all rounds cannot be replayed. `past`: rounds drafted under `rules`, the oldest first. In
    adaptive trees, tau_h, tau_l and D0 may have had other values, since each round records them.
    """
    axes, rounds = _axes(rules), _newest(past, adaptive=isinstance(rules, AdaptiveTree))
    if not axes or not rounds:
        return None
    record, rule = TreeRecord(rounds), rules.rule()
    samples = _Samples(len(rounds), fitted(past[-ROUNDS:], plain_pass_s))
    by_history = bool(rule.history.enabled)
    # The history rule moves tau_h and D0, so each round is replayed with its recorded values.
    moved = replace(rule, growth=replace(rule.growth, tau_h=record.tau_h, d0=record.d0)) if by_history else rule
    present = replay_rounds(record, moved, rule)
    grids = tuple(_grid(record, rules, axis_pair, samples, present) for axis_pair in axes)
    return WhatIf(grids, len(rounds), _cell(present, samples, present), rule.budget.by_cost, by_history)


def _has_tree(event: Round, *, adaptive: bool) -> bool:
    """Whether a round can be replayed; also checks that the accepted nodes are a path: recordings are untrusted."""
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
        """The present value and its nearest neighbours within the bounds: at most `_LINES` values, `step` apart."""
        apart = [self.step * count for count in range(-_LINES, _LINES + 1)]
        low, high = self.low - _SLACK, self.high + _SLACK
        inside = [self.value + way for way in apart if low <= self.value + way <= high or way == 0]
        nearest = sorted(inside, key=lambda neighbour: abs(neighbour - self.value))[:_LINES]
        clamped = (each if each == self.value else min(self.high, max(self.low, each)) for each in nearest)
        return tuple(sorted(clamped))


def _axes(rules: Rules) -> Sequence[tuple[_Axis, _Axis]]:
    """(rows, columns) of each table; empty for rules that cannot be replayed from recorded trees."""
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


def _grid(
    record: TreeRecord, rules: Rules, axes: tuple[_Axis, _Axis], samples: "_Samples", present: ReplayedRounds
) -> Grid:
    (down, across), recorded = axes, rules.rule()
    rows, columns = down.values(), across.values()
    cells = tuple(
        tuple(
            _cell(
                replay_rounds(record, rules.with_knobs({down.knob: row, across.knob: column}).rule(), recorded),
                samples,
                present,
            )
            for column in columns
        )
        for row in rows
    )
    return Grid(down.knob, across.knob, rows, columns, cells, (rows.index(down.value), columns.index(across.value)))


class _Samples:
    """Bootstrap samples of rounds, equal for all cells, and bootstrap samples of costs."""

    def __init__(self, count: int, costs: RoundCosts | None) -> None:
        self.costs = costs
        drawn = resampled(count, np.random.default_rng(count))
        self._weights: Floats = np.array([np.bincount(draw, minlength=count) for draw in drawn]) / count

    def rates(self, costs: RoundCosts, replayed: ReplayedRounds) -> Floats:
        """Tokens per second in each sample, or a lower bound, shape (draws,)."""
        tokens, levels, drafted = (
            self._weights @ counts for counts in (replayed.tokens, replayed.most_levels, replayed.most_drafted)
        )
        rates: Floats = tokens / np.maximum(costs.drawn_seconds(levels, drafted), _LEAST_S)
        return rates


def _cell(replayed: ReplayedRounds, samples: _Samples, present: ReplayedRounds) -> GridCell:
    """`present`: the same rounds, replayed under the present knobs."""
    cell = GridCell(
        rounds=len(replayed.tokens),
        judged=int(replayed.tokens_known.sum()),
        tokens=float(replayed.tokens.mean()),
        drafted_judged=int(replayed.drafted_known.sum()),
        drafted=float(replayed.drafted.mean()),
    )
    if (costs := samples.costs) is None:
        return cell
    rates = samples.rates(costs, replayed)
    return replace(
        cell,
        levels_exact=bool(replayed.levels_known.all()),
        seconds=costs.seconds(float(replayed.most_levels.mean()), float(replayed.most_drafted.mean())),
        rates=_interval(rates),
        gains=_interval(rates / samples.rates(costs, present)) if _known(present) else None,
    )


def _known(replayed: ReplayedRounds) -> bool:
    return bool((replayed.tokens_known & replayed.drafted_known & replayed.levels_known).all())


def _interval(values: Floats) -> tuple[float, float]:
    low, high = np.percentile(values, (50 - 50 * COVERAGE, 50 + 50 * COVERAGE)).tolist()
    return low, high


def _merit(place: Place) -> tuple[int, bool, float, int]:
    cell, (here_row, here_column) = place.cell, place.grid.present
    way = abs(place.row - here_row) + abs(place.column - here_column)
    return round(cell.tokens / ALIKE), cell.drafted_exact, -round(cell.drafted, 1), -way
