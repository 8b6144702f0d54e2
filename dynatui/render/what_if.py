"""Tables of estimates for other values of the knobs; bars repeat the figures for screens without colours."""

from functools import reduce
from itertools import zip_longest

from decoder.analysis.what_if import ALIKE, Grid, GridCell, WhatIf
from dynatui.knobs import info
from dynatui.number_format import percent, short
from dynatui.render.ink import Ink, Row, Rows, best, fit, frame, inside, width_of, wrapped
from dynatui.render.scene import Scene
from dynatui.render.words import cell_words, faster_knobs, remedy, row_value

_YIELDS: tuple[tuple[str, Ink], ...] = (("▁", "dim"), ("▃", "plain"), ("▅", "strong"), ("▇", "accepted"))
_LABEL = 6
_CELL, _CELL_RATED = 8, 14
_GAP = 3
_MEANINGS = {"tau_h": "draft sure from", "tau_l": "draft unsure below"}
_SIGNS = (
    "[ ] the knobs now · + at least: some trees were recorded only in part · ? too few rounds judged. "
    "Each round is estimated alone, with constant knobs."
)
_BY_COSTS = "auto drafts only nodes that save time; nodes left out are assumed to save no time with other knobs either."


def whatif(scene: Scene, width: int, height: int) -> Rows:
    size = (width, height)
    inner, room = inside(size)
    estimate = scene.whatif
    if estimate is None:
        return frame((("What if", "title"),), _wrapped(inner, _nothing_yet(scene), "dim"), size)
    title: Row = (("What if", "title"), (f" ─ {_share(estimate, inner - 12)}", "dim"))
    sentence = _wrapped(inner, _sentence(scene, estimate), "strong")
    signs = _wrapped(inner, f"{_SIGNS} {_BY_COSTS}" if estimate.by_costs else _SIGNS, "dim")
    tables = _tables(estimate, inner, room - len(sentence) - len(signs)) or _tables(estimate, inner, room)
    return frame(title, [*tables, *sentence, *signs], size)


def _nothing_yet(scene: Scene) -> str:
    if scene.state.lane.newest and scene.state.lane.knobs is None:
        return f"{scene.state.watched} has no tree that is replayed under other knobs"
    return "estimates for other values of the knobs appear after the first rounds"


def _tables(estimate: WhatIf, width: int, height: int) -> Rows:
    yields = [cell.tokens for cell in estimate.cells if cell.known]
    scale = min(yields, default=0.0), max(yields, default=0.0)
    rows = max(len(grid.rows) for grid in estimate.grids) + 2
    for cell in (_CELL_RATED, _CELL):
        widths = [len(_corner(grid)) + len(grid.columns) * cell for grid in estimate.grids]
        if width >= sum(widths) + _GAP * (len(widths) - 1) and height >= rows:
            tables = [_table(grid, room, cell, scale) for grid, room in zip(estimate.grids, widths, strict=True)]
            return reduce(_beside, tables)
        if width >= max(widths) and height >= len(widths) * rows:
            return [row for grid in estimate.grids for row in _table(grid, width, cell, scale)]
    first = estimate.grids[0]
    cell = _CELL_RATED if width >= len(_corner(first)) + len(first.columns) * _CELL_RATED else _CELL
    table = _table(first, width, cell, scale)
    return table[max(0, len(table) - height) :] if height >= len(table) - 1 else []


def _beside(left: Rows, right: Rows) -> Rows:
    most = max(map(width_of, left)) + _GAP
    return [(*fit(a, most), *b) for a, b in zip_longest(left, right, fillvalue=())]


def _corner(grid: Grid) -> str:
    """Symbols of both knobs; the cells begin after it."""
    symbols = f"{info(grid.down).symbol}\\{info(grid.across).symbol}"
    return symbols.ljust(_LABEL if len(symbols) <= _LABEL else len(symbols) + 1)


def _table(grid: Grid, width: int, cell_width: int, scale: tuple[float, float]) -> Rows:
    around = sorted(range(len(grid.columns)), key=lambda column: abs(column - grid.present[1]))
    corner, down, across = _corner(grid), info(grid.down), info(grid.across)
    columns = sorted(around[: max(1, (width - len(corner)) // cell_width)])
    words = f"{down.symbol} {_MEANINGS.get(grid.down, down.brief)} ↓  {across.symbol} {across.brief} →"
    figures = "tokens a round, tokens/s" if cell_width == _CELL_RATED else "tokens a round"
    head: Row = ((corner, "dim"),)
    for column in columns:
        here = column == grid.present[1]
        head = (*head, (_marked(f"{grid.columns[column]:.0f}", here=here).center(cell_width), _ink(here=here)))
    rows: Rows = [((best(width, f"{words}  {figures}", words), "dim"),), head]
    for index, cells in enumerate(grid.cells):
        here = index == grid.present[0]
        row: Row = ((_marked(row_value(grid, index), here=here).ljust(len(corner)), _ink(here=here)),)
        for column in columns:
            row = (*row, *_cell(cells[column], cell_width, scale, here=(index, column) == grid.present))
        rows.append(row)
    return rows


def _marked(value: str, *, here: bool) -> str:
    return f"[{value}]" if here else f" {value} "


def _ink(*, here: bool) -> Ink:
    return "strong" if here else "dim"


def _cell(cell: GridCell, width: int, scale: tuple[float, float], *, here: bool) -> Row:
    """A cell as text, such as [▅2.48 61/s]: brackets mark the current knobs, and + marks lower bounds."""
    left, right = _marked("|", here=here).split("|")
    edge = _ink(here=here)
    if not cell.known:
        return ((left, edge), ("?".center(width - 2), "dim"), (right, edge))
    low, high = scale
    level = round((cell.tokens - low) / (high - low) * (len(_YIELDS) - 1)) if high - low > ALIKE else len(_YIELDS) // 2
    sign, ink = _YIELDS[level]
    spans: Row = ((left, edge), (f"{sign}{short(cell.tokens)}{'' if cell.exact else '+'}", ink))
    if width == _CELL_RATED and cell.rate is not None:
        spans = (*spans, (f" {short(cell.rate, 0)}/s", "dim"))
    return (*fit(spans, width - 1), (right, edge))


def _sentence(scene: Scene, estimate: WhatIf) -> str:
    if (rate := estimate.here.rate) is not None:
        present = f"the knobs as they are, {short(rate, 0)} tokens/s"
        if knobs := faster_knobs(estimate):
            values, gain = knobs
            return f"{values} is estimated to be {gain} faster than {present}."
        helps = remedy(scene)
        return f"No cell is estimated to be faster than {present}{f'; {helps.helps} would help' if helps else ''}."
    return _most_tokens(estimate)


def _most_tokens(estimate: WhatIf) -> str:
    place, here = estimate.best(), estimate.here
    if place is None or not here.known:
        return "The recorded trees do not suffice yet for an estimate."
    grid, row, column = place
    cell = grid.cells[row][column]
    where = cell_words(grid, row, column)
    now = f"the knobs as they are give {_yield_text(here)}"
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


def _share(estimate: WhatIf, width: int) -> str:
    shares = [cell.share for cell in estimate.cells]
    low, high = percent(min(shares)), percent(max(shares))
    judged = f"{low} judged" if low == high else f"{low[:-1]}-{high} judged"
    long = f"estimate: the last {estimate.rounds} rounds under other knobs, {judged}"
    return best(width, long, f"estimate, {judged}")


def _wrapped(width: int, text: str, ink: Ink) -> Rows:
    return [row for row in wrapped([(text, ink)], width, gaps="plain") if width_of(row)]
