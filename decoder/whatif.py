"""What other tau_h, tau_l and D0 would have drafted and accepted in recorded rounds, where the record can tell.

A recorded tree holds the draft's probabilities of the tokens that it drafted and of no others. The growth rule of
`decoder.policy` is replayed on it: where the new rule asks for less than was recorded, all is known; where it asks for
more, the tree is known up to there. What cannot be known is None, never a guess; what is sure all the same stands
beside it as a lower bound. Along the accepted path the target's choice is recorded, so children that were not drafted
there do not matter before its end; at its end the target chose a token that was not drafted, and whether a wider or
deeper tree would have held it is not in the record.

An estimate all the same: every round is taken by itself, from the place where it began, while under other rules the
rounds would have begun at other places; and history is taken to stand still. Knows neither models nor screens, and
works on all rounds at once: one pass costs a fraction of a millisecond.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decoder.config import KNOB_GAP, DynaTree
from decoder.events import Round
from decoder.metrics import ROOT_IS_DRAFTED, depths
from decoder.policy import used_depth

ROUNDS = 50
"""So many of the newest rounds are looked at."""
LEAST_SHARE = 0.5
"""A cell is shown when at least this share of the rounds could be judged."""
LEAST_ROUNDS = 5
"""A cell is shown when at least so many rounds could be judged."""
_NODES = 6000
"""Fewer rounds are looked at when their trees are larger than this together."""
_DEEPEST = 128
"""No tree of ours is as deep."""
_LINES = 5
"""Rows and columns of a table, where the bounds have room for them."""
_SLACK = 1 + 1e-9
"""Products of probabilities may be off by the last digits."""
_FLOAT32 = 1e-6
"""Probabilities of all tokens add up to 1 within this."""

Axis: TypeAlias = Literal["tau_h", "tau_l", "d0"]
Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]


@dataclass(frozen=True)
class Verdict:
    """What other rules would have done in one round; None: the record cannot tell."""

    accepted: int | None
    accepted_at_least: int
    tokens: int | None
    """Committed tokens: what is accepted and the target's own, cut where the text ended."""
    tokens_at_least: int
    drafted: int | None
    drafted_at_least: int


@dataclass(frozen=True)
class Cell:
    """What one pair of values would have done, over all rounds of the record.

    The means count in every round; a round that could not be judged counts with what is sure. So a mean is exact when
    every round was judged, and a lower bound else: leaving such rounds out would flatter or wrong the cell, since a
    record can tell least about the rounds that went best.
    """

    rounds: int
    judged: int
    """Rounds whose tokens are known."""
    tokens: float
    """Tokens per round (L-bar), or at least so many."""
    drafted_judged: int
    """Rounds whose drafted nodes are known."""
    drafted: float
    """Drafted nodes a round, or at least so many."""

    @property
    def share(self) -> float:
        """Share of the rounds whose tokens are known."""
        return self.judged / self.rounds if self.rounds else 0.0

    @property
    def exact(self) -> bool:
        """Whether `tokens` is a value and no bound."""
        return 0 < self.rounds == self.judged

    @property
    def drafted_exact(self) -> bool:
        """Whether `drafted` is a value and no bound."""
        return 0 < self.rounds == self.drafted_judged

    @property
    def known(self) -> bool:
        """Whether enough rounds were judged to say anything."""
        return self.judged >= LEAST_ROUNDS and self.share >= LEAST_SHARE


@dataclass(frozen=True)
class Grid:
    """Cells over two knobs: a row for each value of one, a column for each value of the other."""

    down: Axis
    rows: tuple[float, ...]
    """Rising values of `down`."""
    across: Axis
    columns: tuple[float, ...]
    """Rising values of `across`; D0 as it is used, a whole number."""
    cells: tuple[tuple[Cell, ...], ...]
    present: tuple[int, int]
    """Row and column of the values in force."""

    @property
    def here(self) -> Cell:
        """The cell of the values in force."""
        row, column = self.present
        return self.cells[row][column]

    def best(self) -> tuple[int, int] | None:
        """Row and column of the known cell with the most tokens a round, with the fewest drafted among equals."""
        places = [(i, j) for i, row in enumerate(self.cells) for j, cell in enumerate(row) if cell.known]
        if not places:
            return None
        return max(places, key=lambda at: (self._cell(at).tokens, -self._cell(at).drafted, at == self.present))

    def _cell(self, at: tuple[int, int]) -> Cell:
        return self.cells[at[0]][at[1]]


