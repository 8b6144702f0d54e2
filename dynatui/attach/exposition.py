"""A page of metrics in Prometheus' text format, as numbers by name and labels.

Pages are untrusted: one of another format, cut off or unreadable is an error of one line. Only the lines of wanted
metrics are parsed: a page has thousands, and is read every second. Knows no server and no network.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.errors import first_line, quoted

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name."""
Series: TypeAlias = Mapping[Labels, float]
Page: TypeAlias = Mapping[str, Series]
"""Series by the metric's name, without `_total`, which only some exporters append."""

LARGEST = 2**53
"""Largest count: floats are exact up to it."""
MOST_LINES = 20_000
"""Most lines of wanted metrics: more take too long for one reading."""
_TOTAL, _CREATED = "_total", "_created"
_JUDGED = 1000
"""Number of first lines that show whether a page has metrics at all."""
_UNREADABLE = (ValueError, IndexError, KeyError)
"""Exceptions of the parser for a malformed line."""


class PageError(Exception):
    """A page cannot be read; the message has the reason and the remedy, in one line."""


class NotMetricsError(PageError):
    """The response has no metrics: the page may have another URL."""


def lines_of(text: str) -> Sequence[str]:
    """The lines of a page; raises a NotMetricsError where it is empty, of another format or not whole."""
    opening = text.lstrip()[:1]
    if not opening:
        raise NotMetricsError("the page is empty, as that of some servers is before their first request")
    if opening == "<":
        raise NotMetricsError("the page is HTML, no metrics; give the address of the server itself")
    if opening in "{[" and _is_json(text):
        raise NotMetricsError("the page is JSON, no metrics; give the address of the server's metrics")
    if not text.endswith("\n"):
        raise NotMetricsError("the page breaks off in its last line")
    return text.split("\n")


def parsed(lines: Sequence[str], counters: tuple[str, ...], gauges: tuple[str, ...] = ()) -> Page:
    """Metrics with these name prefixes; raises a NotMetricsError where one of their lines is malformed.

    Left out: creation times of counters, NaN and values that are no counts, and counters that the page declares as
    gauges, since the increase of a gauge counts nothing.
    """
    page, wanted = dict[str, dict[Labels, float]](), [line for line in lines if line.startswith(counters + gauges)]
    momentary = set(_announced_gauges(lines))
    if len(wanted) > MOST_LINES:
        raise NotMetricsError(
            f"the page has {len(wanted)} lines of these metrics, of which at most {MOST_LINES} are read"
        )
    for family in _families(wanted):
        for sample in family.samples:
            name = sample.name.removesuffix(_TOTAL)
            counted = name not in counters or sample.name not in momentary
            if counted and not name.endswith(_CREATED) and 0 <= sample.value <= LARGEST:
                series = page.setdefault(name, {})
                series[tuple(sorted(sample.labels.items()))] = float(sample.value)
    return page


def require_metrics(lines: Sequence[str]) -> None:
    """Raises a NotMetricsError where the first lines of a page have no metrics."""
    _families(lines[:_JUDGED])


def _announced_gauges(lines: Sequence[str]) -> Iterator[str]:
    for line in lines:
        if line.startswith("# TYPE ") and line.split()[3:] == ["gauge"]:
            yield line.split()[2]


def _families(lines: Sequence[str]) -> list[Metric]:
    try:
        return list(text_string_to_metric_families("\n".join(lines)))
    except _UNREADABLE as error:
        raise NotMetricsError(f"the page is in no format of Prometheus: {quoted(first_line(error))}") from None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
