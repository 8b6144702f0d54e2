"""Device rounds of `auto`: the text stays that of greedy decoding for any sizes, and a bad draft costs little."""

from collections.abc import Sequence
from dataclasses import fields

import pytest

from decoder.draft.tree_size.plan import TreePlan, ranks
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.methods.dynatree import DynaTree
from decoder.session.protocol import Outcome
from decoder.session.steering import Turn
from tests.decoder.makers import graph_slots, host_session
from tests.decoder.session.cuda_graph.matching import FAR, Devices, begun, match, rounds_of, text_of
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes


def played(
    devices: Devices, engine: Engine, limit: int, sizes: PlanController | None = None, turns: Sequence[Turn] = ()
) -> list[Outcome]:
    session, found = devices.begun(engine, WIDE, limit, sizes), list[Outcome]()
    while not found or not found[-1].finished:
        found.append(session.step(tuple(turns) if len(found) > 3 else ()))
    assert session.waits == len(found) or turns
    return found


def numbered(nodes: int, d0: int, d_max: int) -> DynaTree:
    """Rules with the bounds of `WIDE` that keep the `nodes` most probable nodes."""
    given = {each.name: getattr(WIDE, each.name) for each in fields(WIDE) if each.name != "lookup"}
    return DynaTree(**given | {"d0": d0, "d_max": d_max}, n_max=nodes, selection="best")


@pytest.mark.parametrize(("name", "by_module", "seed"), [("neox", False, 0), ("llama-strange", True, 1)])
def test_the_text_is_that_of_plain_greedy_search_whatever_sizes_are_chosen(
    devices: Devices, name: str, *, by_module: bool, seed: int
) -> None:
    session = begun(devices.recorded(name, by_module=by_module), devices.prompt(name), 48, WIDE, RandomSizes(seed))
    rounds = rounds_of(session)
    assert text_of(rounds) == devices.generated(48, name)
    assert {len(outcome.tree) > 1 for outcome in rounds} == {False, True}


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_is_that_of_the_host_whatever_the_draft_had_missed(devices: Devices, seed: int) -> None:
    controller, loaded, text = RandomSizes(seed, plain=0.7, depths=(2, 3, 4)), devices.recorded(), devices.prompt()
    rounds = played(devices, loaded, 100, controller)
    for number, (outcome, plan) in enumerate(zip(rounds, controller.chosen, strict=False)):
        assert (len(outcome.tree) > 1) == (plan is not None)
        if plan:
            rested = number > 1 and controller.chosen[number - 1] is None
            assert outcome.draft_forwards == plan.depth + rested
            rules = numbered(nodes=plan.nodes - 1, d_max=plan.depth, d0=plan.depth - 1)
            host = host_session(loaded, text, 9, rules)
            host.prefill()
            expected = host.step(()).tree
            assert (outcome.tree.tokens, outcome.tree.parents) == (expected.tokens, expected.parents)
            assert outcome.tree.logprobs == pytest.approx(expected.logprobs, abs=FAR)
        text = [*text, *outcome.committed]


def test_what_became_of_each_tree_is_learnt_once_but_of_the_last_ones(devices: Devices) -> None:
    controller = RandomSizes(5)
    rounds = played(devices, devices.plain(), 100, controller)
    expected = [
        (plan, ranks(outcome.tree.path_logprobs, outcome.accepted))
        for plan, outcome in zip(controller.chosen, rounds, strict=False)
        if plan
    ]
    assert any(found for _, found in expected)
    assert len(expected) - 2 <= len(controller.learnt) <= len(expected)
    assert controller.learnt == expected[: len(controller.learnt)]


def test_a_long_rest_leaves_a_draft_that_has_much_to_read(devices: Devices) -> None:
    loaded = devices.plain("long")
    for rest in (13, 14, 61, 62, 63, *range(251, 256), 300):
        controller = RandomSizes.scripted([*[TreePlan(2, 8)] * 2, *[None] * rest, *[TreePlan(3, 8)] * 40])
        rounds = rounds_of(begun(loaded, [5, 6, 7], rest + 20, WIDE, controller))
        after = rounds[2 + rest]
        host = host_session(loaded, [5, 6, 7, *text_of(rounds[: 2 + rest])], 9, numbered(nodes=7, d_max=3, d0=2))
        host.prefill()
        assert after.tree.tokens == host.step(()).tree.tokens
        assert len(after.tree) == 8


def test_by_its_own_choice_a_kindred_draft_is_used(devices: Devices) -> None:
    rounds = played(devices, devices.plain(), 100)
    assert text_of(rounds) == devices.generated(100)
    assert any(len(outcome.tree) > 1 for outcome in rounds)


def test_a_turn_in_the_middle_of_a_rest_acts_on_the_next_draft(devices: Devices) -> None:
    one = (Turn("b_min", 1), Turn("b_mid", 1), Turn("b_max", 1))
    rounds = played(devices, devices.recorded(), 40, RandomSizes.scripted([*[None] * 8, *[TreePlan(3, 16)] * 80]), one)
    drafted = [outcome.tree for outcome in rounds if len(outcome.tree) > 1]
    assert all(tree.parents == [-1, 0, 1, 2] for tree in drafted)


def test_rounds_that_decide_for_themselves_match_those_of_rules_with_as_many_nodes(devices: Devices) -> None:
    """The texts use the same slot one after the other."""
    loaded = devices.plain("llama")
    for seed in (4, 5):
        played(devices, loaded, 30, RandomSizes(seed))
        match(loaded, devices.prompt("llama"), 30, DynaTree())
    assert len(graph_slots(loaded)._free) == 1
