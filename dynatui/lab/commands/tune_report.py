"""The report of `dynatui tune` with the verdict, and comments for the preset file."""

from collections.abc import Iterator
from textwrap import wrap

from decoder.analysis.interval import Interval
from decoder.methods.dynatree import shipped_preset
from decoder.methods.linear import Linear
from decoder.version import VERSION
from dynatui.clean import clean_line
from dynatui.lab.tables import UNKNOWN, WIDTH, Column, Spec, Table, of_rows
from dynatui.lab.tables import text as table_text
from dynatui.lab.tuning import outcome
from dynatui.lab.tuning.outcome import Conditions, Tuned
from dynatui.number_format import counted
from dynatui.record.command_line import rule_options

NAME = 14
MOST_KNOBS = 4
"""Number of knobs whose importance is told."""


def text(result: Tuned, name: str) -> str:
    """The whole report, in lines of at most `WIDTH` columns; only the line of options may be longer."""
    options = f"{name}: {' '.join(rule_options(result.run))}" if result.found else ""
    parts = "\n".join(_heading(result)), table_text(_table(result, name)), options, "\n".join(_verdict(result, name))
    return "\n\n".join(filter(None, parts)) + "\n"


def comments(result: Tuned) -> list[str]:
    """Comment lines for the preset file: how the preset was found, and its measured speed."""
    gain = result.checked.gain
    measured = f"{times(gain)} times as fast as the preset {preset(result.conditions)}" if gain else "speed unknown"
    return [
        f"Found by dynatui tune {VERSION}, {result.finished_at}.",
        f"{pair(result.conditions)}, {how(result.conditions)}.",
        f"On {result.checked.texts} texts that the search had not used: {measured}"
        f"{'' if result.checked.better else ', which is within noise'}.",
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
    trials = result.trials
    tried, other = counted(trials.finished, "setting"), counted(result.checked.texts, "other text")
    sentences = [
        f"{pair(result.conditions)}, {how(result.conditions)}",
        f"{tried} tried on {result.conditions.searched} texts; {trials.pruned} of the settings stopped early. The "
        f"figures below are medians with 95 % bootstrap intervals, measured on {other}; all texts are cut from "
        f"{counted(result.conditions.prompts, 'prompt')}.",
    ]
    if result.importance:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in list(result.importance.items())[:MOST_KNOBS])
        sentences.append(f"What mattered most, as shares of the variance of the speed: {shares}.")
    if trials.too_large:
        sentences.append(f"{counted(trials.too_large, 'setting')} left out: too large for the device's memory.")
    if trials.wrong:
        sentences.append(
            f"{counted(trials.wrong, 'setting')} left out, since the generated text differs from the text of plain "
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
    checked, measured, shipped = result.checked, times(result.checked.gain), preset(result.conditions)
    if result.found is None:
        return f"The search found nothing faster than the preset {shipped}; nothing was written."
    if checked.better:
        return f"{name} is faster than the preset {shipped}: {measured} times as fast."
    if checked.keeps():
        return f"{name} is as fast as the preset {shipped}, within noise: {measured} times as fast."
    if outcome.FOUND in checked.wrong:
        return "The result of the search cannot be used; nothing was written."
    return (
        f"The result of the search is not faster than the preset {shipped} on other texts: {measured} times as fast; "
        "nothing was written."
    )


def _advice(result: Tuned, name: str) -> str:
    simple = {outcome.PLAIN: "plain decoding", outcome.AUTO: "auto"}
    fastest = result.checked.fastest
    if fastest in simple:
        return f"Nothing is faster than {simple[fastest]} by more than noise; use --methods {fastest}."
    options = {
        outcome.CHAIN: f"linear --k {result.chain.k}",
        outcome.SHIPPED_CHAIN: f"linear --k {Linear().k}",
        outcome.FOUND: f"dynatree --preset {name}",
        outcome.SHIPPED: f"dynatree --preset {preset(result.conditions)}",
    }
    return f"Use --methods {options[fastest]}, the fastest by more than noise."
