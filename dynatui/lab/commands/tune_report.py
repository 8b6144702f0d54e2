"""`dynatui tune` as text: its progress, the report with the verdict, and comments for the preset file. Draws only when
progress is reported, never while a text is decoded.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from textwrap import wrap
from typing import TypeAlias

from rich.console import Console
from rich.live import Live
from rich.text import Text

from decoder.analysis.interval import Interval
from decoder.methods.dynatree import shipped_preset
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import Sampling
from decoder.version import VERSION
from dynatui.clean import clean_line
from dynatui.lab.commands.shared import SELDOM_S, words
from dynatui.lab.tables.data import UNKNOWN, WIDTH, Column, Spec, Table, of_rows
from dynatui.lab.tables.data import text as table_text
from dynatui.lab.tuning import outcome
from dynatui.lab.tuning.outcome import Conditions, Tuned, TuneProgress
from dynatui.lab.tuning.search import INITIAL, Leader, MethodSetting, ratio
from dynatui.lab.tuning.study import TREE_METHOD
from dynatui.number_format import counted
from dynatui.record.command_line import options_of_set, rule_options
from dynatui.terminal import streams

NAME = 14


def text(result: Tuned, name: str) -> str:
    """The whole report, in lines of at most `WIDTH` columns; only the line of options may be longer."""
    options = f"{name}: {' '.join(rule_options(result.run))}" if result.found else ""
    parts = "\n".join(_heading(result)), table_text(_table(result, name)), options, "\n".join(_verdict(result, name))
    return "\n\n".join(filter(None, parts)) + "\n"


def comments(result: Tuned) -> list[str]:
    """Comment lines for the preset file: how the preset was found, and its measured speed."""
    gain = result.verdict.gain
    measured = f"{times(gain)} times as fast as the preset {preset(result.conditions)}" if gain else "speed unknown"
    return [
        f"Found by dynatui tune {VERSION}, {result.finished_at}.",
        f"{pair(result.conditions)}, {how(result.conditions)}.",
        f"On {result.checked.texts} texts that the search had not used: {measured}"
        f"{'' if result.verdict.better else ', which is within noise'}.",
    ]


def times(ratio: Interval | None) -> str:
    if ratio is None:
        return UNKNOWN
    interval = "" if ratio.low is None else f" ({ratio.low:.2f}-{ratio.high:.2f})"
    return f"{ratio.value:.2f}{interval}"


def how(conditions: Conditions) -> str:
    sampling = conditions.sampling
    truncated = f", top-k {sampling.top_k}" if sampling.top_k else ""
    truncated += f", top-p {sampling.top_p:g}" if sampling.top_p < 1 else ""
    chosen = "greedy" if sampling.greedy else f"T {sampling.temperature:g}{truncated}"
    return f"{chosen}, {conditions.max_new_tokens} tokens per text, seed {conditions.seed}"


def pair(conditions: Conditions) -> str:
    return clean_line(f"{conditions.target} with {conditions.draft} on {conditions.device} in {conditions.dtype}")


def preset(conditions: Conditions) -> str:
    """Name of the preset with which the results of the search are compared."""
    return shipped_preset(conditions.sampling.temperature)


def _heading(result: Tuned) -> Iterator[str]:
    state = result.state
    tried, other = counted(state.trials, "setting"), counted(result.checked.texts, "other text")
    sentences = [
        f"{pair(result.conditions)}, {how(result.conditions)}",
        f"{tried} tried on {result.conditions.searched} texts; {state.pruned} of the settings stopped early. The "
        f"figures below are medians with 95 % bootstrap intervals, measured on {other}; all texts are cut from "
        f"{counted(result.conditions.prompts, 'prompt')}.",
    ]
    if state.too_large:
        sentences.append(f"{counted(len(state.too_large), 'setting')} left out: too large for the device's memory.")
    if state.wrong:
        sentences.append(
            f"{counted(len(state.wrong), 'setting')} left out, since the generated text differs from the text of plain "
            "decoding. This is a bug; please report it."
        )
    for sentence in sentences:
        yield from wrap(sentence, WIDTH)


def _table(result: Tuned, name: str) -> Table:
    checked = result.checked

    def label(key: str) -> str:
        shown = _label(key, result, name)
        return shown if len(shown) < NAME else f"{shown[: NAME - 2]}…"

    def speed(key: str) -> float:
        known = checked.speeds[key]
        return known.value if known else 0

    def over(title: str, other: str) -> Spec[str]:
        return Column(f"x {title}", width=19), lambda key: (
            UNKNOWN if key == other else times(checked.ratios[key, other])
        )

    specs: list[Spec[str]] = [
        (Column("", width=NAME), label),
        (Column("tokens/s", "number", 1, 9), speed),
        over(preset(result.conditions), outcome.SHIPPED),
        over(outcome.AUTO, outcome.AUTO),
        over(outcome.PLAIN, outcome.PLAIN),
    ]
    return of_rows(specs, (key for key in outcome.NAMES if key in checked.speeds))


def _label(key: str, result: Tuned, name: str) -> str:
    chains = {outcome.CHAIN: f"linear {result.chain.k}", outcome.SHIPPED_CHAIN: f"linear {Linear().k}"}
    return {outcome.FOUND: name, outcome.SHIPPED: preset(result.conditions), **chains}.get(key, key)


def _verdict(result: Tuned, name: str) -> Iterator[str]:
    for key in sorted(result.checked.wrong):
        label = _label(key, result, name)
        yield from wrap(
            f"{label} wrote a text that differs from that of plain decoding. This is a bug; please report it.", WIDTH
        )
    yield from wrap(_gain(result, name), WIDTH)
    yield from wrap(_advice(result, name), WIDTH)


def _gain(result: Tuned, name: str) -> str:
    verdict, measured, shipped = result.verdict, times(result.verdict.gain), preset(result.conditions)
    if result.found is None:
        return f"The search found nothing faster than the preset {shipped}; nothing was written."
    if verdict.better:
        return f"{name} is faster than the preset {shipped}: {measured} times as fast."
    if verdict.keeps:
        return f"{name} is as fast as the preset {shipped}, within noise: {measured} times as fast."
    if outcome.FOUND in result.checked.wrong:
        return "The result of the search cannot be used; nothing was written."
    return (
        f"The result of the search is not faster than the preset {shipped} on other texts: {measured} times as fast; "
        "nothing was written."
    )


def _advice(result: Tuned, name: str) -> str:
    simple = {outcome.PLAIN: "plain decoding", outcome.AUTO: "auto"}
    fastest = result.verdict.fastest
    if fastest in simple:
        return f"Nothing is faster than {simple[fastest]} by more than noise; use --methods {fastest}."
    options = {
        outcome.CHAIN: f"linear --k {result.chain.k}",
        outcome.SHIPPED_CHAIN: f"linear --k {Linear().k}",
        outcome.FOUND: f"dynatree --preset {name}",
        outcome.SHIPPED: f"dynatree --preset {preset(result.conditions)}",
    }
    return f"Use --methods {options[fastest]}, the fastest by more than noise."


BAR = 30
LABEL = 14
MOST_KNOBS = 9
Watch: TypeAlias = Callable[[TuneProgress], None]


@contextmanager
def watching() -> Iterator[Watch]:
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
    """Prints a line of progress if the phase or the best setting of a method changes, or after `SELDOM_S` seconds."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._say = say
        self._clock = clock
        self._printed: tuple[object, ...] = ()
        self._printed_at = -SELDOM_S

    def __call__(self, progress: TuneProgress) -> None:
        news = (progress.checking, *(leader.trial for leader in progress.state.leaders.values()))
        if news != self._printed or self._clock() - self._printed_at >= SELDOM_S:
            self._printed, self._printed_at = news, self._clock()
            self._say(line(progress))


