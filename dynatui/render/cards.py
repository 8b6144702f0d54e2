"""Cards of the most important figures, side by side; a card has a title, a value with its trend, and a note."""

import math
from dataclasses import dataclass, replace

from decoder.analysis.stalls import stall_notes
from dynatui.number_format import short
from dynatui.render.curves import deepest, recent, scale_of
from dynatui.render.drawn import drawing, shape_of, shape_written
from dynatui.render.ink import Ink, Row, Rows, Span, best, column, fit, fitting, trend, width_of
from dynatui.render.scene import Scene
from dynatui.render.words import limited, no_speedup, times_plain
from dynatui.state.lane import Curve

_ROWS = 3
_LEAST_TREND = 4
_LONGEST_TREND = 24


@dataclass(frozen=True)
class _Card:
    """Card of one figure; `titles` and `notes` hold several wordings each, the longest first."""

    room: int
    """Width of the card with its shortest title and note, in cells."""
    titles: tuple[str, ...]
    value: str
    notes: tuple[str, ...]
    ink: Ink = "strong"
    curve: Curve | None = None
    low: float = 0.0
    high: float = 1.0
    brief: str = ""
    """A shorter form of the value, for a narrow card."""


def cards(scene: Scene, width: int, height: int) -> Rows:
    """The cards side by side; if there is no room for three rows, a single line with the values alone."""
    if height < _ROWS:
        return [_line(scene, width)]
    shown = [*_outcome(scene), *_policy(scene), _timing(scene)]
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
    bars = trend(card.curve.points, free, card.low, card.high) if card.curve and free >= _LEAST_TREND else ""
    edge: Row = (("▏", "frame"),)
    return (
        (*edge, (column(best(room, *card.titles), room), "dim")),
        (*edge, *fit(((value, card.ink), ("  ", "plain"), (bars, "bar")), room)),
        (*edge, (column(best(room, *card.notes), room), "dim")),
    )


def _outcome(scene: Scene) -> list[_Card]:
    state = scene.state
    figures, curves = state.figures().get(state.watched), state.lane.curves
    if figures is None:
        titles = ("tokens/s",), ("L-bar, whole run", "L-bar, run"), ("depth acceptance, whole run", "depth acc., run")
        return [_Card(len(words[-1]) + 1, words, "-", ("",)) for words in titles]
    distinct = short(figures.distinct_8grams)
    own = no_speedup(figures) or ("own decode time", "own time")
    share, newest = short(state.lane.acceptance), recent(scene)
    gains = times_plain(figures.speedup) if figures.speedup else own
    stalled = tuple(f"tokens/s, {words}" for words in stall_notes(state.figures().values())[1:])
    return [
        _Card(
            8,
            (*stalled, "tokens/s"),
            short(figures.tokens_per_second, 1),
            gains,
            "first",
            curves.rate,
            *_around(curves.rate),
        ),
        _Card(
            13,
            ("L-bar, whole run", "L-bar, run"),
            short(figures.tokens_per_round),
            (f"distinct 8-grams {distinct}", f"distinct {distinct}"),
            "first",
            curves.tokens,
            1.0,
            scale_of(scene).top,
        ),
        _Card(
            15,
            ("depth acceptance, whole run", "depth acc., run"),
            short(figures.depth_acceptance),
            (f"{share} in the {newest}", f"{share} in last {state.lane.window}", f"last {state.lane.window}: {share}"),
            "first",
            curves.acceptance,
        ),
    ]


def _policy(scene: Scene) -> list[_Card]:
    """Cards of tree depth and thresholds; without thresholds, the second card shows the verifier or a dash."""
    lane, scale_end = scene.state.lane, deepest(scene)
    drafted = lane.samples[-1].depth if lane.samples else 0
    limits = limited(lane) or ("",)
    if lane.knobs is None:
        depth = _Card(12, ("depth drafted",), f"{drafted}" if lane.past else "-", limits, "third", lane.curves.depth)
        without = _verifier(scene) or _Card(12, ("τh / τl",), "-", ("no such knob" if lane.past else "",))
        return [replace(depth, low=0.0, high=scale_end), without]
    return [
        _Card(
            13,
            (f"D0 base depth, at most {scale_end - 1:.0f}", "D0 base depth"),
            f"{math.floor(lane.knobs.d0 + 0.5)}",
            limits,
            "second",
            lane.curves.d0,
            0.0,
            scale_end,
        ),
        _Card(
            11,
            ("τh sure / τl unsure", "τh / τl"),
            f"{short(lane.knobs.tau_h)} / {short(lane.knobs.tau_l)}",
            ("fewest / most guesses", "sure/unsure"),
            "second",
            lane.curves.tau_h,
            0.0,
            1.0,
        ),
    ]


def _verifier(scene: Scene) -> _Card | None:
    """Card with the verifier, the drafting and the tree shape; None if the method samples no trees."""
    rules, shape = drawing(scene.state), shape_of(scene.state)
    if rules is None:
        return None
    notes = (f"{rules.drafting} {shape_written(shape)}", shape_written(shape)) if shape else (rules.drafting,)
    return _Card(12, ("verifier, drafting", "verifier"), rules.verifier, notes, "second")


def _timing(scene: Scene) -> _Card:
    newest = scene.state.lane.newest
    parts = (newest.draft_s, newest.verify_s, newest.commit_s) if newest else ()
    spent = [short(None if part is None else 1000 * part, 1) for part in parts] or ["-"]
    return _Card(
        14,
        ("ms of the last round", "ms last round"),
        " · ".join(spent),
        ("draft · check · keep", "draft·check·keep", "draft·chk·keep"),
        brief="·".join(spent),
    )


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
    rate, yielded = f" {short(figures.tokens_per_second, 0)}/s ", short(figures.tokens_per_round)
    acceptance = f"depth acc., run {short(figures.depth_acceptance)}"
    set_to = f"D0 {short(knobs.d0, 1)} τh {short(knobs.tau_h)} τl {short(knobs.tau_l)} " if knobs is not None else ""
    plainly = f"{rate}L-bar, run {yielded} {set_to}"
    name = "L-bar, run" if width_of(((plainly, "plain"),)) <= width else "L-bar"
    texts: list[Span] = [(rate, "first"), (f"{name} {yielded} ", "first"), (set_to, "second"), (acceptance, "first")]
    return fitting([(text,) for text in texts if text[0]], width)
