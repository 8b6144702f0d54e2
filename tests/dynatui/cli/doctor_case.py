"""What checks of the doctor find in a case, as findings and as text."""

from collections.abc import Iterable

from dynatui.cli.doctor import CHECKS
from dynatui.cli.doctor_machine import CheckResult, DoctorInput
from dynatui.session import Models


def case(**changed: object) -> DoctorInput:
    parts = {"models": Models(), "log": None, "settings": lambda: "nothing is set", **changed}
    return DoctorInput(**parts)  # type: ignore[arg-type]  # tests pass any of the fields


def found(check: str, **changed: object) -> list[CheckResult]:
    return list(CHECKS[check](case(**changed)))


def said(findings: Iterable[CheckResult]) -> str:
    return "\n".join(f"{finding.verdict}: {finding.text}; {finding.remedy}" for finding in findings)
