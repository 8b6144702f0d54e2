"""Metrics equal a slow recount of the events, never decrease, and have vLLM's names, types and semantics."""

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from msgspec import structs
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.events import Event, Round, Start
from decoder.methods import root_is_drafted
from dynatui.clean import clean_line
from dynatui.prometheus import BOUNDS_S, Exporter
from tests.dynatui.prometheus.scraping import Metrics, metrics_of, sessions
from tests.dynatui.scripted_runs import HOSTILE, runs_of, story

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
def test_what_is_counted_is_what_a_recount_finds_and_never_falls(events: list[Event]) -> None:
    exporter, metrics = Exporter(), dict[tuple[str, str, str], float]()
    for event in events:
        before = metrics
        exporter.take(event)
        metrics = metrics_of(exporter.registry.collect())
        assert all(metrics[series] >= value for series, value in before.items())
    methods = {event.method for event in events if isinstance(event, Start | Round)}
    assert {method for _, method, _ in metrics} == methods
    for method in methods:
        told, first = rounds_of(events, method), first_latencies(events, method)
        assert are(metrics, FIRST, method, first)
        assert are(metrics, LATER, method, later_latencies(events, method))
        assert metrics[PROMPTS, method, ""] == 2 * len(first)
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


def page(events: list[Event]) -> dict[str, Metric]:
    exporter = Exporter()
    for event in events:
        exporter.take(event)
    text = generate_latest(exporter.registry).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


@pytest.mark.parametrize("events", [[], story()], ids=["before the run", "after it"])
def test_names_kinds_and_labels_are_vllms_and_there_from_the_start(events: list[Event]) -> None:
    families = page(events)
    assert {name: family.type for name, family in families.items()} == KINDS
    for name, family in families.items():
        assert family.documentation
        assert bool(family.samples) == bool(events)
        for sample in family.samples:
            assert family.type != "counter" or sample.name == f"{name}_total"
            own = {"position"} if "per_pos" in name else {"le"} if sample.name.endswith("_bucket") else set()
            assert sample.labels.keys() == {"model_name", "engine", "method"} | own
            assert (sample.labels["model_name"], sample.labels["engine"]) == ("books-16m", "0")


def test_a_hostile_name_of_a_model_is_a_label() -> None:
    events, name = story(), f'{HOSTILE}"}} 1\nvllm:evil{{a="\\'
    families = page([structs.replace(events[0], target=name), *events[1:]])
    assert families.keys() == KINDS.keys()
    assert {each.labels["model_name"] for each in families["vllm:generation_tokens"].samples} == {clean_line(name)}
