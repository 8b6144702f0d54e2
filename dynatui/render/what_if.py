"""Tables of estimates for other values of the knobs, of which the user chooses one cell. Each cell has a bar
beside its colour, since not all terminals show colours.
"""

from functools import reduce
from itertools import zip_longest
from typing import NamedTuple

from decoder.analysis.what_if import ALIKE, Grid, GridCell, Place, WhatIf
from dynatui.knobs import info
from dynatui.number_format import percent, short
from dynatui.render.ink import Ink, Row, Rows, best, fit, frame, inside, width_of, wrapped
from dynatui.render.scene import Scene
from dynatui.render.words import faster_knobs, remedy, row_value, values_of

_YIELDS: tuple[tuple[str, Ink], ...] = (("▁", "dim"), ("▃", "plain"), ("▅", "strong"), ("▇", "accepted"))
_LABEL = 6
_CELL, _CELL_RATED = 8, 14
_GAP = 3
_MEANINGS = {"tau_h": "draft sure from", "tau_l": "draft unsure below"}
_SIGNS = (
    "( ) chosen · + at least: some trees were recorded only in part · ? unknown. Each round is estimated alone, with "
    "constant knobs; ranges: 95 %, from resampled rounds."
)
_PRESENT = "[ ] the knobs now · "
_BY_COSTS = "auto drafts only nodes that save time; nodes left out are assumed to save no time with other knobs either."


def whatif(scene: Scene, width: int, height: int) -> Rows:
    size = (width, height)
    inner, room = inside(size)
    estimate = scene.whatif
    if estimate is None:
        return frame((("What if", "title"),), _wrapped(inner, _nothing_yet(scene), "dim"), size)
    title: Row = (("What if", "title"), (f" ─ {_share(scene, estimate, inner - 12)}", "dim"))
    sentence = _wrapped(inner, _sentence(scene, estimate), "strong")
    present = "" if estimate.by_history else _PRESENT
    signs = _wrapped(inner, f"{present}{_SIGNS}{f' {_BY_COSTS}' if estimate.by_costs else ''}", "dim")
    place = chosen(scene)
    rooms = room - len(sentence) - len(signs), room - 1  # the sentence has at least one row
    tables = next(filter(None, (_tables(estimate, place, inner, rows) for rows in rooms)), [])
    if place and len(tables) + len(sentence) > room:
        sentence = _wrapped(inner, _brief(place, estimate), "strong")
    return frame(title, [*tables, *sentence, *signs], size)


def _nothing_yet(scene: Scene) -> str:
    if scene.state.lane.newest and scene.state.lane.knobs is None:
        return f"{scene.state.watched} has no tree that is replayed under other knobs"
    return "estimates for other values of the knobs appear after the first rounds"


def chosen(scene: Scene) -> Place | None:
    """The cell that the user chose, else the fastest cell; None without estimates of tokens per second."""
    places = scene.whatif.by_rate() if scene.whatif else []
    return next((place for place in places if place.knobs == scene.whatif_choice), next(iter(places), None))


class _Marks(NamedTuple):
    chosen: Place | None
    """None if no cell has an estimate of tokens per second."""
    present: bool
    """Whether the tables have a cell for the present knobs; they have none while the history rule moves the knobs."""

    def around(self, place: Place) -> str:
        if self.present and place.present:
            return "[]"
        return "()" if place == self.chosen else "  "


def _tables(estimate: WhatIf, place: Place | None, width: int, height: int) -> Rows:
    yields = [value for cell in estimate.cells if (value := _figure(cell, timed=place is not None)) is not None]
    scale = min(yields, default=0.0), max(yields, default=0.0)
    rows = max(len(grid.rows) for grid in estimate.grids) + 2
    marks = _Marks(place, present=not estimate.by_history)
    for cell in (_CELL_RATED, _CELL):
        widths = [len(_corner(grid)) + len(grid.columns) * cell for grid in estimate.grids]
        if width >= sum(widths) + _GAP * (len(widths) - 1) and height >= rows:
            pairs = zip(estimate.grids, widths, strict=True)
            return reduce(_beside, [_table(grid, marks, room, cell, scale) for grid, room in pairs])
        if width >= max(widths) and height >= len(widths) * rows:
            return [row for grid in estimate.grids for row in _table(grid, marks, width, cell, scale)]
    shown = place.grid if place else estimate.grids[0]
    cell = _CELL_RATED if width >= len(_corner(shown)) + len(shown.columns) * _CELL_RATED else _CELL
    table = _table(shown, marks, width, cell, scale)
    return table[max(0, len(table) - height) :] if height >= len(table) - 1 else []


