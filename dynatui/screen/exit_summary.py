"""The summary after the end of the app: results, the best knobs, and the command line of the settings.

The text is made from the session's totals, and contains no control characters. No line is longer than the width of the
terminal, except paths and the command. Prints nothing itself.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from decoder.analysis.metrics import missing_speedups
from decoder.analysis.stalls import stall_notes
from decoder.run.config import RunConfig
from dynatui.clean import clean_line
from dynatui.knobs import owner, rules_of
from dynatui.number_format import memory_by_rank, percent, short
from dynatui.record.command_line import rule_options
from dynatui.render.ink import best, column
from dynatui.render.sheet import Column, Sheet
from dynatui.render.words import ALONE, BY_DESIGN, WHY_ALONE, WHY_BY_DESIGN, same_as_ar, speedup_cell
from dynatui.state.session_log import FEWEST_ROUNDS, OPENING, Line, SessionLog, Setting

_LEAST_NAME = 10


def lines(log: SessionLog, written: Sequence[Path] = (), command: str = "", width: int = 80) -> list[str]:
    """Lines fit in `width`, except paths and the command, so that they can be copied."""
    return [
        *_table(log, width),
        *_best(log),
        *((memory_by_rank(log.peak_bytes_by_rank)[:width],) if log.peak_bytes_by_rank else ()),
        *(f"written: {clean_line(str(path))}" for path in written),
        *(("command line of these settings:", f"  {clean_line(command)}") if command else ()),
    ]


def _table(log: SessionLog, width: int) -> Iterator[str]:
    runs = log.all_runs()
    if not runs:
        return
    room = max(_LEAST_NAME, min(OPENING, width - _SHEET.cells))
    methods = sorted({line.method for line in runs})
    yield column(f"{', '.join(methods)} on", room) + _SHEET.heads
    for line in runs:
        yield column(f"{line.number} {line.opening}", room) + _SHEET.row(line)
    agreed = {line.method: {_agreement(other) for other in runs if other.method == line.method} for line in runs}
    if alone := ", ".join(name for name in methods if ALONE in agreed[name]):
        yield best(width, f"{alone}: {WHY_ALONE}", f"{alone}: own noise, not compared")[:width]
    if by_design := ", ".join(name for name in methods if BY_DESIGN in agreed[name]):
        yield f"{by_design}: {WHY_BY_DESIGN}"[:width]
    if stalled := stall_notes(line.figures for line in runs):
        yield best(width, *stalled)
    if log.dropped:
        yield f"and {log.dropped} earlier {'run' if log.dropped == 1 else 'runs'}"
    for words in missing_speedups({f"prompt {line.number}": line.figures for line in runs}):
        yield words[:width]


def _agreement(line: Line) -> str:
    return same_as_ar(line.method, line.figures, f"to {line.figures.first_difference}")


_COLUMNS: tuple[Column[Line], ...] = (
    Column("rounds", 7, lambda line: str(line.figures.rounds)),
    Column("tokens", 7, lambda line: str(line.figures.committed)),
    Column("L-bar", 6, lambda line: short(line.figures.tokens_per_round)),
    Column("acc. rate", 11, lambda line: percent(line.figures.acceptance_rate)),
    Column("tokens/s", 9, lambda line: short(line.figures.tokens_per_second, 1)),
    Column("speed-up", 9, lambda line: speedup_cell(line.figures)),
    Column("same as ar", 11, _agreement),
)
_SHEET = Sheet(_COLUMNS, room=sum(column.cells for column in _COLUMNS))


def _best(log: SessionLog) -> Iterator[str]:
    best = log.best()
    if best is None:
        return
    setting, tried = best
    count = len(log.judged())
    compared = f"best of {count} settings" if count > 1 else "the only setting"
    yield f"best measured knobs of {setting.method}: {options(setting)}"
    yield f"  {short(tried.rate, 1)} tokens/s, L-bar {short(tried.tokens / tried.rounds)} over {tried.rounds} rounds"
    yield f"  {compared} with {FEWEST_ROUNDS} rounds or more in this session; only a hint"


def options(setting: Setting) -> str:
    """Values of a recording that are out of bounds are clipped."""
    config, rules_name = RunConfig(), rules_of(setting.method)
    if rules_name is None:
        return ""
    for name, value in (*setting.knobs, *setting.knobs):  # twice, since bounds depend on knobs that are set later
        if config.rules(owner(name, rules_name)).has(name):
            config = config.turned(name, value, owner(name, rules_name))
    return " ".join(rule_options(config)) or f"the default values of {setting.method}"
