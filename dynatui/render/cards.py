"""The figures that matter most, one column each: title, value with its trend, what it means."""

import math
from dataclasses import dataclass

from dynatui.render.ink import Ink, Row, Rows, column, fit, percent, short, trend
from dynatui.render.scene import Scene
from dynatui.state import Curve

_ROWS = 3


@dataclass(frozen=True)
class _Card:
    title: str
    value: str
    note: str
    ink: Ink = "strong"
    curve: Curve | None = None
    low: float = 0.0
    high: float = 1.0


def cards(scene: Scene, width: int, height: int) -> Rows:
    """The cards side by side, or their values alone on a single line."""
    if height < _ROWS:
        return [fit(_line(scene), width)]
    shown = _cards(scene)
    cell = max(1, width // len(shown))
    last = width - cell * (len(shown) - 1)
    sizes = [cell] * (len(shown) - 1) + [last]
    rows: list[Row] = [(), (), ()]
    for card, size in zip(shown, sizes, strict=True):
        for index, row in enumerate(_rows(card, size)):
            rows[index] = (*rows[index], *row)
    return [fit(row, width) for row in rows]


def _rows(card: _Card, width: int) -> tuple[Row, Row, Row]:
    room = width - 2
    spare = min(24, room - len(card.value) - 2)
    drawn = trend(card.curve.points, spare, card.low, card.high) if card.curve and spare >= 4 else ""
    edge: Row = (("▏ ", "frame"),)
    value: Row = ((column(card.value, min(room, len(card.value))), card.ink), ("  ", "plain"), (drawn, "dim"))
    return (
        (*edge, (column(card.title, room), "dim")),
        (*edge, *fit(value, room)),
        (*edge, (column(card.note, room), "dim")),
    )


def _cards(scene: Scene) -> list[_Card]:
    state = scene.state
    figures = state.figures().get(state.watched)
    curves, knobs = state.curves, state.knobs
    rate = figures.tokens_per_second if figures else None
    speedup = f"{short(figures.speedup)}x ar" if figures and figures.speedup else "own decode time"
    distinct = figures.distinct_8grams if figures else None
    return [
        _Card("tokens/s", short(rate, 1), speedup, "first", curves.rate, *_around(curves.rate)),
        _Card(
            "L-bar tokens/round",
            short(figures.tokens_per_round if figures else None),
            f"8-grams {percent(distinct)} new",
            "first",
            curves.tokens,
            *_around(curves.tokens),
        ),
        _Card(
            "depth acceptance",
            short(figures.depth_acceptance if figures else None),
            f"{percent(figures.acceptance_rate if figures else None)} of all nodes",
            "first",
            curves.acceptance,
        ),
        _Card(
            "D0 base depth",
            short(knobs.d0 if knobs else None),
            f"used {math.floor(knobs.d0 + 0.5)}, most {state.parameter('d_max', 8):.0f}" if knobs else "no tree",
            "second",
            curves.d0,
            1.0,
            state.parameter("d_max", 8),
        ),
        _Card(
            "τh / τl",
            f"{short(knobs.tau_h)} / {short(knobs.tau_l)}" if knobs else "-",
            "sure / unsure" if knobs else "no tree",
            "second",
            curves.tau_h,
            0.5,
            1.0,
        ),
        _timing(scene),
    ]


def _around(curve: Curve) -> tuple[float, float]:
    """A scale on which the newest values differ visibly, but not their noise."""
    middle = math.fsum(curve.points) / len(curve.points) if curve.points else 1.0
    return middle * 0.5, middle * 1.5


def _timing(scene: Scene) -> _Card:
    newest = scene.state.newest
    parts = (newest.draft_s, newest.verify_s, newest.commit_s) if newest else (None, None, None)
    spent = "·".join(short(None if part is None else 1000 * part, 1) for part in parts)
    return _Card("ms of a round", spent, "draft·check·keep")


def _line(scene: Scene) -> Row:
    state = scene.state
    figures, knobs = state.figures().get(state.watched), state.knobs
    if figures is None:
        return (("dynatui watches a small model guess ahead", "dim"),)
    row: Row = (
        (f"{short(figures.tokens_per_second, 0)}/s ", "first"),
        (f"L-bar {short(figures.tokens_per_round)} ", "first"),
        (f"acc {short(figures.depth_acceptance)} ", "first"),
    )
    if knobs is None:
        return row
    return (*row, (f"D0 {short(knobs.d0, 1)} τh {short(knobs.tau_h)} τl {short(knobs.tau_l)}", "second"))
