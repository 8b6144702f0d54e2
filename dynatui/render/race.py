"""The race: rate, gain over ar and progress of every method, and whether the texts equal the text of ar."""

from dataclasses import dataclass

from decoder.analysis.bottleneck import headline, of_method
from decoder.analysis.metrics import differs_by_design
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from dynatui.number_format import ms, percent, short
from dynatui.render.cards import rate
from dynatui.render.curves import scale_of
from dynatui.render.guide import explained, led_by
from dynatui.render.ink import Column, Ink, Row, Rows, Sheet, Span, bar, best, column, fit, frame, inside, share, trend
from dynatui.render.scene import Scene
from dynatui.render.words import WHY_ALONE, is_alone, remedy, tie_words
from dynatui.result import interval, same_as_ar, speedup_cell

_SHORTEST_NAME, _LONGEST_NAME = 8, 11
"""Least and largest width of the column with method names, in cells."""
_NUMBERS = 16
_TITLE = len("╭─ Race  ─╮")
_WIDE = 52
_LONGEST = 500
"""Maximum number of characters that are shown of an error message."""
_LEAST_BAR = 28
"""Least width of a bar that has columns beside it, in cells."""
_SPARE = 3
"""Number of rows in addition to one row per method: headings, verdict, limit."""
_EXPLAINED = ("tokens_per_second", "speedup", "tokens_per_round", "acceptance_rate", "drafted", "identical_to_ar")
_TREND = 12
_CELLS = 14


@dataclass(frozen=True)
class _Lane:
    scene: Scene
    name: str
    figures: Figures

    @property
    def rate(self) -> float | None:
        return rate(self.scene.state, self.name)

    @property
    def progress(self) -> str:
        run, end = self.scene.state.run, self.scene.state.ends.get(self.name)
        word = "" if end is None else {"length": "full", "eos": "end"}.get(end.reason, end.reason)
        return f"{self.figures.committed:>6}/{run.max_new_tokens if run else 0} {word:<7}"

    @property
    def ink(self) -> Ink:
        return "strong" if self.name == self.scene.state.watched else "plain"


def _count(value: int | None) -> str:
    return "-" if value is None else str(value)


def _recent(lane: _Lane) -> str:
    """Tokens per round of the last rounds, as a sparkline with the same scale for all methods."""
    points = lane.scene.state.lanes[lane.name].curves.tokens.points
    return f"{trend(points, _TREND, 1.0, scale_of(lane.scene).top):>{_TREND}}"


_BESIDE: tuple[Column[_Lane], ...] = (
    Column("passes", 8, lambda lane: _count(lane.figures.target_forwards)),
    Column("L-bar", 7, lambda lane: short(lane.figures.tokens_per_round)),
    Column("accepted", 10, lambda lane: percent(lane.figures.acceptance_rate)),
    Column("L-bar, recent", _TREND + 3, _recent),
    Column("95 % of x plain", 18, lambda lane: interval(lane.figures)),
)
_COLUMNS: tuple[Column[_Lane], ...] = (
    Column("tokens/round", _CELLS, lambda lane: short(lane.figures.tokens_per_round)),
    Column("acc. rate", _CELLS, lambda lane: percent(lane.figures.acceptance_rate)),
    Column("drafted", _CELLS, lambda lane: _count(lane.figures.drafted)),
    Column("text of ar", _CELLS, lambda lane: same_as_ar(lane.name, lane.figures, "differs")),
    Column("depth acc.", _CELLS, lambda lane: short(lane.figures.depth_acceptance)),
    Column("ms/token", _CELLS, lambda lane: ms(lane.figures.tpot_s, 1)),
    Column("TTFT ms", _CELLS, lambda lane: ms(lane.figures.ttft_s, 1)),
    Column("draft s", _CELLS, lambda lane: short(lane.figures.draft_s)),
    Column("verify s", _CELLS, lambda lane: short(lane.figures.verify_s)),
    Column(
        "peak MB",
        _CELLS,
        lambda lane: "-" if lane.figures.peak_bytes is None else short(lane.figures.peak_bytes / 1e6, 0),
    ),
)


