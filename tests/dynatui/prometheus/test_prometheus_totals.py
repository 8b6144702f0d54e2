"""Metrics always equal a slow recount of the events and never decrease."""

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from decoder.events import Event, Round, Start, Summary
from decoder.methods import root_is_drafted
from dynatui.prometheus.exporter import BOUNDS_S, Exporter
from dynatui.record.reader import read_events
from tests.dynatui.prometheus.generated_sessions import sessions
from tests.dynatui.prometheus.scraping import Metrics, counted, metrics_of
from tests.dynatui.scripted_runs import plain_round, runs_of, story

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.jsonl"))
PROMPTS, GENERATED = "vllm:prompt_tokens_total", "vllm:generation_tokens_total"
DRAFTS, DRAFTED = "vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED, AT = (f"vllm:spec_decode_num_accepted_tokens{each}_total" for each in ("", "_per_pos"))
FIRST, LATER = "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"


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


def are(metrics: Metrics, name: str, method: str, expected: list[float]) -> bool:
    """Whether a histogram contains exactly the expected latencies, with cumulative counts by bound."""
    alike = math.isclose(metrics[f"{name}_sum", method, ""], math.fsum(expected), rel_tol=1e-9, abs_tol=1e-9)
    bounds = {str(bound).replace("inf", "+Inf"): bound for bound in (*BOUNDS_S, math.inf)}
    return alike and all(
        metrics[f"{name}_bucket", method, word] == sum(each <= bound for each in expected)
        for word, bound in bounds.items()
    )


@given(sessions())
def test_what_is_generated_and_drafted_is_what_a_recount_finds(events: list[Event]) -> None:
    metrics = counted(events)
    methods = {event.method for event in events if isinstance(event, Start | Round)}
    assert {method for _, method, _ in metrics} == methods
    for method in methods:
        told = rounds_of(events, method)
        assert metrics[GENERATED, method, ""] == sum(len(event.committed) for event in told)
        nodes = [len(event.tokens) - (not root_is_drafted(method)) for event in told]
        drafted = [metrics.get((name, method, "")) for name in (DRAFTS, DRAFTED, ACCEPTED)]
        if method == "hf" or not told:
            assert drafted == [None] * 3
        else:
            accepted = sum(len(event.accepted) for event in told)
            assert drafted == [sum(count > 0 for count in nodes), sum(nodes), accepted]
            places = {int(at): count for (name, of, at), count in metrics.items() if (name, of) == (AT, method)}
            assert places == positions(events, method)


@given(sessions())
def test_latencies_and_prompts_are_what_a_recount_finds(events: list[Event]) -> None:
    metrics = counted(events)
    for method in {event.method for event in events if isinstance(event, Start | Round)}:
        first = first_latencies(events, method)
        assert are(metrics, FIRST, method, first)
        assert are(metrics, LATER, method, later_latencies(events, method))
        assert metrics[PROMPTS, method, ""] == 2 * len(first)


@given(sessions())
def test_no_number_ever_falls(events: list[Event]) -> None:
    exporter, before = Exporter(), Metrics()
    for event in events:
        exporter.take(event)
        now = metrics_of(exporter)
        assert all(now[series] >= value for series, value in before.items())
        before = now


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_of_a_recording_totals_are_the_sums_of_its_figures(path: Path) -> None:
    events = read_events(path)
    metrics, summed = counted(events), dict[str, Counter[str]]()
    for summary in (event for event in events if isinstance(event, Summary)):
        for method, figures in summary.methods.items():
            for name in ("rounds", "committed", "drafted", "accepted"):
                summed.setdefault(method, Counter())[name] += getattr(figures, name) or 0
    assert summed
    assert {method for _, method, _ in metrics} == summed.keys()
    for method, found in summed.items():
        assert metrics[GENERATED, method, ""] == found["committed"]
        assert metrics[f"{FIRST}_count", method, ""] + metrics[f"{LATER}_count", method, ""] == found["rounds"]
        if (DRAFTED, method, "") in metrics:
            assert metrics[DRAFTED, method, ""] == found["drafted"]
            assert metrics[ACCEPTED, method, ""] == found["accepted"]


def test_a_prompt_that_begins_again_is_one_more_prompt() -> None:
    once, twice = counted(story()), counted([*story()[:6], *story()])
    assert once[PROMPTS, "dynatree", ""] == 2
    assert twice[PROMPTS, "dynatree", ""] == 4
    assert twice[f"{FIRST}_count", "dynatree", ""] == 2


def test_a_round_without_a_draft_is_no_draft_but_takes_its_time() -> None:
    metrics = counted([*story()[:3], *(plain_round("ar", number) for number in range(3))])
    assert metrics[DRAFTS, "ar", ""] == 0
    assert not any((name, method) == (AT, "ar") for name, method, _ in metrics)
    assert (metrics[f"{FIRST}_count", "ar", ""], metrics[f"{LATER}_count", "ar", ""]) == (1, 2)
