"""What-if estimates compared with the truth, in a toy world in which every set of rules can be run."""

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest

from decoder.analysis import what_if as what_if_module
from decoder.analysis.rule_replay import TreeRecord, replay_rounds
from decoder.analysis.what_if import Grid, GridCell, Place, WhatIf, what_if
from decoder.draft.growth import Children
from decoder.draft.model_drafter import ModelDrafter
from decoder.events import Knobs, Round, Run, decode_line
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.linear import Linear
from decoder.tree import TokenTree, depths
from decoder.tree_rules import MOST_NODES, Growth, Rules
from decoder.verify.verifier import accept
from tests.decoder.rounds import a_round

DEMO = Path(__file__).parents[2] / "traces" / "demo.jsonl"
VOCABULARY = 24
Tree = TypeVar("Tree", bound=AdaptiveTree)


Verdict = dict[str, int | None]
"""Counts of one round under other rules, None where the record does not determine them, and their bounds."""


def replayed(event: Round, rules: Rules, recorded: Rules | None = None) -> Verdict | None:
    """Counts of a recorded round under `rules`; None if the round has no tree of such rules. `recorded` are those of
    the record, if other parameters than tau_h, tau_l and d0 differ.

    Under the recorded rules, the verdict equals the record, except where the context had no room for a deeper tree: an
    event does not show this case.
    """
    rounds = what_if_module._newest([event], adaptive=isinstance(rules, AdaptiveTree))
    if not rounds:
        return None
    found = replay_rounds(TreeRecord(rounds), rules.rule(), recorded.rule() if recorded else None)
    verdict = Verdict()
    for name in ("accepted", "tokens", "drafted"):
        verdict[f"{name}_at_least"] = count = int(getattr(found, name)[0])
        verdict[name] = count if getattr(found, f"{name}_known")[0] else None
    return verdict | {name: int(getattr(found, name)[0]) for name in ("most_drafted", "most_levels")}


class World(ModelDrafter):
    """A draft and a target with tabulated distributions; the engine's own code grows the trees."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.passes = Mock()

    def children(self, path: Sequence[int], count: int) -> Children:
        """The draft's best tokens after a path."""
        generator = random.Random(f"{self._seed} {list(path)}")
        heat = generator.choice((0.3, 1.0, 3.0))
        weights = [math.exp(generator.gauss(0, 1) * heat) for _ in range(VOCABULARY)]
        tokens = sorted(range(VOCABULARY), key=lambda token: -weights[token])[:count]
        return Children(tokens, [math.log(weights[token] / math.fsum(weights)) for token in tokens])

    def choice(self, path: Sequence[int]) -> int:
        """The target's token after a path; often one of the draft's best."""
        rank = random.Random(f"target {self._seed} {list(path)}").choice((0, 0, 0, 0, 0, 1, 1, 2, 3, 5))
        return self.children(path, VOCABULARY).tokens[rank]

    def forward_level(self, tree: TokenTree, nodes: Sequence[int], growth: Growth[float]) -> list[Children]:
        return [self.children(_path(tree, node), int(growth.wide)) for node in nodes]

    def round(self, rules: Rules, left: int = 99, room: int = 99) -> Round:
        """One round under `rules`, with at most `left` more tokens of text and `room` levels."""
        rule = rules.rule()
        tree = self.grow(TokenTree([0]), rule, self.children([], int(rule.growth.wide)), deepest=room)
        accepted, bonus = accept(tree, lambda node: self.choice(_path(tree, node)))
        return a_round(
            parents=tree.parents,
            knobs=Knobs(rules.tau_h, rules.tau_l, rules.d0) if isinstance(rules, AdaptiveTree) else None,
            tokens=tree.tokens,
            logprobs=tree.logprobs,
            accepted=accepted,
            committed=[*(tree.tokens[node] for node in accepted), bonus][:left],
        )


def _path(tree: TokenTree, node: int) -> list[int]:
    return [tree.tokens[ancestor] for ancestor in reversed(tree.ancestors(node)[:-1])]


