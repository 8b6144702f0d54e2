"""What a watched server did at each load: acceptance and time of a step, and the speed-up that follows."""

from dynatui.number_format import count, ms, percent, short
from dynatui.render.ink import Column, Row, Rows, Sheet, bar, frame, inside, share, wrapped
from dynatui.render.load import load_curve
from dynatui.servers.attach.course import Cell
from dynatui.servers.attach.live_curve import live_curve
from dynatui.session import Symbols
from dynatui.state.server_state import ServerState

_TITLE: Row = (("Acceptance by running requests", "title"),)
_CURVE_TITLE: Row = (("Speed-up by running requests", "title"),)
_COLUMNS: tuple[Column[Cell], ...] = (
    Column("running", 7, lambda cell: short(cell.running, 1)),
    Column("L-bar", 6, lambda cell: short(cell.span.length) if cell.span.rounds else "-"),
    Column("accepted", 9, lambda cell: percent(_acceptance(cell)) if cell.span.drafted else "-"),
    Column("step ms", 9, lambda cell: ms(cell.step_s, 1), 1),
    Column("rounds", 9, lambda cell: count(cell.span.rounds), 2),
)
_LEAST_BAR, _LONGEST_BAR = 4, 30


def loads(state: ServerState, size: tuple[int, int]) -> Rows:
    width, height = inside(size)
    cells = [cell for _, cell in sorted(state.course.cells.items())]
    if not cells:
        unknown = "the server has not told its running requests while it generated tokens"
        return frame(_TITLE, wrapped([(unknown, "dim")], max(1, width)), size)
    sheet = Sheet(_COLUMNS, room=width)
    room = min(_LONGEST_BAR, width - sheet.cells - 1)
    rows: Rows = [((sheet.heads, "dim"),)]
    for cell in cells[-max(1, height - 1) :]:
        filled = bar(_acceptance(cell), room) if room >= _LEAST_BAR else ""
        rows.append(((sheet.row(cell), "strong"), (f" {filled}", "accepted")))
    return frame(_TITLE, rows, size)


def speedups(state: ServerState, size: tuple[int, int], symbols: Symbols) -> Rows:
    promise, load = state.promise, state.course.load
    curve = live_curve(promise, state.course.cells, state.course.k) if promise else None
    if curve is None:
        needs = "needs --expect FILE and step times of the server without drafts: --baseline FILE"
        return frame(_CURVE_TITLE, wrapped([(needs, "dim")], max(1, inside(size)[0])), size)
    return load_curve(curve, size, symbols, running=load.running if load else None)


def _acceptance(cell: Cell) -> float:
    return share(cell.span.accepted, cell.span.drafted)
