"""Computes the figures (`decoder.events.Figures`) by a pure fold over events. Rates are ratios of totals over the run,
without stalled rounds (`decoder.analysis.stalls`).
"""

import functools
import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

import msgspec
import numpy as np
from msgspec import structs

from decoder.analysis.speedup import WARM_UP_TOKENS, Decoded, Segments, Speedup, Turns, speedup
from decoder.analysis.stalls import Stalls, Times, left_out_from
from decoder.append_only import TokenLog
from decoder.events import End, Event, Figures, Knob, Round, Run, Start
from decoder.methods import WHOLE, draws_alone, root_is_drafted, same_until
from decoder.system.waiting import MOST_WAITED
from decoder.tree import depths

Count = TypeVar("Count", int, float)
Levels: TypeAlias = tuple[tuple[int, int], ...]
"""(drafted, accepted) nodes at depth 1, 2, ..."""


class Figure(NamedTuple):
    key: str
    label: str
    formula: str
    elsewhere: str = ""
    """Names of this figure in other engines."""


FIGURES = tuple(Figure(key, *hint.__metadata__) for key, hint in get_type_hints(Figures, include_extras=True).items())


class Tally(msgspec.Struct, frozen=True):
    """Running totals of one method."""

    prefill_s: float | None = None
    first_round_s: float | None = None
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    depth_shares: float = 0.0
    levels: int = 0
    timed_tokens: int = 0
    """Committed tokens, except tokens committed at t = 0, which belong to the prefill."""
    target_forwards: int | None = 0
    draft_forwards: int | None = 0
    decode_s: float = 0.0
    draft_s: float | None = 0.0
    verify_s: float | None = 0.0
    commit_s: float | None = 0.0
    stalls: Stalls = Stalls()
    left_out_from: int = 0
    """Rounds with this level of lost time or a higher one are left out of rates; equal for all methods of a run."""
    by_depth: Levels = ()
    knows_tree: bool = True
    log: TokenLog = msgspec.field(default_factory=TokenLog)
    peak_bytes: int | None = None
    joules: float = 0.0
    metered_tokens: int = 0
    """Tokens committed in the rounds whose energy is known."""
    ended: bool = False

    @property
    def tokens(self) -> Sequence[int]:
        return self.log.tokens

    @property
    def rated(self) -> Times:
        every = Times(self.rounds, self.timed_tokens, self.decode_s, self.draft_s, self.verify_s, self.commit_s)
        return every.without(self.stalls.from_level(self.left_out_from))


_SUMS = (
    *("rounds", "drafted", "accepted", "depth_shares", "levels", "timed_tokens", "target_forwards", "draft_forwards"),
    *("decode_s", "draft_s", "verify_s", "commit_s", "joules", "metered_tokens"),
)
"""Fields that are summed over texts."""


def tally_round(tally: Tally, event: Round) -> Tally:
    levels, round_times = by_depth(event), times_of_round(event, event.t - tally.decode_s)
    added = {
        "rounds": 1,
        "drafted": drafted_nodes(event),
        "accepted": len(event.accepted),
        "depth_shares": len(event.accepted) / len(levels) if levels else 0.0,
        "levels": len(levels),
        "timed_tokens": round_times.timed_tokens,
        "target_forwards": event.target_forwards,
        "draft_forwards": event.draft_forwards,
        "draft_s": event.draft_s,
        "verify_s": event.verify_s,
        "commit_s": event.commit_s,
        "joules": event.energy.joules if event.energy else 0.0,
        "metered_tokens": event.energy.tokens if event.energy else 0,
    }
    totals: dict[str, Any] = {name: _plus(getattr(tally, name), part) for name, part in added.items()}
    return structs.replace(
        tally,
        **totals,
        decode_s=event.t,
        first_round_s=event.t if tally.first_round_s is None else tally.first_round_s,
        stalls=tally.stalls.with_round(event.stalled_s, round_times) if event.stalled_s else tally.stalls,
        by_depth=level_by_level(tally.by_depth, levels),
        knows_tree=tally.knows_tree and event.draft_forwards is not None,
        log=tally.log.plus(event.committed),
    )


def times_of_round(event: Round, round_s: float) -> Times:
    timed = len(event.committed) if round_s > 0 else 0
    return Times(1, timed, round_s, event.draft_s, event.verify_s, event.commit_s)


