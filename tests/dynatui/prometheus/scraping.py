"""Reads served metrics as Prometheus does, and generates sessions of consecutive runs, some interrupted."""

import http.client
from collections.abc import Iterable
from contextlib import closing
from typing import NamedTuple, TypeAlias
from urllib.parse import urlsplit

from hypothesis import strategies as st
from msgspec import structs
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.events import End, Event, Knob, Start, Summary
from dynatui.prometheus import Exporter
from tests.dynatui.scripted_runs import plain_round, run

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


def generated(page: bytes) -> dict[str, float]:
    """Generated tokens by method."""
    families = {family.name: family for family in text_string_to_metric_families(page.decode())}
    samples = families["vllm:generation_tokens"].samples
    return {sample.labels["method"]: sample.value for sample in samples}


Metrics: TypeAlias = dict[tuple[str, str, str], float]
"""Values by name of the sample, method, and position or bound (empty for other samples)."""


def metrics_of(families: Iterable[Metric]) -> Metrics:
    samples = (sample for family in families for sample in family.samples)
    return {
        (each.name, each.labels["method"], each.labels.get("position") or each.labels.get("le", "")): each.value
        for each in samples
    }


def counted(events: Iterable[Event]) -> Metrics:
    exporter = Exporter()
    for event in events:
        exporter.take(event)
    return metrics_of(exporter.registry.collect())


METHODS = ("auto", "alg1", "ar", "hf")
SECONDS = st.floats(0, 200, allow_nan=False)


@st.composite
def trees(draw: st.DrawFn, method: str) -> tuple[list[int], list[int]]:
    """Parents of the nodes, and an accepted path; only a root for methods that draft no tree."""
    most = 0 if method in ("ar", "hf") else 6
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, 1 + draw(st.integers(0, most))))]
    path, node = list[int](), draw(st.integers(0, len(parents) - 1))
    while node > 0:
        path, node = [node, *path], parents[node]
    if method == "alg1":  # its root is drafted and comes first in the path
        path = draw(st.sampled_from(([], [0, *path])))
    return parents, path


@st.composite
def rounds(draw: st.DrawFn, method: str) -> list[Event]:
    told: list[Event] = [Start(method=method, prefill_s=draw(SECONDS))]
    t = 0.0
    for number in range(draw(st.integers(0, 4))):
        parents, accepted = draw(trees(method))
        t += draw(SECONDS)
        size = len(parents)
        tree = {"tokens": [7] * size, "logprobs": [0.0] * size, "pieces": [""] * size, "parents": parents}
        committed = list(range(draw(st.integers(1, len(accepted) + 1))))
        forwards = None if method == "hf" else 1
        plain = plain_round(method, number, text="")
        outcome = {"accepted": accepted, "committed": committed}
        told.append(structs.replace(plain, t=t, wall_s=t, draft_forwards=forwards, **tree, **outcome))
        if draw(st.booleans()):
            told.append(Knob(method=method, round=number + 1, name="tau_h", old=0.9, new=0.8, source="user"))
    return told


@st.composite
def sessions(draw: st.DrawFn) -> list[Event]:
    """All events of a few runs, whose methods take turns in random order."""
    events: list[Event] = []
    for _ in range(draw(st.integers(0, 3))):
        methods = draw(st.lists(st.sampled_from(METHODS), min_size=1, unique=True))
        events.append(run(methods, prompt="Once"))
        waiting = [draw(rounds(method)) for method in methods]
        while waiting := [part for part in waiting if part]:
            events.append(draw(st.sampled_from(waiting)).pop(0))
        events += [End(method=method, reason="stopped") for method in methods]
        events += draw(st.sampled_from(([], [Summary(methods={})])))
    return events
