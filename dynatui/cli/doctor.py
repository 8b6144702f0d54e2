"""`dynatui doctor`: runs a list of checks; an error in a check is reported as a finding, and nothing is downloaded."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import typer

from decoder.errors import DecoderError, ModelError
from dynatui.clean import clean_line
from dynatui.cli import config, options, request
from dynatui.cli import doctor_machine as machine
from dynatui.cli.doctor_machine import CheckResult, DoctorInput, Verdict
from dynatui.cli.parameters import CONTEXT, Declared, switch
from dynatui.cli.settings import applied, fill, strange_variables, with_places
from dynatui.number_format import counted
from dynatui.session import Models
from dynatui.terminal import streams

Check = Callable[[DoctorInput], Iterable[CheckResult]]
_OFFLINE = "HF_HUB_OFFLINE"


class Examined(msgspec.Struct, frozen=True):
    """One finding, as `--json` prints it."""

    topic: str
    verdict: Verdict
    text: str
    remedy: str


class Report(msgspec.Struct, frozen=True):
    ok: bool
    findings: list[Examined]


PARAMETERS: Declared = (
    CONTEXT,
    request.MODELS,
    options.LOG_FILE,
    switch("--json", "Print one JSON object instead of lines of text.", name="as_json"),
)


def doctor(context: typer.Context, *, models: Models, log: Path | None, as_json: bool) -> int:
    """Examine terminal, packages, devices, models, settings and files; nothing is downloaded."""
    given: dict[str, Any] = {**vars(models), "log": log}
    with suppress(DecoderError):  # the check of settings reports invalid settings
        given |= fill(context, applied(context))
    live = context.find_root()
    case = DoctorInput(
        log=given.pop("log"),
        models=Models(**given),
        settings=lambda: config.summary(live),
        strange_variables=strange_variables(live.command),
        forbidden=bool(os.environ.get(_OFFLINE)),
    )
    with streams.results_only():
        report = examine(case, CHECKS)
    out, _ = streams.for_printing()
    streams.show(f"{msgspec.json.encode(report).decode()}\n" if as_json else page(report), out)
    return 0 if report.ok else ModelError.exit_code


def examine(case: DoctorInput, checks: Mapping[str, Check]) -> Report:
    findings = [Examined(topic, *finding) for topic, check in checks.items() for finding in _alone(check, case)]
    return Report(ok=all(finding.verdict != "problem" for finding in findings), findings=findings)


def page(report: Report) -> str:
    """The report as text, with the verdict in the last line."""
    lines = []
    for topic, findings in groupby(report.findings, lambda finding: finding.topic):
        lines.append(topic)
        lines += [f"  {each.verdict:<8} {'; '.join(filter(None, (each.text, each.remedy)))}" for each in findings]
    problems = counted(sum(finding.verdict == "problem" for finding in report.findings), "problem")
    verdict = "everything that is needed works" if report.ok else f"{problems}, see above"
    return "".join(f"{clean_line(line)}\n" for line in [*lines, f"verdict: {verdict}"])


def _alone(check: Check, case: DoctorInput) -> Iterator[CheckResult]:
    try:
        yield from check(case)
    except DecoderError as error:
        yield CheckResult("problem", with_places(error))
    except Exception as error:  # noqa: BLE001 - any fault of the installation is a finding
        why = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0]}"
        yield CheckResult("problem", f"this topic could not be examined: {why}", "reinstall dynatui")


def _of_models() -> ModuleType:
    """Imports the module of the checks that need torch, after setting HF_HUB_OFFLINE, which this import reads."""
    os.environ[_OFFLINE] = "1"
    from dynatui.cli import doctor_models  # noqa: PLC0415 - imports torch

    return doctor_models


CHECKS: dict[str, Check] = {
    "terminal": machine.terminal,
    "versions": machine.versions,
    "devices": machine.devices,
    "kernels": machine.kernels,
    "models": lambda case: _of_models().models(case),
    "rounds": lambda case: _of_models().rounds(case),
    "times": lambda case: _of_models().theoretical_times(case),
    "settings": machine.settings,
    "log": machine.log,
    "recordings": machine.recordings,
}
