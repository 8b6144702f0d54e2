"""The time line: the position of the shown round in the run, and knob changes; `hit` returns the clicked round."""

from dynatui.number_format import short
from dynatui.render.ink import Ink, Row, Rows, Span, fit, merged, share
from dynatui.render.scene import Scene

_LEAST, _WIDE = 8, 80
"""Least length of the line, and least width of the terminal at which the long wording is beside it, in cells."""


def timeline(scene: Scene, width: int, height: int) -> Rows:
    words, length = _words(scene, width), _length(scene, width)
    row: Row = ((" ", "plain"), *_line(scene, length), (" " if length else "", "plain"), *words)
    return [fit(row, width), *[fit((), width)] * (height - 1)]


def hit(scene: Scene, width: int, x: int) -> int | None:
    """The round at a clicked column; the ends of the line stand for the first and the last round."""
    length = _length(scene, width)
    cell = x - 2
    if length < 1 or not -1 <= cell <= length - 2:
        return None
    return round(share(cell, length - 3) * scene.place.rounds)


def _line(scene: Scene, length: int) -> Row:
    if length < 1:
        return ()
    place, inner = scene.place, length - 2
    marker = _cell(scene.number or 0, place.rounds, inner)
    played = _cell(place.rounds if place.played is None else place.played, place.rounds, inner)
    cells: list[Span] = [("━", "bar") if cell < played else ("─", "frame") for cell in range(inner)]
    for mark in scene.newest_state.lane.marks:
        cells[_cell(mark.round, place.rounds, inner)] = ("▲", "warn" if mark.round <= place.round else "ghost")
    cells[marker] = ("●", "good" if place.live else "warn")
    return merged([("◀", "dim"), *cells, ("▶", "dim")])


def _cell(number: int, rounds: int, cells: int) -> int:
    return round(share(number, rounds) * (cells - 1))


def _length(scene: Scene, width: int) -> int:
    """Length of the line with its ends, in cells; constant while the numbers beside it grow."""
    digits = max(4, len(str(scene.place.rounds)))
    spare = width - 2 - 2 * digits - (len("round  of  · 0000.0 s · looking ahead") if width >= _WIDE else 1)
    return spare if spare >= _LEAST else 0


def _words(scene: Scene, width: int) -> Row:
    place, number = scene.place, scene.number
    last = max(place.rounds, number or 0)
    ink: Ink = "plain" if place.live else "warn"
    if number is None:
        return (("before the first round" if width >= _WIDE else "no round", ink),)
    if width < _WIDE:
        return ((f"{number}/{last}", ink),)
    where: Span = ("live", "good") if place.live else (f"looking {'ahead' if place.ahead else 'back'}", "warn")
    return (f"round {number} of {last} · {short(place.seconds, 1)} s · ", "plain"), where
