"""`dynatui why`: reports speeds and bottlenecks of the methods in recorded runs, with equal findings merged."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from textwrap import shorten, wrap
from typing import Any, TextIO

import msgspec

from decoder.analysis.bottleneck import FEWEST_ROUNDS, Span, explained, of_method
from decoder.analysis.findings import Cases, Finding, MethodCase, cases, findings, grouped
from decoder.analysis.metrics import RunFold, fold
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Reason
from decoder.methods import METHODS
from dynatui.clean import clean_line
from dynatui.cli import options
from dynatui.cli.parameters import Declared, switch
from dynatui.record.reader import Runs
from dynatui.terminal import streams

WIDTH = 80
_MANY = 3
"""Up to this number of differing texts, the first differing token of each text is listed."""


def report(cases: Sequence[MethodCase], prompts: Sequence[str]) -> Iterator[str]:
    """Lines of the report. A case is one method in one run, and each run has one prompt."""
    runs = len(prompts)
    yield from _speeds(cases, runs)
    yield ""
    for finding in findings(cases):
        yield from _finding(finding, runs)
    silent = (case for case in cases if case.bottleneck is None and case.method != "ar")
    for reason, group in grouped((case, silence(case.method, case.reason)) for case in silent).items():
        yield from item(f"{places(group, runs)}: {reason}.")
    if runs > 1:
        yield ""
        for number, prompt in enumerate(prompts, 1):
            yield heading(number, prompt)


def heading(number: int, prompt: str) -> str:
    return shorten(f"prompt {number}: {prompt}", WIDTH, placeholder=" ...")


def item(text: str) -> Iterator[str]:
    yield from wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def silence(method: str, reason: Reason | None = None) -> str:
    """Why no bottleneck of a method is known."""
    if method in METHODS and METHODS[method].by_module:
        return "does not show its draft, so only the method's time is known"
    if method in METHODS and METHODS[method].rules is None:
        return "drafts nothing: the other methods are compared with it"
    if reason == "machine busy":
        return "cannot be judged: the machine was busy, so times do not measure the method"
    return f"has drafted nothing, or ran for fewer than {FEWEST_ROUNDS} rounds"


def places(cases: Cases, runs: int) -> str:
    """Methods and prompts of cases, such as "dynatree, auto on prompts 1, 3-5; linear on prompt 2"."""
    by_method = grouped((case, case.method) for case in cases)
    by_runs = dict[tuple[int, ...], list[str]]()
    for method, group in by_method.items():
        by_runs.setdefault(tuple(case.run for case in group), []).append(method)
    return "; ".join(f"{', '.join(methods)}{_on(numbers, runs)}" for numbers, methods in by_runs.items())


def _on(numbers: Sequence[int], runs: int) -> str:
    if runs == 1:
        return ""
    every = "both" if runs == 2 else f"all {runs}"
    return f" on {every} prompts" if len(numbers) == runs else f" on {_prompts(numbers)}"


def _prompts(numbers: Sequence[int]) -> str:
    breaks = [number for before, number in pairwise(numbers) if number != before + 1]
    begins = [numbers[0], *breaks]
    ends = [*(before for before, number in pairwise(numbers) if number in breaks), numbers[-1]]
    spans = (f"{begin}-{end}" if end > begin else f"{begin}" for begin, end in zip(begins, ends, strict=True))
    return f"prompt{'s' if len(numbers) > 1 else ''} {', '.join(spans)}"


def _speeds(cases: Sequence[MethodCase], runs: int) -> Iterator[str]:
    how = f"; medians of {runs} prompts, with minimum and maximum" if runs > 1 else ""
    yield from wrap(f"Speed-up over plain decoding (ar){how}", WIDTH)
    methods = grouped((case, case.method) for case in cases if case.method != "ar")
    room = max((len(method) for method in methods), default=0)
    speeds = {method: [case.speedup for case in group if case.speedup] for method, group in methods.items()}
    for method in sorted(methods, key=lambda method: -median(speeds[method] or [0.0])):
        parts = [_speed(methods[method], speeds[method]), *_text(methods[method], runs)]
        yield from item(f"{method:<{room}}  {'; '.join(parts)}")


def _speed(group: Cases, speeds: Sequence[float]) -> str:
    if speeds:
        known = f" ({Span(speeds):.2f})" if len(speeds) > 1 else ""
        return f"{median(speeds):.2f}{known}"
    committed = [case.bottleneck.tokens_per_round for case in group if case.bottleneck]
    rounds = f"{Span(committed):.2f} tokens a round; " if committed else ""
    whys = ", ".join(dict.fromkeys(_WHY[case.reason] for case in group))
    return f"   - {rounds}the speed-up is unknown: {whys}"


_WHY: Mapping[Reason | None, str] = {
    None: "ar did not run beside it",
    "machine busy": "the machine was busy",
    "warming up": f"it or ar wrote fewer than {WARM_UP_TOKENS} tokens",
    "too few rounds": "too few rounds for an interval",
}


def _text(group: Cases, runs: int) -> Iterator[str]:
    compared = [case for case in group if case.compared]
    if not compared:
        return
    others = {case.run: case.difference for case in compared if case.difference is not None}
    if not others:
        yield "same text as ar"
        return
    how = " by design" if all(case.by_design for case in compared if case.difference is not None) else ""
    first = list(others.values())
    tokens = f"token{'s' * (len(first) > 1)} {', '.join(map(str, first))}"
    where = tokens if len(first) <= _MANY else f"token {min(first)} or later"
    yield f"its text differs from that of ar{how}{_on(tuple(others), runs)}, first at {where}"


def _finding(finding: Finding, runs: int) -> Iterator[str]:
    alike = len(finding.then) == 1 and finding.then[0][1] == finding.cases
    helps = "; then ".join([finding.helps, *([finding.then[0][0]] if alike else [])])
    remedy = f" What would help: {helps}." if finding.helps else ""
    yield from item(f"{places(finding.cases, runs)}: {finding.claim}.{remedy}")
    indent = "    "
    for further, group in () if alike else finding.then:
        then = f"Then, for {places(group, runs)}: {further}."
        yield from wrap(then, WIDTH, initial_indent=indent, subsequent_indent=indent)


PARAMETERS: Declared = (
    options.RECORDING,
    switch("--json", "One JSON object per run, with the numbers on which the sentences are based.", name="as_json"),
)


def why(path: Path, *, as_json: bool) -> int:
    """Report what limits the methods of a recording, with their speeds, the parts of their time, and remedies.

    Each factor is the speed-up if one limit were removed and everything else stayed as measured: an upper bound, not a
    forecast.
    """
    out, _ = streams.for_printing()
    races = (fold(run) for run in Runs(path))
    if not as_json:
        _print(races, out)
        return 0
    for race in races:
        methods = dict[str, dict[str, Any] | None]()
        for name in race.tallies:
            limit, verdict = of_method(race, name), explained(race, name, clean_line(name))
            methods[name] = asdict(limit) | {"speedup": limit.speedup, "verdict": verdict} if limit else None
        whole = {"prompt": race.run.prompt if race.run else "", "methods": methods}
        streams.show(f"{msgspec.json.encode(whole).decode()}\n", out)
    return 0


def _print(races: Iterable[RunFold], out: TextIO) -> None:
    """Prints the report of all runs, or of those before an invalid line. Keeps no run: runs may exceed the memory."""
    prompts, known = list[str](), list[MethodCase]()
    try:
        for number, race in enumerate(races, 1):
            prompts.append(clean_line(race.run.prompt if race.run else ""))
            known += (replace(case, method=clean_line(case.method)) for case in cases(race, number))
    finally:
        if prompts:
            streams.show("\n".join(report(known, prompts)) + "\n", out)
