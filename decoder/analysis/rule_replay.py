"""Replays another growth rule on recorded trees, for all nodes of many rounds at once. Results that the record does not
determine are lower bounds. In rounds of `auto`, the replay adds no nodes that were left out because of their costs. It
keeps lookup guesses, since no growth rule affects them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from decoder.events import Round
from decoder.tree_rules import Growth, TreeRule, breadth, least_probability

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
_SLACK = 1 + 1e-9
_FLOAT32 = 1e-6


class TreeRecord:
    def __init__(self, rounds: Sequence[Round]) -> None:
        sizes = np.array([len(event.tokens) for event in rounds])
        self.starts: Ints = np.cumsum(sizes) - sizes
        self.round: Ints = np.repeat(np.arange(len(rounds)), sizes)
        local = np.concatenate([event.parents for event in rounds])
        self.parent: Ints = np.maximum(local, 0) + self.starts[self.round]
        """Index of each node's parent; a root is its own parent."""
        logprobs = np.minimum(np.concatenate([event.logprobs for event in rounds]).astype(float), 0.0)
        self.levels: list[Ints] = []
        """Indices of the nodes below the roots, one array per level."""
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
        self.place: Ints = np.zeros(len(path), dtype=np.int64)
        """Rank of each node among the nodes of its level in its tree, by decreasing path probability."""
        for level in self.levels:
            order = level[np.lexsort((-self.p[level], self.round[level]))]
            self.place[order] = np.arange(len(order)) - np.searchsorted(self.round[order], self.round[order])
        looked_up = [
            [origin == "lookup" for origin in event.origins] or [False] * len(event.tokens) for event in rounds
        ]
        self.looked_up: Bools = np.concatenate(looked_up)
        self._children(np.exp(logprobs), ~is_root & ~self.looked_up)
        self.paths = self._paths(rounds)
        self.steps: Ints = np.array([len(event.accepted) for event in rounds])
        self.committed: Ints = np.array([len(event.committed) for event in rounds])
        knobs = [(event.knobs.tau_h, event.knobs.tau_l, event.knobs.d0) for event in rounds if event.knobs]
        knob_values: Floats = (
            np.array(knobs, dtype=float).T[:, self.round] if len(knobs) == len(rounds) else np.empty((3, 0))
        )
        self.tau_h, self.tau_l, self.d0 = knob_values
        """Knob values under which each node was drafted; empty if any round does not report them."""

    def _children(self, q: Floats, drafted: Bools) -> None:
        nodes = np.arange(len(q))
        below, above = nodes[drafted], self.parent[drafted]
        self.child_count: Ints = np.bincount(above, minlength=len(q))
        """Number of children of each node, without lookup guesses."""
        first = np.zeros(len(q), dtype=np.int64)
        first[above[::-1]] = below[::-1]
        self.rank: Ints = np.where(drafted, nodes - first[self.parent], 0)
        """Rank of each node among its siblings, the most probable first."""
        self.c: Floats = np.where(self.child_count > 0, q[first], np.nan)
        """The draft's largest next-token probability after each node; NaN if not recorded."""
        remainder = 1 + _FLOAT32 - np.bincount(above, weights=q[drafted], minlength=len(q))
        least = q[np.minimum(first + self.child_count - 1, len(q) - 1)]
        self.tail: Floats = np.where(self.child_count > 0, np.clip(np.minimum(least, remainder), 0.0, 1.0), 1.0)
        """Upper bound of the draft's probability of any next token that was not recorded."""
        self.below: Ints = np.searchsorted(np.maximum.accumulate(self.parent), nodes, side="right")
        """For each node, index of the first node whose parent has a higher index."""

    def _paths(self, rounds: Sequence[Round]) -> Ints:
        """One row per round: the indices of the root and of the accepted nodes, padded with -1."""
        longest = max(len(event.accepted) for event in rounds)
        paths = np.full((len(rounds), longest + 2), -1)
        for row, (event, start) in enumerate(zip(rounds, self.starts.tolist(), strict=True)):
            paths[row, : len(event.accepted) + 1] = [start, *(start + node for node in event.accepted)]
        return paths

    def total(self, values: NDArray[np.generic]) -> Ints:
        sums: Ints = np.add.reduceat(values, self.starts, dtype=np.int64)
        return sums

    def running(self, values: NDArray[np.generic]) -> Ints:
        """For each node, the sum over the nodes of its round up to and including this node."""
        sums: Ints = np.cumsum(values, dtype=np.int64)
        before = sums[self.starts] - values[self.starts].astype(np.int64)
        return sums - before[self.round]


