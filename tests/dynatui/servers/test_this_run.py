"""Acceptance by position from the rounds of a run, as a server would count it."""

import numpy as np
import pytest
from msgspec import structs

from benchmarks.screen import TRACE
from decoder.analysis.metrics import by_depth
from decoder.analysis.round_costs import RoundCosts
from decoder.events import LENGTH, Round, Run
from dynatui.record.reader import read_events
from dynatui.servers.advice import advised
from dynatui.servers.costs import source
from dynatui.servers.engines import ENGINES
from dynatui.servers.this_run import Chains, chains_of, profile_of
from tests.dynatui.scripted_runs import tree_round

EVENTS = list(read_events(TRACE))
RUN = next(event for event in EVENTS if isinstance(event, Run))
ROUNDS = [event for event in EVENTS if isinstance(event, Round) and event.method == "linear"]
WHOLE = [event for event in ROUNDS if event.limited_by != LENGTH]


def shaped(parents: list[int], accepted: list[int]) -> Round:
    nodes = len(parents)
    return structs.replace(
        tree_round(0),
        parents=parents,
        accepted=accepted,
        tokens=list(range(nodes)),
        logprobs=[0.0] * nodes,
        pieces=["x"] * nodes,
        limited_by=None,
    )


def test_acceptance_by_position_is_accepted_tokens_over_drafts_as_servers_count_them() -> None:
    (draft,) = profile_of(RUN, chains_of(ROUNDS), None, None, "model").drafts.values()
    levels = [by_depth(event) for event in WHOLE]
    by_hand = [sum(level[place][1] for level in levels) / len(levels) for place in range(draft.longest)]
    assert draft.longest == 5
    assert draft.survival == pytest.approx(by_hand)
    assert draft.at(2).survival == draft.survival[:2]
    assert draft.mean_length == pytest.approx(1 + sum(by_hand))
    assert all(low <= share <= high for share, (low, high) in zip(draft.survival, draft.intervals, strict=True))


def test_of_a_tree_the_first_children_are_the_chain() -> None:
    tree = [-1, 0, 0, 1, 2, 3]
    assert chains_of([shaped(tree, [1, 3])]) == Chains((3,), (2,))
    assert chains_of([shaped(tree, [2, 4])]) == Chains((3,), (0,)), "a sibling was right"


def test_rounds_without_a_draft_or_cut_by_the_end_of_the_text_do_not_count() -> None:
    cut = structs.replace(shaped([-1, 0], [1]), limited_by=LENGTH)
    assert chains_of([shaped([-1], []), cut]) == Chains()


def test_positions_that_too_many_drafts_do_not_reach_are_not_judged() -> None:
    assert Chains((4,) * 95 + (2,) * 5, (4,) * 95 + (2,) * 5).longest == 4
    assert Chains((4,) * 94 + (2,) * 6, (4,) * 94 + (2,) * 6).longest == 2
    assert Chains((4,) * 50 + (2,) * 50, (4,) * 50 + (1,) * 50).longest == 4, "these were rejected before"


def test_an_interval_of_equal_rounds_has_a_width() -> None:
    (draft,) = profile_of(RUN, Chains((2,) * 60, (2,) * 60), None, None, "model").drafts.values()
    assert np.allclose(draft.intervals, [(0.95, 1.0)] * 2)


def test_measured_passes_give_the_speed_up_of_one_request() -> None:
    profile = profile_of(RUN, chains_of(ROUNDS), RoundCosts(0.002, 0.0001, 0.00005, np.zeros((3, 1))), 0.001, "model")
    advice = advised(profile, source(profile), ENGINES["vllm"], (1, 4))
    draft = profile.drafts[RUN.draft]
    (chain,) = (each for each in advice.drafts[0].chains if each.k == draft.longest)
    assert chain.speedups[0] == pytest.approx(draft.mean_length * 0.001 / (5 * 0.0001 + 0.001 + 5 * 0.00005))