def _above(event: Round, node: int) -> list[int]:
    found = [node]
    while event.parents[found[-1]] >= 0:
        found.append(event.parents[found[-1]])
    return found


def _rules(generator: random.Random, **settings: Any) -> DynaTree:
    """Random rules, often with a node budget too small for the tree."""
    tau_l, tau_h = sorted(generator.sample([0.05, 0.15, 0.25, 0.35, 0.45, 0.6, 0.75, 0.9, 1.0], 2))
    rho_stop, rho_deep = sorted(generator.choices([0.0, 0.02, 0.05, 0.1, 0.3, 0.5], k=2))
    d_max = generator.randint(2, 5)
    given: dict[str, Any] = {
        "d_max": d_max,
        "d0": generator.uniform(1, d_max - 1),
        "branching": tuple(sorted(generator.choices([1, 2, 3, 4], k=3))),
        "tau_h": tau_h,
        "tau_l": tau_l,
        "rho_stop": rho_stop,
        "rho_deep": rho_deep,
        "tau": generator.choice([0.0, 0.05]),
        "n_max": generator.choice([1, 3, 6, 12, 30, 2000]),
    }
    return DynaTree(**given | settings)


def _auto(rules: DynaTree) -> Auto:
    """Rules of `auto` with the same bounds and no node budget."""
    return Auto(**{each.name: getattr(rules, each.name) for each in fields(Auto) if each.name != "lookup"})


def _unbounded(rules: Auto) -> DynaTree:
    """The same rules without cuts by cost or by number of nodes."""
    bounds = {name: value for name, value in asdict(rules).items() if name != "lookup"}
    return DynaTree(**bounds, n_max=2000)


def _turned(generator: random.Random, rules: Tree) -> Tree:
    """The same rules with other knob values."""
    other = _rules(generator)
    return replace(rules, tau_h=other.tau_h, tau_l=other.tau_l, d0=generator.uniform(1, rules.d_max - 1))


def _agrees(verdict: Verdict | None, truth: Round, *, costly: bool = False) -> tuple[bool, bool]:
    """Checks a verdict against the truth; returns whether the accepted and the drafted nodes were known. `costly`: by
    the rules of `auto`, whose number of nodes this world does not limit.
    """
    assert verdict is not None
    counts = {"accepted": truth.accepted, "tokens": truth.committed, "drafted": truth.tokens[1:]}
    for name, told in counts.items():
        assert verdict[name] in (None, len(told))
        assert (verdict[f"{name}_at_least"] or 0) <= len(told)
    assert min(len(truth.tokens) - 1, MOST_NODES if costly else math.inf) <= (verdict["most_drafted"] or 0)
    assert max(depths(truth.parents)) <= (verdict["most_levels"] or 0)
    return verdict["tokens"] is not None, verdict["drafted"] is not None


def _any(generator: random.Random, _: DynaTree | None = None) -> DynaTree:
    return _rules(generator, selection=generator.choice(["bfs", "best"]))


def _small(generator: random.Random) -> DynaTree:
    """Rules of the most probable nodes, which fill most trees."""
    return _rules(generator, selection="best", n_max=generator.choice([2, 4, 8]), rho_stop=0.0, tau=0.0)


def _less(_: random.Random, rules: DynaTree) -> DynaTree:
    return replace(rules, tau_h=0.6, tau_l=0.3, d0=max(1.0, rules.d0 - 1))


def _same(_: random.Random, rules: Rules) -> Rules:
    return rules


def _chain(generator: random.Random, _: Linear | None = None) -> Linear:
    return Linear(generator.randint(1, 7), generator.choice([0.0, 0.1, 0.2, 0.3, 0.5, 0.8]))


def _shorter(generator: random.Random, own: Linear) -> Linear:
    return Linear(generator.randint(1, own.k), min(1.0, own.p_min + generator.choice([0.0, 0.1, 0.4])))


def _beam(generator: random.Random, own: Eagle2 | None = None) -> Eagle2:
    topk = own.topk if own else generator.randint(1, 4)
    return Eagle2(generator.randint(1, 5), topk, generator.choice([2, 4, 6, 9, 20, 200]))


