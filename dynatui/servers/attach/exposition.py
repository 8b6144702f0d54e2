"""Parses an untrusted metrics page in Prometheus' text format.

Only lines of the wanted metrics are parsed, because a page has thousands of lines and is polled every second.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from decoder.errors import first_line, quoted
from dynatui.servers.attach.events import MOST_COUNTED

Labels: TypeAlias = tuple[tuple[str, str], ...]
"""(name, value) of each label, sorted by name."""
Series: TypeAlias = Mapping[Labels, float]
Page: TypeAlias = Mapping[str, Series]
"""Name of a metric -> its series. Names lack the suffix `_total`, which only some exporters append."""

MOST_LINES = 20_000
"""Largest number of lines to parse; more would take too long for one poll."""


class PageError(Exception):
    """A metrics page cannot be read; the message is one line with the reason and the remedy."""


class NotMetricsError(PageError):
    """The page has no readable metrics; the server's metrics page may have another URL."""


def lines_of(text: str) -> Sequence[str]:
    """Lines of a page; raises a NotMetricsError if the page is empty, truncated or in another format."""
    opening = text.lstrip()[:1]
    if not opening:
        raise NotMetricsError("the page is empty; some servers have no metrics before their first request")
    if opening == "<":
        raise NotMetricsError("the page is HTML, not metrics; give the address of the server itself")
    if opening in "{[":
        with suppress(ValueError, RecursionError):  # the text is in another format after all
            json.loads(text)
            raise NotMetricsError("the page is JSON, not metrics; give the address of the server's metrics")
    if not text.endswith("\n"):
        raise NotMetricsError("the page is cut off within its last line")
    return text.split("\n")


def parsed(lines: Sequence[str], counters: tuple[str, ...], gauges: tuple[str, ...] = ()) -> Page:
    """The series whose names begin with an entry of `counters` or `gauges`.

    Ignores creation times, values outside 0 to `MOST_COUNTED`, and counters that the page declares as gauges. Raises a
    NotMetricsError for a malformed line, or for more than `MOST_LINES` lines to parse.
    """
    page, selected = dict[str, dict[Labels, float]](), [line for line in lines if line.startswith(counters + gauges)]
    momentary = {line.split()[2] for line in lines if line.startswith("# TYPE ") and line.split()[3:] == ["gauge"]}
    if len(selected) > MOST_LINES:
        found = f"{len(selected)} lines with metrics that dynatui reads"
        raise NotMetricsError(f"the page has {found}; the maximum is {MOST_LINES}")
    for family in _families(selected):
        for sample in family.samples:
            name = sample.name.removesuffix("_total")
            counted = name not in counters or sample.name not in momentary
            if counted and not name.endswith("_created") and 0 <= sample.value <= MOST_COUNTED:
                page.setdefault(name, {})[tuple(sorted(sample.labels.items()))] = float(sample.value)
    return page


def require_metrics(lines: Sequence[str]) -> None:
    _families(lines[:1000])  # enough to judge the format


def _families(lines: Sequence[str]) -> list[Metric]:
    try:
        return list(text_string_to_metric_families("\n".join(lines)))
    except (ValueError, IndexError, KeyError) as error:  # from the parser, for a malformed line
        raise NotMetricsError(f"the page is not in a Prometheus format: {quoted(first_line(error))}") from None
