"""What a pair's pace keeps from one text to the next, and what it forgets."""

import pytest

from decoder.session.cuda_graph.pass_sizes import SIZES
from decoder.session.cuda_graph.size_controller import ASK, ASKING, FADED, FIRST_HIT, GraphSizeController, Plan, Times

DEEPEST = 8
DEEP = Plan(4, SIZES[-1])
CHEAP_S, DEAR_S = 0.2, 9.0
"""Of a level of the draft, in plain rounds; with the second no guess could ever pay."""


def after(rounds: int, *, accepted: int, level_s: float = CHEAP_S) -> GraphSizeController:
    """A pace that has seen so many rounds in each of which the draft's first tokens were accepted, so many of them."""
    pace = GraphSizeController()
    pace.timed(None, 0.0, 1.0, 1.0)
    for _ in range(rounds):
        pace.learn(DEEP, range(1, accepted + 1))
        pace.timed(DEEP, DEEP.depth * level_s, 1.0, 1.0 + DEEP.depth * level_s)
    return pace


@pytest.mark.parametrize("accepted", [0, 2, 4])
def test_on_another_text_what_was_seen_weighs_less(accepted: int) -> None:
    begun, faded = after(100, accepted=accepted), after(100, accepted=accepted)
    begun.begin()
    faded.odds.fade(FADED)
    assert begun.odds.expected(DEEPEST) == faded.odds.expected(DEEPEST)


def test_on_another_text_what_was_seen_is_not_forgotten() -> None:
    pace = after(100, accepted=0)
    bad = pace.odds.expected(1)[1][-1]
    pace.begin()
    assert bad < pace.odds.expected(1)[1][-1] < FIRST_HIT / 2


def test_a_text_begins_with_rounds_that_ask_even_in_the_middle_of_a_rest() -> None:
    pace = after(100, accepted=0)
    assert [pace.choose(DEEPEST) for _ in range(ASKING + 2)][ASKING:] == [None, None]
    pace.begin()
    assert [pace.choose(DEEPEST) for _ in range(ASKING + 1)] == [*[ASK] * ASKING, None]


def test_where_no_draft_could_pay_a_text_begins_with_one_round_that_asks() -> None:
    pace = after(100, accepted=0, level_s=DEAR_S)
    pace.begin()
    assert [pace.choose(DEEPEST) for _ in range(3)] == [ASK, None, None]


def rests(pace: GraphSizeController, count: int) -> list[int]:
    """Plain rounds between those that ask, whose guesses all fail."""
    found = [0]
    while len(found) <= count:
        pace.learn(DEEP, [])
        if pace.choose(DEEPEST) is None:
            found[-1] += 1
        elif found[-1]:
            found.append(0)
    return found[:-1]


def test_rests_are_as_short_on_another_text_as_at_first() -> None:
    pace = after(100, accepted=0)
    first = rests(pace, 3)
    assert first[0] < first[1]
    pace.begin()
    assert rests(pace, 3) == first


def test_a_size_that_was_found_best_is_not_held_beyond_its_text() -> None:
    pace = after(100, accepted=4)
    best = pace.choose(DEEPEST)
    assert best not in (None, ASK)
    assert pace.choose(DEEPEST) == best
    pace.draft_s = Times(proportional=True)
    pace.draft_s.learn(1, DEAR_S)
    pace.begin()
    assert pace.choose(DEEPEST) == ASK


def test_sizes_are_known_by_a_text_before() -> None:
    """Else each text would find out anew what a good draft is worth."""
    pace = after(100, accepted=4)
    pace.begin()
    plan = pace.choose(DEEPEST)
    assert plan is not None
    assert plan.depth >= DEEP.depth
    assert plan.nodes in SIZES
