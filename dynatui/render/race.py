"""The race: rate, gain over ar and progress of every method, and whether the texts equal the text of ar."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from decoder.analysis.bottleneck import headline, of_method
from decoder.analysis.metrics import differs_by_design
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from dynatui.number_format import percent, short
from dynatui.render.advice import remedy
from dynatui.render.curves import scale_of
from dynatui.render.guide import explained, led_by
from dynatui.render.headline import is_warm
from dynatui.render.ink import Ink, Row, Rows, Span, bar, best, column, fit, frame, inside, share, trend
from dynatui.render.scene import Scene
from dynatui.render.words import WHY_ALONE, is_alone, same_as_ar, speedup_cell, tie_words

_SHORTEST_NAME, _LONGEST_NAME = 8, 9
"""Least and greatest width of the column with method names, in cells."""
_NUMBERS = 16
_TITLE = len("╭─ Race  ─╮")
_WIDE = 52
_LONGEST = 500
"""Largest number of characters of a shown error message."""
_OTHERS = "5 work 6 what if 7 prompts 8 log 9 sampling"
"""Hint in the title: the other panels in the same place."""


def race(scene: Scene, width: int, height: int) -> Rows:
    """One row for each method, in the order of the run."""
    inner, room = inside((width, height))
    figures = scene.state.figures()
    fastest = max((_rate(scene, name, entry) or 0.0 for name, entry in figures.items()), default=0.0)
    beside = _beside(scene, figures, inner, room)
    body = [_row(scene, name, figures, fastest, inner, beside) for name in _shown(scene, figures, room)]
    if beside:
        body.insert(0, _heads(scene, beside, figures, inner))
    if not body:
        body = [(("every method decodes the same prompt here", "dim"),)]
    elif room > len(body):
        body.append(_error(scene) or _verdict(scene, figures, inner))
        body += _limit(scene, inner)[: room - len(body)]
        if room > len(body) + len(figures) + 1 and inner >= _WIDE:
            body += [(), *_table(scene, figures, inner, _COLUMNS[_repeated(beside) :])]
            body += explained(led_by(_EXPLAINED), inner, room - len(body))
    return frame(_title(figures, width - _TITLE), body, (width, height))


def _shown(scene: Scene, figures: Mapping[str, Figures], room: int) -> list[str]:
    """The methods in the order of the run; without a row for each, the watched method and `ar` are kept."""
    kept = sorted(figures, key=lambda name: (name != scene.state.watched, name != "ar"))[: max(0, room)]
    return [name for name in figures if name in kept]


def _title(figures: Mapping[str, Figures], width: int) -> Row:
    """Title: meaning of the bars, number of rounds excluded from rates, and the other panels that share the place."""
    note = "tokens/s, equal time each"
    wordings = f" ─ {note} ─ {_OTHERS}", f" ─ tokens/s ─ {_OTHERS}", f" ─ {note}"
    stalled = stall_notes(figures.values())
    if not stalled:
        return (("Race", "title"), (best(width, *wordings), "dim"))
    warning = best(width, *(f" ─ {words}" for words in stalled))
    room = width - len(warning)
    return (("Race", "title"), (best(room, *wordings, " ─ tokens/s", "")[: max(0, room)], "dim"), (warning, "warn"))


@dataclass(frozen=True)
class _Column:
    """Column with a figure of each method, beside the bars."""

    head: str
    cells: int
    value: Callable[[Scene, str, Figures], str]


def _recent(scene: Scene, name: str, _: Figures) -> str:
    """Sparkline of the tokens per round in the last rounds, with the same scale for all methods."""
    return f"{trend(scene.state.lanes[name].curves.tokens.points, _TREND, 1.0, scale_of(scene).top):>{_TREND}}"


_TREND = 12
_BESIDE = (
    _Column("passes", 8, lambda _, __, one: "-" if one.target_forwards is None else str(one.target_forwards)),
    _Column("L-bar", 7, lambda _, __, one: short(one.tokens_per_round)),
    _Column("accepted", 10, lambda _, __, one: percent(one.acceptance_rate)),
    _Column("L-bar, recent", _TREND + 3, _recent),
)
_LEAST_BAR = 28
"""Least width of a bar that has columns beside it, in cells."""
_SPARE = 3
"""Number of rows that are needed in addition to one row per method: headings, verdict, limit."""


def _beside(scene: Scene, figures: Mapping[str, Figures], width: int, room: int) -> tuple[_Column, ...]:
    """As many columns as fit; none if there is no row for headings."""
    if not figures or room < len(figures) + _SPARE:
        return ()
    free = _bar_width(scene, figures, width) - _LEAST_BAR
    ends = accumulate(column.cells for column in _BESIDE)
    return tuple(column for column, end in zip(_BESIDE, ends, strict=True) if end <= free)


def _bar_width(scene: Scene, figures: Mapping[str, Figures], width: int) -> int:
    """Width of the bars, in cells: the width of a row without name, rate and progress."""
    longest = max(len(_progress(scene, name, entry)) for name, entry in figures.items()) if width >= _WIDE else 0
    return width - _name_width(figures) - _NUMBERS - longest


def _heads(scene: Scene, beside: Sequence[_Column], figures: Mapping[str, Figures], width: int) -> Row:
    """Headings of the columns."""
    heads = "".join(f"{column.head:>{column.cells}}" for column in beside)
    before = _name_width(figures) + _bar_width(scene, figures, width) - len(heads)
    return ((f"{'':{before}}{'tokens/s x plain':>{_NUMBERS}}{heads}", "dim"),)


def _row(
    scene: Scene,
    name: str,
    figures: Mapping[str, Figures],
    fastest: float,
    width: int,
    beside: Sequence[_Column],
) -> Row:
    entry = figures[name]
    watched = name == scene.state.watched
    rate = _rate(scene, name, entry)
    gain = f"{short(entry.speedup)}x" if entry.speedup is not None else speedup_cell(entry).strip("-")
    figure = "warming up" if entry.committed and rate is None else f"{short(rate, 0):>6}/s {gain:>6}"
    progress = _progress(scene, name, entry) if width >= _WIDE else ""
    names = _name_width(figures)
    cells = "".join(f"{each.value(scene, name, entry):>{each.cells}}" for each in beside)
    length = max(1, width - names - _NUMBERS - len(cells) - len(progress))
    return fit(
        (
            (column(name, names), "strong" if watched else "plain"),
            (bar(share(rate or 0.0, fastest), length), "first" if watched else "bar"),
            (f"{figure:>{_NUMBERS}}{cells}", "strong" if watched else "plain"),
            (progress, "dim"),
        ),
        width,
    )


def _name_width(figures: Mapping[str, Figures]) -> int:
    """Width of the column of names, with one blank after the longest name."""
    return 1 + min(_LONGEST_NAME, max(_SHORTEST_NAME, *map(len, figures)))


def _rate(scene: Scene, name: str, entry: Figures) -> float | None:
    """Tokens per second; None before the end of the method's warm-up."""
    return entry.tokens_per_second if is_warm(scene.state, name) else None


