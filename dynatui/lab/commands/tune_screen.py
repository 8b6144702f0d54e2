"""Progress of `dynatui tune` as text: a few lines that are updated on a terminal, or a line every `SELDOM_S` seconds.

Draws only when progress is reported, never while a text is decoded. The lines are a pure function of the progress.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import wrap

from rich.console import Console
from rich.live import Live
from rich.text import Text

from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling
from dynatui.lab.commands.bench_result import SELDOM_S, words
from dynatui.lab.commands.tune_report import pair, preset, times
from dynatui.lab.tables.data import counted
from dynatui.lab.tuning.outcome import TuneProgress
from dynatui.lab.tuning.search import INITIAL, Leader, Setting, ratio
from dynatui.lab.tuning.study import TREE_METHOD
from dynatui.record.command_line import options_of_set
from dynatui.terminal import streams

BAR = 30
LABEL = 14
"""Width in characters of the label before a line."""
MOST_KNOBS = 9
Watch = Callable[[TuneProgress], None]


@contextmanager
def watching() -> Iterator[Watch]:
    """Context that yields a function to show progress on standard error."""
    console = Console(stderr=True, highlight=False)
    if sys.stderr is None or not console.is_terminal or console.is_dumb_terminal:
        yield Lines(streams.say, time.monotonic)
        return
    # No auto-refresh: its thread would take CPU time from the measurement.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield lambda progress: live.update(
            Text("\n".join(screen(progress, console.width)[: console.height - 1])), refresh=True
        )


class Lines:
    """Prints progress as one line when a best setting or the phase changes, and otherwise every `SELDOM_S` seconds."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._printed: tuple[object, ...] = ()
        self._printed_at = -SELDOM_S

    def __call__(self, progress: TuneProgress) -> None:
        """Prints progress, unless the previous line is recent and has the same best settings and phase."""
        news = (progress.checking, *(leader.trial for leader in progress.state.leaders.values()))
        if news != self._printed or self._clock() - self._printed_at >= SELDOM_S:
            self._printed, self._printed_at = news, self._clock()
            self._say(line(progress))


def line(progress: TuneProgress) -> str:
    """The progress as one line of text."""
    state, left = progress.state, words(progress.left_s)
    if progress.checking:
        return f"checking on other texts: {progress.checked} done, {left} left"
    best = _origin(state.leaders[TREE_METHOD], preset(progress.conditions))
    return f"searching: {_trials(progress)}; best so far: {best}; {left} left, then the check"


def screen(progress: TuneProgress, width: int) -> list[str]:
    """The progress as lines of at most `width` columns, few enough for a terminal of 24 lines."""
    state, sampling = progress.state, progress.conditions.sampling
    tree, *others = state.leaders.values()
    lines = [
        pair(progress.conditions),
        *_phase(progress),
        _about("trials", _trials(progress)),
        "",
        _about("best so far", _origin(tree, preset(progress.conditions))),
        _about("", _over_plain(tree)),
        *(_about("", part) for part in wrap(_knobs(tree.setting, sampling), max(1, width - LABEL))),
        *(_about(other.setting.method, f"{_knobs(other.setting, sampling)}, {_over_plain(other)}") for other in others),
        "",
        _about("now", _now(progress)),
        "",
        *_importance(state.importance),
        _stopping(progress),
    ]
    return [each if len(each) <= width else f"{each[: max(0, width - 1)]}…" for each in lines]


def _about(label: str, text: str) -> str:
    return f"{label:{LABEL}}{text}"


def _phase(progress: TuneProgress) -> list[str]:
    left, then = words(progress.left_s), words(progress.check_s)
    if progress.checking:
        return [_about("checking", f"{left} left; so far checked on {progress.checked} other texts")]
    return [_about("searching", f"{left} left, then {then} to check the result on other texts")]


def _stopping(progress: TuneProgress) -> str:
    if progress.checking:
        return "Ctrl-C: quit, nothing is written."
    return "Ctrl-C: end the search, then check. Twice: quit, nothing is written."


def _trials(progress: TuneProgress) -> str:
    state = progress.state
    wrong = f", {len(state.wrong)} with a wrong text" if state.wrong else ""
    return f"{counted(state.trials, 'setting')} tried, {state.pruned} stopped early{wrong}"


def _origin(leader: Leader, shipped: str) -> str:
    if leader.trial == INITIAL:
        return f"the preset {shipped}"
    return f"setting {leader.trial}, {math.exp(leader.worth):.2f} times the preset {shipped}, on the search's texts"


def _over_plain(leader: Leader) -> str:
    # No confidence interval is shown: the search repeats texts, which would make the interval too narrow.
    speedup = ratio(leader.over_plain)
    return f"{f'{speedup.value:.2f}' if speedup else '?'}x plain decoding"


def _knobs(setting: Setting, sampling: Sampling) -> str:
    """A setting as options of the command line; only options whose default is another value with this sampling."""
    run = RunConfig(sampling=sampling)
    if setting.rules is not None:
        run = run.with_rules(setting.method, setting.rules)
    return " ".join(options_of_set(run, setting.method)) or "as shipped"


def _now(progress: TuneProgress) -> str:
    current = progress.state.current
    if progress.checking or current is None:
        return "-"
    ahead = f"{times(current.ratio) if current.ratio else '?'} times the best"
    return f"{current.setting.method}, {current.texts} of {current.most} texts: {ahead}"


def _importance(shares: Mapping[str, float]) -> list[str]:
    """Lines with one bar per knob. A bar shows the share of the speed differences between settings that is due to the
    knob.
    """
    if not shares:
        return [_about("what matters", "not known yet: too few settings were tried"), ""]
    shown = list(shares.items())[:MOST_KNOBS]
    bars = [f"{name:10}{share:>5.0%} {'#' * round(BAR * share)}" for name, share in shown]
    return [_about("" if number else "what matters", bar) for number, bar in enumerate(bars)] + [""]