def _beside(left: Rows, right: Rows) -> Rows:
    most = max(map(width_of, left)) + _GAP
    return [(*fit(a, most), *b) for a, b in zip_longest(left, right, fillvalue=())]


def _corner(grid: Grid) -> str:
    """Symbols of both knobs, filled to the width of the column before the cells."""
    symbols = f"{info(grid.down).symbol}\\{info(grid.across).symbol}"
    return symbols.ljust(_LABEL if len(symbols) <= _LABEL else len(symbols) + 1)


def _table(grid: Grid, marks: _Marks, width: int, cell_width: int, scale: tuple[float, float]) -> Rows:
    nearest = sorted(range(len(grid.columns)), key=lambda column: abs(column - grid.present[1]))
    corner, down, across = _corner(grid), info(grid.down), info(grid.across)
    columns = sorted(nearest[: max(1, (width - len(corner)) // cell_width)])
    words = f"{down.symbol} {_MEANINGS.get(grid.down, down.brief)} ↓  {across.symbol} {across.brief} →"
    timed = marks.chosen is not None
    rated = "tokens/s, tokens a round" if cell_width == _CELL_RATED else "tokens/s"
    figures = rated if timed else "tokens a round"
    head: Row = ((corner, "dim"),)
    for column in columns:
        here = marks.present and column == grid.present[1]
        head = (*head, (_marked(f"{grid.columns[column]:.0f}", here=here).center(cell_width), _ink(here=here)))
    rows: Rows = [((best(width, f"{words}  {figures}", words), "dim"),), head]
    for index, cells in enumerate(grid.cells):
        here = marks.present and index == grid.present[0]
        row: Row = ((_marked(row_value(grid, index), here=here).ljust(len(corner)), _ink(here=here)),)
        for column in columns:
            around = marks.around(Place(grid, index, column))
            row = (*row, *_cell(cells[column], cell_width, scale, around, timed=timed))
        rows.append(row)
    return rows


def _marked(value: str, *, here: bool) -> str:
    return f"[{value}]" if here else f" {value} "


def _figure(cell: GridCell, *, timed: bool) -> float | None:
    """Figure of a cell's bar: tokens per second, or tokens per round if costs are unknown; None for unknown cells."""
    if not cell.known:
        return None
    return cell.rate if timed else cell.tokens


def _ink(*, here: bool) -> Ink:
    return "strong" if here else "dim"


def _cell(cell: GridCell, width: int, scale: tuple[float, float], marks: str, *, timed: bool) -> Row:
    """A cell as text, such as [▅61/s 2.48]; + marks lower bounds."""
    left, right, edge = marks[0], marks[1], _ink(here=marks != "  ")
    figure, tokens = _figure(cell, timed=timed), f"{short(cell.tokens)}{'' if cell.exact else '+'}"
    if figure is None:
        return ((left, edge), ("?".center(width - 2), "dim"), (right, edge))
    low, high = scale
    level = round((figure - low) / (high - low) * (len(_YIELDS) - 1)) if high - low > ALIKE else len(_YIELDS) // 2
    sign, ink = _YIELDS[level]
    rate = f"{short(figure, 0)}{'/s' if cell.rate_exact else '+'}"
    spans: Row = ((left, edge), (f"{sign}{rate if timed else tokens}", ink))
    if timed and width == _CELL_RATED:
        spans = (*spans, (f" {tokens}", "dim"))
    return (*fit(spans, width - 1), (right, edge))


def _sentence(scene: Scene, estimate: WhatIf) -> str:
    place = chosen(scene)
    if place is None:
        return _most_tokens(estimate)
    if place.present and not estimate.by_history:
        told = f"The knobs as they are: {_rate_words(place.cell)}."
    else:
        live = not (scene.replaying or scene.following)
        history_off = " and history off" if estimate.by_history else ""
        turns = f" {scene.keys.cap('enter')} turns the knobs to it{history_off}." if live else ""
        told = (
            f"{values_of(place)}{history_off}: {_rate_words(place.cell)}, {_gain_words(place.cell, estimate)}.{turns}"
        )
    if faster_knobs(estimate):
        return told
    helps = remedy(scene)
    return f"{told} No cell is clearly faster{f'; would help: {helps.hint}' if helps else ''}."


def _brief(place: Place, estimate: WhatIf) -> str:
    """The main clause of the sentence, for small panels."""
    at_least = _bound_words(exact=place.cell.rate_exact)
    now = f", now {_bound_words(exact=estimate.here.rate_exact)}{short(estimate.here.rate, 0)}"
    return f"{values_of(place)}: {at_least}{short(place.cell.rate, 0)} tokens/s{now}"


def _rate_words(cell: GridCell) -> str:
    """Tokens per second with the interval, such as 412 (395 to 430) tokens/s."""
    if not cell.rate_exact or cell.rates is None:
        return f"{_bound_words(exact=cell.rate_exact)}{short(cell.rate, 0)} tokens/s"
    low, high = cell.rates
    return f"{short(cell.rate, 0)} ({short(low, 0)} to {short(high, 0)}) tokens/s"


def _gain_words(cell: GridCell, estimate: WhatIf) -> str:
    """Gain, such as 1.06 times (0.98 to 1.12) those of the knobs as they are, 389 (371 to 402) tokens/s."""
    present = estimate.here
    if cell.gains is None or not cell.rate or not present.rate:
        return f"{_now(estimate)} have {_rate_words(present)}"
    low, high = cell.gains
    reach = f"({short(low)} to {short(high)}) " if cell.rate_exact else ""
    times = f"{_bound_words(exact=cell.rate_exact)}{short(cell.rate / present.rate)} times {reach}"
    return f"{times}those of {_now(estimate)}, {_rate_words(present)}"


def _now(estimate: WhatIf) -> str:
    return f"the knobs {'with history' if estimate.by_history else 'as they are'}"


def _most_tokens(estimate: WhatIf) -> str:
    place, here = estimate.best(), estimate.here
    if place is None or not here.known:
        return "The recorded trees do not suffice yet for an estimate."
    cell, where = place.cell, values_of(place)
    now = f"{_now(estimate)} give {_yield_text(here)}"
    if cell.tokens > here.tokens + ALIKE:
        doubt = "" if here.exact else "; it is unknown which gives more"
        return f"{where} would have given {_yield_text(cell)}; {now}{doubt}."
    if cell.exact and here.drafted_exact and cell.drafted_exact and round(cell.drafted, 1) < round(here.drafted, 1):
        return f"No cell certainly gives more; {where} gives the same, {_drafted(cell)}: {now}."
    return f"No cell certainly gives more: {now}."


def _yield_text(cell: GridCell) -> str:
    return f"{_bound_words(exact=cell.exact)}{short(cell.tokens)} tokens a round, {_drafted(cell)}"


def _drafted(cell: GridCell) -> str:
    return f"{_bound_words(exact=cell.drafted_exact)}{short(cell.drafted, 1)} drafted"


def _bound_words(*, exact: bool) -> str:
    return "" if exact else "at least "


def _share(scene: Scene, estimate: WhatIf, width: int) -> str:
    shares = [cell.share for cell in estimate.cells]
    low, high = percent(min(shares)), percent(max(shares))
    judged = f"{low} judged" if low == high else f"{low[:-1]}-{high} judged"
    long = f"estimate: the last {estimate.rounds} rounds under other knobs, {judged}"
    cap = scene.keys.cap
    keys = f" ─ {cap('scroll(-1)')} {cap('scroll(1)')} choose, {cap('enter')} turns" if chosen(scene) else ""
    return best(width, f"{long}{keys}", f"estimate, {judged}{keys}", long, f"estimate, {judged}")


def _wrapped(width: int, text: str, ink: Ink) -> Rows:
    return [row for row in wrapped([(text, ink)], width, gaps="plain") if width_of(row)]
