"""Figures of counters: increases across restarts and changed labels, and when drafts count as wasted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoder.events import encode
from dynatui.servers.attach.events import MOST_COUNTED, MOST_POSITIONS, Figures, Reading, decode_line
from dynatui.servers.attach.figures import (
    PAYING_FROM,
    ROUNDS,
    SECONDS,
    WASTED_BELOW,
    Counts,
    Judgement,
    Labels,
    Page,
    Series,
    as_event,
    counted,
    figures,
    increase,
    judged,
    lines_of,
    parsed,
    remembered,
    restarted,
)
from dynatui.servers.attach.servers import KINDS
from tests.dynatui.servers.attach.page_server import page
from tests.dynatui.servers.attach.scripted_session import readings

VLLM = KINDS["vllm"]
A: Labels = (("engine", "0"),)
B: Labels = (("engine", "1"),)


def counters(drafts: float, drafted: float = 0.0, accepted: float = 0.0, positions: tuple[float, ...] = ()) -> Page:
    return {
        "vllm:spec_decode_num_drafts": {A: drafts},
        "vllm:spec_decode_num_draft_tokens": {A: drafted},
        "vllm:spec_decode_num_accepted_tokens": {A: accepted},
        "vllm:spec_decode_num_accepted_tokens_per_pos": {
            (*A, ("position", str(place))): value for place, value in enumerate(positions)
        },
    }


@pytest.mark.parametrize(
    ("before", "after", "grew"),
    [
        ({A: 5.0}, {A: 8.0}, 3.0),
        ({A: 5.0, B: 1.0}, {A: 8.0, B: 2.0}, 4.0),
        ({A: 5.0}, {A: 2.0}, 2.0),
        ({A: 5.0, B: 9.0}, {A: 6.0, B: 1.0}, 2.0),
        ({}, {A: 4.0}, 4.0),
        ({A: 5.0}, {A: 5.0, B: 4.0}, 4.0),
        ({A: 5.0, B: 9.0}, {A: 6.0}, 1.0),
        ({A: 5.0}, {B: 7.0}, 2.0),
        ({A: 5.0}, {B: 3.0}, 3.0),
        ({A: 5.0}, {}, 0.0),
    ],
    ids=["grew", "sum", "fell", "one fell", "began", "joined", "left", "renamed", "renamed anew", "gone"],
)
def test_an_increase(before: Series, after: Series, grew: float) -> None:
    assert increase(before, after) == grew


@pytest.mark.parametrize(
    ("pages", "grew"),
    [
        ([{A: 5.0, B: 9.0}, {A: 6.0}, {A: 7.0, B: 11.0}], 4.0),
        ([{A: 5.0, B: 9.0}, {A: 6.0}, {A: 6.0}, {B: 10.0}, {A: 8.0, B: 10.0}], 4.0),
        ([{A: 5.0}, {}, {A: 8.0}], 3.0),
        ([{A: 5.0}, {B: 7.0}, {A: 9.0}], 4.0),
        ([{A: 5.0, B: 9.0}, {A: 6.0}, {A: 6.0, B: 2.0}], 3.0),
    ],
    ids=["one is away", "by turns", "all are away", "renamed and back", "away and began anew"],
)
def test_a_series_that_is_missing_for_a_while_goes_on_where_it_was(pages: list[Series], grew: float) -> None:
    kept: Page = {"a": pages[0]}
    total = 0.0
    for now in pages[1:]:
        total += increase(kept["a"], now)
        kept = remembered(kept, {"a": now})
    assert total == grew


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 10**6)), min_size=2, max_size=20))
def test_an_increase_is_within_what_is_there_and_no_more_series_are_kept_than_on_a_page(
    pages: list[dict[str, int]],
) -> None:
    kept: Page = {}
    for counts in pages:
        now: Series = {((name, ""),): float(count) for name, count in counts.items()}
        assert 0 <= increase(kept.get("a", {}), now) <= sum(now.values())
        kept = remembered(kept, {"a": now})
        assert len(kept["a"]) <= max(map(len, pages))


def test_a_page_of_a_vllm_server_with_two_million_drafts_of_eight_tokens_tells_rounds_steps_and_latency() -> None:
    """Of a server of Qwen3-30B, as published with vllmstat; without the metrics that nothing here reads."""
    whole = parsed(lines_of(page("vllm-real")), (*VLLM.counters, *VLLM.gauges))
    found = figures(VLLM, counted(VLLM, {}, whole), 1.0)
    assert found.tokens_per_round == pytest.approx(3.156, abs=1e-3)
    assert found.acceptance_rate == pytest.approx(0.3978, abs=1e-4)
    rates = (0.538, 0.383, 0.269, 0.236, 0.204, 0.194, 0.176, 0.156)
    assert found.acceptance_by_position == pytest.approx(rates, abs=1e-3)
    assert found.engine_steps == 2208376
    assert found.step_s == pytest.approx(0.1702, abs=1e-4)
    assert found.token_latency_s == pytest.approx(0.0546, abs=1e-4)


def test_counters_that_fall_are_a_restart_and_gauges_are_not() -> None:
    assert restarted(VLLM, counters(9), counters(3))
    assert not restarted(VLLM, counters(3), counters(9))
    assert not restarted(VLLM, {"vllm:num_requests_running": {A: 9.0}}, {"vllm:num_requests_running": {A: 3.0}})


def test_what_is_missing_is_unknown_and_positions_are_counted_one_by_one() -> None:
    after = {
        name: series for name, series in counters(9, 30, 20).items() if name != "vllm:spec_decode_num_draft_tokens"
    }
    assert counted(VLLM, counters(5), after) == Counts(drafts=4, accepted=20)
    assert counted(VLLM, counters(5), {}) == Counts()
    found = counted(VLLM, counters(0, positions=(10, 5)), counters(0, positions=(18, 9, 2)))
    assert found.accepted_at == (8, 4, 2)


@pytest.mark.parametrize("position", ["-1", "1.5", "x", "", "9" * 400, str(MOST_POSITIONS), "١٢٣٤"])
def test_what_is_no_position_is_passed_over(position: str) -> None:
    series: Series = {(*A, ("position", position)): 3.0, (*A, ("position", "0")): 2.0}
    assert counted(VLLM, {}, {"vllm:spec_decode_num_accepted_tokens_per_pos": series}).accepted_at[0] == 2


def test_sums_know_what_either_knows_and_stay_within_what_an_event_can_hold() -> None:
    both = Counts(drafts=1, accepted_at=(1, 2)).plus(Counts(drafts=2, drafted=5, accepted_at=(1,)))
    assert both == Counts(drafts=3, drafted=5, accepted_at=(2, 2))
    most = Counts(MOST_COUNTED, MOST_COUNTED, MOST_COUNTED, MOST_COUNTED, (MOST_COUNTED,))
    assert most.plus(most) == most


counts = st.none() | st.integers(0, MOST_COUNTED)


@given(
    st.builds(Counts, counts, counts, counts, counts, st.lists(st.integers(0, MOST_COUNTED), max_size=4).map(tuple)),
    st.floats(0, 1e9),
    st.sampled_from(sorted(KINDS)),
)
def test_figures_of_any_counts_are_within_their_bounds(found: Counts, seconds: float, kind: str) -> None:
    made = figures(KINDS[kind], found, seconds)
    shares = (made.acceptance_rate, *made.acceptance_by_position)
    assert all(share is None or 0 <= share <= 1 for share in shares)
    others = (made.tokens_per_round, made.drafted_per_second, made.accepted_per_second, made.tokens_per_second)
    assert all(figure is None or 0 <= figure <= 1e15 for figure in others)
    assert (made.acceptance_rate is None) == (found.drafted in (None, 0) or found.accepted is None)


DEAD, NEAR, ALIVE = 0.03, 0.15, 0.5
"""Accepted tokens per round: below both limits, between them, and above both."""


def lot(accepted_a_round: float, rounds: int = ROUNDS) -> Counts:
    return Counts(drafts=rounds, drafted=2 * rounds, accepted=round(accepted_a_round * rounds))


def after(*lots: Counts, seconds: float = SECONDS, before: Judgement | None = None) -> Judgement:
    """The judgement after successive counts, each over `seconds`."""
    found = before or Judgement()
    for number, counts in enumerate(lots):
        found = judged(VLLM, found, counts, number * seconds, (number + 1) * seconds)
    return found


def test_many_rounds_of_which_next_to_nothing_was_accepted_are_told_since_they_began() -> None:
    found = as_event(VLLM, after(lot(ALIVE), lot(DEAD), lot(DEAD)))
    assert found is not None
    assert (found.since, found.drafts, found.drafted, found.accepted) == (SECONDS, 2 * ROUNDS, 4 * ROUNDS, 6)
    assert (found.tokens_per_round, found.acceptance_rate) == pytest.approx((1.03, 0.015))


@pytest.mark.parametrize(
    ("drafted", "accepted", "wasted"),
    [
        *(
            (2, each, False)
            for each in ((WASTED_BELOW - 1,), (DEAD, PAYING_FROM - 1), (NEAR,) * 3, (DEAD, ALIVE, NEAR))
        ),
        *((2, each, True) for each in ((WASTED_BELOW - 1.01,), (DEAD, PAYING_FROM - 1.01), (DEAD, NEAR, NEAR))),
        *((8, each, False) for each in ((0.36,), (0.41,), (0.3, 0.45, 0.5))),
        *((8, each, True) for each in ((0.34,), (0.3, 0.45))),
        (2, (NEAR, NEAR, NEAR), False),
        (64, (3.0,), False),
    ],
)
def test_drafts_are_wasted_below_the_lower_limits_until_they_are_above_the_upper_ones(
    drafted: int, accepted: tuple[float, ...], *, wasted: bool
) -> None:
    lots = (Counts(drafts=ROUNDS, drafted=drafted * ROUNDS, accepted=round(each * ROUNDS)) for each in accepted)
    assert (after(*lots).wasted is not None) is wasted


def test_it_begins_anew_after_drafts_were_accepted_again() -> None:
    assert after(lot(DEAD), lot(ALIVE), lot(DEAD)).since == 2 * SECONDS


def test_few_rounds_a_short_time_and_an_idle_server_say_nothing() -> None:
    assert (ROUNDS, SECONDS) == (100, 10)
    assert after(lot(DEAD, ROUNDS - 1)).wasted is None
    assert after(lot(DEAD, 100 * ROUNDS), seconds=SECONDS - 0.1).wasted is None
    parts = [lot(DEAD, ROUNDS // 4)] * 4
    assert after(*parts[:3]).wasted is None
    assert after(*parts).wasted is not None
    assert after(*parts[:3], lot(DEAD), seconds=SECONDS / 3).wasted is not None
    idle = Counts(drafts=0, drafted=0, accepted=0)
    found = after(lot(DEAD))
    assert after(*[idle] * 9, before=found) == found
    assert after(idle, lot(DEAD)).since == SECONDS


@pytest.mark.parametrize("field", ["drafts", "drafted", "accepted"])
def test_what_a_server_does_not_tell_says_nothing(field: str) -> None:
    known = {"drafts": 9 * ROUNDS, "drafted": 27 * ROUNDS, "accepted": 0}
    assert after(Counts(**{**known, field: None})) == Judgement()  # type: ignore[arg-type]


def vllm(rounds: int, accepted: int) -> str:
    text = (
        page("vllm-1").replace("} 4800.0", f"}} {4800 + rounds}.0").replace("} 14400.0", f"}} {14400 + 3 * rounds}.0")
    )
    return text.replace("} 8100.0", f"}} {8100 + accepted}.0")


def test_readings_of_a_server_say_so_and_a_restart_begins_anew() -> None:
    first, dead, more, restarted = readings(
        vllm(0, 0), vllm(200, 6), vllm(400, 12), vllm(-4790, -8090), apart_s=SECONDS
    )
    assert (first.wasted, restarted.wasted) == (None, None)
    assert dead.wasted is not None
    assert dead.wasted.acceptance_rate == pytest.approx(0.01)
    assert more.wasted is not None
    assert (more.wasted.since, more.wasted.drafts) == (0.0, 400)
    *_, recovered = readings(vllm(0, 0), vllm(200, 6), vllm(400, 300), apart_s=SECONDS)
    assert recovered.wasted is None


@pytest.mark.parametrize("name", ["vllm", "sglang", "sglang-dspark", "llamacpp", "tensorrt_llm", "tgi"])
def test_no_server_that_accepts_drafts_is_said_to_waste_them(name: str) -> None:
    pages = (page(f"{name}-{number % 2 + 1}") for number in range(5))
    told = readings(*pages, kind=name.partition("-")[0], apart_s=SECONDS)
    assert [reading.wasted for reading in told] == [None] * 5


def test_a_position_that_was_never_drafted_is_written_as_null() -> None:
    figures = Figures(seconds=1.0, acceptance_by_position=[0.8, None])
    reading = Reading(t=1.0, interval=figures, session=figures)
    assert decode_line(encode(reading), 1) == reading
    figures.acceptance_by_position.append(math.inf)
    with pytest.raises(ValueError, match="not finite"):
        encode(reading)
