"""The report of `dynatui tune` as text: the table of the check, the verdict, and the comments in the preset file.

Only formats: values and verdicts are computed elsewhere.
"""

from collections.abc import Iterator
from textwrap import wrap

from decoder.analysis.interval import Interval
from decoder.methods.dynatree import shipped_preset
from decoder.methods.linear import Linear
from decoder.version import VERSION
from dynatui.clean import clean_line
from dynatui.lab.tables.data import UNKNOWN, WIDTH, Column, Spec, Table, counted, of_rows
from dynatui.lab.tables.data import text as table_text
from dynatui.lab.tuning.outcome import Conditions, Tuned
from dynatui.lab.tuning.verdict import AUTO, CHAIN, FOUND, PLAIN, SHIPPED, SHIPPED_CHAIN
from dynatui.record.command_line import rule_options

NAME = 14


def text(result: Tuned, name: str) -> str:
    """The whole report, in lines of at most `WIDTH` columns; only the line of options may be longer."""
    others = ("\n".join(part) for part in (_options(result, name), _verdict(result, name)))
    return "\n\n".join(filter(None, ("\n".join(_heading(result)), table_text(_table(result, name)), *others))) + "\n"


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
    """A ratio with its confidence interval, as text."""
    if ratio is None:
        return UNKNOWN
    interval = "" if ratio.low is None else f" ({ratio.low:.2f}-{ratio.high:.2f})"
    return f"{ratio.value:.2f}{interval}"


def how(conditions: Conditions) -> str:
    """Sampling, length and seed of the decoded texts, as text."""
    sampling = conditions.sampling
    truncated = f", top-k {sampling.top_k}" * (sampling.top_k > 0) + f", top-p {sampling.top_p:g}" * (
        sampling.top_p < 1
    )
    chosen = "greedy" if sampling.greedy else f"T {sampling.temperature:g}{truncated}"
    return f"{chosen}, {conditions.max_new_tokens} tokens per text, seed {conditions.seed}"


def pair(conditions: Conditions) -> str:
    """Models, device and dtype of a measurement, as text."""
    return clean_line(f"{conditions.target} with {conditions.draft} on {conditions.device} in {conditions.dtype}")


def preset(conditions: Conditions) -> str:
    """Name of the preset with which the results of the search are compared."""
    return shipped_preset(conditions.sampling.temperature)


def _heading(result: Tuned) -> Iterator[str]:
    state = result.state
    yield from wrap(f"{pair(result.conditions)}, {how(result.conditions)}", WIDTH)
    tried, other = counted(state.trials, "setting"), counted(result.checked.texts, "other text")
    yield from wrap(
        f"{tried} tried on {result.conditions.searched} texts; {state.pruned} of the settings stopped early. The "
        f"figures below are medians with 95 % bootstrap intervals, measured on {other}; all texts are cut from "
        f"{counted(result.conditions.prompts, 'prompt')}.",
        WIDTH,
    )
    if state.too_large:
        yield from wrap(f"{counted(len(state.too_large), 'setting')} left out: no room on the device.", WIDTH)
    if state.wrong:
        wrong = counted(len(state.wrong), "setting")
        yield from wrap(
            f"{wrong} left out, since the generated text differs from the text of plain decoding. This is a bug; "
            "please report it.",
            WIDTH,
        )


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
        over(preset(result.conditions), SHIPPED),
        over(AUTO, AUTO),
        over(PLAIN, PLAIN),
    ]
    return of_rows(specs, (key for key in (FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN) if key in checked.speeds))


def _label(key: str, result: Tuned, name: str) -> str:
    chains = {CHAIN: f"linear {result.chain.k}", SHIPPED_CHAIN: f"linear {Linear().k}"}
    return {FOUND: name, SHIPPED: preset(result.conditions), **chains}.get(key, key)


def _options(result: Tuned, name: str) -> list[str]:
    return [f"{name}: {' '.join(rule_options(result.run))}"] if result.found else []


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
    if FOUND in result.checked.wrong:
        return "The result of the search cannot be used; nothing was written."
    return (
        f"The result of the search is not faster than the preset {shipped} on other texts: {measured} times as fast; "
        "nothing was written."
    )


def _advice(result: Tuned, name: str) -> str:
    match result.verdict.fastest:
        case "ar":
            return "Nothing is faster than plain decoding by more than noise; use --methods ar."
        case "auto":
            return "Nothing is faster than auto by more than noise; use --methods auto."
        case "linear":
            return f"Use --methods linear --k {result.chain.k}, the fastest by more than noise."
        case "shipped_chain":
            return f"Use --methods linear --k {Linear().k}, the fastest by more than noise."
        case "found":
            return f"Use --methods dynatree --preset {name}, the fastest by more than noise."
        case _:
            return f"Use --methods dynatree --preset {preset(result.conditions)}, the fastest by more than noise."
