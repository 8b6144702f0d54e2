"""Totals always equal a slow recount of the events and never decrease."""

import math
from collections import Counter
from functools import reduce
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from msgspec import structs

from decoder.events import Event, Round, Run, Start, Summary
from decoder.methods import root_is_drafted
from dynatui.prometheus.totals import BOUNDS_S, Latencies, MethodTotals, Totals, after
from dynatui.record.reader import read
from tests.dynatui.prometheus.generated_sessions import sessions
from tests.dynatui.scripted_runs import plain_round, runs_of, story

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.jsonl"))


def folded(events: list[Event]) -> Totals:
    return reduce(after, events, Totals())


def rounds_of(events: list[Event], method: str) -> list[Round]:
    return [event for event in events if isinstance(event, Round) and event.method == method]


def positions(events: list[Event], method: str) -> dict[int, int]:
    """Number of accepted nodes by depth, which is counted parent by parent."""
    found: Counter[int] = Counter()
    for event in rounds_of(events, method):
        for node in event.accepted:
            depth, at = 0, node
            while at > 0:
                depth, at = depth + 1, event.parents[at]
            found[depth if root_is_drafted(method) else depth - 1] += 1
    return dict(found)


def first_latencies(events: list[Event], method: str) -> list[float]:
    found = []
    for events_of_run in runs_of(events):
        prefill_s = [event.prefill_s for event in events_of_run if isinstance(event, Start) and event.method == method]
        found += [prefill_s[0] + event.t for event in rounds_of(events_of_run, method)[:1]]
    return found


def later_latencies(events: list[Event], method: str) -> list[float]:
    runs = [rounds_of(events_of_run, method) for events_of_run in runs_of(events)]
    return [two.t - one.t for told in runs for one, two in pairwise(told)]


def are(latencies: Latencies, expected: list[float]) -> bool:
    """Whether a histogram contains exactly the expected latencies, with cumulative counts by bound."""
    counts = list(accumulate(latencies.counts))
    alike = math.isclose(latencies.total_s, math.fsum(expected), rel_tol=1e-9, abs_tol=1e-9)
    return alike and counts == [sum(each <= bound for each in expected) for bound in (*BOUNDS_S, math.inf)]


@given(sessions())
def test_what_is_generated_and_drafted_is_what_a_recount_finds(events: list[Event]) -> None:
    totals = folded(events)
    methods = {event.method for event in events if isinstance(event, Start | Round)}
    assert totals.methods.keys() == methods
    for method in methods:
        own, told = totals.methods[method], rounds_of(events, method)
        assert own.generated == sum(len(event.committed) for event in told)
        nodes = [len(event.tokens) - (not root_is_drafted(method)) for event in told]
        if method == "hf" or not told:
            assert own.drafts is None
        else:
            assert own.drafts is not None
            assert (own.drafts.rounds, own.drafts.tokens) == (sum(count > 0 for count in nodes), sum(nodes))
            assert dict(enumerate(own.drafts.accepted)) == positions(events, method)
            assert sum(own.drafts.accepted) == sum(len(event.accepted) for event in told)


@given(sessions())
def test_latencies_and_prompts_are_what_a_recount_finds(events: list[Event]) -> None:
    for method, own in folded(events).methods.items():
        first = first_latencies(events, method)
        assert are(own.to_first, first)
        assert are(own.between, later_latencies(events, method))
        assert own.prompt_tokens == 2 * len(first)


def numbers(own: MethodTotals) -> list[float]:
    drafts = (own.drafts.rounds, own.drafts.tokens, *own.drafts.accepted) if own.drafts else ()
    latencies = (each for one in (own.to_first, own.between) for each in (*one.counts, one.total_s))
    return [own.prompt_tokens, own.generated, *latencies, *drafts]


@given(sessions())
def test_no_number_ever_falls(events: list[Event]) -> None:
    for before, now in pairwise(accumulate(events, after, initial=Totals())):
        for method, own in before.methods.items():
            now_told = numbers(now.methods[method])
            assert all(old <= new for old, new in zip(numbers(own), now_told, strict=False))
            assert len(now_told) >= len(numbers(own))


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_of_a_recording_totals_are_the_sums_of_its_figures(path: Path) -> None:
    events = read(path)
    totals = folded(events)
    summed: dict[str, Counter[str]] = {}
    for summary in (event for event in events if isinstance(event, Summary)):
        for method, figures in summary.methods.items():
            for name in ("rounds", "committed", "drafted", "accepted"):
                summed.setdefault(method, Counter())[name] += getattr(figures, name) or 0
    assert summed
    assert {name: own.generated for name, own in totals.methods.items()} == {
        name: found["committed"] for name, found in summed.items()
    }
    for name, found in summed.items():
        own = totals.methods[name]
        assert sum(own.to_first.counts) + sum(own.between.counts) == found["rounds"]
        if own.drafts is not None:
            assert (own.drafts.tokens, sum(own.drafts.accepted)) == (found["drafted"], found["accepted"])


def test_a_prompt_that_begins_again_is_one_more_prompt() -> None:
    once, twice = folded(story()), folded([*story()[:6], *story()])
    assert once.methods["dynatree"].prompt_tokens == 2
    assert twice.methods["dynatree"].prompt_tokens == 4
    assert sum(twice.methods["dynatree"].to_first.counts) == 2


def test_a_round_without_a_draft_is_no_draft_but_takes_its_time() -> None:
    own = folded([*story()[:3], *(plain_round("ar", number) for number in range(3))]).methods["ar"]
    assert own.drafts is not None
    assert (own.drafts.rounds, own.drafts.accepted) == (0, ())
    assert (sum(own.to_first.counts), sum(own.between.counts)) == (1, 2)


def test_the_target_is_named_as_a_terminal_may_show_it() -> None:
    first, *_ = story()
    assert isinstance(first, Run)
    assert after(Totals(), structs.replace(first, target="a\x1bb\n")).target == "a␛b␊"
