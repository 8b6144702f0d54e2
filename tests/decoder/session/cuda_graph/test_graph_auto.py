"""Rounds whose size is chosen one by one: the text stays the target's, and a draft that fails costs next to nothing."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import pytest

from decoder.config import DynaTree, Rules
from decoder.engine import Engine
from decoder.session.cuda_graph.pass_sizes import SIZES
from decoder.session.cuda_graph.size_controller import (
    ASK,
    FIRST_REST,
    LONGEST_REST,
    GraphSizeController,
    Odds,
    Plan,
    Times,
    ranks,
)
from decoder.session.protocol import Outcome
from decoder.session.steering import Turn
from tests.decoder.makers import Lab, graph_slots, host_session
from tests.decoder.session.cuda_graph.matching import FAR, graph_session, match, recorded, with_slots
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes

pytestmark = pytest.mark.slow

PROMPT = "The tree grows"
HOPELESS, HALF, GOOD = 0.0, 0.5, 0.85


def played(
    engine: Engine, prompt: Sequence[int], limit: int, rules: Rules, turns: Sequence[Turn] = ()
) -> list[Outcome]:
    session = graph_session(engine, prompt, limit, rules)
    session.prefill()
    found: list[Outcome] = []
    while not found or not found[-1].finished:
        found.append(session.step(tuple(turns) if len(found) > 3 else ()))
    assert session.waits == len(found) or turns
    return found


def numbered(nodes: int, d0: int, d_max: int) -> DynaTree:
    """The bounds of `WIDE` with a number of nodes, of which the most probable stay."""
    given = {each.name: getattr(WIDE, each.name) for each in fields(WIDE)}
    return DynaTree(**given | {"d0": d0, "d_max": d_max}, n_max=nodes, selection="best")


def tokens(rounds: Sequence[Outcome]) -> list[int]:
    return [token for outcome in rounds for token in outcome.committed]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("name", "by_module"), [("neox", False), ("llama", True), ("llama-strange", False)])
def test_the_text_is_that_of_plain_greedy_search_whatever_sizes_are_chosen(
    lab: Lab,
    name: str,
    by_module: bool,  # noqa: FBT001 - a parameter
    seed: int,
) -> None:
    pair = lab.pair(name)
    loaded = recorded(lab.loaded(pair, "float64"), by_module=by_module)
    graph_slots(loaded).size_controller = RandomSizes(seed)
    rounds = played(loaded, lab.prompt_tokens(pair, PROMPT), 80, WIDE)
    assert tokens(rounds) == lab.generate(pair, "float64", PROMPT, 80)
    assert {len(outcome.tree) > 1 for outcome in rounds} == {False, True}


@pytest.mark.parametrize("seed", range(3))
def test_a_tree_is_that_of_the_host_whatever_the_draft_had_missed(lab: Lab, seed: int) -> None:
    pair = lab.pair("neox")
    loaded = recorded(lab.loaded(pair, "float64"))
    controller = graph_slots(loaded).size_controller = RandomSizes(seed, plain=0.7, depths=(2, 3, 4))
    text = lab.prompt_tokens(pair, PROMPT)
    rounds = played(loaded, text, 100, WIDE)
    for outcome, plan in zip(rounds, controller.chosen, strict=False):
        assert (len(outcome.tree) > 1) == (plan is not None)
        if plan:
            assert outcome.draft_forwards == plan.depth
            rules = numbered(nodes=plan.nodes - 1, d_max=plan.depth, d0=plan.depth - 1)
            host = host_session(loaded, text, 9, rules)
            host.prefill()
            expected = host.step(()).tree
            assert (outcome.tree.tokens, outcome.tree.parents) == (expected.tokens, expected.parents)
            assert outcome.tree.logprobs == pytest.approx(expected.logprobs, abs=FAR)
        text = [*text, *outcome.committed]


def test_what_became_of_each_tree_is_learnt_once_but_of_the_last_ones(lab: Lab) -> None:
    pair = lab.pair("neox")
    loaded = with_slots(lab.loaded(pair, "float64"))
    controller = graph_slots(loaded).size_controller = RandomSizes(5)
    rounds = played(loaded, lab.prompt_tokens(pair, PROMPT), 100, WIDE)
    expected = [
        (plan, ranks(outcome.tree.path_logprobs, outcome.accepted))
        for plan, outcome in zip(controller.chosen, rounds, strict=False)
        if plan
    ]
    assert any(found for _, found in expected)
    assert len(expected) - 2 <= len(controller.learnt) <= len(expected)
    assert controller.learnt == expected[: len(controller.learnt)]


def test_a_long_rest_leaves_a_draft_that_has_much_to_read(lab: Lab) -> None:
    pair = lab.pair("long")
    loaded = with_slots(lab.loaded(pair, "float64"))
    for rest in (13, 14, 61, 62, 63, LONGEST_REST + 2, *range(251, 256), 700):
        controller = graph_slots(loaded).size_controller = RandomSizes(0, plain=0)
        order: list[Plan | None] = [*[Plan(2, 8)] * 2, *[None] * rest, *[Plan(3, 8)] * 40]
        controller.choose = lambda _, order=order: order.pop(0)  # type: ignore[method-assign, misc]
        rounds = played(loaded, [5, 6, 7], rest + 20, WIDE)
        after = rounds[2 + rest]
        host = host_session(loaded, [5, 6, 7, *tokens(rounds[: 2 + rest])], 9, numbered(nodes=7, d_max=3, d0=2))
        host.prefill()
        assert after.tree.tokens == host.step(()).tree.tokens
        assert len(after.tree) == 8


def test_by_its_own_choice_a_kindred_draft_is_used(lab: Lab) -> None:
    pair = lab.pair("neox")
    loaded = with_slots(lab.loaded(pair, "float64"))
    rounds = played(loaded, lab.prompt_tokens(pair, PROMPT), 100, WIDE)
    assert tokens(rounds) == lab.generate(pair, "float64", PROMPT, 100)
    assert any(len(outcome.tree) > 1 for outcome in rounds)


def test_a_turn_in_the_middle_of_a_rest_acts_on_the_next_draft(lab: Lab) -> None:
    pair = lab.pair("neox")
    loaded, prompt = recorded(lab.loaded(pair, "float64")), lab.prompt_tokens(pair, PROMPT)
    controller = graph_slots(loaded).size_controller = RandomSizes(1)
    order: list[Plan | None] = [*[None] * 8, *[Plan(3, 16)] * 80]
    controller.choose = lambda _: order.pop(0)  # type: ignore[method-assign, assignment]
    one = (Turn("b_min", 1), Turn("b_mid", 1), Turn("b_max", 1))
    rounds = played(loaded, prompt, 40, WIDE, one)
    drafted = [outcome.tree for outcome in rounds if len(outcome.tree) > 1]
    assert all(tree.parents == [-1, 0, 1, 2] for tree in drafted)


# The choice


@dataclass
class World:
    """What rounds take, in plain rounds, and how likely the next token is guessed."""

    hit: float
    level: float = 0.1
    host: float = 0.1
    row: float = 0.0

    def rate(self, pace: GraphSizeController, count: int, seed: int = 0) -> float:
        """Tokens a second over so many, 1 being those of plain rounds; outcomes are learnt a round late."""
        luck, spent, made = random.Random(seed), 0.0, 0
        told: list[tuple[Plan, list[int]]] = []
        pace.begin()
        while made < count:
            if told:
                pace.learn(*told.pop())
            plan = pace.choose(12)
            if plan is None:
                spent, made = spent + 1, made + 1
                pace.timed(None, 0, 1, 1)
                continue
            found = self._accepted(plan, luck)
            draft_s, verify_s = plan.depth * self.level, 1 + plan.nodes * self.row
            pace.timed(plan, draft_s, verify_s, draft_s + verify_s + self.host)
            spent, made = spent + draft_s + verify_s + self.host, made + 1 + len(found)
            told.append((plan, found))
        return made / spent

    def _accepted(self, plan: Plan, luck: random.Random) -> list[int]:
        found: list[int] = []
        rank = 0
        while len(found) < plan.depth and luck.random() < self.hit:
            rank += luck.choice((1, 1, 1, 2, 4))
            if rank >= plan.nodes:
                break
            found.append(rank)
        return found


@pytest.mark.parametrize("level", [0.02, 0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("hit", [HOPELESS, 0.02])
def test_where_guesses_fail_next_to_nothing_is_lost(hit: float, level: float) -> None:
    pace, world = GraphSizeController(), World(hit, level)
    assert world.rate(pace, 256) > 0.94  # the first text pays for what is learnt of times
    assert world.rate(pace, 256) > 0.97


def test_that_a_choice_which_never_rests_loses_much_would_be_noticed() -> None:
    pace = GraphSizeController()
    pace.choose = lambda deepest: Plan(min(4, deepest), 8)  # type: ignore[method-assign]
    assert World(HOPELESS).rate(pace, 256) < 0.7


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hit", [HALF, 0.7, GOOD, 0.95])
def test_the_choice_comes_near_the_best_size(hit: float, seed: int) -> None:
    world = World(hit)

    def always(plan: Plan) -> Any:
        return lambda _: plan

    best = 0.0
    for plan in (Plan(depth, nodes) for depth in (1, 2, 4, 8, 12) for nodes in (4, 16, 64)):
        pace = GraphSizeController()
        pace.choose = always(plan)  # type: ignore[method-assign]
        best = max(best, world.rate(pace, 2000, seed))
    assert world.rate(GraphSizeController(), 2000, seed) > 0.85 * best


def test_after_a_hopeless_text_the_next_one_is_given_a_chance() -> None:
    pace = GraphSizeController()
    World(HOPELESS).rate(pace, 512)
    fresh = World(GOOD).rate(GraphSizeController(), 512)
    assert World(GOOD).rate(pace, 512) > 0.9 * fresh


def test_where_rows_cost_few_are_verified() -> None:
    pace = GraphSizeController()
    World(GOOD, row=0.05).rate(pace, 1000)
    plans = [plan for plan in (pace.choose(12) for _ in range(20)) if plan]
    assert plans
    assert max(plan.nodes for plan in plans) <= 16


def test_the_first_draft_is_small_and_asks_what_things_take() -> None:
    pace = GraphSizeController()
    assert [pace.choose(12), pace.choose(12)] == [ASK, ASK]


def test_rests_grow_longer_while_asking_is_in_vain() -> None:
    pace = GraphSizeController()
    rests, rest = [], 0
    for _ in range(700):
        plan = pace.choose(12)
        if plan:
            pace.learn(plan, [])
            pace.timed(plan, 0.1, 1, 1.2)
            rests += [rest] * bool(rest)
            rest = 0
        else:
            pace.timed(None, 0, 1, 1)
            rest += 1
    assert rests[0] >= FIRST_REST
    assert rests == sorted(rests)
    assert max(rests) <= LONGEST_REST + 1


def test_no_choice_is_deeper_than_the_rules_allow() -> None:
    pace = GraphSizeController()
    World(0.95).rate(pace, 500)
    assert max(plan.depth for plan in (pace.choose(3) for _ in range(10)) if plan) == 3


def test_what_a_smaller_size_would_have_brought_is_learnt_from_a_larger_one() -> None:
    odds = Odds()
    for _ in range(200):
        odds.learn(Plan(4, 16), [1, 5, 9])
    expected = odds.expected(4)
    sizes = dict(zip(SIZES, expected[4], strict=True))
    assert sizes[2] == pytest.approx(1, abs=0.1)
    assert sizes[8] == pytest.approx(2, abs=0.2)
    assert sizes[16] == pytest.approx(3, abs=0.2)
    assert [round(row[3]) for row in expected] == [0, 1, 2, 3, 3]


def test_more_depth_and_more_nodes_never_promise_less() -> None:
    odds, luck = Odds(), random.Random(3)
    for _ in range(60):
        found = sorted(luck.sample(range(1, 40), luck.randint(0, 5)))
        odds.learn(Plan(luck.choice((2, 5, 9)), luck.choice(SIZES)), found)
        expected = odds.expected(12)
        assert all(low <= high for row in expected for low, high in pairwise(row))
        assert all(a <= b for above, below in pairwise(expected) for a, b in zip(above, below, strict=True))


def test_times_of_sizes_that_were_not_seen_are_guessed() -> None:
    drafts, verifications = Times(proportional=True), Times(proportional=False)
    assert drafts.seconds(4) == 0
    drafts.learn(4, 1.0)
    verifications.learn(8, 1.0)
    assert (drafts.seconds(8), verifications.seconds(64)) == (2, 1)


def test_one_slow_round_does_not_upset_a_time() -> None:
    times = Times(proportional=False)
    for _ in range(20):
        times.learn(4, 1.0)
    times.learn(4, 100.0)
    assert times.seconds(4) < 1.05


def test_a_plain_round_costs_what_the_device_took_though_nobody_waited_for_it() -> None:
    pace = GraphSizeController()
    pace.timed(None, 0, 1.0, 0.001)
    assert pace.plain_s.seconds(1) == 1


def test_ranks_are_those_of_falling_path_probability() -> None:
    assert ranks([0.0, -1.0, -0.5, -0.5, -3.0], [2, 4]) == [1, 4]
    assert ranks([0.0, -1.0, -0.5, -0.5, -3.0], [3]) == [2]


def test_rounds_that_decide_for_themselves_match_those_of_rules_with_as_many_nodes(lab: Lab) -> None:
    """The same slot serves both, one after the other."""
    pair = lab.pair("llama")
    loaded, prompt = with_slots(lab.loaded(pair, "float64")), lab.prompt_tokens(pair, PROMPT)
    graph_slots(loaded).size_controller = RandomSizes(4)
    played(loaded, prompt, 30, WIDE)
    match(loaded, prompt, 30, DynaTree())
    played(loaded, prompt, 30, WIDE)
    assert len(graph_slots(loaded)._free) == 1
