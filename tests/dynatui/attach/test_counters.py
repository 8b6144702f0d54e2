"""Increases of counters: summed over labels, across restarts and changed labels, and ignoring missing counters."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynatui.attach.events import MOST_POSITIONS
from dynatui.attach.exposition import LARGEST, Labels, Page, Series
from dynatui.attach.figures import Counts, counted, figures, increase, remembered, restarted
from dynatui.attach.servers import KINDS

VLLM = KINDS["vllm"]
A: Labels = (("engine", "0"),)
B: Labels = (("engine", "1"),)


def page(drafts: float, drafted: float = 0.0, accepted: float = 0.0, positions: tuple[float, ...] = ()) -> Page:
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


@settings(deadline=None)
@given(st.lists(st.integers(0, 50), max_size=30), st.sets(st.integers(0, 29)))
def test_increases_add_up_whatever_restarts_lie_between(steps: list[int], restarts: set[int]) -> None:
    value, values = 0, [0]
    for number, step in enumerate(steps):
        value = step if number in restarts else value + step
        values.append(value)
    # A restart is visible only if the counter is lower than before.
    expected = sum(after - before if after >= before else after for before, after in pairwise(values))
    assert sum(increase({A: before}, {A: after}) for before, after in pairwise(values)) == expected


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


@settings(deadline=None)
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


def test_counters_that_fall_are_a_restart_and_gauges_are_not() -> None:
    assert restarted(VLLM, page(9), page(3))
    assert not restarted(VLLM, page(3), page(9))
    assert not restarted(VLLM, {"vllm:num_requests_running": {A: 9.0}}, {"vllm:num_requests_running": {A: 3.0}})


def test_what_is_missing_is_unknown_and_positions_are_counted_one_by_one() -> None:
    after = {name: series for name, series in page(9, 30, 20).items() if name != "vllm:spec_decode_num_draft_tokens"}
    assert counted(VLLM, page(5), after) == Counts(drafts=4, accepted=20)
    assert counted(VLLM, page(5), {}) == Counts()
    found = counted(VLLM, page(0, positions=(10, 5)), page(0, positions=(18, 9, 2)))
    assert found.accepted_at == (8, 4, 2)


@pytest.mark.parametrize("position", ["-1", "1.5", "x", "", "9" * 400, str(MOST_POSITIONS), "١٢٣٤"])
def test_what_is_no_position_is_passed_over(position: str) -> None:
    series: Series = {(*A, ("position", position)): 3.0, (*A, ("position", "0")): 2.0}
    assert counted(VLLM, {}, {"vllm:spec_decode_num_accepted_tokens_per_pos": series}).accepted_at[0] == 2


def test_sums_know_what_either_knows_and_stay_within_what_an_event_can_hold() -> None:
    both = Counts(drafts=1, accepted_at=(1, 2)).plus(Counts(drafts=2, drafted=5, accepted_at=(1,)))
    assert both == Counts(drafts=3, drafted=5, accepted_at=(2, 2))
    most = Counts(LARGEST, LARGEST, LARGEST, LARGEST, (LARGEST,))
    assert most.plus(most) == most


counts = st.none() | st.integers(0, LARGEST)


@settings(deadline=None)
@given(
    st.builds(Counts, counts, counts, counts, counts, st.lists(st.integers(0, LARGEST), max_size=4).map(tuple)),
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