def _table(
    scene: Scene,
    figures: Mapping[str, Figures],
    width: int,
    available: Sequence[tuple[str, Callable[[str, Figures], str]]],
) -> Rows:
    """A table of further figures of each method, in the rows that are still free."""
    names = _name_width(figures)
    columns = available[: max(0, (width - names) // _CELLS)]
    rows: Rows = [((column("whole run", names), "dim"), *((f"{head:>{_CELLS}}", "dim") for head, _ in columns))]
    for name, entry in figures.items():
        ink: Ink = "strong" if name == scene.state.watched else "plain"
        rows.append(((column(name, names), ink), *((f"{value(name, entry):>{_CELLS}}", ink) for _, value in columns)))
    return rows


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else short(1000 * seconds, 1)


_CELLS = 14
_COLUMNS: tuple[tuple[str, Callable[[str, Figures], str]], ...] = (
    ("tokens/round", lambda _, one: short(one.tokens_per_round)),
    ("acc. rate", lambda _, one: percent(one.acceptance_rate)),
    ("drafted", lambda _, one: "-" if one.drafted is None else str(one.drafted)),
    ("text of ar", lambda name, one: same_as_ar(name, one, "differs")),
    ("depth acc.", lambda _, one: short(one.depth_acceptance)),
    ("ms/token", lambda _, one: _ms(one.tpot_s)),
    ("TTFT ms", lambda _, one: _ms(one.ttft_s)),
    ("draft s", lambda _, one: short(one.draft_s)),
    ("verify s", lambda _, one: short(one.verify_s)),
    ("peak MB", lambda _, one: "-" if one.peak_bytes is None else short(one.peak_bytes / 1e6, 0)),
)
_EXPLAINED = ("tokens_per_second", "speedup", "tokens_per_round", "acceptance_rate", "drafted", "identical_to_ar")
"""Figures that are explained first, if rows are still free."""


def _repeated(beside: Sequence[_Column]) -> int:
    """Number of columns at the start of the table whose figures stand beside the bars already, after the passes."""
    return min(2, max(0, len(beside) - 1))


def _progress(scene: Scene, name: str, entry: Figures) -> str:
    run, end = scene.state.run, scene.state.ends.get(name)
    limit = run.max_new_tokens if run else 0
    word = "" if end is None else {"length": "full", "eos": "end"}.get(end.reason, end.reason)
    return f"{entry.committed:>6}/{limit} {word:<7}"


def _limit(scene: Scene, width: int) -> Rows:
    """What limits the watched method's speed most, and the remedy, in one row; empty if unknown."""
    watched = scene.state.watched
    wordings = headline(of_method(scene.state.race, watched), watched, remedy(scene))
    return [((best(width, *wordings), "plain"),)] if wordings else []


def _error(scene: Scene) -> Row:
    failed = next((end for end in scene.state.ends.values() if end.reason == "error"), None)
    return (("! ", "bad"), (f"{failed.method}: {(failed.error or 'broke off')[:_LONGEST]}", "plain")) if failed else ()


def _verdict(scene: Scene, figures: Mapping[str, Figures], width: int) -> Row:
    """Whether the watched text equals that of ar, and the methods that cannot be compared with ar."""
    watched = scene.state.watched
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
        wordings = (f"{same}; {beside}", f"{same}; {', '.join(alone)}: own noise", same) if alone else (same,)
        return (("= ", "good"), (best(width - 2, *wordings), "dim"))
    where = f"first difference from ar at token {entry.first_difference}"
    sign: Span = ("! ", "bad") if entry.near_tie is False else ("~ ", "dim" if by_design else "warn")
    return (sign, (f"{where}{tie_words(entry, ': ')}", "dim"))


def lane_at(scene: Scene, size: tuple[int, int], y: int) -> str | None:
    """The method of a clicked row; None for a row without a method."""
    top = (size[1] - inside(size)[1]) // 2
    figures = scene.state.figures()
    heads = bool(_beside(scene, figures, *inside(size)))
    methods, place = _shown(scene, figures, inside(size)[1]), y - top - heads
    return methods[place] if 0 <= place < len(methods) else None
