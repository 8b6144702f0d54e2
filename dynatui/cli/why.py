"""`dynatui why`: prints the bottleneck of each method in recorded runs, from the runs' figures. Loads no models."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TextIO

import msgspec

from decoder.analysis.bottleneck import explained, of_method
from decoder.analysis.findings import Case, cases
from decoder.analysis.metrics import Race, fold
from dynatui.clean import clean_line
from dynatui.cli import options
from dynatui.cli.parameters import Declared, switch
from dynatui.cli.why_report import heading, item, report, silence
from dynatui.record.reader import Runs
from dynatui.terminal import streams

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
    if as_json:
        for race in races:
            streams.show(_json(race), out)
    else:
        _print(races, out)
    return 0


def _print(races: Iterable[Race], out: TextIO) -> None:
    """Prints the report of all runs; of one run with at most one bottleneck, sentences on each method instead.

    An invalid line is raised after the report of the runs before it. Runs are not kept, since they may exceed memory.
    """
    prompts, known = list[str](), list[Case]()
    alone: Iterator[str] = iter(())
    try:
        for number, race in enumerate(races, 1):
            prompts.append(clean_line(race.run.prompt if race.run else ""))
            known += (replace(case, method=clean_line(case.method)) for case in cases(race, number))
            alone = _of_one(race, prompts[0])
    finally:
        if prompts:
            is_one = len(prompts) == 1 and sum(case.bottleneck is not None for case in known) <= 1
            streams.show("\n".join(alone if is_one else report(known, prompts)) + "\n", out)


def _of_one(race: Race, prompt: str) -> Iterator[str]:
    yield heading(1, prompt)
    figures = race.figures()
    for name in race.tallies:
        shown = clean_line(name)
        sentences = explained(race, name, shown) or (f"{shown} {silence(name, figures[name].speedup_reason)}.",)
        yield from item(" ".join(sentences))


def _json(race: Race) -> str:
    methods: dict[str, Any] = {
        name: asdict(bottleneck) | {"speedup": bottleneck.speedup, "verdict": explained(race, name, clean_line(name))}
        if bottleneck
        else None
        for name in race.tallies
        for bottleneck in (of_method(race, name),)
    }
    return msgspec.json.encode({"prompt": race.run.prompt if race.run else "", "methods": methods}).decode() + "\n"
