"""The page has vLLM's metric names, types and semantics, and the parser of Prometheus reads it."""

import pytest
from msgspec import structs
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.events import Event, Round
from dynatui.clean import clean_line
from dynatui.prometheus.exporter import BOUNDS_S, Exporter
from tests.dynatui.scripted_runs import HOSTILE, plain_round, story

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
    """Metric families, parsed from the page after these events."""
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


def test_counters_end_in_total_as_prometheus_wants_them() -> None:
    families = page(story())
    counters = [family for family in families.values() if family.type == "counter"]
    assert {each.name for family in counters for each in family.samples} == {
        f"{family.name}_total" for family in counters
    }


def test_series_are_labelled_as_vllms_and_with_the_method() -> None:
    for family in page(story()).values():
        for sample in family.samples:
            own = {"position"} if "per_pos" in family.name else {"le"} if sample.name.endswith("_bucket") else set()
            assert sample.labels.keys() == {"model_name", "engine", "method"} | own
            assert sample.labels["model_name"] == "books-16m"
            assert sample.labels["method"] in ("dynatree", "ar")


def test_counts_are_those_of_the_events() -> None:
    families = page(story(rounds=6))
    assert values(families, "vllm:prompt_tokens_total", **DYNATREE) == [2]
    assert values(families, "vllm:generation_tokens_total", **DYNATREE) == [18]
    assert values(families, "vllm:spec_decode_num_drafts_total", **DYNATREE) == [6]
    assert values(families, "vllm:spec_decode_num_draft_tokens_total", **DYNATREE) == [30]
    assert values(families, "vllm:spec_decode_num_accepted_tokens_total", **DYNATREE) == [12]
    by_position = {
        sample.labels["position"]: sample.value
        for sample in families["vllm:spec_decode_num_accepted_tokens_per_pos"].samples
        if sample.labels["method"] == "dynatree"
    }
    assert by_position == {"0": 6, "1": 6}


def test_vllms_mean_acceptance_length_is_ours_where_every_round_drafts() -> None:
    families = page(story(rounds=6))
    (accepted,) = values(families, "vllm:spec_decode_num_accepted_tokens_total", **DYNATREE)
    (drafts,) = values(families, "vllm:spec_decode_num_drafts_total", **DYNATREE)
    assert 1 + accepted / drafts == 3.0


def test_tokens_over_all_latencies_are_tokens_per_round() -> None:
    families = page(story(rounds=6))
    for method, expected in (("dynatree", 3.0), ("ar", 1.0)):
        (tokens,) = values(families, "vllm:generation_tokens_total", method=method)
        (first,) = values(families, "vllm:time_to_first_token_seconds_count", method=method)
        (later,) = values(families, "vllm:inter_token_latency_seconds_count", method=method)
        assert (first, later) == (1, 5)
        assert tokens / (first + later) == expected


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


def test_what_a_method_does_not_tell_has_no_series() -> None:
    burst: Round = structs.replace(plain_round("hf", 0), draft_forwards=None)
    families = page([story()[0], burst])
    assert values(families, "vllm:generation_tokens_total", method="hf") == [1]
    assert not values(families, "vllm:spec_decode_num_drafts_total", method="hf")
    assert not values(families, "vllm:spec_decode_num_accepted_tokens_total", method="hf")


def test_a_hostile_name_of_a_model_is_a_label_like_any_other() -> None:
    events = story()
    name = f'{HOSTILE}"}} 1\nvllm:evil{{a="\\'
    families = page([structs.replace(events[0], target=name), *events[1:]])
    assert families.keys() == KINDS.keys()
    assert values(families, "vllm:generation_tokens_total", model_name=clean_line(name), method="ar") == [6]
