"""The state of a server after its events, and the remarks on it."""

import pytest
from msgspec import structs

from dynatui.servers.attach.events import Event, Figures, Gap, Reading
from dynatui.state.server_state import HISTORY_LENGTH, applied, fold, remark
from tests.dynatui.servers.attach.scripted_session import ANSWER, ASKED, FIRST, GAP, OPENING, SERVER, reading, session

BEGUN: list[Event] = [OPENING, SERVER, FIRST]
OTHER = structs.replace(SERVER, t=61.0, kind="llamacpp")
RESTARTED = reading(61.0, restarted=True)
COUNTED = Figures(seconds=1.0, drafts=0, generated=0)


def read(interval: Figures, whole: Figures | None = None) -> list[Event]:
    return [*BEGUN, Reading(t=1.0, interval=interval, session=whole or interval)]


def test_readings_gaps_and_restarts_are_counted() -> None:
    state = fold([*session(60), GAP, Gap(t=62.0, reason="x"), reading(63.0, restarted=True), Gap(t=64.0, reason="y")])
    assert (state.readings, state.missed, state.gaps, state.restarts) == (62, 3, 2, 1)
    assert (state.t, state.missing_since) == (64.0, 64.0)


def test_a_gap_lasts_from_its_first_poll_to_the_next_page() -> None:
    state = fold([*session(60), GAP, Gap(t=70.0, reason="x")])
    assert (state.missing_since, state.t) == (61.0, 70.0)
    assert state.gap == Gap(t=70.0, reason="x")
    assert applied(state, reading(71.0)).gap is None


def test_it_keeps_so_many_polls_and_no_more_and_a_new_session_begins_with_nothing() -> None:
    state = fold(session(HISTORY_LENGTH * 3))
    assert len(state.past) == HISTORY_LENGTH
    assert state.readings == HISTORY_LENGTH * 3 + 1
    assert fold([*session(5), OPENING]) == fold([OPENING])


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ([OPENING, GAP], "cannot reach host:8000: Connection refused; trying again"),
        (BEGUN, ""),
        (session(60), ""),
        ([*session(60), RESTARTED], "the server has restarted"),
        ([*session(60), RESTARTED, reading(72.0)], ""),
        (
            read(Figures(seconds=1.0, generated=5, tokens_per_second=5.0)),
            "vLLM reports nothing on speculative decoding (vllm:spec_decode_num_drafts is not among its metrics)",
        ),
        ([*session(60), OTHER, reading(61.0)], "a different server now answers at this address"),
        ([*session(60), OTHER, reading(61.0), reading(72.0)], ""),
        ([*session(60), structs.replace(SERVER, t=61.0, models=["small"]), reading(61.0)], ""),
        (
            read(Figures(seconds=1.0, drafts=0, drafted=0, accepted=0, generated=0)),
            "no token has been drafted since monitoring began",
        ),
        (read(Figures(seconds=1.0, tokens_per_round=2.7), COUNTED), ""),
    ],
    ids=[
        *("unreachable", "first page", "an hour", "restarted", "restarted long ago", "no speculative decoding"),
        *("another kind", "another kind long ago", "other models", "nothing drafted", "a gauge tells of drafts"),
    ],
)
def test_what_is_odd_is_said(told: list[Event], said: str) -> None:
    found = remark(fold(told))
    assert said in found if said else not found


def test_a_request_is_waited_for_until_its_answer() -> None:
    waiting = fold([*session(3), ASKED])
    answered = fold([ANSWER], waiting)
    assert (waiting.request, waiting.answer, answered.answer) == (ASKED, None, ANSWER)
    assert fold([ASKED], answered).answer is None