def together(tallies: Iterable[Tally]) -> Tally:
    """Totals over several texts of one method."""
    return functools.reduce(_joined, tallies, Tally())


def _joined(one: Tally, other: Tally) -> Tally:
    totals: dict[str, Any] = {name: _plus(getattr(one, name), getattr(other, name)) for name in _SUMS}
    return Tally(
        **totals,
        prefill_s=_plus(one.prefill_s or 0.0, other.prefill_s),
        first_round_s=_plus(one.first_round_s or 0.0, other.first_round_s),
        stalls=one.stalls.plus(other.stalls),
        left_out_from=max(one.left_out_from, other.left_out_from),
        by_depth=level_by_level(one.by_depth, other.by_depth),
        knows_tree=one.knows_tree and other.knows_tree,
        log=one.log.plus(other.tokens),
        peak_bytes=max(one.peak_bytes or 0, other.peak_bytes or 0) or None,
        ended=other.ended,
    )


def figures(tally: Tally, ar: Tally | None, *, same_until: int | None = WHOLE) -> Figures:
    """The figures `near_tie` and `first_difference_gap` remain None, since they need the models. `same_until`: number
    of first tokens that must equal those of `ar`; None: the texts are not compared.
    """
    rated, left_out = tally.rated, tally.stalls.from_level(tally.left_out_from)
    rate, ar_rate = rated.tokens_per_second, ar.rated.tokens_per_second if ar else None
    text = ar if same_until is not None and tally.tokens else None
    difference = first_difference(tally.tokens, text.tokens) if text else None
    by_design = difference is not None and same_until is not None and difference >= same_until
    drafted, accepted = (tally.drafted, tally.accepted) if tally.knows_tree else (None, None)
    parts = (tally.draft_s, tally.verify_s, tally.commit_s)
    return Figures(
        rounds=tally.rounds,
        drafted=drafted,
        accepted=accepted,
        committed=len(tally.tokens),
        target_forwards=tally.target_forwards,
        draft_forwards=tally.draft_forwards,
        tokens_per_round=_ratio(len(tally.tokens), tally.rounds),
        path_length=_ratio(accepted, tally.rounds),
        acceptance_rate=_ratio(accepted, drafted),
        depth_acceptance=_ratio(tally.depth_shares, tally.rounds) if drafted else None,
        decode_s=tally.decode_s,
        stalled_rounds=tally.stalls.rounds,
        left_out_rounds=left_out.rounds,
        left_out_s=left_out.decode_s,
        tokens_per_second=rate,
        prefill_s=tally.prefill_s,
        ttft_s=_plus(tally.prefill_s, tally.first_round_s),
        tpot_s=_ratio(rated.decode_s, rated.timed_tokens),
        draft_s=tally.draft_s,
        verify_s=tally.verify_s,
        commit_s=tally.commit_s,
        host_s=None if None in parts else tally.decode_s - math.fsum(part for part in parts if part is not None),
        speedup=_ratio(rate, ar_rate),
        identical_to_ar=None if text is None or by_design else difference is None,
        first_difference=difference,
        peak_bytes=tally.peak_bytes,
        distinct_8grams=_ratio(tally.log.distinct, tally.log.runs),
        joules_per_token=_ratio(tally.joules, tally.metered_tokens),
    )


def with_speedup(entry: Figures, found: Speedup) -> Figures:
    return structs.replace(
        entry,
        speedup=found.value,
        speedup_low=found.low,
        speedup_high=found.high,
        speedup_reason=found.reason,
    )


def total(texts: Iterable[Figures]) -> Figures:
    """Figures over several texts of one method, without the speed-up: ratios of sums, or weighted means over texts."""
    each = list(texts)
    sums: dict[str, Any] = {name: functools.reduce(_plus, (getattr(one, name) for one in each)) for name in _TOTALLED}
    timed_s = [(one.tokens_per_second, one.decode_s - one.left_out_s) for one in each]
    differing = [one for one in each if one.first_difference is not None]
    same = [one.identical_to_ar for one in each if one.identical_to_ar is not None]
    by_design = all(same) and differing
    ties = [one.near_tie for one in differing if one.near_tie is not None]
    return Figures(
        **sums,
        tokens_per_round=_ratio(sums["committed"], sums["rounds"]),
        path_length=_ratio(sums["accepted"], sums["rounds"]),
        acceptance_rate=_ratio(sums["accepted"], sums["drafted"]),
        depth_acceptance=_weighted((one.depth_acceptance, one.rounds) for one in each),
        tokens_per_second=_weighted(timed_s),
        identical_to_ar=all(same) if same and not by_design else None,
        first_difference=differing[0].first_difference if differing else None,
        near_tie=all(ties) if ties else None,
        joules_per_token=_weighted((one.joules_per_token, one.committed) for one in each),
        peak_bytes=max((one.peak_bytes or 0 for one in each), default=0) or None,
    )


