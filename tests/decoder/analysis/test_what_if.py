"""What-if estimates compared with the truth, in a toy world in which every set of rules can be run."""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import Mock

import msgspec
import pytest

from decoder.analysis.what_if import Grid, GridCell, WhatIf, what_if
from decoder.draft.growth import Children
from decoder.draft.model_drafter import ModelDrafter
from decoder.events import Knobs, Round, Run, decode_line
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.tree import TokenTree
from decoder.tree_rules import Growth
from decoder.verify.verifier import accept
from tests.decoder.analysis.one_round import replayed
from tests.decoder.rounds import a_round

DEMO = Path(__file__).parents[2] / "traces" / "demo.jsonl"
VOCABULARY = 24
Tree = TypeVar("Tree", bound=AdaptiveTree)


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

    def round(self, rules: DynaTree, left: int = 99, room: int = 99) -> Round:
        """One round under `rules`, with at most `left` more tokens of text and `room` levels."""
        rule = rules.rule()
        tree = self.grow(TokenTree([0]), rule, self.children([], int(rule.growth.wide)), deepest=room)
        accepted, bonus = accept(tree, lambda node: self.choice(_path(tree, node)))
        return a_round(
            parents=tree.parents,
            knobs=Knobs(rules.tau_h, rules.tau_l, rules.d0),
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


def _agrees(world: World, record: Round, rules: DynaTree, left: int, room: int = 99) -> tuple[bool, bool]:
    """Checks a verdict against the truth; returns whether the accepted and the drafted nodes were known."""
    verdict, truth = replayed(record, rules), world.round(rules, left, room)
    assert verdict is not None
    accepted, drafted, tokens = len(truth.accepted), len(truth.tokens) - 1, len(truth.committed)
    assert verdict.accepted in (None, accepted)
    assert verdict.drafted in (None, drafted)
    assert verdict.tokens in (None, tokens)
    assert verdict.accepted_at_least <= accepted
    assert verdict.drafted_at_least <= drafted
    assert verdict.tokens_at_least <= tokens
    return verdict.tokens is not None, verdict.drafted is not None


@pytest.mark.parametrize("selection", ["bfs", "best"])
def test_what_is_judged_is_what_other_knobs_would_have_done(selection: str) -> None:
    generator = random.Random(1)
    known = []
    for seed in range(200):
        world, rules, left = World(seed), _rules(generator, selection=selection), generator.choice([1, 2, 3, 99])
        known.append(_agrees(world, world.round(rules, left), _turned(generator, rules), left))
    tokens, drafted = zip(*known, strict=True)
    assert sum(tokens) > 0.6 * len(known)
    assert sum(drafted) > 0.4 * len(known)


def test_what_is_judged_is_what_wholly_other_rules_would_have_done() -> None:
    generator = random.Random(2)
    for seed in range(200):
        world, left = World(seed), generator.choice([2, 99])
        record = world.round(_rules(generator, selection=generator.choice(["bfs", "best"])), left)
        _agrees(world, record, _rules(generator, selection=generator.choice(["bfs", "best"])), left)


def test_a_context_that_ends_is_never_taken_for_a_choice() -> None:
    generator = random.Random(3)
    for seed in range(200):
        world, room = World(seed), generator.randint(1, 3)
        rules = _rules(generator, selection=generator.choice(["bfs", "best"]))
        _agrees(world, world.round(rules, room=room), _turned(generator, rules), left=99, room=room)


def test_under_its_own_rules_a_record_is_judged_and_reproduced() -> None:
    generator = random.Random(4)
    for seed in range(200):
        world, rules = World(seed), _rules(generator)
        assert _agrees(world, world.round(rules), rules, left=99) == (True, True)


def test_so_is_one_of_the_most_probable_nodes_whatever_was_cut() -> None:
    """A child that lost to all nodes of a full tree loses again under other knobs."""
    generator, full = random.Random(6), 0
    for seed in range(300):
        world, rules = (
            World(seed),
            _rules(generator, selection="best", n_max=generator.choice([2, 4, 8]), rho_stop=0.0, tau=0.0),
        )
        record = world.round(rules)
        full += len(record.tokens) - 1 == rules.n_max
        assert _agrees(world, record, rules, left=99) == (True, True)
    assert full > 150


def test_narrower_and_flatter_trees_are_always_judged() -> None:
    generator = random.Random(5)
    for seed in range(200):
        world, rules = World(seed), _rules(generator, n_max=2000, tau_h=0.9, tau_l=0.5)
        less = replace(rules, tau_h=0.6, tau_l=0.3, d0=max(1.0, rules.d0 - 1))
        assert _agrees(world, world.round(rules), less, left=99) == (True, True)


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
        verdict = replayed(event, rules)
        assert verdict
        assert verdict.accepted == len(event.accepted)
        assert verdict.tokens == len(event.committed)
        assert verdict.drafted == len(event.tokens) - 1


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
    assert {name: getattr(verdict, name) for name in expected} == expected


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
    assert (same.accepted, same.drafted) == (3, 5)
    assert (deeper.accepted, deeper.accepted_at_least, deeper.drafted) == (None, 2, 5)


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
    return msgspec.structs.replace(
        whole,
        tokens=tree.tokens,
        parents=tree.parents,
        logprobs=tree.logprobs,
        pieces=[""] * len(tree),
        accepted=accepted,
        committed=[*(tree.tokens[node] for node in accepted), bonus][:left],
    )


def test_where_costs_cut_the_trees_what_did_not_pay_is_taken_not_to_pay_under_other_knobs() -> None:
    generator = random.Random(8)
    known = []
    for seed in range(200):
        world, rules, left = World(seed), _auto(_rules(generator)), generator.choice([1, 2, 3, 99])
        least, turned = generator.choice([0.0, 0.02, 0.1, 0.3, 1.1]), _turned(generator, rules)
        verdict, truth = replayed(_paid(world, rules, least, left), turned), _paid(world, turned, least, left)
        assert verdict is not None
        assert verdict.accepted in (None, len(truth.accepted))
        assert verdict.drafted in (None, len(truth.tokens) - 1)
        assert verdict.tokens in (None, len(truth.committed))
        assert verdict.accepted_at_least <= len(truth.accepted)
        assert verdict.drafted_at_least <= len(truth.tokens) - 1
        assert verdict.tokens_at_least <= len(truth.committed)
        known.append((verdict.tokens is not None, verdict.drafted is not None))
    tokens, drafted = zip(*known, strict=True)
    assert sum(tokens) > 0.6 * len(known)
    assert sum(drafted) > 0.4 * len(known)


def test_under_its_own_knobs_a_tree_that_costs_have_cut_is_reproduced() -> None:
    """The history rule changes the knobs between rounds, so a replay must use each round's own values."""
    generator = random.Random(9)
    for seed in range(200):
        world, rules = World(seed), _auto(_rules(generator))
        event = _paid(world, rules, generator.choice([0.02, 0.1, 1.1]))
        verdict = replayed(event, rules)
        assert verdict is not None
        assert (verdict.tokens, verdict.drafted) == (len(event.committed), len(event.tokens) - 1)


def test_a_table_says_that_costs_have_cut_its_trees() -> None:
    event = World(1).round(RULES)
    found = [what_if([event], rules) for rules in (RULES, _auto(RULES))]
    assert [one.by_costs for one in found if one] == [False, True]


def test_of_a_round_without_a_draft_only_its_own_token_is_sure() -> None:
    event = msgspec.structs.replace(
        World(1).round(RULES), tokens=[0], parents=[-1], logprobs=[0.0], pieces=[""], accepted=[]
    )
    verdict = replayed(event, RULES)
    assert verdict is not None
    assert (verdict.tokens, verdict.tokens_at_least, verdict.drafted) == (None, 1, None)


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
    assert (table.rounds, table.breadth.present, table.breadth.columns) == (15, (3, 1), (1, 2, 3, 4, 5))
    for grid in (table.breadth, table.doubt):
        for row, value in zip(grid.cells, grid.rows, strict=True):
            for cell, d0 in zip(row, grid.columns, strict=True):
                turned = replace(rules, d0=d0)
                turned = replace(turned, tau_h=value) if grid.down == "tau_h" else replace(turned, tau_l=value)
                truths = [len(World(seed).round(turned).committed) for seed in range(15)]
                verdicts = [replayed(event, turned) for event in past]
                assert cell.judged == sum(verdict is not None and verdict.tokens is not None for verdict in verdicts)
                assert cell.tokens <= sum(truths) / 15 + 1e-9
                assert not cell.exact or cell.tokens == pytest.approx(sum(truths) / 15)
    assert table.breadth.here.exact
    assert any(not cell.exact for cell in _cells(table.breadth))


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
    for grid, value in ((table.breadth, tau_h), (table.doubt, tau_l)):
        assert grid.rows[grid.present[0]] == value
        assert grid.columns[grid.present[1]] == math.floor(d0 + 0.5)
        assert list(grid.rows) == sorted(set(grid.rows))
        assert grid.here.exact


def _table(down: str, *cells: GridCell) -> Grid:
    """Two by two cells; the current knob values are in the upper right one."""
    axis = "tau_h" if down == "tau_h" else "tau_l"
    return Grid(axis, (0.4, 0.5), (4.0, 5.0), (cells[:2], cells[2:]), (0, 1))  # type: ignore[arg-type]


def test_the_best_cell_has_the_most_tokens_of_those_that_could_be_judged() -> None:
    few, many, most = GridCell(20, 6, 9.0, 6, 9.0), GridCell(20, 16, 3.0, 16, 9.0), GridCell(20, 16, 3.2, 16, 9.0)
    breadth, doubt = _table("tau_h", few, many, many, many), _table("tau_l", few, many, most, many)
    assert WhatIf(breadth, doubt, 20).best() == (doubt, 1, 0)
    assert WhatIf(_table("tau_h", few, few, few, few), _table("tau_l", few, few, few, few), 20).best() is None


def test_among_equals_the_best_cell_drafts_the_least_nearest_to_the_knobs() -> None:
    here, lean = GridCell(20, 20, 3.0, 20, 9.0), GridCell(20, 20, 3.001, 20, 4.0)
    assert WhatIf(*(grid := _table("tau_h", lean, here, lean, lean), grid), 20).best() == (grid, 0, 0)


def test_the_tables_take_little_time() -> None:
    rules = DynaTree(tau_h=0.7)
    past = _past(rules, 50)
    spent_s = []
    for _ in range(5):
        start_s = time.process_time()
        assert isinstance(what_if(past, rules), WhatIf)
        spent_s.append(time.process_time() - start_s)
    assert min(spent_s) < 0.05  # about 0.004 on the machine used for development
