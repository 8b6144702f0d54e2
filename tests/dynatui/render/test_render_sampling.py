"""Tests of the sampling panel: verdict on losslessness in words, expected tokens of trees, and figures by depth."""

import pytest
from msgspec import structs

from decoder.analysis.losslessness import Evidence
from decoder.events import Event, Knob
from dynatui.render.guide import GUIDE
from dynatui.render.sampling import INKS, light_words, sampling
from dynatui.render.scene import Scene
from dynatui.render.status import status, tabs
from dynatui.state.run_state import RunState
from tests.dynatui.render.golden import golden
from tests.dynatui.scripted_runs import (
    delayed_run,
    drawn_round,
    lines,
    plain_round,
    run,
    sampled_round,
    sampled_run,
    state_of,
    tree_round,
    turned_temperature,
)


def drawn(rounds: int, *more: Event, surprise: float = 0.0) -> RunState:
    told = [drawn_round(number, generator=surprise) for number in range(rounds)]
    return state_of([delayed_run(), *told, *more])


def page(state: RunState, width: int = 120, height: int = 30) -> str:
    rows = lines(sampling(Scene(state), width, height))
    return " ".join(" ".join(rows).replace("│", " ").split())


@pytest.mark.parametrize(
    ("surprise", "light", "words", "verdict"),
    [
        (0.0, "green", "no sign of a bias; a light, not a proof", " lossless ✓"),
        (0.8, "yellow", "a larger deviation than chance usually gives: see if it stays", " lossless ?"),
        (-3.0, "red", "deviation too large for chance: probably a bug in sampling", "not lossless ✗"),
    ],
)
def test_the_light_says_its_colour_in_words_and_what_it_means(
    surprise: float, light: str, words: str, verdict: str
) -> None:
    state = drawn(40, surprise=surprise)
    assert f"● losslessness light: {light} {words}" in page(state)
    assert verdict in lines(status(Scene(state), 80, 1))[0]


def test_each_colour_has_an_ink_of_its_own() -> None:
    assert len(set(INKS.values())) == len(INKS)
    shown = light_words(drawn(40, surprise=-3.0))[0]
    assert shown[0][1] == "bad"


def test_before_there_is_enough_it_says_how_much_there_is() -> None:
    assert "light: grey too few tokens to judge: 12 of 50" in page(drawn(4))


def test_certain_tokens_are_too_little_too() -> None:
    state = drawn(40)
    surprise = structs.replace(state.lane.evidence.surprise, variance=0.1)
    sure = Evidence(surprise=surprise, top1=surprise)
    lane = structs.replace(state.lane, evidence=sure)
    state = structs.replace(state, lanes={**state.lanes, "delayed": lane})
    assert "light: grey too little to judge: nearly every token was certain" in page(state)


def test_it_is_called_a_light_and_says_what_it_does_not_see() -> None:
    told = page(drawn(20))
    assert "A light, not a proof." in told
    assert "The light does not see biases of a few percent, repeating noise" in told
    assert "a target with wrong probabilities" in told


def test_in_little_room_it_says_the_least_of_that() -> None:
    assert "no sign of a bias; a light, not a proof" in page(drawn(40), 74, 9)
    event = drawn_round(0, generator=0.0)
    assert event.verification is not None
    coupled = structs.replace(event.verification, predicted_tokens=None, reach=[], path=[])
    rounds = [structs.replace(sampled_round(number), verification=coupled) for number in range(20)]
    assert "A light, not a proof: it does not see biases" in page(state_of([sampled_run(), *rounds]), 74, 9)


def test_the_sums_are_told_with_their_z() -> None:
    told = page(drawn(40, surprise=0.3))
    assert "surprise z +1.2 0.10 nats a token more than expected" in told
    assert "top-1 hits z -1.6 6.67 in 100 tokens less than" in told
    small = lines(sampling(Scene(drawn(40, surprise=0.3)), 80, 9))
    assert "surprise z +1.2  top-1 hits z -1.6  over 120 tokens" in small[2]


