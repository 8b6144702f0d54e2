"""Parts of all benchmark pages: numbers with intervals, the machine, verdicts. Knows no benchmark."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from decoder.analysis.interval import Interval, verdict
from decoder.tables.data import number
from decoder.tables.text import counted
from dynatui.report.markup import Markup, element

if TYPE_CHECKING:  # these modules import torch
    from decoder.bench.machine import Machine


def interval(estimate: Interval | None, digits: int = 2) -> str:
    """A median with its interval, as text; a dash for None."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return number(estimate.value if estimate else None, digits)
    return f"{estimate.value:.{digits}f} ({estimate.low:.{digits}f} to {estimate.high:.{digits}f})"


def machine_entries(machine: "Machine", load_after: float | None) -> list[tuple[str, str]]:
    """Entries that describe the machine of a measurement, as input for `markup.details`."""
    counts = f"{counted(machine.threads, 'thread')} on {counted(machine.cores, 'core')}"
    threads = f"{machine.processor}, {counts}, {machine.system}"
    return [
        ("Machine", f"{machine.accelerator}; {threads}" if machine.accelerator else threads),
        ("Versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
        ("Load before and after", f"{number(machine.load_before, 1)}, {number(load_after, 1)}"),
    ]


def verdict_of_ratio(ratio: Interval) -> str:
    """Verdict on a ratio of speeds, from its confidence interval: faster, slower, or cannot tell."""
    judgement = verdict(ratio)
    return {"holds": "faster", "does not hold": "slower"}.get(judgement, judgement)


def notice(lines: Iterable[str]) -> Markup:
    """Box of warnings for the top of a page; empty if there are no warnings."""
    texts = list(lines)
    return element("div", *(element("p", line) for line in texts), class_="notice") if texts else Markup()
