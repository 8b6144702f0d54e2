"""Prints a run as text or JSON, and notes on standard error; a replay of the run prints the same."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TextIO

import msgspec

from decoder.analysis.metrics import RunFold, differs_by_design, missing_speedups
from decoder.analysis.paired import BLOCK, LOOKS
from decoder.analysis.stalls import stall_notes
from decoder.events import LOST, End, Event, Figures, Round, Run, Summary
from decoder.methods import SIDE_A, draws_alone
from dynatui.clean import clean_line
from dynatui.knobs import preset_of
from dynatui.number_format import memory_by_rank
from dynatui.result import aligned, heading, result, settings, table
from dynatui.state.ab_comparison import Measured, Pairs, measured, with_run
from dynatui.state.lane import begun
from dynatui.state.run_state import RunState, apply
from dynatui.terminal import streams


class MethodReport(Figures, frozen=True, forbid_unknown_fields=True, kw_only=True):
    tokens: list[int]
    error: str | msgspec.UnsetType = msgspec.UNSET
    """Why the method ended before its text was complete."""
    lost_drafts: int | msgspec.UnsetType = msgspec.UNSET
    """Number of rounds whose draft tree lacks nodes, because the draft model's logits were NaN or infinite."""


class SettingReport(msgspec.Struct, frozen=True, kw_only=True):
    """A setting compared with another setting, A, over the same tokens of this prompt and all earlier prompts."""

    method: str
    knobs: dict[str, float]
    """The knobs that differ from those of A."""
    knobs_of_a: dict[str, float]
    blocks: int
    """Blocks of tokens at the latest verdict; before the first verdict, blocks so far, and later fields are null."""
    verdict: str | None = None
    tokens_per_round: float | None = None
    tokens_per_round_of_a: float | None = None
    tokens_per_second: float | None = None
    tokens_per_second_of_a: float | None = None
    ratio: float | None = None
    """Tokens per second / tokens per second of A; `ratio_low` and `ratio_high` are the ends of its 99 % interval."""
    ratio_low: float | None = None
    ratio_high: float | None = None

    @classmethod
    def of(cls, found: Measured) -> "SettingReport":
        a, b, seen = dict(found.pair.a.knobs), dict(found.pair.b.knobs), found.comparison
        differing = {name: value for name, value in b.items() if a.get(name) != value}
        method, before = found.pair.b.method, {name: a[name] for name in differing if name in a}
        so_far = cls(method=method, knobs=differing, knobs_of_a=before, blocks=found.blocks)
        if seen is None:
            return so_far
        return msgspec.structs.replace(
            so_far,
            blocks=seen.blocks,
            verdict=seen.verdict,
            tokens_per_round=seen.b.tokens / seen.b.rounds,
            tokens_per_round_of_a=seen.a.tokens / seen.a.rounds,
            tokens_per_second=seen.b.tokens / seen.b.seconds,
            tokens_per_second_of_a=seen.a.tokens / seen.a.seconds,
            ratio=seen.rate.value,
            ratio_low=seen.rate.low,
            ratio_high=seen.rate.high,
        )