@dataclass(frozen=True)
class WhatIf:
    """The tables that the screen shows, both around the values in force."""

    breadth: Grid
    """tau_h down, D0 across."""
    doubt: Grid
    """tau_l down, D0 across."""
    rounds: int
    """Rounds that were looked at."""
    newest: int
    """Number of the last of them."""


def what_if(past: Sequence[Round], rules: DynaTree) -> WhatIf | None:
    """Both tables from the newest rounds of one method; None when there is nothing to judge.

    Args:
        past: Rounds of one method, the oldest first.
        rules: Those in force; the tables are built around them.
    """
    rounds = _newest(past)
    if not rounds:
        return None
    record = _Record(rounds)
    return WhatIf(_grid(record, rules, "tau_h"), _grid(record, rules, "tau_l"), len(rounds), rounds[-1].round)


def replayed(event: Round, rules: DynaTree) -> Verdict | None:
    """What these rules would have done in a recorded round; None for a round without DynaTree's tree.

    Under the rules of the record itself the verdict is the record, but for two cases that an event cannot tell from
    others: the context had no room for a deeper tree, or `best` cut a node's children.
    """
    if not _has_tree(event):
        return None
    found = _judged(_Record([event]), rules)
    accepted, drafted = int(found.accepted[0]), int(found.drafted[0])
    tokens = int(found.tokens[0])
    return Verdict(
        accepted=accepted if found.accepted_known[0] else None,
        accepted_at_least=accepted,
        tokens=tokens if found.tokens_known[0] else None,
        tokens_at_least=tokens,
        drafted=drafted if found.drafted_known[0] else None,
        drafted_at_least=drafted,
    )


def _has_tree(event: Round) -> bool:
    """Whether the round drafted a tree by these rules, with an accepted path in it; a recording may claim anything."""
    if event.knobs is None or event.method in ROOT_IS_DRAFTED:
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
    """The value and its nearest neighbours at whole steps within the bounds, rising."""
    apart = [step * count for count in range(-_LINES, _LINES + 1)]
    inside = [value + way for way in apart if low - _FLOAT32 <= value + way <= high + _FLOAT32 or way == 0]
    nearest = sorted(inside, key=lambda other: abs(other - value))[:_LINES]
    return tuple(sorted(other if other == value else min(high, max(low, other)) for other in nearest))


def _grid(record: "_Record", rules: DynaTree, down: Literal["tau_h", "tau_l"]) -> Grid:
    value, low, high = rules.tau_h, rules.tau_l + KNOB_GAP, 1.0
    if down == "tau_l":
        value, low, high = rules.tau_l, KNOB_GAP, rules.tau_h - KNOB_GAP
    used = float(used_depth(rules.d0))
    rows, columns = _around(value, low, high, 0.1), _around(used, 1.0, rules.d_max - 1.0, 1.0)
    cells = []
    for row in rows:
        turned = replace(rules, tau_h=row) if down == "tau_h" else replace(rules, tau_l=row)
        cells.append(tuple(_cell(_judged(record, replace(turned, d0=d0))) for d0 in columns))
    return Grid(down, rows, "d0", columns, tuple(cells), (rows.index(value), columns.index(used)))


def _cell(found: "_Judged") -> Cell:
    return Cell(
        rounds=len(found.tokens),
        judged=int(found.tokens_known.sum()),
        tokens=float(found.tokens.mean()),
        drafted_judged=int(found.drafted_known.sum()),
        drafted=float(found.drafted.mean()),
    )