_TOTALLED = (
    *("rounds", "drafted", "accepted", "committed", "target_forwards", "draft_forwards", "decode_s", "prefill_s"),
    *("draft_s", "verify_s", "commit_s", "host_s", "stalled_rounds", "left_out_rounds", "left_out_s"),
)


def _weighted(values: Iterable[tuple[float | None, float]]) -> float | None:
    """Weighted mean of the known values, from pairs (value, weight)."""
    known = [(value * weight, weight) for value, weight in values if value is not None]
    return _ratio(math.fsum(part for part, _ in known), math.fsum(weight for _, weight in known))


def compared_until(run: Run, method: str, *, sampled: bool) -> int | None:
    """Number of tokens at the start of a text that must equal the tokens of `ar`; None if texts cannot be compared."""
    if sampled and draws_alone(method):
        return None
    return same_until(method, run.methods.get(method, {}), len(run.prompt_tokens))


def differs_by_design(entry: Figures) -> bool:
    """Whether the text differs from the text of `ar`, but only in tokens that may differ by the method's design."""
    return entry.identical_to_ar is None and entry.first_difference is not None


def missing_speedups(figures: Mapping[str, Figures]) -> tuple[str, ...]:
    """Lines about methods without a speed-up, one line for each reason."""
    reasons = dict.fromkeys(entry.speedup_reason for entry in figures.values() if entry.speedup_reason)
    lines = list[str]()
    for reason in reasons:
        names = [name for name, entry in figures.items() if entry.speedup_reason == reason]
        of = "" if len(names) == len(figures) else f" of {', '.join(names)}"
        lines.append(f"{reason}: no figure for the speed-up{of}")
    return tuple(lines)


def first_difference(tokens: Sequence[int], reference: Sequence[int]) -> int | None:
    """Index of the first differing token within the common length; None if no token differs."""
    common = min(len(tokens), len(reference))
    # Nearly all compared texts are equal, and comparing tuples is faster than comparing tokens one by one.
    if tuple(tokens[:common]) == tuple(reference[:common]):
        return None
    return next(index for index in range(common) if tokens[index] != reference[index])


_MOST_TEXTS = 500
_SETTINGS = (
    *("target", "draft", "device", "dtype", "draft_dtype", "exact", "path", "ranks", "max_new_tokens"),
    *("temperature", "top_k", "top_p", "verifier", "drafting"),
)


@dataclass(frozen=True)
class Text:
    """Results of one method on the text of an earlier run."""

    figures: Figures
    turns: Turns | None
    """Segments of the text; None if the text does not count for the speed-up."""


@dataclass(frozen=True)
class Texts:
    """Earlier texts of one method, all under the same settings."""

    by_run: Mapping[str, Text] = field(default_factory=dict)
    """Texts by the start times of their runs."""

    @cached_property
    def figures(self) -> Figures:
        return total(text.figures for text in self.by_run.values())

    @cached_property
    def turns(self) -> Turns | None:
        known = [text.turns for text in self.by_run.values() if text.turns]
        parts = [turns.parts for turns in known]
        return Turns(np.concatenate(parts), sum(turns.count for turns in known)) if known else None

    def among(self, starts: Container[str]) -> "Texts":
        return Texts({start: text for start, text in self.by_run.items() if start in starts})


def _same_settings(one: Run, other: Run, method: str) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in _SETTINGS) and all(
        one.methods.get(name) == other.methods.get(name) for name in (method, "ar")
    )


