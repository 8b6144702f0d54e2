"""Output of a run without a screen, as plain text or as JSON.

A live run and a replay feed the same transcript, so they print the same. Results go to standard output, all else to
standard error. Knows nothing of models or of the source of events.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

import msgspec

from decoder.analysis.metrics import FIGURES, Race, differs_by_design
from decoder.analysis.stalls import told
from decoder.events import End, Event, Figures, Round, Run, Summary
from decoder.methods import draws_alone
from dynatui.clean import clean_line
from dynatui.number_format import memory_by_rank
from dynatui.terminal import streams

COLUMNS = (
    "committed",
    "rounds",
    "tokens_per_round",
    "distinct_8grams",
    "acceptance_rate",
    "tokens_per_second",
    "speedup",
    "identical_to_ar",
    "near_tie",
)
"""Figures in the table at the end of a run; JSON has all figures."""


class MethodReport(Figures, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """All figures of a method, and its tokens."""

    tokens: list[int]


class Report(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The output of `--json` for each prompt."""

    prompt: str
    text: str
    """Text of the first method."""
    target: str
    draft: str
    device: str
    dtype: str
    draft_dtype: str
    exact: bool
    path: str
    path_reason: str
    seed: int
    temperature: float
    """Temperature at the start of the run; later changes are only in a recording."""
    top_k: int
    top_p: float
    ranks: list[str] = []
    """The device of each process that ran the target, where several did."""
    peak_bytes_by_rank: list[int] = []
    methods: dict[str, MethodReport]


class Transcript:
    """Prints runs as their events come in."""

    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool) -> None:
        self.failed = False
        """Whether any method ended in an error."""
        self._out = out
        self._err = err
        self._as_json = as_json
        self._race = Race()
        self._texts: list[str] = []

    def feed(self, event: Event) -> None:
        """Adds the next event, and prints its part of the output."""
        if isinstance(event, Run):
            self.finish()
        self._race = self._race.apply(event)
        match event:
            case Run():
                self.note(
                    f"{event.target} with {event.draft} on {event.place} in {event.arithmetic}: "
                    f"{len(event.prompt_tokens)} prompt tokens, at most {event.max_new_tokens} new"
                )
                if event.path:
                    self.note(f"rounds: {event.path}, {event.path_reason}")
                if event.temperature > 0:
                    self.note(f"sampled: {_sampled(event)}")
            case Round(method=method, text=text) if method == self._first:
                self._texts.append(text)
                if not self._as_json:
                    streams.show(text, self._out)
            case End(method=method, error=str(error)):
                self.failed = True
                self.note(f"{method} broke off: {error}")
            case Summary(methods=figures, peak_bytes_by_rank=peaks) if self._race.run:
                self._close(self._race.run, figures, peaks)
            case _:
                pass

    def finish(self) -> None:
        """Prints the results so far of an interrupted run; nothing without a run."""
        if self._race.run:
            self._close(self._race.run, self._race.figures())

    def note(self, line: str) -> None:
        """Prints a line of progress; a broken standard error is ignored."""
        with suppress(OSError):
            print(clean_line(line), file=self._err, flush=True)

    @property
    def _first(self) -> str | None:
        return next(iter(self._race.run.methods), None) if self._race.run else None

    def _close(self, run: Run, figures: dict[str, Figures], peaks: Sequence[int] = ()) -> None:
        if self._as_json:
            streams.show(msgspec.json.encode(self._report(run, figures, peaks)).decode(), self._out)
        streams.show("\n", self._out)
        for line in table(figures):
            self.note(line)
        for words in told(figures.values())[:1]:
            self.note(words)
        if peaks:
            self.note(memory_by_rank(peaks))
        if self._race.sampled and "ar" in figures and (alone := [name for name in figures if draws_alone(name)]):
            self.note(f"{', '.join(alone)}: sampled with other random numbers than the rest; not compared with ar")
        if own := [name for name, each in figures.items() if differs_by_design(each)]:
            self.note(f"{', '.join(own)}: the text differs from that of ar by design")
        self._race, self._texts = Race(), []

    def _report(self, run: Run, figures: dict[str, Figures], peaks: Sequence[int]) -> Report:
        own = ("text", "methods", "peak_bytes_by_rank")
        fields = {name: getattr(run, name) for name in Report.__struct_fields__ if name not in own}
        methods = {
            name: MethodReport(**msgspec.structs.asdict(each), tokens=list(self._race.tallies[name].tokens))
            for name, each in figures.items()
        }
        return Report(**fields, text="".join(self._texts), methods=methods, peak_bytes_by_rank=list(peaks))


def _sampled(run: Run) -> str:
    truncated = (f" top-k {run.top_k}" if run.top_k else "") + (f" top-p {run.top_p:g}" if run.top_p < 1 else "")
    return f"temperature {run.temperature:g}{truncated} seed {run.seed}"


def table(figures: dict[str, Figures]) -> list[str]:
    """A table of aligned columns: a line of headings, then a line for each method."""
    labels = {figure.key: figure.label for figure in FIGURES}
    rows = [["method", *(labels[key] for key in COLUMNS)]]
    rows += [[name, *(_cell(getattr(each, key)) for key in COLUMNS)] for name, each in figures.items()]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def _cell(value: float | None) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case _:
            return f"{value:.2f}"
