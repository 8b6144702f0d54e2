"""What works here and what does not: findings with a verdict each, and a remedy where one is needed.

A doctor is asked when something is broken, so each probe stands alone: one that fails is a finding, not the end. What
is examined, and how, is in `dynatui.cli.probes`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Literal

import msgspec

from decoder.errors import DecoderError
from dynatui.clean import clean_line
from dynatui.cli.settings import with_places
from dynatui.session import Models

Verdict = Literal["ok", "note", "problem"]


@dataclass(frozen=True)
class Finding:
    """One thing that was found out."""

    verdict: Verdict
    """A problem keeps dynatui from running as asked; a note is worth knowing."""
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Case:
    """What the user asks about."""

    models: Models
    log: Path | None
    settings: Callable[[], str]
    """Says in a line where the settings come from; raises a DecoderError if one is wrong."""
    strange_variables: Sequence[str] = ()
    """Variables that look like settings and are none."""


Probe = Callable[[Case], Iterator[Finding]]


class Examined(msgspec.Struct, frozen=True):
    """What `--json` prints of a finding."""

    topic: str
    verdict: Verdict
    text: str
    remedy: str


class Report(msgspec.Struct, frozen=True):
    """What `--json` prints."""

    ok: bool
    """Whether there is no problem."""
    findings: list[Examined]


def examine(case: Case, probes: Mapping[str, Probe]) -> Report:
    """Runs every probe, whatever becomes of the others."""
    findings = [
        Examined(topic, finding.verdict, finding.text, finding.remedy)
        for topic, probe in probes.items()
        for finding in _alone(probe, case)
    ]
    return Report(ok=all(finding.verdict != "problem" for finding in findings), findings=findings)


def page(report: Report) -> str:
    """The report for people, with its verdict in the last line."""
    lines = []
    for topic, findings in groupby(report.findings, lambda finding: finding.topic):
        lines.append(topic)
        told = [(finding.verdict, "; ".join(filter(None, (finding.text, finding.remedy)))) for finding in findings]
        lines += [f"  {verdict:<8} {text}" for verdict, text in told]
    problems = sum(finding.verdict == "problem" for finding in report.findings)
    verdict = "all that is needed works" if report.ok else f"{problems} problem{'s' * (problems > 1)}, see above"
    return "".join(f"{clean_line(line)}\n" for line in [*lines, f"verdict: {verdict}"])


def _alone(probe: Probe, case: Case) -> Iterable[Finding]:
    try:
        yield from probe(case)
    except DecoderError as error:
        yield Finding("problem", with_places(error))
    except Exception as error:  # noqa: BLE001 - whatever is broken here is what the user wants to be told
        why = (str(error).strip().splitlines() or ["no reason given"])[0]
        yield Finding("problem", f"could not be examined: {type(error).__name__}: {why}", "install dynatui anew")
