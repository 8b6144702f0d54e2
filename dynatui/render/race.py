"""The race: rate, gain over ar and progress of every method, and whether the texts equal the text of ar."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from decoder.analysis.bottleneck import headline, of_method
from decoder.analysis.metrics import differs_by_design
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from dynatui.number_format import ms, percent, short
from dynatui.render.cards import rate
from dynatui.render.curves import scale_of
from dynatui.render.ink import Column, Ink, Row, Rows, Sheet, Span, bar, best, column, fit, framed, inside, share, trend
from dynatui.render.scene import Scene
from dynatui.render.words import WHY_ALONE, is_alone, remedy, tie_words
from dynatui.result import interval, same_as_ar, speedup_cell

_SHORTEST_NAME, _LONGEST_NAME = 8, 11
"""Least and largest width of the column with method names, in cells."""
_NUMBERS = 16
_TITLE = len(" Race ─")
_WIDE = 52
_LONGEST = 500
"""Maximum number of characters that are shown of an error message."""
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
    def recent(self) -> str:
        """Tokens per round of the last rounds, as a sparkline with the same scale for all methods."""
        points = self.scene.state.lanes[self.name].curves.tokens.points
        return trend(points, _CELLS - 2, 1.0, scale_of(self.scene).top)

    @property
    def progress(self) -> str:
        run, end = self.scene.state.run, self.scene.state.ends.get(self.name)
        word = "" if end is None else {"length": "full", "eos": "end"}.get(end.reason, end.reason)
        return f"{self.figures.committed:>6}/{run.max_new_tokens if run else 0} {word:<7}"

    @property
    def ink(self) -> Ink:
        return "strong" if self.name == self.scene.state.watched else "plain"


_COLUMNS: tuple[Column[_Lane], ...] = (
    Column("tokens/round", _CELLS, lambda lane: short(lane.figures.tokens_per_round)),
    Column("acc. rate", _CELLS, lambda lane: percent(lane.figures.acceptance_rate)),
    Column("drafted", _CELLS, lambda lane: "-" if lane.figures.drafted is None else str(lane.figures.drafted)),
    Column("text of ar", _CELLS, lambda lane: same_as_ar(lane.name, lane.figures, "differs")),
    Column("recent L-bar", _CELLS, lambda lane: lane.recent),
    Column("x plain, 95 %", _CELLS + 4, lambda lane: interval(lane.figures)),
    Column("depth acc.", _CELLS, lambda lane: short(lane.figures.depth_acceptance)),
    Column("ms/token", _CELLS, lambda lane: ms(lane.figures.tpot_s, 1)),
    Column("TTFT ms", _CELLS, lambda lane: ms(lane.figures.ttft_s, 1)),
    Column("draft s", _CELLS, lambda lane: short(lane.figures.draft_s)),
    Column("verify s", _CELLS, lambda lane: short(lane.figures.verify_s)),
    Column("peak MB", _CELLS, lambda lane: short((lane.figures.peak_bytes or math.nan) / 1e6, 0)),
)


@framed
def race(scene: Scene, width: int, height: int) -> tuple[Row, Rows]:
    title, lanes, state = _title(scene, width - _TITLE), _lanes(scene), scene.state
    if not lanes:
        return title, [(("every method decodes the same prompt here", "dim"),)]
    name = 1 + min(_LONGEST_NAME, max(_SHORTEST_NAME, *(len(lane.name) for lane in lanes)))
    body = [_row(lane, lanes, name, width) for lane in _shown(scene, height)]
    body.append(_error(scene) or _verdict(scene, width))
    if limits := headline(of_method(state.race, state.watched), remedy(scene)):
        body.append(((best(width, *limits), "plain"),))
    spare = height - len(body) - len(lanes) - 1
    if spare >= 0 and width >= _WIDE:
        table = Sheet(_COLUMNS, width - name)
        body += [*[()] * (spare > 0), ((column("whole run", name) + table.heads, "dim"),)]
        body += [((column(lane.name, name) + table.row(lane), lane.ink),) for lane in lanes]
    return title, body


def lane_at(scene: Scene, size: tuple[int, int], y: int) -> str | None:
    """The method of a clicked row; None for a row without a method."""
    height = inside(size)[1]
    shown, place = _shown(scene, height), y - (size[1] - height) // 2
    return shown[place].name if 0 <= place < len(shown) else None


def _lanes(scene: Scene) -> list[_Lane]:
    return [_Lane(scene, name, figures) for name, figures in scene.state.pooled().items()]


def _shown(scene: Scene, height: int) -> list[_Lane]:
    """The methods for which there is a row; the watched method and `ar` have priority."""
    lanes = _lanes(scene)
    kept = sorted(lanes, key=lambda lane: (lane.name != scene.state.watched, lane.name != "ar"))[: max(0, height)]
    return [lane for lane in lanes if lane in kept]


def _row(lane: _Lane, lanes: Sequence[_Lane], name: int, width: int) -> Row:
    entry, rate = lane.figures, lane.rate
    gain = f"{short(entry.speedup)}x" if entry.speedup is not None else speedup_cell(entry).strip("-")
    figure = "warming up" if entry.committed and rate is None else f"{short(rate, 0):>6}/s {gain:>6}"
    progress = lane.progress if width >= _WIDE else ""
    length = max(1, width - name - _NUMBERS - len(progress))
    filled = share(rate or 0.0, max(each.rate or 0.0 for each in lanes))
    row: Row = (
        (column(lane.name, name), lane.ink),
        (bar(filled, length), "first" if lane.ink == "strong" else "bar"),
        (f"{figure:>{_NUMBERS}}", lane.ink),
        (progress, "dim"),
    )
    return fit(row, width)


def _title(scene: Scene, width: int) -> Row:
    stalled = stall_notes(scene.state.figures().values())
    warning = best(width, *(f" ─ {words}" for words in stalled)) if stalled else ""
    words = best(width - len(warning), " ─ tokens/s, equal time each", " ─ tokens/s" if not stalled else "")
    return (("Race", "title"), (words, "dim"), *(((warning, "warn"),) if stalled else ()))


def _error(scene: Scene) -> Row:
    failed = next((end for end in scene.state.ends.values() if end.reason == "error"), None)
    return (("! ", "bad"), (f"{failed.method}: {(failed.error or 'broke off')[:_LONGEST]}", "plain")) if failed else ()


def _verdict(scene: Scene, width: int) -> Row:
    """Whether the watched text equals that of ar, and the methods that cannot be compared with ar."""
    watched, figures = scene.state.watched, scene.state.figures()
    entry, alone = figures[watched], [name for name in figures if is_alone(scene.state, name)]
    beside = f"{', '.join(alone)}: own noise, not compared with ar" if alone else ""
    if watched in alone:
        return ((best(width, f"{watched}: {WHY_ALONE}", beside), "dim"),)
    by_design = differs_by_design(entry)
    if not entry.committed or watched == "ar" or (entry.identical_to_ar is None and not by_design):
        return ((beside, "dim"),)
    if entry.identical_to_ar:
        same = f"{watched} writes exactly the text of ar"
        return (("= ", "good"), (best(width - 2, f"{same}; {beside}" if alone else same, same), "dim"))
    where = f"first difference from ar at token {entry.first_difference}"
    sign: Span = ("! ", "bad") if entry.near_tie is False else ("~ ", "dim" if by_design else "warn")
    return (sign, (f"{where}{tie_words(entry, ': ')}", "dim"))
