"""Device rounds of `auto`: the text stays that of greedy decoding for any sizes, and a bad draft costs little."""

from collections.abc import Sequence
from dataclasses import fields

import pytest

from decoder.draft.tree_size.plan import Plan, ranks
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.methods.dynatree import DynaTree
from decoder.session.protocol import Outcome
from decoder.session.steering import Turn
from tests.decoder.makers import TinyModels, graph_slots, host_session
from tests.decoder.session.cuda_graph.matching import FAR, graph_session, match, recorded, with_slots
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes

PROMPT = "The tree grows"


def played(
    engine: Engine,
    prompt: Sequence[int],
    limit: int,
    sizes: PlanController | None = None,
    turns: Sequence[Turn] = (),
) -> list[Outcome]:
    session = graph_session(engine, prompt, limit, WIDE, sizes)
    session.prefill()
    found: list[Outcome] = []
    while not found or not found[-1].finished:
        found.append(session.step(tuple(turns) if len(found) > 3 else ()))
    assert session.waits == len(found) or turns
    return found


def numbered(nodes: int, d0: int, d_max: int) -> DynaTree:
    """Rules with the bounds of `WIDE` that keep the `nodes` most probable nodes."""
    given = {each.name: getattr(WIDE, each.name) for each in fields(WIDE) if each.name != "lookup"}
    return DynaTree(**given | {"d0": d0, "d_max": d_max}, n_max=nodes, selection="best")


def tokens(rounds: Sequence[Outcome]) -> list[int]:
    return [token for outcome in rounds for token in outcome.committed]


@pytest.mark.parametrize(("name", "by_module", "seed"), [("neox", False, 0), ("llama-strange", True, 1)])
def test_the_text_is_that_of_plain_greedy_search_whatever_sizes_are_chosen(
    tiny_models: TinyModels,
    name: str,
    by_module: bool,  # noqa: FBT001 - a test parameter
    seed: int,
) -> None:
    pair = tiny_models.pair(name)
    loaded = recorded(tiny_models.loaded(pair, "float64"), by_module=by_module)
    rounds = played(loaded, tiny_models.prompt_tokens(pair, PROMPT), 48, RandomSizes(seed))
    assert tokens(rounds) == tiny_models.generate(pair, "float64", PROMPT, 48)
    assert {len(outcome.tree) > 1 for outcome in rounds} == {False, True}


@pytest.mark.parametrize("seed", range(2))
def test_a_tree_is_that_of_the_host_whatever_the_draft_had_missed(tiny_models: TinyModels, seed: int) -> None:
    pair = tiny_models.pair("neox")
    loaded = recorded(tiny_models.loaded(pair, "float64"))
    controller = RandomSizes(seed, plain=0.7, depths=(2, 3, 4))
    text = tiny_models.prompt_tokens(pair, PROMPT)
    rounds = played(loaded, text, 100, controller)
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


def test_what_became_of_each_tree_is_learnt_once_but_of_the_last_ones(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    loaded = with_slots(tiny_models.loaded(pair, "float64"))
    controller = RandomSizes(5)
    rounds = played(loaded, tiny_models.prompt_tokens(pair, PROMPT), 100, controller)
    expected = [
        (plan, ranks(outcome.tree.path_logprobs, outcome.accepted))
        for plan, outcome in zip(controller.chosen, rounds, strict=False)
        if plan
    ]
    assert any(found for _, found in expected)
    assert len(expected) - 2 <= len(controller.learnt) <= len(expected)
    assert controller.learnt == expected[: len(controller.learnt)]


def test_a_long_rest_leaves_a_draft_that_has_much_to_read(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("long")
    loaded = with_slots(tiny_models.loaded(pair, "float64"))
    for rest in (13, 14, 61, 62, 63, *range(251, 256), 300):
        controller = RandomSizes(0, plain=0)
        order: list[Plan | None] = [*[Plan(2, 8)] * 2, *[None] * rest, *[Plan(3, 8)] * 40]
        controller.choose = lambda _, order=order: order.pop(0)  # type: ignore[method-assign, misc]
        rounds = played(loaded, [5, 6, 7], rest + 20, controller)
        after = rounds[2 + rest]
        host = host_session(loaded, [5, 6, 7, *tokens(rounds[: 2 + rest])], 9, numbered(nodes=7, d_max=3, d0=2))
        host.prefill()
        assert after.tree.tokens == host.step(()).tree.tokens
        assert len(after.tree) == 8


def test_by_its_own_choice_a_kindred_draft_is_used(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    loaded = with_slots(tiny_models.loaded(pair, "float64"))
    rounds = played(loaded, tiny_models.prompt_tokens(pair, PROMPT), 100)
    assert tokens(rounds) == tiny_models.generate(pair, "float64", PROMPT, 100)
    assert any(len(outcome.tree) > 1 for outcome in rounds)


def test_a_turn_in_the_middle_of_a_rest_acts_on_the_next_draft(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    loaded, prompt = recorded(tiny_models.loaded(pair, "float64")), tiny_models.prompt_tokens(pair, PROMPT)
    controller = RandomSizes(1)
    order: list[Plan | None] = [*[None] * 8, *[Plan(3, 16)] * 80]
    controller.choose = lambda _: order.pop(0)  # type: ignore[method-assign, assignment]
    one = (Turn("b_min", 1), Turn("b_mid", 1), Turn("b_max", 1))
    rounds = played(loaded, prompt, 40, controller, one)
    drafted = [outcome.tree for outcome in rounds if len(outcome.tree) > 1]
    assert all(tree.parents == [-1, 0, 1, 2] for tree in drafted)


def test_rounds_that_decide_for_themselves_match_those_of_rules_with_as_many_nodes(tiny_models: TinyModels) -> None:
    """The texts use the same slot one after the other."""
    pair = tiny_models.pair("llama")
    loaded, prompt = with_slots(tiny_models.loaded(pair, "float64")), tiny_models.prompt_tokens(pair, PROMPT)
    played(loaded, prompt, 30, RandomSizes(4))
    match(loaded, prompt, 30, DynaTree())
    played(loaded, prompt, 30, RandomSizes(5))
    assert len(graph_slots(loaded)._free) == 1
