"""Cards of the most important figures: a plain title, a value with its trend, and a note with the symbols."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from decoder.analysis.metrics import drafted_nodes
from decoder.analysis.stalls import stall_notes
from dynatui.number_format import ms, percent, short
from dynatui.render.curves import deepest, scale_of
from dynatui.render.headline import rate
from dynatui.render.ink import Ink, Row, Rows, Span, best, column, fit, fitting, trend
from dynatui.render.scene import Scene
from dynatui.render.words import drawing, limited, shape_of, shape_written
from dynatui.result import no_speedup, times_plain
from dynatui.state.lane import Curve

_ROWS = 3
_LEAST_TREND = 4
_LONGEST_TREND = 24


@dataclass(frozen=True)
class _Card:
    """`titles` and `notes` are wordings, the longest first."""

    room: int
    """Width of the card with its shortest title and note, in cells."""
    titles: tuple[str, ...]
    value: str
    notes: tuple[str, ...]
    ink: Ink = "strong"
    points: Sequence[float] = ()
    low: float = 0.0
    high: float = 1.0
    brief: str = ""


def cards(scene: Scene, width: int, height: int) -> Rows:
    """The first cards that fit, side by side; without room for three rows, a single line with the values alone."""
    if height < _ROWS:
        return [_line(scene, width)]
    every = [*_outcome(scene), *_policy(scene), _timing(scene)]
    ends = accumulate(card.room + 1 for card in every)
    shown = [card for card, end in zip(every, ends, strict=True) if end <= width] or every[:1]
    spare = max(0, width - sum(card.room + 1 for card in shown))
    rows: list[Row] = [(), (), ()]
    for index, card in enumerate(shown):
        size = card.room + spare // len(shown) + (index < spare % len(shown))
        for place, row in enumerate(_rows(card, size)):
            rows[place] = (*rows[place], *row)
    return [fit(row, width) for row in rows]


def _rows(card: _Card, room: int) -> tuple[Row, Row, Row]:
    value = card.value if len(card.value) <= room or not card.brief else card.brief
    free = min(_LONGEST_TREND, room - len(value) - 3)
    bars = trend(card.points, free, card.low, card.high) if free >= _LEAST_TREND else ""
    edge: Row = (("▏", "frame"),)
    return (
        (*edge, (column(best(room, *card.titles), room), "dim")),
        (*edge, *fit(((value, card.ink), ("  ", "plain"), (bars, "bar")), room)),
        (*edge, (column(best(room, *card.notes), room), "dim")),
    )


def _outcome(scene: Scene) -> list[_Card]:
    state = scene.state
    figures, curves = state.pooled().get(state.watched), state.lane.curves
    if figures is None:
        titles = ("tokens/s",), ("tokens a pass",), ("guesses kept",)
        return [_Card(len(words[-1]) + 1, words, "-", ("",)) for words in titles]
    gains = times_plain(figures)[1:] if figures.speedup else no_speedup(figures) or ("own decode time", "own time")
    stalled = tuple(f"tokens/s, {words}" for words in stall_notes(state.figures().values())[1:])
    speed, rates = short(rate(state, state.watched), 1), curves.rate
    of_pass, per_round = ("tokens a pass, whole run", "tokens a pass"), short(figures.tokens_per_round)
    distinct = f"L-bar; distinct 8-grams {short(figures.distinct_8grams)}", "L-bar, run"
    guesses, accepted = ("guesses kept, whole run", "guesses kept"), percent(figures.acceptance_rate)
    depth = f"depth acc. {short(figures.depth_acceptance)}"
    depths = f"{depth}, last {state.lane.window} {short(state.lane.acceptance)}", depth
    kept = [len(event.accepted) / max(1, drafted_nodes(event)) for event in state.lane.past[-_LONGEST_TREND:]]
    return [
        _Card(8, (*stalled, "tokens/s"), speed, gains, "first", rates.points, *_around(rates)),
        _Card(13, of_pass, per_round, distinct, "first", curves.tokens.points, 1.0, scale_of(scene).top),
        _Card(15, guesses, accepted, depths, "first", kept),
    ]


def _policy(scene: Scene) -> list[_Card]:
    lane, scale_end = scene.state.lane, deepest(scene)
    limits = limited(lane) or ("",)
    if lane.knobs is None:
        levels = f"{lane.samples[-1].depth}" if lane.samples else "-"
        depth = _Card(13, ("levels guessed",), levels, limits, "third", lane.curves.depth.points, 0.0, scale_end)
        return [depth, _verifier(scene) or _Card(12, ("sure/unsure",), "-", ("no such knob" if lane.past else "",))]
    base, d0 = (f"base depth D0, at most {scale_end - 1:.0f}", "base depth D0"), f"{math.floor(lane.knobs.d0 + 0.5)}"
    sure, guesses = ("sure from τh / unsure below τl", "sure/unsure"), ("fewest / most guesses", "τh / τl")
    taus = f"{short(lane.knobs.tau_h)} / {short(lane.knobs.tau_l)}"
    depth = _Card(13, base, d0, limits, "second", lane.curves.d0.points, 0.0, scale_end)
    return [depth, _Card(11, sure, taus, guesses, "second", lane.curves.tau_h.points)]


def _verifier(scene: Scene) -> _Card | None:
    rules, shape = drawing(scene.state), shape_of(scene.state)
    if rules is None:
        return None
    notes = (f"{rules.drafting} {shape_written(shape)}", shape_written(shape)) if shape else (rules.drafting,)
    return _Card(12, ("verifier, drafting", "verifier"), rules.verifier, notes, "second")


def _timing(scene: Scene) -> _Card:
    newest = scene.state.lane.newest
    parts = (newest.draft_s, newest.verify_s, newest.commit_s) if newest else ()
    spent = [ms(part, 1) for part in parts] or ["-"]
    titles, notes = ("ms of the last round", "ms last round"), ("draft · check · keep", "draft·chk·keep")
    return _Card(14, titles, " · ".join(spent), notes, brief="/".join(spent))


def _around(curve: Curve) -> tuple[float, float]:
    """Ends of a trend's scale, which spans at least 30 % of the highest value, so that noise looks small."""
    points = curve.points[-_LONGEST_TREND:] or (1.0,)
    low, high = min(points), max(points)
    margin = max(0.0, 0.3 * high - (high - low))
    return low - margin, high


def _line(scene: Scene, width: int) -> Row:
    state = scene.state
    figures, knobs = state.figures().get(state.watched), state.lane.knobs
    if figures is None:
        return fit(((" a small model guesses, a large one checks", "dim"),), width)
    texts: list[Span] = [
        (f" {short(rate(state, state.watched), 0)} tokens/s", "first"),
        (f"  {short(figures.tokens_per_round)} tokens a pass", "first"),
        (f"  guesses kept {percent(figures.acceptance_rate)}", "first"),
    ]
    if knobs is not None:
        values = ("D0", knobs.d0, 1), ("τh", knobs.tau_h, 2), ("τl", knobs.tau_l, 2)
        texts += [(f"  {name} {short(value, digits)}", "second") for name, value, digits in values]
    return fitting([(text,) for text in texts], width)
