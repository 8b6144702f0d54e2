"""Tables of estimates for other values of the knobs, of which the user chooses one cell. Each cell has a bar
beside its colour, since not all terminals show colours.
"""

from itertools import zip_longest

from decoder.analysis.what_if import ALIKE, Grid, GridCell, Place, WhatIf
from dynatui.knobs import info
from dynatui.number_format import percent, short
from dynatui.render.ink import Ink, Row, Rows, best, fit, framed, joined, titled, wrapped
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


@framed
def whatif(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    estimate, place = scene.whatif, chosen(scene)
    if estimate is None:
        why = "estimates for other values of the knobs appear after the first rounds"
        if scene.state.lane.newest and scene.state.lane.knobs is None:
            why = f"{scene.state.watched} has no trees to replay with other values of the knobs"
        return titled("What if"), _wrapped(width, why, "dim")
    sentence = _wrapped(width, _sentence(scene, estimate), "strong")
    present = "" if estimate.by_history else _PRESENT
    signs = _wrapped(width, f"{present}{_SIGNS}{f' {_BY_COSTS}' if estimate.by_costs else ''}", "dim")
    rooms = height - len(sentence) - len(signs), height - 1  # the sentence has at least one row
    tables = next(filter(None, (_tables(estimate, place, width, rows) for rows in rooms)), [])
    if place and len(tables) + len(sentence) > height:
        sentence = _wrapped(width, _brief(place, estimate), "strong")
    return titled("What if", _share(scene, estimate, width - 12)), [*tables, *sentence, *signs]


def chosen(scene: Scene) -> Place | None:
    """The cell that the user chose, else the fastest cell; None without estimates of tokens per second."""
    places = scene.whatif.by_rate() if scene.whatif else []
    return next((place for place in places if place.knobs == scene.whatif_choice), next(iter(places), None))


def _tables(estimate: WhatIf, place: Place | None, width: int, height: int) -> Rows:
    """All tables side by side or one below the other; else the table of the chosen cell, without its first rows."""
    grids, rows = estimate.grids, max(len(grid.rows) for grid in estimate.grids) + 2
    shown = place.grid if place else grids[0]
    for cell in (_CELL_RATED, _CELL):
        widths = [_width(grid, cell) for grid in grids]
        if width >= sum(widths) + _GAP * (len(widths) - 1) and height >= rows:
            tables = (_table(estimate, grid, place, wide, cell) for grid, wide in zip(grids, widths, strict=True))
            beside = zip_longest(*tables, fillvalue=())
            return [joined(map(fit, each, widths), ((" " * _GAP, "plain"),)) for each in beside]
        if width >= max(widths) and height >= len(widths) * rows:
            return [row for grid in grids for row in _table(estimate, grid, place, width, cell)]
    table = _table(estimate, shown, place, width, _CELL_RATED if width >= _width(shown, _CELL_RATED) else _CELL)
    return table[max(0, len(table) - height) :] if height >= len(table) - 1 else []


def _width(grid: Grid, cell: int) -> int:
    return len(_corner(grid)) + len(grid.columns) * cell


def _corner(grid: Grid) -> str:
    """Symbols of both knobs, filled to the width of the column before the cells."""
    symbols = f"{info(grid.down).symbol}\\{info(grid.across).symbol}"
    return symbols.ljust(_LABEL if len(symbols) <= _LABEL else len(symbols) + 1)


def _table(estimate: WhatIf, grid: Grid, place: Place | None, width: int, cell_width: int) -> Rows:
    """`place`: the chosen cell; None if tokens per second are unknown, so that cells show tokens per round."""
    corner, down, across = _corner(grid), info(grid.down), info(grid.across)
    nearest = sorted(range(len(grid.columns)), key=lambda column: abs(column - grid.present[1]))
    columns = sorted(nearest[: max(1, (width - len(corner)) // cell_width)])
    words = f"{down.symbol} {_MEANINGS.get(grid.down, down.brief)} ↓  {across.symbol} {across.brief} →"
    figures = "tokens/s, tokens a round" if cell_width == _CELL_RATED else "tokens/s"
    head: Row = ((corner, "dim"),)
    present = (-1, -1) if estimate.by_history else grid.present  # the history rule moves the knobs from cell to cell
    for column in columns:
        here = column == present[1]
        head = (*head, (_marked(f"{grid.columns[column]:.0f}", here=here).center(cell_width), _ink(here=here)))
    title = best(width, f"{words}  {figures if place else 'tokens a round'}", words)
    rows: Rows = [((title, "dim"),), head]
    figured = [figure for cell in estimate.cells if (figure := _figure(cell, timed=place is not None)) is not None]
    scale = min(figured, default=0.0), max(figured, default=0.0)
    for index, cells in enumerate(grid.cells):
        here = index == present[0]
        row: Row = ((_marked(row_value(grid, index), here=here).ljust(len(corner)), _ink(here=here)),)
        for column in columns:
            is_chosen = Place(grid, index, column) == place
            marks = "[]" if (index, column) == present else "()" if is_chosen else "  "
            row = (*row, *_cell(cells[column], cell_width, scale, marks, timed=place is not None))
        rows.append(row)
    return rows


def _marked(value: str, *, here: bool) -> str:
    return f"[{value}]" if here else f" {value} "


def _ink(*, here: bool) -> Ink:
    return "strong" if here else "dim"


def _figure(cell: GridCell, *, timed: bool) -> float | None:
    """Figure of a cell's bar: tokens per second, or tokens per round if costs are unknown; None for unknown cells."""
    if not cell.known:
        return None
    return cell.rate if timed else cell.tokens


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
    beside = f" {tokens}" if timed and width == _CELL_RATED else ""
    spans: Row = ((left, edge), (f"{sign}{rate if timed else tokens}", ink), (beside, "dim"))
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
        where, gain = f"{values_of(place)}{history_off}", _gain_words(place.cell, estimate)
        told = f"{where}: {_rate_words(place.cell)}, {gain}.{turns}"
    if faster_knobs(estimate):
        return told
    helps = remedy(scene)
    return f"{told} No cell is clearly faster{f'; would help: {helps.hint}' if helps else ''}."


def _brief(place: Place, estimate: WhatIf) -> str:
    """The main clause of the sentence, for small panels."""
    rate, here = (_bounded(short(cell.rate, 0), exact=cell.rate_exact) for cell in (place.cell, estimate.here))
    return f"{values_of(place)}: {rate} tokens/s, now {here}"


def _rate_words(cell: GridCell) -> str:
    """Tokens per second with the interval, such as 412 (395 to 430) tokens/s."""
    reach = f" ({short(cell.rates[0], 0)} to {short(cell.rates[1], 0)})" if cell.rate_exact and cell.rates else ""
    return _bounded(f"{short(cell.rate, 0)}{reach} tokens/s", exact=cell.rate_exact)


def _gain_words(cell: GridCell, estimate: WhatIf) -> str:
    """Ratio to the present tokens per second, such as 1.06 times (0.98 to 1.12) those of the knobs as they are, 389
    (371 to 402) tokens/s.
    """
    present = estimate.here
    if cell.gains is None or not cell.rate or not present.rate:
        return f"{_now(estimate)} have {_rate_words(present)}"
    reach = f"({short(cell.gains[0])} to {short(cell.gains[1])}) " if cell.rate_exact else ""
    times = _bounded(f"{short(cell.rate / present.rate)} times {reach}", exact=cell.rate_exact)
    return f"{times}those of {_now(estimate)}, {_rate_words(present)}"


def _now(estimate: WhatIf) -> str:
    return f"the knobs {'with history' if estimate.by_history else 'as they are'}"


def _most_tokens(estimate: WhatIf) -> str:
    place, here = estimate.best(), estimate.here
    if place is None or not here.known:
        return "The recorded trees do not suffice yet for an estimate."
    now = f"{_now(estimate)} give {_yield_text(here)}"
    if place.cell.tokens <= here.tokens + ALIKE:
        return f"No cell certainly gives more: {now}."
    return f"{values_of(place)} would have given {_yield_text(place.cell)}; {now}."


def _yield_text(cell: GridCell) -> str:
    tokens = _bounded(f"{short(cell.tokens)} tokens a round", exact=cell.exact)
    return f"{tokens}, {_bounded(f'{short(cell.drafted, 1)} drafted', exact=cell.drafted_exact)}"


def _bounded(words: str, *, exact: bool) -> str:
    return words if exact else f"at least {words}"


def _share(scene: Scene, estimate: WhatIf, width: int) -> str:
    shares = [cell.share for cell in estimate.cells]
    low, high = percent(min(shares)), percent(max(shares))
    judged = f"{low} judged" if low == high else f"{low[:-1]}-{high} judged"
    cap = scene.keys.cap
    keys = f" ─ {cap('scroll(-1)')} {cap('scroll(1)')} choose, {cap('enter')} turns" if chosen(scene) else ""
    long = f"estimate: the last {estimate.rounds} rounds under other knobs, {judged}{keys}"
    return best(width, long, f"estimate, {judged}{keys}")


def _wrapped(width: int, text: str, ink: Ink) -> Rows:
    return wrapped([(text, ink)], width, gaps="plain")
