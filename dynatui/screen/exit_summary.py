"""The summary after the end of the app: results, the best knobs, and the command line of the settings.

The text is made from the session's totals, and contains no control characters. No line is longer than the width of the
terminal, except paths and the command. Prints nothing itself.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from decoder.analysis.metrics import missing_speedups
from decoder.analysis.stalls import stall_notes
from decoder.events import Figures
from decoder.run.config import RunConfig
from dynatui.clean import clean_line
from dynatui.knobs import owner, rules_of
from dynatui.number_format import memory_by_rank, percent, short
from dynatui.record.command_line import rule_options
from dynatui.render.ink import best, column
from dynatui.render.words import ALONE, BY_DESIGN, WHY_ALONE, WHY_BY_DESIGN, same_as_ar, speedup_cell
from dynatui.state.session_log import FEWEST_ROUNDS, OPENING, SessionLog, Setting

_WIDTHS = (7, 7, 6, 11, 9, 9, 11)
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
    room = max(_LEAST_NAME, min(OPENING, width - sum(_WIDTHS)))
    methods = sorted({line.method for line in runs})
    heads = ("rounds", "tokens", "L-bar", "acc. rate", "tokens/s", "speed-up", "same as ar")
    yield _row(column(f"{', '.join(methods)} on", room), heads)
    for line in runs:
        yield _row(column(f"{line.number} {line.opening}", room), _cells(line.method, line.figures))
    if alone := [name for name in methods if any(_agreement(name, line.figures) == ALONE for line in runs)]:
        yield best(width, f"{', '.join(alone)}: {WHY_ALONE}", f"{', '.join(alone)}: own noise, not compared")[:width]
    if by_design := [name for name in methods if any(_agreement(name, line.figures) == BY_DESIGN for line in runs)]:
        yield f"{', '.join(by_design)}: {WHY_BY_DESIGN}"[:width]
    if stalled := stall_notes(line.figures for line in runs):
        yield best(width, *stalled)
    if log.dropped:
        yield f"and {log.dropped} earlier {'run' if log.dropped == 1 else 'runs'}"
    for words in missing_speedups({f"prompt {line.number}": line.figures for line in runs}):
        yield words[:width]


def _row(name: str, cells: Sequence[str]) -> str:
    return "".join([name, *(cell.rjust(wide) for cell, wide in zip(cells, _WIDTHS, strict=True))])


def _agreement(method: str, figures: Figures) -> str:
    return same_as_ar(method, figures, f"to {figures.first_difference}")


def _cells(method: str, figures: Figures) -> tuple[str, ...]:
    return (
        str(figures.rounds),
        str(figures.committed),
        short(figures.tokens_per_round),
        percent(figures.acceptance_rate),
        short(figures.tokens_per_second, 1),
        speedup_cell(figures),
        _agreement(method, figures),
    )


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
