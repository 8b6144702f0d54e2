"""Converts totals to metric families with vLLM's names and labels, so that dashboards for vLLM can show a run.

The label `engine` is always 0, since there is one engine. The label `method` is not in vLLM: the methods of a race are
counted separately, as if they were several servers. Pure functions, which know nothing of HTTP.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dynatui.prometheus.totals import BOUNDS_S, Drafts, Latencies, MethodTotals, Totals

_LABELS = ("model_name", "engine", "method")
_ENGINE = "0"

_OF_TEXTS: tuple[tuple[str, str, Callable[[MethodTotals], int]], ...] = (
    (
        "vllm:prompt_tokens",
        "Prompt tokens, counted when the first round after the prompt is complete.",
        lambda of_method: of_method.prompt_tokens,
    ),
    ("vllm:generation_tokens", "Generated tokens.", lambda of_method: of_method.generated),
)
_OF_DRAFTS: tuple[tuple[str, str, Callable[[Drafts], int]], ...] = (
    (
        "vllm:spec_decode_num_drafts",
        "Rounds in which at least one token was drafted.",
        lambda of_method: of_method.rounds,
    ),
    (
        "vllm:spec_decode_num_draft_tokens",
        "Drafted tokens: all nodes of the draft trees.",
        lambda of_method: of_method.tokens,
    ),
    ("vllm:spec_decode_num_accepted_tokens", "Accepted drafted tokens.", lambda of_method: sum(of_method.accepted)),
)
_BY_POSITION = (
    "vllm:spec_decode_num_accepted_tokens_per_pos",
    "Accepted drafted tokens by position in the draft; the first position is 0.",
)
_LATENCIES: tuple[tuple[str, str, Callable[[MethodTotals], Latencies]], ...] = (
    (
        "vllm:time_to_first_token_seconds",
        "Time of the prefill and the first round, by the method's own clock.",
        lambda of_method: of_method.to_first,
    ),
    (
        "vllm:inter_token_latency_seconds",
        "Time of a round by the method's own clock; all tokens of a round appear at once.",
        lambda of_method: of_method.between,
    ),
)


def families(totals: Totals) -> Iterator[Metric]:
    methods = [((totals.target, _ENGINE, name), of_method) for name, of_method in totals.methods.items()]
    drafting = [(labels, of_method.drafts) for labels, of_method in methods if of_method.drafts is not None]
    for name, description, count in _OF_TEXTS:
        yield _counter(name, description, _LABELS, ((labels, count(of_method)) for labels, of_method in methods))
    for name, description, count_drafts in _OF_DRAFTS:
        yield _counter(name, description, _LABELS, ((labels, count_drafts(drafts)) for labels, drafts in drafting))
    positions = (
        ((*labels, str(position)), accepted)
        for labels, drafts in drafting
        for position, accepted in enumerate(drafts.accepted)
    )
    yield _counter(*_BY_POSITION, (*_LABELS, "position"), positions)
    for name, description, latencies in _LATENCIES:
        histogram = HistogramMetricFamily(name, description, labels=_LABELS)
        for labels, of_method in methods:
            histogram.add_metric(labels, _buckets(latencies(of_method)), latencies(of_method).total_s)
        yield histogram


def _counter(name: str, description: str, labels: Sequence[str], series: Iterable[tuple[Sequence[str], int]]) -> Metric:
    family = CounterMetricFamily(name, description, labels=labels)
    for values, count in series:
        family.add_metric(values, count)
    return family


def _buckets(latencies: Latencies) -> list[tuple[str, float]]:
    """Cumulative: each bucket's upper bound, and the number of latencies up to it."""
    bounds = (*map(str, BOUNDS_S), "+Inf")
    return list(zip(bounds, accumulate(latencies.counts), strict=True))


@dataclass(frozen=True)
class TotalsCollector(Collector):
    read: Callable[[], Totals]

    def collect(self) -> Iterator[Metric]:
        return families(self.read())