class Report(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The JSON object that is printed for a prompt."""

    prompt: str
    category: str = ""
    text: str
    """The text of the first method."""
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
    """The temperature at the start; only a recording contains later changes."""
    top_k: int
    top_p: float
    ranks: list[str] = []
    """The device of each process that ran the target; empty if one process ran it."""
    peak_bytes_by_rank: list[int] = []
    methods: dict[str, MethodReport]
    settings_tried: list[SettingReport] = []


class Transcript:
    def __init__(self, out: TextIO, err: TextIO, *, as_json: bool) -> None:
        self.failed = False
        self._out = out
        self._err = err
        self._as_json = as_json
        self._race = RunFold()
        self._open = False
        """Whether the run has begun and its results are not printed yet."""
        self._runs = 0
        self._texts: list[str] = []
        self._errors: dict[str, str] = {}
        self._lost: Counter[str] = Counter()
        """Number of rounds in which the draft model's logits were NaN or infinite, by method."""
        self._state = RunState()
        """State of the current run; only maintained if the run compares settings."""
        self._pairs: Pairs = {}

    def feed(self, event: Event) -> None:
        if isinstance(event, Run):
            self.finish()
        self._race = self._race.apply(event)
        if self._race.run and any(name.endswith(SIDE_A) for name in self._race.run.methods):
            self._state = apply(self._state, event)
        if isinstance(event, Round) and event.limited_by == LOST:
            self._lost[event.method] += 1
        match event:
            case Run():
                self._open = True
                self._runs += 1
                for line in _introduction(event):
                    self.note(line)
            case Round(method=method, text=text) if method in self._first_method():
                self._texts.append(text)
                if not self._as_json:
                    streams.show(text, self._out)
            case End(method=method, error=str(error)):
                self.failed = True
                self._errors[method] = error
                self.note(f"{method} broke off: {error}")
            case Summary(methods=figures, peak_bytes_by_rank=peaks) if self._race.run and self._open:
                self._close(self._race.run, self._race.judged(figures), peaks)
            case _:
                pass

    def finish(self) -> None:
        if self._race.run and self._open:
            self._close(self._race.run, self._race.figures())

    def result(self) -> None:
        """Prints the result of all prompts together, if there are several."""
        self.finish()
        if self._runs > 1 and (run := self._race.run):
            lanes = {name: begun(name, run) for name in run.methods}
            for line in (": ".join(heading(self._race)), *result(self._race), *settings(lanes)):
                self.note(line)

    def note(self, line: str) -> None:
        """Prints a line to standard error; errors while writing are ignored."""
        with suppress(OSError):
            print(clean_line(line), file=self._err, flush=True)

    def _first_method(self) -> list[str]:
        return list(self._race.run.methods)[:1] if self._race.run and self._open else []

    def _close(self, run: Run, figures: dict[str, Figures], peaks: Sequence[int] = ()) -> None:
        self._pairs, self._state = with_run(self._pairs, self._state), RunState()
        if self._as_json:
            streams.show(msgspec.json.encode(self._report(run, figures, peaks)).decode(), self._out)
        streams.show("\n", self._out)
        for line in aligned(table(figures)):
            self.note(line)
        compared = (_compared(SettingReport.of(measured(self._pairs, pair))) for pair in self._pairs)
        for words in (*stall_notes(figures.values())[:1], *missing_speedups(figures), *compared):
            self.note(words)
        if peaks:
            self.note(memory_by_rank(peaks))
        if self._race.sampled and "ar" in figures and (alone := [name for name in figures if draws_alone(name)]):
            self.note(f"{', '.join(alone)}: sampled with other random numbers than ar, so the texts are not compared")
        if lost := [f"{count} of {figures[name].rounds} rounds of {name}" for name, count in self._lost.items()]:
            self.note(
                f"the draft's logits were NaN or infinite in {', '.join(lost)}, so drafts lack tokens; choose another "
                "--draft-dtype or --draft"
            )
        if by_design := [name for name, entry in figures.items() if differs_by_design(entry)]:
            self.note(f"{', '.join(by_design)}: the text differs from that of ar by design")
        self._open, self._texts, self._errors, self._lost = False, [], {}, Counter()

    def _report(self, run: Run, figures: dict[str, Figures], peaks: Sequence[int]) -> Report:
        added = ("category", "text", "methods", "peak_bytes_by_rank", "settings_tried")
        fields = {name: getattr(run, name) for name in Report.__struct_fields__ if name not in added}
        methods = {
            name: MethodReport(
                **msgspec.structs.asdict(entry),
                tokens=list(self._race.tallies[name].tokens),
                error=self._errors.get(name, msgspec.UNSET),
                lost_drafts=self._lost[name] or msgspec.UNSET,
            )
            for name, entry in figures.items()
        }
        fields |= {"category": run.category or "", "text": "".join(self._texts), "peak_bytes_by_rank": list(peaks)}
        tried = [SettingReport.of(measured(self._pairs, pair)) for pair in self._pairs]
        return Report(**fields, methods=methods, settings_tried=tried)


def _introduction(run: Run) -> Iterator[str]:
    yield (
        f"{run.target} with {run.draft} on {run.place} in {run.arithmetic}: "
        f"{len(run.prompt_tokens)} prompt tokens, at most {run.max_new_tokens} new tokens"
    )
    if run.start_words:
        yield run.start_words
    if run.path:
        yield f"rounds: {run.path}, {run.path_reason}"
    if run.temperature > 0:
        truncated = (f" top-k {run.top_k}" if run.top_k else "") + (f" top-p {run.top_p:g}" if run.top_p < 1 else "")
        yield f"sampled: temperature {run.temperature:g}{truncated} seed {run.seed}"
    for method in run.methods:
        if preset := preset_of(method, begun(method, run)):
            yield f"{method}: preset {preset}"


def _compared(found: SettingReport) -> str:
    if found.ratio is None:
        return (
            f"{found.method}: no verdict on B and A before {LOOKS[0]} blocks of {BLOCK} tokens; {found.blocks} so far"
        )
    ratio = f"{found.ratio:.2f} ({found.ratio_low:.2f} to {found.ratio_high:.2f})"
    return f"{found.method}: {found.verdict}, {ratio} times A's tokens/s over {found.blocks} blocks of {BLOCK} tokens"
