"""The list of prompts: a row per prompt with the figures of its newest run, a cursor, and totals."""

from collections.abc import Sequence
from dataclasses import dataclass

from decoder.errors import shortened
from dynatui.clean import clean_line
from dynatui.number_format import counted, short
from dynatui.render.ink import Column, Ink, Row, Rows, Sheet, Span, best, column, framed, titled, width_of
from dynatui.render.scene import Scene
from dynatui.result import interval, same_as_ar, speedup_cell
from dynatui.state.session_log import Result, noted

_TITLE = len(" Prompts ─")
_NUMBER = 5
_LEAST_OPENING = 12
_LEAST_TOTALS = 4
"""Least height of the list, in rows, at which it has a row of totals."""


@dataclass(frozen=True)
class _Line:
    number: int
    opening: str
    result: Result | None


@framed
def prompts(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    """The list, scrolled to the cursor, which is on the shown prompt until the user moves it."""
    lines = _lines(scene)
    title = _title(scene, len(lines), width - _TITLE)
    if not lines:
        why = "the first figures appear with the first round"
        if scene.prompt_filter:
            why = f'no prompt contains "{shortened(clean_line(scene.prompt_filter))}" at or near its beginning'
        return title, [((why, "dim"),)]
    sheet = Sheet(_COLUMNS, width - _NUMBER - _LEAST_OPENING)
    opening = max(0, width - _NUMBER - sheet.cells)
    totals = _totals(scene, lines, sheet, opening) if height >= _LEAST_TOTALS else []
    visible = max(1, height - 1 - len(totals))
    cursor = chosen(scene, [line.number for line in lines])
    place = next(place for place, line in enumerate(lines) if line.number == cursor)
    first = max(0, min(place - visible // 2, len(lines) - visible))
    page = [_row(scene, line, sheet, opening, at_cursor=line.number == cursor) for line in lines[first:][:visible]]
    return title, [((column("", _NUMBER) + column("prompt", opening) + sheet.heads, "dim"),), *page, *totals]


def listed(scene: Scene) -> list[int]:
    return [line.number for line in _lines(scene)]


def chosen(scene: Scene, numbers: Sequence[int]) -> int | None:
    """The number in `numbers` nearest to the user's choice, by default to the shown prompt; None if there is none."""
    aim = _present(scene) if scene.chosen_prompt is None else scene.chosen_prompt
    return min(numbers, key=lambda number: abs(number - aim), default=None)


def _lines(scene: Scene) -> list[_Line]:
    results, words = noted(scene.results, scene.state), scene.prompt_filter.casefold()
    openings = dict(enumerate(scene.openings, 1)) | {number: result.opening for number, result in results.items()}
    return [
        _Line(number, opening, results.get(number))
        for number, opening in sorted(openings.items())
        if words in opening.casefold()
    ]


def _present(scene: Scene) -> int:
    return scene.state.prompt.number if scene.state.prompt else 1


def _title(scene: Scene, count: int, width: int) -> Row:
    cap = scene.keys.cap
    keys = f"{cap('scroll(-1)')} {cap('scroll(1)')} choose, {cap('enter')} opens"
    if scene.prompt_filter:
        filtered = f' "{shortened(clean_line(scene.prompt_filter))}" {count} listed'
        words = best(width - width_of(((filtered, "warn"),)), f" ─ {keys}, {cap('back')} lists all", "")
        return (("Prompts", "title"), (filtered, "warn"), (words, "dim"))
    keys = f"figures of whole runs ─ {keys}, {cap('search')} filters"
    more = f", {cap('prompt(1)')} next, {cap('prompt(-1)')} previous, {cap('prompt(0)')} again, {cap('edit')} edit"
    return titled("Prompts", best(width - 3, f"{keys}{more}", keys))


def _row(scene: Scene, line: _Line, sheet: Sheet[Result], opening: int, *, at_cursor: bool) -> Row:
    result, now = line.result, line.number == _present(scene)
    ink: Ink = "strong" if now else "plain" if result is not None and result.done else "dim"
    mark: Span = ("▸", "key") if at_cursor else ("●" if now else " ", ink)
    begins = f"{column(str(line.number), _NUMBER - 1)}{column(line.opening, opening)}"
    why = ("failed" if scene.state.failure else "running") if now else "not played" if scene.replaying else "waiting"
    cells = f"{why:>{sheet.cells}}" if result is None else sheet.row(result)
    return (mark, (begins, ink), (cells, ink))


def _totals(scene: Scene, lines: Sequence[_Line], sheet: Sheet[Result], opening: int) -> list[Row]:
    """Figures of the watched method over its texts with the present settings; with a filter, over the listed texts."""
    method, race = scene.state.watched, scene.state.race
    listed_runs = {line.result.started_at for line in lines if line.result and line.result.method == method}
    entry, texts = race.pooled_among(method, listed_runs if scene.prompt_filter else None)
    if not texts:
        return []
    label = f" all {texts} together" if texts == len(lines) else f" {counted(texts, 'text')} under these settings"
    exact = f"{label}; x plain {interval(entry)}" if interval(entry) else label
    room, cells = _NUMBER + opening, sheet.row(Result("", method, entry))
    return [((column(best(room, exact, label), room) + cells, "title"),)]


def _agreement(result: Result) -> str:
    return same_as_ar(result.method, result.figures, "differs" if result.figures.near_tie is None else "NO")


_COLUMNS: tuple[Column[Result], ...] = (
    Column("tokens", 8, lambda one: str(one.figures.committed), rank=5),
    Column("L-bar", 7, lambda one: short(one.figures.tokens_per_round), rank=1),
    Column("depth acc.", 12, lambda one: short(one.figures.depth_acceptance), rank=4),
    Column("tokens/s", 10, lambda one: short(one.figures.tokens_per_second, 1), rank=0),
    Column("x plain", 9, lambda one: speedup_cell(one.figures), rank=2),
    Column("same as ar", 12, _agreement, rank=3),
)
