"""Tests of the panels of a server: at every size, with gaps, unknown figures and hostile names."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from rich.cells import cell_len

from dynatui.attach.events import Drafting, Event, Figures, Gap, Reading, Wasted
from dynatui.render import server as panels
from dynatui.render.ink import Rows
from dynatui.render.server import ServerView, answer, series, summary, time_text, wasted
from dynatui.state.server_state import ServerState, fold
from tests.dynatui.attach.scripted_session import (
    ANSWER,
    ASKED,
    DRAFTING,
    FIRST,
    GAP,
    OPENING,
    SERVER,
    WASTED,
    figures,
    reading,
    session,
    wasting,
)
from tests.dynatui.hostile_text import ACTS, hostile
from tests.dynatui.scripted_runs import lines

LOOK = ServerView()
HUGE = Figures(
    seconds=1e15,
    drafts=2**53,
    drafted=2**53,
    accepted=2**53,
    generated=2**53,
    tokens_per_round=1e15,
    acceptance_rate=1.0,
    acceptance_by_position=[None, *[1.0] * 255],
    drafted_per_second=1e15,
    accepted_per_second=1e15,
    tokens_per_second=1e15,
)
MOST_WASTED = Wasted(since=0.0, drafts=2**53, drafted=2**53, accepted=2**53, tokens_per_round=1e15, acceptance_rate=1.0)
LARGEST_DRAFTS = Drafting(steps=2**53, draft_tokens=2**53, cap_length=1e15, block_accept_length=1e15)
HOSTILE = structs.replace(SERVER, url=hostile("URL")[:1000], models=[hostile("MODEL")[:1000]] * 32, kind="x\x1b[2J")
STORIES: dict[str, list[Event]] = {
    "nothing": [],
    "opened": [OPENING],
    "unreachable": [OPENING, GAP],
    "first page": [OPENING, SERVER, FIRST],
    "an hour": session(3600),
    "a gap now": [*session(60), GAP, Gap(t=75.0, reason="x" * 5000)],
    "a gap before": [*session(60), GAP, reading(80.0)],
    "restarted": [*session(60), reading(61.0, restarted=True)],
    "huge": [OPENING, SERVER, FIRST, Reading(t=1e9, interval=HUGE, session=HUGE)],
    "asked": [OPENING, structs.replace(ASKED, prompt=hostile("PROMPT") * 99)],
    "answered": [OPENING, SERVER, FIRST, ANSWER],
    "answered at length": [
        OPENING,
        structs.replace(ANSWER, drafted_by_round=(9,) * 5000, accepted_by_round=(4,) * 5000, text="x" * 5000),
    ],
    "not answered": [OPENING, structs.replace(ANSWER, error=hostile("ERROR"))],
    "wasted": wasting(),
    "wasted for long": [
        OPENING,
        SERVER,
        Reading(t=1e9, interval=HUGE, session=HUGE, wasted=MOST_WASTED, drafting=LARGEST_DRAFTS),
    ],
    "hostile": [OPENING, HOSTILE, Gap(t=1.0, reason=hostile("REASON"))],
}


def drafting(drafts: Drafting, size: tuple[int, int]) -> Rows:
    return panels.positions(fold([OPENING, SERVER, structs.replace(FIRST, drafting=drafts)]), size)


def drawn(state: ServerState, look: ServerView, width: int, height: int) -> dict[str, Rows]:
    return {
        "status": [panels.status(state, look, width)],
        "note": panels.note(state, look, (width, height)),
        "cards": panels.cards(state, width, height),
        "lengths": panels.lengths(state, look, (width, height)),
        "speeds": panels.speeds(state, look, (width, height)),
        "positions": panels.positions(state, (width, height)),
        "totals": panels.totals(state, (width, height)),
        "answer": answer(state, (width, height)),
        "drafting": drafting(LARGEST_DRAFTS, (width, height)),
    }


@pytest.mark.parametrize("name", STORIES)
def test_every_panel_fits_every_size(name: str) -> None:
    for size in ((1, 1), (3, 2), (20, 5), (40, 9), (80, 24), (200, 60)):
        state, (width, height) = fold(STORIES[name]), size
        for look in (LOOK, ServerView(paused=True, recording=True, replaying=True, ended=True, symbols="ascii")):
            for panel, rows in drawn(state, look, width, height).items():
                told = lines(rows)
                assert all(cell_len(line) <= width for line in told), panel
                assert len(told) <= max(height, 3 if panel == "cards" else 1), panel


def test_foreign_text_steers_nothing() -> None:
    told = "".join(line for rows in drawn(fold(STORIES["hostile"]), LOOK, 300, 9).values() for line in lines(rows))
    assert "URL" in told
    assert "REASON" in told
    assert not set("".join(ACTS)) & set(told) & set("\x1b\x07\x08\x9b\x9d\x90\u202e\u2066\r\x7f\x0b\x0c\u2028\ufeff")


def shown(state: ServerState, panel: str, width: int = 80, height: int = 9, look: ServerView = LOOK) -> str:
    return "\n".join(lines(drawn(state, look, width, height)[panel]))


def test_the_first_line_says_what_is_watched_and_whether_it_answers() -> None:
    line = shown(fold(session()), "status", 120)
    assert " dynatui   connected  vLLM  meta-llama/Llama-3.1-8B-Instruct  http://host:8000/metrics" in line
    assert "NO METRICS for 14 s" in shown(fold(STORIES["a gap now"]), "status")
    assert "connecting" in shown(fold([OPENING]), "status")
    assert "PAUSED" in shown(fold(session()), "status", look=ServerView(paused=True))
    assert "● REC" in shown(fold(session()), "status", look=ServerView(recording=True))
    assert "replay ended" in shown(fold(session()), "status", look=ServerView(replaying=True, ended=True))


def test_a_gap_is_shown_with_its_reason() -> None:
    assert "cannot reach host:8000: Connection refused; trying again" in shown(fold([OPENING, GAP]), "note")


def test_wasted_drafts_are_said_to_be_with_their_share_their_time_and_what_follows() -> None:
    told = " ".join(shown(fold(wasting()), "note", 120, 2).split())
    assert told == (
        "drafts wasted for 59 s: 3% of 14,640 drafted tokens accepted, 1.09 tokens a round, so at most 1.09 times as "
        "fast as without drafts, even if they cost nothing; decoding is likely slower"
    )
    assert "DRAFTS WASTED" in shown(fold(wasting()), "status")


@pytest.mark.parametrize(
    ("size", "told"),
    [
        ((80, 3), "drafts wasted for 59 s: 3% of 14,640 drafted tokens accepted, 1.09 tokens a round, so at most"),
        ((80, 1), "drafts wasted for 59 s: 3% accepted, likely slower than without drafts"),
        ((40, 1), "drafts wasted for 59 s: 3% accepted"),
    ],
)
def test_where_there_is_less_room_less_is_said_of_wasted_drafts(size: tuple[int, int], told: str) -> None:
    assert " ".join(shown(fold(wasting()), "note", *size).split()).startswith(told)


def test_wordings_of_wasted_drafts_get_shorter() -> None:
    lengths = list(map(len, wasted(WASTED, 60.0)))
    assert lengths == sorted(lengths, reverse=True)


def test_a_gap_comes_before_wasted_drafts_and_those_leave_when_drafts_are_accepted() -> None:
    gone = fold([*wasting(), GAP])
    assert "cannot reach" in shown(gone, "note")
    assert "NO METRICS" in shown(gone, "status")
    again = fold([*wasting(), reading(61.0)])
    assert "wasted" not in shown(again, "note")
    assert "connected" in shown(again, "status")


def test_the_summary_after_the_end_says_that_drafts_are_wasted() -> None:
    assert summary(fold(wasting())).endswith(
        "tokens/s; drafts wasted for 59 s: 3% accepted, likely slower than without drafts"
    )
    assert "wasted" not in summary(fold(session()))


def test_how_a_server_drafts_is_told_with_what_its_numbers_count() -> None:
    told = lines(drafting(DRAFTING, (60, 9)))
    assert "Drafts" in told[0]
    assert [row.strip("│ ").split()[-1] for row in told[1:5]] == ["5", "6", "4.40", "3.60"]
    assert told[1].strip("│ ").startswith("draft steps per round")
    assert len(lines(drafting(Drafting(steps=3), (60, 9)))) == len(told)
    assert "cap" not in "".join(lines(drafting(Drafting(steps=3), (60, 9))))


def test_cards_hold_the_last_interval_over_the_session() -> None:
    state = fold([OPENING, SERVER, FIRST, structs.replace(reading(1.0), session=figures(1.0, 100, 100))])
    titles, now, whole = shown(state, "cards", 120, 3).splitlines()
    assert titles.split("▏")[0].startswith("L-bar, tokens a round")
    assert [card.strip() for card in now.split("▏")] == ["2.70", "0.57", "270", "300", "170"]
    assert [card.split()[-1] for card in whole.split("▏")] == ["2.00", "0.33", "200", "300", "100"]


def test_in_a_gap_there_are_no_figures_of_now() -> None:
    _, now, whole = shown(fold([*session(60), GAP]), "cards", 120, 3).splitlines()
    assert {card.strip() for card in now.split("▏")} == {"-"}
    assert "2.70" in whole


def test_a_curve_has_a_gap_where_nothing_is_known() -> None:
    points = series(fold([*session(3), GAP, reading(62.0)]), lambda found: found.tokens_per_round).points
    assert [math.isnan(point) for point in points] == [True, False, False, False, True, False]


def test_a_gap_leaves_its_columns_empty() -> None:
    steady = [reading(float(t)) for t in range(1, 101)]
    gaps = [Gap(t=float(t), reason="x") for t in range(101, 201)]
    state = fold([OPENING, SERVER, FIRST, *steady, *gaps, *(reading(float(t)) for t in range(201, 301))])
    rows = shown(state, "lengths", 110, 12).splitlines()[1:-2]
    plot = [row[7:-7] for row in rows]
    filled = [any(row[column] != " " for row in plot) for column in range(len(plot[0]))]
    third = len(filled) // 3
    assert all(filled[2 : third - 2])
    assert not any(filled[third + 2 : 2 * third - 2])
    assert all(filled[2 * third + 2 : -2])


def test_the_window_moves_in_steps_and_always_holds_the_newest_reading() -> None:
    ends = {seconds: panels._axis(fold(session(seconds))) for seconds in (10, 60, 61, 121, 300, 301, 330, 331, 3600)}
    assert [axis.span for axis in ends.values()] == [60, 60, 120, *[300] * 6]
    assert [axis.first for axis in ends.values()] == [0, 0, 0, 0, 0, 30, 30, 60, 3300]
    assert all(axis.first <= seconds <= axis.first + axis.span for seconds, axis in ends.items())


@pytest.mark.parametrize(("interval_s", "span"), [(0.1, 30), (0.5, 150), (1.0, 300), (60.0, 18_000)])
def test_the_window_is_as_long_as_its_readings_last(interval_s: float, span: int) -> None:
    state = fold([structs.replace(OPENING, interval_s=interval_s), SERVER, FIRST, reading(1e6)])
    assert panels._axis(state).span == span


def test_readings_within_a_second_are_one_point() -> None:
    quick = [reading(1.0 + tenth / 10, 100 + 10 * tenth) for tenth in range(-4, 5)]
    found = series(fold([OPENING, SERVER, *quick, reading(2.0, 200)]), lambda figures: figures.tokens_per_round)
    assert list(found.ends) == [1, 2]
    assert list(found.points) == pytest.approx([2.0, 3.0])


def test_positions_are_bars_of_the_session_with_the_share_of_now() -> None:
    told = shown(fold(session()), "positions")
    assert "position" in told.splitlines()[1]
    first = told.splitlines()[2].split()
    assert (first[1], first[3]) == ("1", "79%")


def test_positions_that_are_not_there_are_explained() -> None:
    assert "no metrics were read yet" in shown(fold([OPENING, GAP]), "positions")
    assert "the server does not report" in shown(fold([OPENING, SERVER, FIRST]), "positions")


def test_more_positions_than_rows_are_counted() -> None:
    state = fold([OPENING, SERVER, FIRST, Reading(t=1.0, interval=HUGE, session=HUGE)])
    assert "251 more" in shown(state, "positions", 80, 9)


def test_totals_tell_what_was_counted_and_what_was_missed() -> None:
    told = shown(fold([*session(60), GAP, reading(63.0)]), "totals", 80, 9)
    assert "1,500" in told
    assert "watched for 1 min 3 s, 62 pages read" in told
    assert "failed polls 1, gaps 1, restarts 0" in told


def test_the_rounds_of_a_request_are_columns_under_what_they_come_to() -> None:
    told = shown(fold([OPENING, SERVER, FIRST, ANSWER]), "answer")
    assert "4 rounds, L-bar 2.00, 40% accepted, 8 tokens in 0.5 s" in told
    assert "▆·█▃" in told
    assert "█ all ▄ some · none accepted in a round" in told
    assert "and the light fell on the floor" in told


def test_a_request_that_is_not_answered_yet_is_shown_with_its_time() -> None:
    told = shown(fold([OPENING, SERVER, FIRST, ASKED, reading(4.0)]), "answer")
    assert "sent 2 s ago, no answer yet:" in told
    assert "The door opened" in told
    assert not set("\x1b\x07\x9b\u202e") & set(shown(fold(STORIES["asked"]), "answer"))


def test_a_server_that_does_not_tell_rounds_is_said_not_to_and_what_it_tells_is_shown() -> None:
    silent = structs.replace(ANSWER, drafted_by_round=(), accepted_by_round=(), rounds=None, tokens_per_round=None)
    told = shown(fold([OPENING, SERVER, FIRST, silent]), "answer", 100)
    assert "vLLM reports each round if it is started with --per-request-spec-decode-metrics detailed" in told
    assert "│ 40% accepted, 8 tokens in 0.5 s " in told
    other = shown(fold([OPENING, structs.replace(SERVER, kind="sglang"), FIRST, silent]), "answer", 100)
    assert "SGLang does not report rounds one by one" in other


def test_why_there_is_no_answer_is_shown_and_steers_nothing() -> None:
    told = shown(fold([OPENING, structs.replace(ANSWER, error=hostile("ERROR"))]), "answer")
    assert "ERROR" in told
    assert not set("\x1b\x07\x9b\u202e") & set(told)


def test_names_that_the_first_line_has_no_room_for_follow_in_the_next() -> None:
    assert "http://host:8000/metrics" in shown(fold(session()), "note", 80)
    assert not shown(fold(session()), "note", 200).strip()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (59.9, "59 s"), (61.0, "1 min 1 s"), (3725.0, "1 h 2 min"), (1e300, "277777 h 46 min")],
)
def test_times_have_their_two_largest_units(seconds: float, text: str) -> None:
    assert time_text(seconds) == text


@given(st.floats(0, 1e15), st.floats(1, 1e3))
def test_scales_reach_what_they_show(most: float, least: float) -> None:
    assert panels._top([most], least) >= max(most, least)