@dataclass(frozen=True)
class ReplayedRounds:
    """Counts per round; a count that is not known exactly is a lower bound."""

    accepted: Ints
    accepted_known: Bools
    tokens: Ints
    tokens_known: Bools
    drafted: Ints
    drafted_known: Bools
    levels: Ints
    """Number of levels that took a draft pass; a pass after which no node was drafted counts too."""
    most_drafted: Ints
    """Upper bound of `drafted`; equal to `drafted` where `drafted_known`."""
    most_levels: Ints
    """Upper bound of `levels`; equal to `levels` where `levels_known`."""

    @property
    def levels_known(self) -> Bools:
        known: Bools = self.levels == self.most_levels
        return known


@dataclass(frozen=True)
class _Growth:
    alive: Bools
    more: Bools
    """Whether each node would have had children that were not recorded."""
    further: Ints
    """Number of children of each node that were not recorded; 0 if this number is unknown."""
    open: Bools
    """Whether the number of nodes below each node is unknown."""
    barren: Bools
    """Whether the draft was run after each node, but all of its guesses were too improbable to become children."""


_Choice: TypeAlias = tuple[Bools, Bools, Bools]
"""(nodes surely within the budget, nodes surely outside it, nodes whose unrecorded children are surely outside it)"""


def replay_rounds(record: TreeRecord, rule: TreeRule, recorded: TreeRule | None = None) -> ReplayedRounds:
    """`recorded`: the rule under which the trees were drafted (None: `rule`), apart from knob values that a round
    reports. Both rules must have the same beam. Parameters of `rule.growth` may be arrays with a value for each node.
    """
    recorded = recorded or rule
    growth = _grown(record, rule, recorded)
    most = math.inf
    if rule.budget.by_cost:
        growth = _as_costs_allow(record, recorded, growth)
        kept, cut, shut = _without_budget(growth)
    elif rule.budget.best:
        most = float(rule.budget.n_max)
        kept, cut, shut = _best(record, rule, recorded, growth)
    else:
        most = float(rule.budget.n_max)
        kept, cut, shut = _breadth_first(record, rule, growth)
    sure = record.total(growth.alive) - 1 + record.total(growth.further)
    drafted_known = (record.total(growth.open) == 0) | (sure >= most)
    rows = np.arange(len(record.steps))
    on_path = (record.paths >= 0) & kept[record.paths]
    accepted = np.argmin(on_path, axis=1) - 1
    last, following = record.paths[rows, accepted], record.paths[rows, accepted + 1]
    at_end = accepted == record.steps
    ends = np.where(at_end, ~growth.more[last] | shut[last], ~growth.alive[following] | cut[following])
    # A text that was cut at an end-of-text token or at the length limit ends at the same token under all rules.
    was_cut = record.committed <= record.steps
    drafted = np.minimum(sure, most).astype(np.int64)
    levels = np.maximum.reduceat(np.where(kept, record.depth + growth.barren, 0), record.starts)
    unsettled = growth.alive & ~kept & ~cut
    growing = growth.alive & growth.more & ~cut & ~shut
    reach = np.where(growing, _reach(record, rule.growth, growth), np.where(unsettled, record.depth + growth.barren, 0))
    return ReplayedRounds(
        accepted=accepted,
        accepted_known=ends,
        tokens=np.where(was_cut, np.minimum(accepted + 1, record.committed), accepted + 1),
        tokens_known=ends | (was_cut & (accepted + 1 >= record.committed)),
        drafted=drafted,
        drafted_known=drafted_known,
        levels=levels,
        most_drafted=np.where(drafted_known, drafted, rule.budget.n_max),
        most_levels=np.maximum(levels, np.maximum.reduceat(reach, record.starts)),
    )


def _grown(record: TreeRecord, rule: TreeRule, recorded_rule: TreeRule) -> _Growth:
    expandable = _expandable(rule.growth, record.depth, record.p)
    if rule.budget.beam:
        expandable &= record.place < rule.budget.beam
    width: Ints = breadth(rule.growth, record.c, np)
    recorded = record.child_count > 0
    barren = expandable & np.where(recorded, width == 0, _too_improbable(record, rule.growth, recorded_rule.growth))
    follows = record.looked_up | (expandable[record.parent] & (record.rank < width[record.parent]))
    alive = np.zeros(len(follows), dtype=np.bool_)
    alive[record.starts] = True
    for level in record.levels:
        alive[level] = follows[level] & alive[record.parent[level]]
    grows = alive & expandable & ~barren
    further = np.where(grows & recorded, np.maximum(width - record.child_count, 0), 0)
    deeper = (further > 0) & _expandable(rule.growth, record.depth + 1, record.p * record.tail * _SLACK)
    return _Growth(alive, (grows & ~recorded) | (further > 0), further, (grows & ~recorded) | deeper, alive & barren)