class _Record:
    """Recorded rounds as arrays over all their nodes, one round after the other."""

    def __init__(self, rounds: Sequence[Round]) -> None:
        sizes = np.array([len(event.tokens) for event in rounds])
        self.starts: Ints = np.cumsum(sizes) - sizes
        """Each round's root."""
        self.round: Ints = np.repeat(np.arange(len(rounds)), sizes)
        local = np.concatenate([event.parents for event in rounds])
        self.parent: Ints = np.maximum(local, 0) + self.starts[self.round]
        """A root is its own parent."""
        logprobs = np.minimum(np.concatenate([event.logprobs for event in rounds]).astype(float), 0.0)
        self.levels: list[Ints] = []
        """The nodes below the roots, level by level."""
        self.depth: Ints = np.zeros(len(logprobs), dtype=np.int64)
        path = np.zeros(len(logprobs))
        is_root = np.zeros(len(logprobs), dtype=np.bool_)
        is_root[self.starts] = True
        reached, left = is_root.copy(), np.flatnonzero(~is_root)
        while len(left):
            level = left[reached[self.parent[left]]]
            self.depth[level] = self.depth[self.parent[level]] + 1
            path[level] = path[self.parent[level]] + logprobs[level]
            self.levels.append(level)
            left = left[~reached[self.parent[left]]]
            reached[level] = True
        self.p: Floats = np.exp(path)
        self._children(np.exp(logprobs), ~is_root)
        self.paths = self._paths(rounds)
        self.steps: Ints = np.array([len(event.accepted) for event in rounds])
        """Accepted nodes of each round."""
        self.committed: Ints = np.array([len(event.committed) for event in rounds])

    def _children(self, q: Floats, drafted: Bools) -> None:
        nodes = np.arange(len(q))
        below, above = nodes[drafted], self.parent[drafted]
        self.kids: Ints = np.bincount(above, minlength=len(q))
        """Recorded children of each node."""
        first = np.zeros(len(q), dtype=np.int64)
        first[above[::-1]] = below[::-1]
        self.rank: Ints = np.where(drafted, nodes - first[self.parent], 0)
        """Place among the siblings, the most probable first."""
        self.c: Floats = np.where(self.kids > 0, q[first], np.nan)
        """The draft's largest probability after each node, where it was recorded."""
        rest = 1 + _FLOAT32 - np.bincount(above, weights=q[drafted], minlength=len(q))
        least = q[np.minimum(first + self.kids - 1, len(q) - 1)]
        self.tail: Floats = np.where(self.kids > 0, np.clip(np.minimum(least, rest), 0.0, 1.0), 1.0)
        """No token after the node that was not recorded is more probable than this."""
        self.below: Ints = np.searchsorted(np.maximum.accumulate(self.parent), nodes, side="right")
        """The first node of the round that stands behind the node's children in the order of drafting."""

    def _paths(self, rounds: Sequence[Round]) -> Ints:
        """Root and accepted nodes of each round in a row, filled up with -1."""
        longest = max(len(event.accepted) for event in rounds)
        paths = np.full((len(rounds), longest + 2), -1)
        for row, (event, start) in enumerate(zip(rounds, self.starts.tolist(), strict=True)):
            paths[row, : len(event.accepted) + 1] = [start, *(start + node for node in event.accepted)]
        return paths

    def total(self, values: NDArray[np.generic]) -> Ints:
        """Sum over each round's nodes."""
        found: Ints = np.add.reduceat(values, self.starts, dtype=np.int64)
        return found

    def running(self, values: NDArray[np.generic]) -> Ints:
        """Sum over the nodes of the same round up to each, the node itself included."""
        sums: Ints = np.cumsum(values, dtype=np.int64)
        before = sums[self.starts] - values[self.starts].astype(np.int64)
        return sums - before[self.round]


@dataclass(frozen=True)
class _Judged:
    """One entry a round; a count that is not known is a lower bound."""

    accepted: Ints
    accepted_known: Bools
    tokens: Ints
    tokens_known: Bools
    drafted: Ints
    drafted_known: Bools


@dataclass(frozen=True)
class _Growth:
    """How far the recorded nodes would have grown."""

    alive: Bools
    """Nodes that would have been drafted as well, if there were room for all; roots included."""
    more: Bools
    """Nodes that would have had children which the record lacks."""
    further: Ints
    """So many more children, where that is known."""
    open: Bools
    """Nodes below which the record cannot tell how many nodes there would have been."""