def _fewer(generator: random.Random, own: Eagle2) -> Eagle2:
    return replace(own, draft_tokens=generator.randint(2, own.draft_tokens))


@dataclass(frozen=True)
class Asked:
    """Recorded rules, others that are asked for, and which shares of accepted and of drafted nodes are known."""

    own: Callable[[random.Random], Any]
    other: Callable[[random.Random, Any], Any]
    known: tuple[float, float] = (0.0, 0.0)
    adaptive: bool = True
    """Whether the rules are adaptive; others are judged with the recorded rules."""
    left: Sequence[int] = (99,)
    room: Sequence[int] = (99,)


ASKED = {
    **{
        f"other knobs, {selection}": Asked(
            partial(_rules, selection=selection), _turned, (0.6, 0.4), left=(1, 2, 3, 99)
        )
        for selection in ("bfs", "best")
    },
    "wholly other rules": Asked(_any, _any, left=(2, 99)),
    "a context that ends is no choice": Asked(_any, _turned, room=(1, 2, 3)),
    "its own rules": Asked(_rules, _same, (1, 1)),
    # A child that lost to all nodes of a full tree loses again under other knobs.
    "its own rules, whatever was cut": Asked(_small, _same, (1, 1)),
    "narrower and flatter trees": Asked(partial(_rules, n_max=2000, tau_h=0.9, tau_l=0.5), _less, (1, 1)),
    "other chains": Asked(_chain, _chain, (0.6, 0), adaptive=False),
    "its own chains": Asked(_chain, _same, (1, 1), adaptive=False),
    "chains that end no later": Asked(_chain, _shorter, (1, 1), adaptive=False),
    "other beams": Asked(_beam, _beam, (0.5, 0), adaptive=False),
    "its own beams": Asked(_beam, _same, (1, 1), adaptive=False),
    "any smaller number of a beam's nodes": Asked(_beam, _fewer, (1, 1), adaptive=False),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_what_is_judged_is_what_other_rules_would_have_done(asked: Asked) -> None:
    generator, known, full = random.Random(1), [], 0
    for seed in range(200):
        world, rules = World(seed), asked.own(generator)
        left, room = generator.choice(asked.left), generator.choice(asked.room)
        record, other = world.round(rules, left, room), asked.other(generator, rules)
        verdict = replayed(record, other, None if asked.adaptive else rules)
        known.append(_agrees(verdict, world.round(other, left, room)))
        if asked.adaptive:
            assert other is not rules or (verdict and verdict["most_levels"] == max(depths(record.parents)))
            full += len(record.tokens) - 1 == rules.n_max
    assert all(np.mean(known, axis=0) >= asked.known)
    assert asked.own is not _small or full > 100


def test_a_recording_of_the_engine_is_reproduced_under_its_own_rules() -> None:
    with DEMO.open("rb") as lines:
        events = [decode_line(line, number) for number, line in enumerate(lines, 1)]
    rounds = [event for event in events if isinstance(event, Round) and event.method == "dynatree"]
    assert len(rounds) > 100
    assert isinstance(events[0], Run)
    parameters = events[0].methods["dynatree"]
    for event in rounds:
        assert event.knobs
        knobs = {"tau_h": event.knobs.tau_h, "tau_l": event.knobs.tau_l, "d0": event.knobs.d0}
        rules = DynaTree(**parameters | knobs | {"branching": tuple(parameters["branching"])})
        assert _agrees(replayed(event, rules), event) == (True, True)


def _event(**changes: Any) -> Round:
    """A root with children of probability .6 and .2; the first child has a child of .5, the last accepted node."""
    given: dict[str, Any] = {
        "parents": [-1, 0, 0, 1],
        "knobs": Knobs(0.9, 0.4, 2.0),
        "logprobs": [0.0, *map(math.log, (0.6, 0.2, 0.5))],
        "accepted": [1, 3],
        "committed": [1, 3, 9],
    }
    return a_round(**given | changes)


RULES = DynaTree(d0=2.0, d_max=6, branching=(1, 2, 3), rho_stop=0.1, rho_deep=0.7)


SHORT: dict[str, Any] = {"accepted": [1], "committed": [1, 9]}
UNLIKELY: dict[str, Any] = {"logprobs": [0.0, *map(math.log, (0.3, 0.1, 0.9))], "accepted": [], "committed": [9]}
JUDGED: dict[str, tuple[dict[str, Any], dict[str, float], dict[str, int | None]]] = {
    "a path that ends earlier is known": ({}, {"d0": 1.0}, {"accepted": 1, "tokens": 2, "drafted": 2}),
    "a deeper tree than recorded is not": (
        {},
        {"d0": 3.0},
        {"accepted": None, "drafted": None, "accepted_at_least": 2, "tokens_at_least": 3},
    ),
    "children at an inner node do not matter": ({}, {"tau_h": 0.8, "tau_l": 0.7}, {"accepted": 2}),
    "children at the path's end do": (SHORT, {"tau_h": 0.8, "tau_l": 0.7}, {"accepted": None, "accepted_at_least": 1}),
    "improbable children are counted": (SHORT, {"tau_h": 0.8, "tau_l": 0.7, "rho_stop": 0.3}, {"drafted": 6}),
    "a further child is no more probable than the last": (UNLIKELY, {"rho_stop": 0.2}, {"drafted": 4}),
    "a text that ended ends there": ({"committed": [1, 3]}, {"d0": 3.0}, {"accepted": None, "tokens": 2}),
}


@pytest.mark.parametrize(("event", "rules", "expected"), JUDGED.values(), ids=JUDGED)
def test_only_what_the_record_determines_is_known(
    event: dict[str, Any], rules: dict[str, Any], expected: dict[str, int | None]
) -> None:
    verdict = replayed(_event(**event), replace(RULES, **rules))
    assert verdict
    assert {name: verdict[name] for name in expected} == expected


def test_a_node_behind_others_that_the_record_lacks_may_have_no_room() -> None:
    # Below the root: .5 and .4. Below these: .275 (not expanded) and .39. Below .39: .38. The path .4, .39, .38 is
    # accepted.
    record = _event(
        tokens=[0, 1, 2, 3, 4, 5], parents=[-1, 0, 0, 1, 2, 4], pieces=[""] * 6, accepted=[2, 4, 5],
        logprobs=[0.0, *map(math.log, (0.5, 0.4, 0.55, 0.975, 0.974))], committed=[2, 4, 5, 9],
    )  # fmt: skip
    recorded = DynaTree(d0=2.0, d_max=3, rho_deep=0.3, tau_l=0.51, branching=(1, 1, 2), n_max=5)
    same, deeper = replayed(record, recorded), replayed(record, replace(recorded, rho_deep=0.2))
    assert same
    assert deeper
    assert (same["accepted"], same["drafted"]) == (3, 5)
    assert (deeper["accepted"], deeper["accepted_at_least"], deeper["drafted"]) == (None, 2, 5)


@pytest.mark.parametrize(
    "event",
    [
        _event(knobs=None),
        _event(method="alg1"),
        _event(accepted=[2, 3], committed=[2, 3, 9]),
        _event(accepted=[3], committed=[3, 9]),
        _event(limited_by="length"),
    ],
    ids=["no knobs", "drafted root", "no path", "no path from the root", "cut at the end of the text"],
)
def test_what_is_no_whole_tree_of_these_rules_is_not_judged(event: Round) -> None:
    assert replayed(event, RULES) is None
    assert what_if([event], RULES) is None


def _paid(world: World, rules: Auto, least: float, left: int = 99) -> Round:
    """A round of `auto` in which only nodes whose path probability is at least `least` pay off."""
    whole = world.round(_unbounded(rules), left)
    tree = TokenTree([0])
    places = {0: 0}
    for node in range(1, len(whole.tokens)):
        above = whole.parents[node]
        path = math.exp(math.fsum(whole.logprobs[step] for step in _above(whole, node)))
        if above in places and path >= least:
            places[node] = tree.add(places[above], whole.tokens[node], whole.logprobs[node])
    accepted, bonus = accept(tree, lambda node: world.choice(_path(tree, node)))
    committed = [*(tree.tokens[node] for node in accepted), bonus][:left]
    given = {"tokens": tree.tokens, "parents": tree.parents, "logprobs": tree.logprobs, "pieces": [""] * len(tree)}
    return msgspec.structs.replace(whole, **given, accepted=accepted, committed=committed)


def test_where_costs_cut_the_trees_what_did_not_pay_is_taken_not_to_pay_under_other_knobs() -> None:
    """The history rule changes the knobs between rounds, so a replay must use each round's own values."""
    generator = random.Random(8)
    known = []
    for seed in range(200):
        world, rules, left = World(seed), _auto(_rules(generator)), generator.choice([1, 2, 3, 99])
        least, turned = generator.choice([0.0, 0.02, 0.1, 0.3, 1.1]), _turned(generator, rules)
        record = _paid(world, rules, least, left)
        known.append(_agrees(replayed(record, turned), _paid(world, turned, least, left), costly=True))
        assert _agrees(replayed(record, rules), record) == (True, True)
    assert all(np.mean(known, axis=0) > (0.6, 0.4))


def test_a_table_says_that_costs_have_cut_its_trees() -> None:
    found = [what_if([World(1).round(RULES)], rules) for rules in (RULES, _auto(RULES))]
    assert [one.by_costs for one in found if one] == [False, True]


def test_of_a_round_without_a_draft_only_its_own_token_is_sure() -> None:
    event = msgspec.structs.replace(
        World(1).round(RULES), tokens=[0], parents=[-1], logprobs=[0.0], pieces=[""], accepted=[]
    )
    verdict = replayed(event, RULES)
    assert verdict is not None
    assert (verdict["tokens"], verdict["tokens_at_least"], verdict["drafted"]) == (None, 1, None)


def test_absurd_records_are_judged_without_a_fault() -> None:
    absurd = [
        _event(logprobs=[0.0, 1e308, -1e308, 5.0]),
        _event(parents=[-1, 0, 1, 0], accepted=[1, 2]),
        _event(tokens=[0], parents=[-1], logprobs=[0.0], pieces=[""], accepted=[], committed=[]),
        _event(tokens=[0] * 500, parents=[-1, *range(499)], logprobs=[0.0] * 500, pieces=[""] * 500, accepted=[1]),
    ]
    for rules in (RULES, replace(RULES, selection="best"), replace(RULES, rho_stop=0.0, tau=0.0, n_max=1)):
        for event in absurd:
            replayed(event, rules)
        assert what_if(absurd, rules) is not None


def _past(rules: DynaTree, count: int) -> list[Round]:
    return [World(seed).round(rules) for seed in range(count)]


def _cells(grid: Grid) -> list[GridCell]:
    return [cell for row in grid.cells for cell in row]


def test_every_cell_is_the_mean_over_all_rounds_and_a_bound_where_not_all_are_judged() -> None:
    rules = DynaTree(d_max=6, d0=2.0, rho_stop=0.02, tau=0.0)
    past = _past(rules, 15)
    table = what_if(past, rules)
    assert table
    breadth, _ = table.grids
    assert (table.rounds, breadth.present, breadth.columns) == (15, (3, 1), (1, 2, 3, 4, 5))
    for grid in table.grids:
        for row, value in zip(grid.cells, grid.rows, strict=True):
            for cell, d0 in zip(row, grid.columns, strict=True):
                turned = replace(rules, d0=d0)
                turned = replace(turned, tau_h=value) if grid.down == "tau_h" else replace(turned, tau_l=value)
                truths = [len(World(seed).round(turned).committed) for seed in range(15)]
                verdicts = [replayed(event, turned) for event in past]
                assert cell.judged == sum(verdict is not None and verdict["tokens"] is not None for verdict in verdicts)
                assert cell.tokens <= sum(truths) / 15 + 1e-9
                assert not cell.exact or cell.tokens == pytest.approx(sum(truths) / 15)
    assert table.here.exact
    assert any(not cell.exact for cell in _cells(breadth))


def test_only_the_newest_fifty_rounds_count() -> None:
    rules = DynaTree()
    past = _past(rules, 80)
    assert what_if(past, rules) == what_if(past[-50:], rules)


@pytest.mark.parametrize("d0", [1.0, 1.4, 4.6, 7.0])
@pytest.mark.parametrize(("tau_h", "tau_l"), [(0.02, 0.01), (1.0, 0.99), (1.0, 0.01), (0.45, 0.42)])
def test_the_values_in_force_are_in_the_tables_wherever_the_knobs_stand(d0: float, tau_h: float, tau_l: float) -> None:
    rules = DynaTree(d0=d0, tau_h=tau_h, tau_l=tau_l)
    table = what_if(_past(rules, 3), rules)
    assert table
    for grid, value in zip(table.grids, (tau_h, tau_l), strict=True):
        assert grid.rows[grid.present[0]] == value
        assert grid.columns[grid.present[1]] == math.floor(d0 + 0.5)
        assert list(grid.rows) == sorted(set(grid.rows))
        assert Place(grid, *grid.present).cell == table.here
    assert table.here.exact


def _table(down: str, *cells: GridCell) -> Grid:
    """Two by two cells; the current knob values are in the upper right one."""
    return Grid(down, "d0", (0.4, 0.5), (4.0, 5.0), (cells[:2], cells[2:]), (0, 1))


def test_the_best_cell_has_the_most_tokens_that_could_be_judged_and_drafts_the_least_nearest_to_the_knobs() -> None:
    few, many, most = GridCell(20, 6, 9.0, 6, 9.0), GridCell(20, 16, 3.0, 16, 9.0), GridCell(20, 16, 3.2, 16, 9.0)
    breadth, doubt = _table("tau_h", few, many, many, many), _table("tau_l", few, many, most, many)
    assert WhatIf((breadth, doubt), 20, many).best() == (doubt, 1, 0)
    assert WhatIf((_table("tau_h", *[few] * 4), _table("tau_l", *[few] * 4)), 20, few).best() is None
    here, lean = GridCell(20, 20, 3.0, 20, 9.0), GridCell(20, 20, 3.001, 20, 4.0)
    assert WhatIf((grid := _table("tau_h", lean, here, lean, lean), grid), 20, here).best() == (grid, 0, 0)


LEVEL_S, ROW_S, FIXED_S = 0.002, 0.0005, 0.011


def _timed(past: Sequence[Round], noise: float = 0.0, seed: int = 0) -> list[Round]:
    """The rounds with times that follow from their trees, with relative noise."""
    generator, t, timed = random.Random(seed), 0.0, list[Round]()
    for number, event in enumerate(past):
        levels, nodes = max(depths(event.parents)), len(event.tokens) - 1
        draft_s = LEVEL_S * levels * (1 + generator.gauss(0, noise))
        verify_s = (FIXED_S + ROW_S * nodes) * (1 + generator.gauss(0, noise))
        t += draft_s + verify_s
        timed.append(msgspec.structs.replace(event, round=number, t=t, draft_s=draft_s, verify_s=verify_s))
    return timed


DEEP = DynaTree(d_max=6, d0=4.0, rho_stop=0.02, tau=0.0)


def test_without_noise_in_the_times_the_rate_of_a_cell_is_its_tokens_over_its_costs() -> None:
    table = what_if(_timed(_past(DEEP, 40)), DEEP, FIXED_S)
    assert table
    places = table.by_rate()
    assert places
    assert [place.cell.rate for place in places] == sorted((place.cell.rate or 0 for place in places), reverse=True)
    here = table.here
    assert here.rate is not None
    assert here.rates is not None
    assert here.rates[0] < here.rate < here.rates[1]
    assert here.gains == (1, 1)
    assert sum(place.present for place in places) == 1


def test_trees_known_in_part_have_a_rate_that_the_true_one_is_not_below() -> None:
    wider = replace(DEEP, d0=5.0, branching=(2, 3, 4))
    pairs = [(World(seed).round(DEEP), World(seed).round(wider)) for seed in range(50)]
    table = what_if(_timed([event for event, _ in pairs]), replace(DEEP, branching=(2, 3, 4)), FIXED_S)
    truth = what_if(_timed([event for _, event in pairs]), wider, FIXED_S)
    assert table
    assert truth
    cell = table.grids[0].cells[table.grids[0].present[0]][table.grids[0].columns.index(5)]
    assert not cell.rate_exact
    assert 0 < (cell.rate or 0) <= (truth.here.rate or 0)


def test_where_history_moved_the_knobs_other_ones_are_compared_with_the_rounds_as_they_were() -> None:
    generator, rules = random.Random(3), replace(DEEP, history=True)
    moved = [rules.moved(generator.uniform(2, 5), generator.uniform(0.5, 0.95)) for _ in range(50)]
    past = _timed([World(seed).round(own) for seed, own in enumerate(moved)])
    table = what_if(past, rules, FIXED_S)
    assert table
    assert table.by_history
    assert table.here.rate_exact
    assert table.here.tokens == np.mean([len(event.committed) for event in past])
    assert table.here.rate == pytest.approx(sum(len(event.committed) for event in past) / past[-1].t)
    assert table.by_rate()
    assert all(place.cell.gains for place in table.by_rate())


def test_the_interval_of_a_gain_holds_the_true_gain_about_as_often_as_it_says() -> None:
    """The true gain is that over many rounds, at the costs that made the times."""
    turned = replace(DEEP, d0=2.0)
    many = [(World(seed).round(DEEP), World(seed).round(turned)) for seed in range(1000, 2000)]
    rates = [
        sum(len(event.committed) for event in side)
        / sum(FIXED_S + LEVEL_S * max(depths(event.parents)) + ROW_S * (len(event.tokens) - 1) for event in side)
        for side in zip(*many, strict=True)
    ]
    held = widths = 0.0
    for seed in range(100):
        past = [World(50 * seed + number).round(DEEP) for number in range(50)]
        table = what_if(_timed(past, 0.1, seed), DEEP, FIXED_S)
        assert table
        gains = table.grids[0].cells[table.grids[0].present[0]][table.grids[0].columns.index(2)].gains
        assert gains
        held += gains[0] <= rates[1] / rates[0] <= gains[1]
        widths += gains[1] - gains[0]
    assert held >= 85
    assert widths / 100 < 0.5


def test_a_gain_that_may_be_none_is_not_called_faster() -> None:
    sure = GridCell(20, 20, 3.0, 20, 9.0, 0.02, gains=(1.0, 1.0))
    quick = replace(sure, seconds=0.015, gains=(1.2, 1.4))
    tables = {gains: _table("tau_h", replace(quick, gains=gains), *[sure] * 3) for gains in ((1.2, 1.4), (0.9, 1.8))}
    found = {gains: WhatIf((table, _table("tau_l", *[sure] * 4)), 20, sure).faster() for gains, table in tables.items()}
    assert found[1.2, 1.4] == (tables[1.2, 1.4], 0, 0)
    assert found[0.9, 1.8] is None


def test_the_tables_take_little_time() -> None:
    rules = DynaTree(tau_h=0.7)
    past = _past(rules, 50)
    spent_s = []
    for _ in range(5):
        start_s = time.process_time()
        assert isinstance(what_if(past, rules), WhatIf)
        spent_s.append(time.process_time() - start_s)
    assert min(spent_s) < 0.05  # about 0.004 on the machine used for development


WIDE = DynaTree(d0=1.0, d_max=2, branching=(4, 4, 4), rho_stop=0.3, rho_deep=0.3, tau=0)
"""Rules that give a node more children than any recorded tree of this module has."""


def told(parents: list[int], probabilities: list[float], accepted: list[int]) -> Round:
    """A round with this tree. Each token is its node's number; the bonus token is one more than the last number."""
    return a_round(
        parents=parents,
        knobs=Knobs(WIDE.tau_h, WIDE.tau_l, WIDE.d0),
        logprobs=[0.0, *map(math.log, probabilities)],
        accepted=accepted,
        committed=[*accepted, len(parents)],
    )


def star(nodes: int, accepted: int = 0) -> Round:
    """A root with all other nodes as its children."""
    return told([-1, *[0] * (nodes - 1)], [1 / nodes] * (nodes - 1), [1] * accepted)


def chain(depth: int) -> Round:
    """A path with all nodes accepted."""
    return told([-1, *range(depth)], [0.99] * depth, [*range(1, depth + 1)])


@pytest.mark.parametrize(
    ("rules", "knobs", "present"),
    [
        (Linear(5, 0.3), ("p_min", "k"), (0.3, 5.0)),
        (Eagle2(5, 4, 8), ("draft_tokens", "eagle_steps"), (8.0, 5.0)),
    ],
)
def test_each_has_one_table_of_its_knobs_around_their_values(
    rules: Rules, knobs: tuple[str, str], present: tuple[float, float]
) -> None:
    past = [World(seed).round(rules) for seed in range(20)]
    table = what_if(past, rules)
    assert table
    (grid,) = table.grids
    row, column = grid.present
    assert ((grid.down, grid.across), (grid.rows[row], grid.columns[column])) == (knobs, present)
    assert table.here.exact


def test_a_chain_that_ended_at_an_improbable_token_took_the_pass_that_found_it() -> None:
    """The first child has probability .6, its child .5."""
    event = a_round(
        parents=[-1, 0, 1], logprobs=[0.0, math.log(0.6), math.log(0.5)], accepted=[1, 2], committed=[1, 2, 9]
    )
    record = TreeRecord([event])
    passes = [
        int(replay_rounds(record, other.rule(), Linear(4, 0.4).rule()).levels[0])
        for other in (Linear(4, 0.4), Linear(4, 0.55), Linear(2, 0.4), Linear(1, 0.4), Linear(3, 0.7))
    ]
    assert passes == [3, 2, 2, 1, 1]


def test_rules_of_which_a_record_says_too_little_have_no_table() -> None:
    assert what_if([World(1).round(BestFirst(6, 3))] * 9, BestFirst(6, 3)) is None


# Bounds on the number of replayed rounds and of their nodes


def test_as_many_of_the_newest_rounds_are_looked_at_as_have_so_many_nodes_together() -> None:
    count = what_if_module._NODES // 1000
    found = what_if([*[star(1000)] * 9, *[star(1000, accepted=1)] * count], replace(WIDE, branching=(1, 1, 1)))
    assert found
    assert found.rounds == count
    assert found.here.tokens == 2


def test_the_newest_round_is_looked_at_however_large_its_tree_is() -> None:
    found = what_if([star(2), star(what_if_module._NODES + 1)], WIDE)
    assert found
    assert found.rounds == 1


def test_a_tree_that_is_deeper_than_any_of_ours_is_not_judged() -> None:
    assert replayed(chain(what_if_module._DEEPEST), WIDE)
    assert replayed(chain(what_if_module._DEEPEST + 1), WIDE) is None


@pytest.mark.parametrize(
    ("selection", "chance", "n_max", "accepted"),
    [("bfs", 0.9, 16, 2), ("bfs", 0.9, 15, None), ("best", 0.4, 8, 2), ("best", 0.4, 7, None)],
)
def test_a_node_is_kept_for_sure_where_all_that_may_come_before_it_have_room(
    selection: Any, chance: float, n_max: int, accepted: int | None
) -> None:
    """In breadth-first order, the root has four children, and at most three of these have four, since a fourth cannot
    have probability .3. Of the best, the path has probability .28, an undrafted child of the root at most .3, and both
    depths hold up to 2 / .28 nodes.
    """
    rules = replace(WIDE, n_max=n_max, selection=selection)
    verdict = replayed(told([-1, 0, 1], [0.7, chance], [1, 2]), rules)
    assert verdict
    assert (verdict["accepted"], verdict["accepted_at_least"]) == (accepted, 2 if accepted else 1)