def test_expected_and_realised_tokens_stand_side_by_side_with_their_z() -> None:
    assert "tokens a round z +1.5 3.00 came, 2.70 expected, over 3 rounds" in page(drawn(3))


def test_each_depth_has_distance_acceptance_and_bound() -> None:
    rows = lines(sampling(Scene(drawn(20)), 80, 9))
    place = next(number for number, row in enumerate(rows) if "depth" in row)
    assert rows[place].split()[1:-1] == ["depth", "visits", "L1", "kept", "expected", "at", "best"]
    assert rows[place + 2].split()[1:7] == ["2", "20", "0.70", "100%", "75%", "79%"]
    assert rows[place + 3].split()[1:7] == ["3", "20", "1.10", "0%", "50%", "56%"]
    assert rows[place + 3].count("▒") > 5, "what a better verifier would add"
    assert "at best: how often any lossless verifier could" in page(drawn(20))


def test_a_verifier_that_judges_whole_paths_has_a_dash() -> None:
    event = drawn_round(0)
    assert event.verification is not None
    path = [structs.replace(draws, acceptance=None) for draws in event.verification.path]
    event = structs.replace(event, verification=structs.replace(event.verification, path=path))
    rows = lines(sampling(Scene(state_of([delayed_run(), event])), 80, 9))
    assert " ".join(next(row for row in rows if " 2 " in row and "79%" in row).split()[1:7]) == "2 1 0.70 100% - 79%"


def test_the_depths_are_those_since_the_last_turn_and_the_light_is_of_the_whole_run() -> None:
    turn = Knob(method="delayed", round=20, name="verifier", old=7, new=5, source="user")
    state = drawn(20, turn, drawn_round(20), drawn_round(21))
    told = page(state)
    assert "since round 21 1 2 0.40" in told
    assert state.lane.evidence.surprise.count == 66


def test_where_there_is_no_room_for_all_depths_it_says_how_many_are_left_out() -> None:
    rows = lines(sampling(Scene(drawn(20)), 80, 8))
    assert any("+ 2 deeper" in row for row in rows)


def test_a_coupled_method_has_the_light_too_and_no_depths() -> None:
    told = drawn_round(0).verification
    assert told is not None
    coupled = structs.replace(told, predicted_tokens=None, reach=[], path=[], surprise=0.1)
    rounds = [structs.replace(sampled_round(number), verification=coupled) for number in range(30)]
    state = state_of([sampled_run(), *rounds])
    assert "losslessness light: green" in page(state)
    assert "tokens a round" not in page(state)
    assert "visits" not in page(state)


def test_what_cannot_be_judged_says_why() -> None:
    assert "once there is text" in page(RunState())
    assert "greedy: each token is the most probable one, and nothing is sampled; ) raises T" in page(
        state_of([run(), tree_round(0)])
    )
    assert "the probabilities of the sampled tokens are not recorded" in page(
        state_of([sampled_run(), sampled_round(0)])
    )
    assert light_words(state_of([sampled_run(), sampled_round(0)])) == ()


def test_a_text_that_was_sampled_and_is_greedy_now_keeps_its_light() -> None:
    state = drawn(20, turned_temperature("delayed", 20, 0.6, 0.0))
    assert "losslessness light: green" in page(state)


def test_the_guide_explains_the_light_and_drawn_trees() -> None:
    meanings = dict(GUIDE)
    assert "not a proof" in meanings["Light"]
    assert "K" in meanings["Drawn trees"]


test_golden = golden(
    {
        "a recording cannot turn it": lambda: sampling(
            Scene(state_of([run(), tree_round(0), plain_round("ar", 0)]), replaying=True), 120, 9
        ),
        "all tabs fit in 80 columns with their names": lambda: tabs(Scene(drawn(1)), 80, 1),
    }
)
