"""What checks of the doctor find for a pair of models, as findings and as text."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dynatui.cli.doctor import checks, examine, page, works
from dynatui.cli.finding import Finding
from dynatui.session import Models


def found(check: str, models: Models | None = None, log: Path | None = None, live: Any = None) -> list[Finding]:
    return list(checks(models or Models(), log, live)[check]())


def said(findings: Iterable[Finding]) -> str:
    return "\n".join(f"{finding.verdict}: {finding.text}; {finding.remedy}" for finding in findings)


def told(check: str, models: Models | None = None, log: Path | None = None) -> str:
    return said(found(check, models, log))


def refused(check: str, models: Models | None = None, log: Path | None = None) -> str:
    """The doctor's page of a check that finds or ends in a problem."""
    report = examine({check: checks(models or Models(), log, None)[check]})
    assert not works(report)
    return page(report)