def _too_improbable(record: TreeRecord, growth: Growth[Any], recorded: Growth[Any]) -> Bools:
    """For nodes without recorded children: whether the node's best guess is surely too improbable under `growth`, since
    it was too improbable under the recorded rule, whose threshold is not higher.
    """
    stricter = recorded.middle == growth.middle == 0 and growth.tau_h >= recorded.tau_h
    sure: Bools = _expandable(recorded, record.depth, record.p) & stricter
    return sure


def _reach(record: TreeRecord, rule: Growth[Any], growth: _Growth) -> Ints:
    """For each node that gets unrecorded children: upper bound of the depth of these children and their descendants."""
    improbable = record.p * record.tail * _SLACK < np.maximum(rule.stop, rule.deep)
    below = np.where(improbable, np.maximum(np.floor(rule.d0 + 0.5), record.depth + 1), rule.deepest)
    levels: Ints = np.where(growth.open, below, record.depth + 1).astype(np.int64)
    return levels


def _as_costs_allow(record: TreeRecord, recorded: TreeRule, growth: _Growth) -> _Growth:
    """If a node has fewer children than its round's rule allowed, the others were left out because of their costs; the
    replay adds no children to such a node.
    """
    more = growth.more & ~_lacks_children(record, recorded)
    return replace(growth, more=more, further=np.zeros_like(growth.further), open=more)


def _lacks_children(record: TreeRecord, recorded: TreeRule) -> Bools:
    """Whether each node had fewer children than the rule of its round allowed. This rule is `recorded`, with the
    round's knob values if the round reports them.
    """
    growth: Growth[Any] = recorded.growth
    if record.d0.size:
        growth = replace(growth, tau_h=record.tau_h, tau_l=record.tau_l, d0=record.d0)
    grow: Bools = _expandable(growth, record.depth, record.p) & (record.child_count < breadth(growth, record.c, np))
    return grow


def _expandable(growth: Growth[Any], depth: Ints, p: Floats) -> Bools:
    probable: Bools = p >= least_probability(growth, depth, np)
    return probable


def _without_budget(growth: _Growth) -> _Choice:
    nowhere = np.zeros_like(growth.alive)
    return growth.alive, nowhere, nowhere


def _breadth_first(record: TreeRecord, rule: TreeRule, growth: _Growth) -> _Choice:
    further_before = record.running(growth.further) - growth.further
    open_before = record.running(growth.open) - growth.open
    drafted = record.running(growth.alive) - 1
    place = drafted + further_before[record.parent]
    most = np.where(open_before[record.parent] > 0, _most_nodes(rule, record.depth), place)
    place_of_next = drafted[record.below - 1] + further_before + 1
    shut = place_of_next > rule.budget.n_max
    return growth.alive & (most <= rule.budget.n_max), place > rule.budget.n_max, shut


def _best(record: TreeRecord, rule: TreeRule, recorded: TreeRule, growth: _Growth) -> _Choice:
    order = np.lexsort((-record.p, ~growth.alive, record.round))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - record.starts[record.round[order]]
    unknown = np.where(growth.more, _most_probable_child(record, recorded), 0.0)
    highest = np.maximum.reduceat(unknown, record.starts)[record.round]
    with np.errstate(divide="ignore"):
        # Paths of the same depth are disjoint events, so at most 1/p paths of a depth have probability p or more.
        most = np.where(highest >= record.p, rule.growth.deepest / record.p * _SLACK, place)
    kept = growth.alive & (most <= rule.budget.n_max)
    last = np.full(len(record.starts), -1.0)
    is_last = growth.alive & (place == rule.budget.n_max)
    last[record.round[is_last]] = record.p[is_last]
    return kept, place > rule.budget.n_max, unknown < last[record.round]


def _most_probable_child(record: TreeRecord, recorded: TreeRule) -> Floats:
    """Upper bound of the path probability of each node's unknown children. In a tree with `n_max` nodes, a missing
    child is less probable than every node of the tree.
    """
    full = record.total(np.ones_like(record.p)) - 1 >= recorded.budget.n_max
    least = np.where(full, np.nextafter(np.minimum.reduceat(record.p, record.starts), 0.0), np.inf)[record.round]
    child: Floats = record.p * record.tail * _SLACK
    return np.where(_lacks_children(record, recorded), np.minimum(child, least), child)


def _most_nodes(rule: TreeRule, depth: Ints) -> Floats:
    """Upper bound of the number of drafted nodes down to each depth; of a level, at most 1 / `stop` get children."""
    widest = float(rule.growth.wide)
    with np.errstate(divide="ignore", over="ignore"):
        most = widest * np.floor(np.divide(1.0, rule.growth.stop) + _FLOAT32)
        levels = np.minimum(widest ** np.arange(int(depth.max()) + 1, dtype=float), most)
    levels[0] = 0.0
    nodes: Floats = np.cumsum(levels)[depth]
    return nodes
