"""Tests of the state of a server after its events, and of the remarks on it."""

import pytest
from msgspec import structs

from dynatui.attach.events import Figures, Gap, Reading
from dynatui.state.server_state import HISTORY_LENGTH, applied, fold, remark
from tests.dynatui.attach.scripted_session import ANSWER, ASKED, FIRST, GAP, OPENING, SERVER, reading, session


def test_readings_gaps_and_restarts_are_counted() -> None:
    state = fold([*session(60), GAP, Gap(t=62.0, reason="x"), reading(63.0, restarted=True), Gap(t=64.0, reason="y")])
    assert (state.readings, state.missed, state.gaps, state.restarts) == (62, 3, 2, 1)
    assert (state.t, state.missing_since) == (64.0, 64.0)


def test_a_gap_lasts_from_its_first_poll_to_the_next_page() -> None:
    state = fold([*session(60), GAP, Gap(t=70.0, reason="x")])
    assert (state.missing_since, state.t) == (61.0, 70.0)
    assert state.gap == Gap(t=70.0, reason="x")
    assert applied(state, reading(71.0)).gap is None


def test_it_keeps_so_many_polls_and_no_more() -> None:
    state = fold(session(HISTORY_LENGTH * 3))
    assert len(state.past) == HISTORY_LENGTH
    assert state.readings == HISTORY_LENGTH * 3 + 1


def test_a_new_session_begins_with_nothing() -> None:
    assert fold([*session(5), OPENING]) == fold([OPENING])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([OPENING, GAP], "cannot reach host:8000: Connection refused; trying again"),
        ([OPENING, SERVER, FIRST], ""),
        (session(60), ""),
        ([*session(60), reading(61.0, restarted=True)], "the server has restarted"),
        ([*session(60), reading(61.0, restarted=True), reading(72.0)], ""),
    ],
)
def test_what_is_odd_is_said(told: list[object], said: str) -> None:
    found = remark(fold(told))  # type: ignore[arg-type]
    assert said in found if said else not found


def test_a_server_without_speculative_decoding_is_told_by_the_metric_that_is_missing() -> None:
    plain = Figures(seconds=1.0, generated=5, tokens_per_second=5.0)
    state = fold([OPENING, SERVER, FIRST, Reading(t=1.0, interval=plain, session=plain)])
    assert (
        "vLLM reports nothing on speculative decoding (vllm:spec_decode_num_drafts is not among its metrics)"
        in remark(state)
    )


def test_another_kind_of_server_is_told_for_a_while_and_other_models_are_not() -> None:
    other = structs.replace(SERVER, t=61.0, kind="llamacpp")
    state = fold([*session(60), other, reading(61.0)])
    assert "another server answers at this address now" in remark(state)
    assert remark(applied(state, reading(72.0))) == ""
    assert remark(fold([*session(60), structs.replace(SERVER, t=61.0, models=["small"]), reading(61.0)])) == ""


def test_a_request_is_waited_for_until_its_answer() -> None:
    waiting = fold([*session(3), ASKED])
    assert (waiting.request, waiting.answer) == (ASKED, None)
    answered = fold([ANSWER], waiting)
    assert answered.answer == ANSWER
    assert fold([ASKED], answered).answer is None


def test_a_server_that_has_drafted_nothing_is_told_so() -> None:
    idle = Figures(seconds=1.0, drafts=0, drafted=0, accepted=0, generated=0)
    state = fold([OPENING, SERVER, FIRST, Reading(t=1.0, interval=idle, session=idle)])
    assert remark(state) == "nothing has been drafted since the watch began"


def test_a_server_whose_gauge_tells_of_drafts_is_not_said_to_have_none() -> None:
    counted = Figures(seconds=1.0, drafts=0, generated=0)
    state = fold(
        [OPENING, SERVER, FIRST, Reading(t=1.0, interval=Figures(seconds=1.0, tokens_per_round=2.7), session=counted)]
    )
    assert remark(state) == ""
