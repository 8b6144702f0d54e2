"""What pages of all benchmarks have in common: numbers with intervals, the machine, verdicts. Knows no benchmark."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from decoder.analysis.interval import Interval, verdict
from decoder.tables.data import number
from decoder.tables.text import counted
from dynatui.report.markup import Markup, element

if TYPE_CHECKING:  # which import torch
    from decoder.bench.machine import Machine


def interval(found: Interval | None, digits: int = 2) -> str:
    """A median with its interval, where it has one."""
    if found is None or found.low is None or found.high is None:
        return number(found.value if found else None, digits)
    return f"{found.value:.{digits}f} ({found.low:.{digits}f} to {found.high:.{digits}f})"


def machine_entries(machine: "Machine", load_after: float | None) -> list[tuple[str, str]]:
    """Where something was measured."""
    counts = f"{counted(machine.threads, 'thread')} on {counted(machine.cores, 'core')}"
    threads = f"{machine.processor}, {counts}, {machine.system}"
    return [
        ("Machine", f"{machine.accelerator}; {threads}" if machine.accelerator else threads),
        ("Versions", ", ".join(f"{name} {version}" for name, version in machine.versions.items())),
        ("Load before and after", f"{number(machine.load_before, 1)}, {number(load_after, 1)}"),
    ]


def verdict_of_ratio(found: Interval) -> str:
    """Whether a ratio of speeds is above 1, as far as its interval tells."""
    said = verdict(found)
    return {"holds": "faster", "does not hold": "slower"}.get(said, said)


def notice(lines: Iterable[str]) -> Markup:
    """What a reader should know first; nothing where there is nothing."""
    told = list(lines)
    return element("div", *(element("p", line) for line in told), class_="notice") if told else Markup()