@dataclass(frozen=True)
class RunFold:
    """State of the fold over a run's events, with the texts of earlier runs under the same settings."""

    run: Run | None = None
    tallies: Mapping[str, Tally] = field(default_factory=dict)
    sampled: bool = False
    segments: Mapping[str, Segments] = field(default_factory=dict)
    """Segments of each method. The last segment ends when the method or `ar` finishes its text."""
    plain: Decoded = field(default_factory=Decoded)
    """Total of those rounds of `ar` that have not stalled."""
    waited_s: float = 0.0
    """Time that threads waited for a processor in rounds that have not stalled, summed over threads."""
    settled: Mapping[str, Speedup] = field(default_factory=dict)
    """Final speed-ups: of a method whose text has ended, or of all methods if the text of `ar` has ended."""
    turned: frozenset[str] = frozenset()
    """Methods with a knob that the user has changed in this run."""
    earlier: Mapping[str, Texts] = field(default_factory=dict, compare=False)
    """Texts of earlier runs under the same settings, by method."""

    def apply(self, event: Event) -> "RunFold":
        """Returns the next state. A `Run` event begins a new state, which keeps earlier texts with its settings."""
        match event:
            case Run():
                tallies = {name: Tally() for name in event.methods}
                earlier = {name: self._texts_before(event, name) for name in event.methods}
                return RunFold(event, tallies, event.temperature > 0, earlier=earlier)
            case Knob(method=method, name=name, new=value, source=source):
                turned = self.turned | {method} if source == "user" else self.turned
                return replace(self, sampled=self.sampled or (name == "temperature" and value > 0), turned=turned)
            case Start(method=method, prefill_s=prefill_s):
                tally = structs.replace(self._of(method), prefill_s=prefill_s)
                return self._with(method, tally)
            case Round(method=method):
                return self._with_round(method, event)
            case End(method=method, peak_bytes=peak_bytes):
                ended = [name for name in self.tallies if method in (name, "ar") and name not in self.settled]
                segments = {name: of.ended(self.plain) for name, of in self.segments.items() if name in ended}
                tally = structs.replace(self._of(method), peak_bytes=peak_bytes, ended=True)
                race = replace(self._with(method, tally), segments={**self.segments, **segments})
                return replace(race, settled={**self.settled, **{name: race.speedup_of(name) for name in ended}})
            case _:
                return self

    def figures(self) -> dict[str, Figures]:
        return dict(self._figures)

    def judged(self, summary: Mapping[str, Figures]) -> dict[str, Figures]:
        """The figures of a recorded summary, but with the speed-ups of this fold, since earlier versions recorded
        quotients of the rates of whole runs.
        """
        return {
            name: with_speedup(entry, self.speedup_of(name) if name in self.tallies else Speedup())
            for name, entry in summary.items()
        }

    def pooled(self) -> dict[str, Figures]:
        """Figures of each method over all its texts under the present settings, including this run's text. The
        speed-up, which all panels show, is computed from the segments of all texts, except texts on a busy machine.
        """
        return dict(self._pooled)

    @cached_property
    def _pooled(self) -> dict[str, Figures]:
        return {name: self.pooled_among(name)[0] for name in self.tallies}

    def pooled_among(self, method: str, starts: Container[str] | None = None) -> tuple[Figures, int]:
        """A method's figures over the runs that started at `starts` (None: all runs), and the number of texts used."""
        if method not in self.tallies:
            return Figures(), 0
        own, texts = self._figures[method], Texts() if self._is_turned(method) else self.earlier.get(method, Texts())
        shown = starts is None or (self.run is not None and self.run.started_at in starts)
        texts = texts if starts is None else texts.among(starts)
        if not texts.by_run:
            return (own, int(own.rounds > 0)) if shown else (Figures(), 0)
        counts = shown and own.rounds > 0
        turns = [each for each in (texts.turns, self.turns(method) if counts else None) if each]
        found = speedup(turns, whole=True) if turns else self.speedup_of(method)
        entry = total([texts.figures, own] if counts else [texts.figures])
        return with_speedup(entry, found), len(texts.by_run) + counts

    def turns(self, method: str) -> Turns | None:
        """Segments of this run's text; None during the warm-up, on a busy machine, for `ar` itself, or without `ar`."""
        if self.speedup_of(method).reason in ("machine busy", "warming up"):
            return None
        return self.segments.get(method, Segments()).turns if "ar" in self.tallies and method != "ar" else None

    def _is_turned(self, method: str) -> bool:
        return not self.turned.isdisjoint((method, "ar"))

    def _texts_before(self, run: Run, method: str) -> Texts:
        """Texts of the runs before `run`; an earlier text of `run` is left out, since a recording may be replayed."""
        before, texts = self.run, dict(self.earlier.get(method, Texts()).by_run)
        if before is None or not _same_settings(before, run, method):
            return Texts()
        if method in self.tallies and self.tallies[method].rounds and not self._is_turned(method):
            texts[before.started_at] = Text(self._figures[method], self.turns(method))
        texts.pop(run.started_at, None)
        return Texts(dict(list(texts.items())[-_MOST_TEXTS:]))

    @cached_property
    def _figures(self) -> dict[str, Figures]:
        # Cached, since a screen reads the figures several times per frame, and computing them compares whole texts.
        ar, run = self.tallies.get("ar"), self.run
        return {
            name: with_speedup(
                figures(tally, ar, same_until=compared_until(run, name, sampled=self.sampled) if run else WHOLE),
                self.speedup_of(name),
            )
            for name, tally in self.tallies.items()
        }

    def speedup_of(self, method: str) -> Speedup:
        tally, ar = self.tallies[method], self.tallies.get("ar")
        if ar is None:
            return Speedup()
        if method in self.settled:
            return self.settled[method]
        whole = tally.ended or ar.ended
        if tally.left_out_from > 0 or self.waited_s > MOST_WAITED * self._ran_s:
            return Speedup(reason="machine busy")
        if not (whole or min(len(tally.tokens), len(ar.tokens)) >= WARM_UP_TOKENS):
            return Speedup(reason="warming up")
        found = speedup([self.segments.get(method, Segments()).turns], whole=whole)
        return Speedup(1.0, 1.0, 1.0) if method == "ar" and found.reason == "too few rounds" else found

    @property
    def _ran_s(self) -> float:
        return sum(tally.decode_s - tally.stalls.from_level(0).decode_s for tally in self.tallies.values())

    def _with_round(self, method: str, event: Round) -> "RunFold":
        before = self._of(method)
        after = tally_round(before, event)
        if event.stalled_s:
            return self._with(method, after)
        decoded = Decoded(after.timed_tokens - before.timed_tokens, event.t - before.decode_s)
        race = replace(self._with(method, after), waited_s=self.waited_s + (event.waited_s or 0.0))
        if method == "ar":
            return replace(race, plain=self.plain.plus(decoded))
        segments = self.segments.get(method, Segments()).with_round(decoded, self.plain)
        return replace(race, segments={**self.segments, method: segments})

    def _of(self, method: str) -> Tally:
        return self.tallies.get(method, Tally())

    def _with(self, method: str, tally: Tally) -> "RunFold":
        tallies = {**self.tallies, method: tally}
        if any(entry.stalls.by_level for entry in tallies.values()):
            level = left_out_from(
                (entry.stalls for entry in tallies.values()), sum(entry.rounds for entry in tallies.values())
            )
            tallies = {name: structs.replace(entry, left_out_from=level) for name, entry in tallies.items()}
        return replace(self, tallies=tallies)


def fold(events: Iterable[Event]) -> RunFold:
    race = RunFold()
    for event in events:
        race = race.apply(event)
    return race


def by_depth(event: Round) -> Levels:
    """(drafted, accepted) nodes at depth 1, 2, ... Depth 1 is the root's children, or a drafted root itself."""
    first = not root_is_drafted(event.method)
    levels = depths(event.parents)
    drafted = [0] * (max(levels) + 1)
    accepted = [0] * len(drafted)
    for level in levels:
        drafted[level] += 1
    for node in event.accepted:
        accepted[levels[node]] += 1
    return tuple(zip(drafted, accepted, strict=True))[first:]


def drafted_nodes(event: Round) -> int:
    return len(event.tokens) - (not root_is_drafted(event.method))


def level_by_level(totals: Levels, levels: Levels) -> Levels:
    pairs = zip_longest(totals, levels, fillvalue=(0, 0))
    return tuple(
        (drafted + more_drafted, accepted + more_accepted)
        for (drafted, accepted), (more_drafted, more_accepted) in pairs
    )


def _plus(total: Count | None, part: Count | None) -> Count | None:
    return None if total is None or part is None else total + part


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if whole and part is not None else None
