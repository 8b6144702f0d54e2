"""What became of each prompt: a row of figures for the newest run of each, and what all of them come to."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from decoder.events import Figures
from dynatui.number_format import short
from dynatui.render.guide import explained
from dynatui.render.ink import Ink, Row, Rows, best, column, frame, inside
from dynatui.render.scene import Scene
from dynatui.render.words import same_as_ar
from dynatui.state.session_log import Result, noted

_TITLE = len("╭─ Prompts  ─╮")
_NUMBER = 5
_LEAST_OPENING = 12
_LEAST_TOTALS = 4
"""Rows from which there is one for the totals."""


@dataclass(frozen=True)
class _Column:
    head: str
    cells: int
    value: Callable[[Result], str]
    total: Callable[[Sequence[Figures]], str]


def prompts(scene: Scene, width: int, height: int) -> Rows:
    """The table, scrolled to the prompt that is decoded now."""
    inner, room = inside((width, height))
    results = noted(scene.results, scene.state)
    keys = " ─ n next, N previous, R again, E edit"
    title: Row = (("Prompts", "title"), (best(width - _TITLE, f" ─ figures of whole runs{keys}", keys), "dim"))
    if not results:
        return frame(title, [(("the first figures come with the first round", "dim"),)], (width, height))
    columns = _columns(inner)
    opening = max(0, inner - _NUMBER - sum(one.cells for one in columns))
    numbers = sorted(results)
    totals = [_totals([results[number] for number in numbers], columns, opening)] if room >= _LEAST_TOTALS else []
    listed = max(1, room - 1 - len(totals))
    current = scene.state.prompt.number if scene.state.prompt else numbers[-1]
    place = numbers.index(current) if current in results else len(numbers) - 1
    first = max(0, min(place - listed // 2, len(numbers) - listed))
    page = [
        _row(number, results[number], columns, opening, now=number == current)
        for number in numbers[first : first + listed]
    ]
    body = [_heads(columns, opening), *page, *totals]
    body += explained(_TOLD, inner, room - len(body))
    return frame(title, body[: max(0, room)], (width, height))


def _columns(width: int) -> list[_Column]:
    """As many columns as leave room for how the prompt begins, the most telling first."""
    chosen, free = list[int](), width - _NUMBER - _LEAST_OPENING
    for place in _RANKED:
        if _COLUMNS[place].cells > free:
            break
        chosen.append(place)
        free -= _COLUMNS[place].cells
    return [_COLUMNS[place] for place in sorted(chosen)]


def _heads(columns: Sequence[_Column], opening: int) -> Row:
    cells = "".join(f"{one.head:>{one.cells}}" for one in columns)
    return ((column("", _NUMBER) + column("prompt", opening) + cells, "dim"),)


def _row(number: int, result: Result, columns: Sequence[_Column], opening: int, *, now: bool) -> Row:
    ink: Ink = "strong" if now else "plain" if result.done else "dim"
    cells = "".join(f"{one.value(result):>{one.cells}}" for one in columns)
    mark = "▸" if now else " "
    return ((f"{mark}{column(str(number), _NUMBER - 1)}{column(result.opening, opening)}", ink), (cells, ink))


def _totals(results: Sequence[Result], columns: Sequence[_Column], opening: int) -> Row:
    """What all prompts come to: totals, means by prompt, and rates of the totals."""
    figures = [result.figures for result in results]
    cells = "".join(f"{one.total(figures):>{one.cells}}" for one in columns)
    together = f" all {len(results)} together"
    label = column(best(_NUMBER + opening, f"{together}; x ar: geometric mean", together), _NUMBER + opening)
    return ((label, "title"), (cells, "title"))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _weighted(figures: Sequence[Figures]) -> float | None:
    """Depth acceptance of all rounds of all prompts."""
    known = [(one.depth_acceptance, one.rounds) for one in figures if one.depth_acceptance is not None]
    return _ratio(sum(share * rounds for share, rounds in known), sum(rounds for _, rounds in known))


def _rate(figures: Sequence[Figures]) -> float | None:
    """Tokens a second over all prompts: tokens that decode time was counted for, by that time."""
    timed = [
        (one.tokens_per_second, one.decode_s - one.left_out_s) for one in figures if one.tokens_per_second is not None
    ]
    return _ratio(math.fsum(rate * seconds for rate, seconds in timed), math.fsum(seconds for _, seconds in timed))


def _gain(figures: Sequence[Figures]) -> float | None:
    """Geometric mean of the speed-ups."""
    known = [one.speedup for one in figures if one.speedup is not None and 0 < one.speedup < math.inf]
    return math.exp(math.fsum(map(math.log, known)) / len(known)) if known else None


def _agreed(figures: Sequence[Figures]) -> str:
    known = [one.identical_to_ar for one in figures if one.identical_to_ar is not None]
    return f"{sum(known)} of {len(known)}" if known else "-"


def _same(result: Result) -> str:
    return same_as_ar(result.method, result.figures, "differs" if result.figures.near_tie is None else "NO")


_COLUMNS = (
    _Column("tokens", 8, lambda one: str(one.figures.committed), lambda all_: str(sum(one.committed for one in all_))),
    _Column(
        "L-bar",
        7,
        lambda one: short(one.figures.tokens_per_round),
        lambda all_: short(_ratio(sum(one.committed for one in all_), sum(one.rounds for one in all_))),
    ),
    _Column("depth acc.", 12, lambda one: short(one.figures.depth_acceptance), lambda all_: short(_weighted(all_))),
    _Column("tokens/s", 10, lambda one: short(one.figures.tokens_per_second, 1), lambda all_: short(_rate(all_), 1)),
    _Column("x ar", 7, lambda one: short(one.figures.speedup), lambda all_: short(_gain(all_))),
    _Column("same as ar", 12, _same, _agreed),
)
_RANKED = (3, 1, 4, 5, 2, 0)
"""Columns, the most telling first."""
_TOLD = ("tokens_per_round", "depth_acceptance", "tokens_per_second", "speedup", "identical_to_ar")