def line(progress: TuneProgress) -> str:
    state, left = progress.state, words(progress.left_s)
    if progress.checking:
        return f"checking on other texts: {progress.checked} done, {left} left"
    best = _origin(state.leaders[TREE_METHOD], preset(progress.conditions))
    return f"searching: {_trials(progress)}; best so far: {best}; {left} left, then the check"


def screen(progress: TuneProgress, width: int) -> list[str]:
    """The progress as lines of at most `width` columns, few enough for a terminal of 24 lines."""
    state, sampling = progress.state, progress.conditions.sampling
    tree, *others = state.leaders.values()
    left, then = words(progress.left_s), words(progress.check_s)
    if progress.checking:
        phase = _about("checking", f"{left} left; so far checked on {progress.checked} other texts")
        stopping = "Ctrl-C: quit, nothing is written."
    else:
        phase = _about("searching", f"{left} left, then {then} to check the result on other texts")
        stopping = "Ctrl-C: end the search, then check. Twice: quit, nothing is written."
    lines = [
        pair(progress.conditions),
        phase,
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
        stopping,
    ]
    return [each if len(each) <= width else f"{each[: max(0, width - 1)]}…" for each in lines]


def _about(label: str, text: str) -> str:
    return f"{label:{LABEL}}{text}"


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


def _knobs(setting: MethodSetting, sampling: Sampling) -> str:
    """A setting as command-line options, without options that have the default value for these sampling settings."""
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
    """Lines with a bar for each knob: the share of the variance of the speed that the knob explains."""
    if not shares:
        return [_about("what matters", "not known yet: too few settings were tried"), ""]
    shown = list(shares.items())[:MOST_KNOBS]
    bars = [f"{name:10}{share:>5.0%} {'#' * round(BAR * share)}" for name, share in shown]
    return [_about("" if number else "what matters", bar) for number, bar in enumerate(bars)] + [""]
