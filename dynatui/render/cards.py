"""Cards of the most important figures: a title in plain words, a value with its trend, and a note. Three cards show
speed, tokens per round and acceptance; a wide terminal also has cards of knobs and times.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from decoder.analysis.metrics import drafted_nodes
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from dynatui.number_format import counted, ms, percent, short
from dynatui.render.curves import deepest, scale_of
from dynatui.render.headline import rate
from dynatui.render.ink import Ink, Row, Rows, Span, best, column, fit, fitting, trend
from dynatui.render.scene import Scene
from dynatui.render.words import drawing, faster_preset, limited, shape_of, shape_written
from dynatui.result import no_speedup, times_plain
from dynatui.state.lane import Curve

_ROWS = 3
_LEAST_TREND = 4
_LONGEST_TREND = 24
_OUTCOME = 19
"""Minimum width of each of the first three cards, in cells."""
_BROAD = 160
"""Least width of the terminal, in cells, at which cards of knobs and times follow the first three cards."""


@dataclass(frozen=True)
class _Card:
    """`titles`, `values` and `notes` are wordings, the longest first."""

    room: int
    """Width of the card with its shortest wordings, in cells."""
    titles: tuple[str, ...]
    values: tuple[str, ...]
    notes: tuple[str, ...]
    ink: Ink = "strong"
    points: Sequence[float] = ()
    low: float = 0.0
    high: float = 1.0


def cards(scene: Scene, width: int, height: int) -> Rows:
    """As many of the first cards as fit; if `height` is below three rows, one line with only the values."""
    if height < _ROWS:
        return [_line(scene, width)]
    every = [*_outcome(scene), *([*_policy(scene), _timing(scene)] if width >= _BROAD else [])]
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
    value = best(room, *card.values)
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
    per_round = ("tokens a round of guessing and checking", "tokens a round")
    guesses = ("guesses of the small model accepted", "guesses accepted")
    if figures is None:
        every = ("speed against plain decoding", "speed"), per_round, guesses
        return [_Card(_OUTCOME, titles, ("-",), ("",)) for titles in every]
    distinct = f"plain decoding 1; distinct 8-grams {short(figures.distinct_8grams)}"
    drafted = "not shown by this method" if figures.drafted is None else "no guesses"
    if figures.drafted:
        drafted = f"{figures.accepted} of {counted(figures.drafted, 'guess', 'es')}"
    kept = [len(event.accepted) / max(1, drafted_nodes(event)) for event in state.lane.past[-_LONGEST_TREND:]]
    mean, share = (short(figures.tokens_per_round),), (percent(figures.acceptance_rate),)
    notes = distinct, "plain decoding: 1"
    return [
        _speed(scene, figures),
        _Card(_OUTCOME, per_round, mean, notes, "first", curves.tokens.points, 1.0, scale_of(scene).top),
        _Card(_OUTCOME, guesses, share, (drafted,), "first", kept),
    ]


def _speed(scene: Scene, figures: Figures) -> _Card:
    state, rates = scene.state, scene.state.lane.curves.rate
    stalled = tuple(f"speed, {words}" for words in stall_notes(state.figures().values())[1:])
    own, plain = rate(state, state.watched), rate(state, "ar")
    speed = "warming up" if own is None else f"{short(own, 1)} tokens/s"
    values = times_plain(figures)[1:-1] if figures.speedup else no_speedup(figures) or (speed,)
    notes = [speed] if figures.speedup else [""]
    if state.watched == "ar":
        values, notes = (speed,), ["this is plain decoding"]
    elif own is not None and plain is not None:
        notes = [f"{speed}, plain {short(plain, 1)}", speed]
    titles = (*stalled, "speed against plain decoding", "speed")
    return _Card(_OUTCOME, titles, values, (*faster_preset(scene), *notes), "first", rates.points, *_around(rates))


def _policy(scene: Scene) -> list[_Card]:
    lane, scale_end = scene.state.lane, deepest(scene)
    limits = limited(lane) or ("",)
    if lane.knobs is None:
        levels = (f"{lane.samples[-1].depth}" if lane.samples else "-",)
        depth = _Card(13, ("levels guessed",), levels, limits, "third", lane.curves.depth.points, 0.0, scale_end)
        return [depth, _verifier(scene) or _Card(12, ("sure/unsure",), ("-",), ("no such knob" if lane.past else "",))]
    base, d0 = (f"base depth D0, at most {scale_end - 1:.0f}", "base depth D0"), (f"{math.floor(lane.knobs.d0 + 0.5)}",)
    sure, guesses = ("sure from τh / unsure below τl", "sure/unsure"), ("fewest / most guesses", "τh / τl")
    taus = (f"{short(lane.knobs.tau_h)} / {short(lane.knobs.tau_l)}",)
    depth = _Card(13, base, d0, limits, "second", lane.curves.d0.points, 0.0, scale_end)
    return [depth, _Card(11, sure, taus, guesses, "second", lane.curves.tau_h.points)]


def _verifier(scene: Scene) -> _Card | None:
    rules, shape = drawing(scene.state), shape_of(scene.state)
    if rules is None:
        return None
    notes = (f"{rules.drafting} {shape_written(shape)}", shape_written(shape)) if shape else (rules.drafting,)
    return _Card(12, ("verifier, drafting", "verifier"), (rules.verifier,), notes, "second")


def _timing(scene: Scene) -> _Card:
    newest = scene.state.lane.newest
    parts = (newest.draft_s, newest.verify_s, newest.commit_s) if newest else ()
    spent = [ms(part, 1) for part in parts] or ["-"]
    titles, notes = ("ms of the last round", "ms last round"), ("draft · check · keep", "draft·chk·keep")
    return _Card(14, titles, (" · ".join(spent), "/".join(spent)), notes)


def _around(curve: Curve) -> tuple[float, float]:
    """Lower and upper end of a trend's scale: at least 30 % of the highest value apart, so that noise looks small."""
    points = curve.points[-_LONGEST_TREND:] or (1.0,)
    low, high = min(points), max(points)
    margin = max(0.0, 0.3 * high - (high - low))
    return low - margin, high


def _line(scene: Scene, width: int) -> Row:
    state = scene.state
    figures, knobs = state.pooled().get(state.watched), state.lane.knobs
    if figures is None:
        return fit(((" a small model guesses, a large one checks", "dim"),), width)
    speed = times_plain(figures)[-2] if figures.speedup and state.watched != "ar" else ""
    texts: list[Span] = [
        (f" {speed or f'{short(rate(state, state.watched), 0)} tokens/s'}", "first"),
        (f"  {short(figures.tokens_per_round)} tokens a round", "first"),
        (f"  {percent(figures.acceptance_rate)} of guesses accepted", "first"),
    ]
    if knobs is not None:
        values = ("D0", knobs.d0, 1), ("τh", knobs.tau_h, 2), ("τl", knobs.tau_l, 2)
        texts += [(f"  {name} {short(value, digits)}", "second") for name, value, digits in values]
    return fitting([(text,) for text in texts], width)