class _Bars:
    """Rows of methods with bars; `shown` are the methods for which there is a row, `beside` the columns that fit."""

    def __init__(self, scene: Scene, width: int, room: int) -> None:
        figures = scene.state.pooled()
        self.lanes = [_Lane(scene, name, entry) for name, entry in figures.items()]
        # If there are fewer rows than methods, the watched method and `ar` have priority.
        kept = sorted(figures, key=lambda name: (name != scene.state.watched, name != "ar"))[: max(0, room)]
        self.shown = [lane for lane in self.lanes if lane.name in kept]
        self.name = 1 + min(_LONGEST_NAME, max(_SHORTEST_NAME, *map(len, figures), 0))
        self._width = width
        longest = max((len(lane.progress) for lane in self.lanes), default=0) if width >= _WIDE else 0
        self._bar = width - self.name - _NUMBERS - longest
        has_heads = self.lanes and room >= len(self.lanes) + _SPARE
        self.beside = Sheet(_BESIDE, self._bar - _LEAST_BAR if has_heads else 0)
        self._fastest = max((lane.rate or 0.0 for lane in self.lanes), default=0.0)

    def rows(self) -> Rows:
        heads, before = self.beside.heads, self.name + self._bar - self.beside.cells
        top: Rows = [((f"{'':{before}}{'tokens/s x plain':>{_NUMBERS}}{heads}", "dim"),)] if heads else []
        return [*top, *map(self._row, self.shown)]

    def _row(self, lane: _Lane) -> Row:
        entry, rate, watched = lane.figures, lane.rate, lane.ink == "strong"
        gain = f"{short(entry.speedup)}x" if entry.speedup is not None else speedup_cell(entry).strip("-")
        figure = "warming up" if entry.committed and rate is None else f"{short(rate, 0):>6}/s {gain:>6}"
        progress = lane.progress if self._width >= _WIDE else ""
        length = max(1, self._width - self.name - _NUMBERS - self.beside.cells - len(progress))
        row: Row = (
            (column(lane.name, self.name), lane.ink),
            (bar(share(rate or 0.0, self._fastest), length), "first" if watched else "bar"),
            (f"{figure:>{_NUMBERS}}{self.beside.row(lane)}", lane.ink),
            (progress, "dim"),
        )
        return fit(row, self._width)


def race(scene: Scene, width: int, height: int) -> Rows:
    inner, room = inside((width, height))
    bars = _Bars(scene, inner, room)
    body = bars.rows()
    if not body:
        body = [(("every method decodes the same prompt here", "dim"),)]
    elif room > len(body):
        body.append(_error(scene) or _verdict(scene, inner))
        limits = headline(of_method(scene.state.race, scene.state.watched), remedy(scene))
        if limits and room > len(body):
            body.append(((best(inner, *limits), "plain"),))
        if room > len(body) + len(bars.lanes) + 1 and inner >= _WIDE:
            # If L-bar and acceptance are shown beside the bars, the table omits them; they are its first columns.
            repeated = min(2, max(0, len(bars.beside.columns) - 1))
            table = Sheet(_COLUMNS[repeated:], inner - bars.name)
            body += [(), ((column("whole run", bars.name) + table.heads, "dim"),)]
            body += [((column(lane.name, bars.name) + table.row(lane), lane.ink),) for lane in bars.lanes]
            body += explained(led_by(_EXPLAINED), inner, room - len(body))
    return frame(_title(scene, width - _TITLE), body, (width, height))


def _title(scene: Scene, width: int) -> Row:
    wordings = " ─ tokens/s, equal time each", " ─ tokens/s"
    stalled = stall_notes(scene.state.figures().values())
    if not stalled:
        return (("Race", "title"), (best(width, *wordings), "dim"))
    warning = best(width, *(f" ─ {words}" for words in stalled))
    room = width - len(warning)
    return (("Race", "title"), (best(room, *wordings, "")[: max(0, room)], "dim"), (warning, "warn"))


def _error(scene: Scene) -> Row:
    failed = next((end for end in scene.state.ends.values() if end.reason == "error"), None)
    return (("! ", "bad"), (f"{failed.method}: {(failed.error or 'broke off')[:_LONGEST]}", "plain")) if failed else ()


def _verdict(scene: Scene, width: int) -> Row:
    """Whether the watched text equals that of ar, and the methods that cannot be compared with ar."""
    watched, figures = scene.state.watched, scene.state.figures()
    entry = figures.get(watched)
    alone = [name for name in figures if is_alone(scene.state, name)]
    beside = f"{', '.join(alone)}: own noise, not compared with ar" if alone else ""
    if watched in alone:
        return ((best(width, f"{watched}: {WHY_ALONE}", beside), "dim"),)
    by_design = entry is not None and differs_by_design(entry)
    if entry is None or not entry.committed or watched == "ar" or (entry.identical_to_ar is None and not by_design):
        return ((beside, "dim"),) if beside else ()
    if entry.identical_to_ar:
        same = f"{watched} writes exactly the text of ar"
        wordings = (f"{same}; {beside}", same) if alone else (same,)
        return (("= ", "good"), (best(width - 2, *wordings), "dim"))
    where = f"first difference from ar at token {entry.first_difference}"
    sign: Span = ("! ", "bad") if entry.near_tie is False else ("~ ", "dim" if by_design else "warn")
    return (sign, (f"{where}{tie_words(entry, ': ')}", "dim"))


def lane_at(scene: Scene, size: tuple[int, int], y: int) -> str | None:
    """The method of a clicked row; None for a row without a method."""
    width, room = inside(size)
    bars = _Bars(scene, width, room)
    place = y - (size[1] - room) // 2 - bool(bars.beside.columns)
    return bars.shown[place].name if 0 <= place < len(bars.shown) else None
