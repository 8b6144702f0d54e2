"""`dynatui why`: says of each method of a recording how fast it is, what limits it, and what would help."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from textwrap import shorten, wrap
from typing import Any, TextIO

import msgspec

from decoder.analysis.bottleneck import (
    FEWEST_ROUNDS,
    bottleneck_sentences,
    explained,
    of_figures,
    of_method,
    with_difference,
)
from decoder.analysis.metrics import RunFold, Tally, fold, together, total, with_speedup
from decoder.analysis.speedup import Speedup, Turns, speedup
from decoder.events import Figures, Reason
from decoder.methods import METHODS
from dynatui.clean import clean_line
from dynatui.cli import options
from dynatui.cli.parameters import Declared, switch
from dynatui.record.reader import Runs
from dynatui.terminal import streams

WIDTH = 80

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


@dataclass
class Texts:
    """The texts of one method in a recording; a text on a busy machine counts only in `reason`."""

    tally: Tally = field(default_factory=Tally)
    plain: Tally = field(default_factory=Tally)
    """Totals of `ar` on the same prompts."""
    figures: list[Figures] = field(default_factory=list)
    turns: list[Turns] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    """Numbers of the prompts on which the text differs from the text of `ar`."""
    reason: Reason | None = None

    def add(self, race: RunFold, method: str, prompt: int) -> None:
        figures, turns = race.figures()[method], race.turns(method)
        self.differing += [prompt] * (figures.first_difference is not None)
        self.reason = figures.speedup_reason
        if self.reason != "machine busy":
            self.tally = together([self.tally, race.tallies[method]])
            self.plain = together([self.plain, race.tallies.get("ar", Tally())])
            self.figures.append(figures)
            self.turns += [turns] if turns else []

    @property
    def total(self) -> Figures:
        if len(self.figures) == 1:
            return self.figures[0]
        return with_speedup(total(self.figures), speedup(self.turns, whole=True) if self.turns else Speedup())


def _print(races: Iterable[RunFold], out: TextIO) -> None:
    """Prints the report. Runs before an invalid line are reported before the error propagates. Runs are not kept: they
    may exceed the memory.
    """
    prompts, methods = list[str](), dict[str, Texts]()
    try:
        for number, race in enumerate(races, 1):
            prompts.append(clean_line(race.run.prompt if race.run else ""))
            for method in race.tallies:
                methods.setdefault(method, Texts()).add(race, method, number)
    finally:
        if prompts:
            streams.show("\n".join(report(methods, prompts)) + "\n", out)


def report(methods: Mapping[str, Texts], prompts: Sequence[str]) -> Iterator[str]:
    """Lines of the report: the prompts, then each method, the fastest first."""
    for number, prompt in enumerate(prompts, 1):
        yield shorten(f"prompt {number}: {prompt}", WIDTH, placeholder=" ...")
    totals = {name: texts.total if texts.figures else Figures() for name, texts in methods.items()}
    for name in sorted(totals, key=lambda name: -(totals[name].speedup or 0.0)):
        sentences = _sentences(name, methods[name], totals[name], len(prompts))
        yield from wrap(" ".join(sentences), WIDTH, initial_indent="  ", subsequent_indent="    ")


def _sentences(method: str, texts: Texts, figures: Figures, prompts: int) -> tuple[str, ...]:
    shown = clean_line(method)
    found = None if method == "ar" else of_figures(figures, texts.tally, texts.plain)
    if found is None:
        return (f"{shown} {silence(method, texts.reason)}.",)
    where = f" on prompt{'s' * (len(texts.differing) > 1)} {', '.join(map(str, texts.differing))}"
    speed, *more = with_difference(bottleneck_sentences(found, shown), figures, where if prompts > 1 else "")
    speedups = [each.speedup for each in texts.figures if each.speedup]
    if figures.identical_to_ar:
        speed += " Its text is that of ar."
    if len(speedups) > 1:
        speed += f" Over {len(speedups)} prompts: {min(speedups):.2f} to {max(speedups):.2f} times."
    return (speed, *more)


def silence(method: str, reason: Reason | None = None) -> str:
    """Why no bottleneck of a method is known."""
    if method in METHODS and METHODS[method].by_module:
        return "does not show its draft, so only the method's time is known"
    if method in METHODS and METHODS[method].rules is None:
        return "drafts nothing: the other methods are compared with it"
    if reason == "machine busy":
        return "cannot be judged: the machine was busy, so times do not measure the method"
    return f"has drafted nothing, or ran for fewer than {FEWEST_ROUNDS} rounds"
