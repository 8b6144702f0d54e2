"""Reads served metrics as Prometheus does."""

import http.client
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from decoder.events import Event
from dynatui.prometheus.exporter import Exporter

PATIENCE_S = 60.0


class Answer(NamedTuple):
    status: int
    kind: str
    page: bytes


def address(url: str) -> tuple[str, int]:
    found = urlsplit(url)
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port


def answer(url: str, path: str = "/metrics", method: str = "GET", **headers: str) -> Answer:
    """Sends a request to the server of a URL and returns its answer; names of headers have `_` for `-`."""
    with closing(http.client.HTTPConnection(*address(url), timeout=PATIENCE_S)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        response = connection.getresponse()
        return Answer(response.status, response.getheader("Content-Type", ""), response.read())


def by_method(page: bytes, sample: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(page.decode()):
        for each in family.samples:
            if each.name == sample:
                found[each.labels["method"]] = found.get(each.labels["method"], 0.0) + each.value
    return found


def generated(page: bytes) -> dict[str, float]:
    return by_method(page, "vllm:generation_tokens_total")


class Metrics(dict[tuple[str, str, str], float]):
    """Values by name of the sample, method, and position or bound (empty for other samples)."""


def metrics_of(exporter: Exporter) -> Metrics:
    return Metrics(
        (
            (sample.name, sample.labels["method"], sample.labels.get("position") or sample.labels.get("le", "")),
            sample.value,
        )
        for family in exporter.registry.collect()
        for sample in family.samples
    )


def counted(events: Iterable[Event]) -> Metrics:
    exporter = Exporter()
    for event in events:
        exporter.take(event)
    return metrics_of(exporter)
