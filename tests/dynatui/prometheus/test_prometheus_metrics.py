"""Metrics equal a slow recount of the events, never decrease, and have vLLM's names, types and semantics."""

import math
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from msgspec import structs
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.analysis.metrics import fold
from decoder.events import Event, Round, Start
from decoder.methods import root_is_drafted
from dynatui.clean import clean_line
from dynatui.prometheus.exporter import BOUNDS_S, Exporter
from dynatui.record.reader import read_events
from tests.dynatui.prometheus.scraping import Metrics, counted, metrics_of, sessions
from tests.dynatui.scripted_runs import HOSTILE, plain_round, runs_of, story

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
    metrics, summed = counted(events), dict[str, defaultdict[str, float]]()
    for figures_of_run in (fold(events_of_run).figures() for events_of_run in runs_of(events)):
        for method, figures in figures_of_run.items():
            for name in ("rounds", "committed", "drafted", "accepted", "ttft_s", "prefill_s", "decode_s"):
                summed.setdefault(method, defaultdict(float))[name] += getattr(figures, name) or 0
    assert summed
    assert {method for _, method, _ in metrics} == summed.keys()
    for method, found in summed.items():
        first, later = (
            {part: metrics[f"{name}_{part}", method, ""] for part in ("count", "sum")} for name in (FIRST, LATER)
        )
        assert metrics[GENERATED, method, ""] == found["committed"]
        assert first["count"] + later["count"] == found["rounds"]
        assert first["sum"] == pytest.approx(found["ttft_s"])
        assert first["sum"] + later["sum"] == pytest.approx(found["prefill_s"] + found["decode_s"])
        if (DRAFTED, method, "") in metrics:
            assert metrics[DRAFTED, method, ""] == found["drafted"]
            assert metrics[ACCEPTED, method, ""] == found["accepted"]


def test_a_prompt_that_begins_again_is_one_more_and_a_round_without_a_draft_takes_its_time() -> None:
    once, twice = counted(story()), counted([*story()[:6], *story()])
    assert once[PROMPTS, "dynatree", ""] == 2
    assert twice[PROMPTS, "dynatree", ""] == 4
    assert twice[f"{FIRST}_count", "dynatree", ""] == 2
    metrics = counted([*story()[:3], *(plain_round("ar", number) for number in range(3))])
    assert metrics[DRAFTS, "ar", ""] == 0
    assert not any((name, method) == (AT, "ar") for name, method, _ in metrics)
    assert (metrics[f"{FIRST}_count", "ar", ""], metrics[f"{LATER}_count", "ar", ""]) == (1, 2)


KINDS = {
    "vllm:prompt_tokens": "counter",
    "vllm:generation_tokens": "counter",
    "vllm:spec_decode_num_drafts": "counter",
    "vllm:spec_decode_num_draft_tokens": "counter",
    "vllm:spec_decode_num_accepted_tokens": "counter",
    "vllm:spec_decode_num_accepted_tokens_per_pos": "counter",
    "vllm:time_to_first_token_seconds": "histogram",
    "vllm:inter_token_latency_seconds": "histogram",
}
"""Names and types of metrics as vLLM's server has them; on the page, counters end in _total."""
DYNATREE = {"model_name": "books-16m", "engine": "0", "method": "dynatree"}


def page(events: list[Event]) -> dict[str, Metric]:
    exporter = Exporter()
    for event in events:
        exporter.take(event)
    text = generate_latest(exporter.registry).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def values(families: dict[str, Metric], sample: str, **labels: str) -> list[float]:
    return [
        each.value
        for family in families.values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    ]


def test_names_and_kinds_are_vllms_and_there_from_the_start() -> None:
    for events in ([], story()):
        families = page(events)
        assert {name: family.type for name, family in families.items()} == KINDS
        assert all(family.documentation for family in families.values())


def test_series_are_labelled_as_vllms_and_with_the_method_and_counters_end_in_total() -> None:
    for name, family in page(story()).items():
        for sample in family.samples:
            assert family.type != "counter" or sample.name == f"{name}_total"
            own = {"position"} if "per_pos" in name else {"le"} if sample.name.endswith("_bucket") else set()
            assert sample.labels.keys() == {"model_name", "engine", "method"} | own
            assert sample.labels["model_name"] == "books-16m"
            assert sample.labels["method"] in ("dynatree", "ar")


def test_counts_are_those_of_the_events_and_give_our_figures() -> None:
    families = page(story(rounds=6))
    counts = {"prompt_tokens": 2, "generation_tokens": 18, "spec_decode_num_drafts": 6}
    counts |= {"spec_decode_num_draft_tokens": 30, "spec_decode_num_accepted_tokens": 12}
    assert {name: values(families, f"vllm:{name}_total", **DYNATREE) for name in counts} == {
        name: [count] for name, count in counts.items()
    }
    by_position = [
        values(families, "vllm:spec_decode_num_accepted_tokens_per_pos_total", position=at, **DYNATREE) for at in "012"
    ]
    assert by_position == [[6], [6], []]
    for method, tokens_per_round in (("dynatree", 3.0), ("ar", 1.0)):
        (tokens,) = values(families, "vllm:generation_tokens_total", method=method)
        (first,) = values(families, "vllm:time_to_first_token_seconds_count", method=method)
        (later,) = values(families, "vllm:inter_token_latency_seconds_count", method=method)
        assert (first, later, tokens / (first + later)) == (1, 5, tokens_per_round)


def test_a_histogram_has_a_bucket_a_bound_each_with_all_below() -> None:
    families = page(story(rounds=6))
    samples = [
        sample
        for sample in families["vllm:inter_token_latency_seconds"].samples
        if sample.labels["method"] == "dynatree" and sample.name.endswith("_bucket")
    ]
    assert [float(sample.labels["le"]) for sample in samples] == [*BOUNDS_S, float("inf")]
    assert [sample.value for sample in samples] == [5 if bound >= 0.025 else 0 for bound in (*BOUNDS_S, 1e9)]
    assert values(families, "vllm:inter_token_latency_seconds_sum", **DYNATREE) == [pytest.approx(0.1)]
    assert values(families, "vllm:time_to_first_token_seconds_sum", **DYNATREE) == [pytest.approx(0.03)]


def test_what_a_method_does_not_tell_has_no_series_and_a_hostile_name_is_a_label() -> None:
    burst: Round = structs.replace(plain_round("hf", 0), draft_forwards=None)
    families = page([story()[0], burst])
    assert values(families, "vllm:generation_tokens_total", method="hf") == [1]
    assert not values(families, "vllm:spec_decode_num_drafts_total", method="hf")
    assert not values(families, "vllm:spec_decode_num_accepted_tokens_total", method="hf")
    events = story()
    name = f'{HOSTILE}"}} 1\nvllm:evil{{a="\\'
    families = page([structs.replace(events[0], target=name), *events[1:]])
    assert families.keys() == KINDS.keys()
    assert values(families, "vllm:generation_tokens_total", model_name=clean_line(name), method="ar") == [6]