def _judged(record: _Record, rules: DynaTree) -> _Judged:
    growth = _grown(record, rules)
    sure = record.total(growth.alive) - 1 + record.total(growth.further)
    drafted_known = (record.total(growth.open) == 0) | (sure >= rules.n_max)
    kept, cut, shut = (_best if rules.selection == "best" else _breadth_first)(record, rules, growth)
    rows = np.arange(len(record.steps))
    there = (record.paths >= 0) & kept[record.paths]
    accepted = np.argmin(there, axis=1) - 1
    last, following = record.paths[rows, accepted], record.paths[rows, accepted + 1]
    at_end = accepted == record.steps
    ends = np.where(at_end, ~growth.more[last] | shut[last], ~growth.alive[following] | cut[following])
    # A text that was cut ends at the same token under all rules.
    was_cut = record.committed <= record.steps
    return _Judged(
        accepted=accepted,
        accepted_known=ends,
        tokens=np.where(was_cut, np.minimum(accepted + 1, record.committed), accepted + 1),
        tokens_known=ends | (was_cut & (accepted + 1 >= record.committed)),
        drafted=np.minimum(sure, rules.n_max),
        drafted_known=drafted_known,
    )


def _grown(record: _Record, rules: DynaTree) -> _Growth:
    """The rules of `policy.expandable` and `policy.breadth`, for all nodes at once."""
    low, mid, high = rules.branching
    expandable = _expandable(rules, record.depth, record.p)
    width = np.where(record.c >= rules.tau_h, low, np.where(record.c < rules.tau_l, high, mid))
    recorded = record.kids > 0
    follows = expandable[record.parent] & (record.rank < width[record.parent])
    alive = np.zeros(len(follows), dtype=np.bool_)
    alive[record.starts] = True
    for level in record.levels:
        alive[level] = follows[level] & alive[record.parent[level]]
    grows = alive & expandable
    further = np.where(grows & recorded, np.maximum(width - record.kids, 0), 0)
    deeper = (further > 0) & _expandable(rules, record.depth + 1, record.p * record.tail * _SLACK)
    return _Growth(alive, (grows & ~recorded) | (further > 0), further, (grows & ~recorded) | deeper)


def _expandable(rules: DynaTree, depth: Ints, p: Floats) -> Bools:
    shallow = (depth < used_depth(rules.d0)) | (p >= rules.rho_deep)
    found: Bools = (depth < rules.d_max) & (p >= max(rules.rho_stop, rules.tau)) & shallow
    return found


def _breadth_first(record: _Record, rules: DynaTree, growth: _Growth) -> tuple[Bools, Bools, Bools]:
    """Which nodes surely stay within N_max, which surely do not, and which surely have no room for further children."""
    further_before = record.running(growth.further) - growth.further
    open_before = record.running(growth.open) - growth.open
    drafted = record.running(growth.alive) - 1
    place = drafted + further_before[record.parent]
    most = np.where(open_before[record.parent] > 0, _most_nodes(rules, record.depth), place)
    place_of_next = drafted[record.below - 1] + further_before + 1
    return growth.alive & (most <= rules.n_max), place > rules.n_max, place_of_next > rules.n_max


def _best(record: _Record, rules: DynaTree, growth: _Growth) -> tuple[Bools, Bools, Bools]:
    """The same where the most probable nodes stay; ties in the order of drafting."""
    order = np.lexsort((-record.p, ~growth.alive, record.round))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - record.starts[record.round[order]]
    unknown = np.where(growth.more, record.p * record.tail * _SLACK, 0.0)
    highest = np.maximum.reduceat(unknown, record.starts)[record.round]
    with np.errstate(divide="ignore"):
        # Disjoint paths: at any depth at most 1/p of them are at least p probable.
        most = np.where(highest >= record.p, rules.d_max / record.p * _SLACK, place)
    kept = growth.alive & (most <= rules.n_max)
    return kept, place > rules.n_max, np.zeros_like(kept)


def _most_nodes(rules: DynaTree, depth: Ints) -> Floats:
    """As many nodes as there can be down to each depth: of a level, at most 1/rho_stop nodes have children."""
    widest = float(max(rules.branching))
    with np.errstate(divide="ignore"):
        most = widest * np.floor(np.divide(1.0, max(rules.rho_stop, rules.tau)) + _FLOAT32)
    levels = np.minimum(widest ** np.minimum(np.arange(rules.d_max + 1, dtype=float), 64.0), most)
    levels[0] = 0.0
    found: Floats = np.cumsum(levels)[np.minimum(depth, rules.d_max)]
    return found
