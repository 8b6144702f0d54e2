"""Sentences on a run and its machine (speed, passes, expected times, GPUs), in wordings of several lengths."""

from collections.abc import Mapping

from decoder.analysis.interval import Interval, Verdict, compared_to_limit
from decoder.analysis.metrics import differs_by_design
from decoder.analysis.roofline import SIZES, round_s, step_s
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Figures
from dynatui.gpu import GpuLoad
from dynatui.number_format import counted, ms, percent, short
from dynatui.render.ink import DOT, Ink, Row, joined
from dynatui.render.words import is_alone
from dynatui.result import ALONE, BY_DESIGN, no_speedup, times_plain
from dynatui.state.run_state import RunState

_CLEAR: Mapping[Verdict, Ink] = {"holds": "good", "does not hold": "warn", "cannot tell": "plain"}
"""Colour of the speed-up; "holds": its whole confidence interval is above 1, the speed of plain decoding."""


def headline(state: RunState) -> tuple[Row, ...]:
    """Wordings, the longest first; empty before the first token."""
    entry = state.pooled().get(state.watched)
    if entry is None or not entry.committed:
        return ()
    speeds, passes, texts = _speed(state, entry) or ((),), _passes(entry), compared(state) or ((),)
    sentences = [(speed, passes[0], texts[0]) for speed in speeds[:-1] or speeds]
    sentences += [(speeds[-1], passes[-1], texts[-1]), (speeds[-1], (), texts[-1])]
    last = speeds[-1] or texts[-1] or passes[-1]
    return tuple(dict.fromkeys((*(joined(filter(None, parts), DOT) for parts in sentences if any(parts)), last)))


def compared(state: RunState) -> tuple[Row, ...]:
    """Whether the text equals that of plain decoding, in wordings, the longest first; empty if unknown."""
    figures = state.figures()
    entry, ar = figures.get(state.watched), figures.get("ar")
    if entry is None or ar is None or state.watched == "ar" or not entry.committed:
        return ()
    if entry.identical_to_ar is False or differs_by_design(entry):
        return _difference(entry)
    if entry.identical_to_ar is None:
        return _inked("dim", ALONE) if is_alone(state, state.watched) else ()
    if not ar.committed:
        return ()
    ar_lags = ar.committed < entry.committed and "ar" not in state.ends
    return _inked("good", "same text so far" if ar_lags else "same text")


def is_warm(state: RunState, method: str) -> bool:
    """Whether the method's warm-up is over or the method has finished."""
    entry = state.figures().get(method)
    return entry is not None and (entry.committed >= WARM_UP_TOKENS or method in state.ends)


def rate(state: RunState, method: str) -> float | None:
    """Tokens per second; None before the end of the method's warm-up."""
    entry = state.figures().get(method)
    return entry.tokens_per_second if entry is not None and is_warm(state, method) else None


def _speed(state: RunState, entry: Figures) -> tuple[Row, ...]:
    if state.watched == "ar":
        return _inked("plain", "plain decoding")
    if entry.speedup is None:
        return () if entry.speedup_reason == "warming up" else _inked("warn", *no_speedup(entry))
    clear = compared_to_limit(Interval(value=entry.speedup, low=entry.speedup_low, high=entry.speedup_high))
    return _inked(_CLEAR[clear], *times_plain(entry))


def _passes(entry: Figures) -> tuple[Row, ...]:
    passes = entry.target_forwards
    count, work = (entry.rounds, ("round",)) if passes is None else (passes, ("pass", "es"))
    long = f"{counted(entry.committed, 'token')} in {counted(count, *work)}"
    return _inked("strong", long, f"{entry.committed} in {count}")


def _difference(figures: Figures) -> tuple[Row, ...]:
    token, gap = figures.first_difference, figures.first_difference_gap
    where = "somewhere" if token is None else f"from token {token}"
    if differs_by_design(figures):
        return _inked("dim", f"differs {BY_DESIGN} {where}", f"differs {BY_DESIGN}")
    if figures.near_tie is False:
        return _inked("bad", f"! text differs {where}", "! differs")
    gap_text = "" if gap is None else f", gap {short(gap, 3)}"
    verdict = f" (near tie{gap_text})" if figures.near_tie else ""
    return _inked("warn", f"~ text differs {where}{verdict}", f"~ differs {where}", "~ differs")


def _inked(ink: Ink, *wordings: str) -> tuple[Row, ...]:
    return tuple(((words, ink),) for words in wordings)


def gpu_wordings(gpus: Mapping[int, GpuLoad], joules_per_token: float | None = None) -> tuple[str, str]:
    """Long wording: all values of a single GPU, or load and memory of each of several GPUs, with the energy per token.
    Short wording: the load alone, as a range for several GPUs.
    """
    energy = "" if joules_per_token is None else f" {short(joules_per_token)} J/token"
    loads = sorted(gpu.load for gpu in gpus.values() if gpu.load is not None)
    ends = [percent(load) for load in dict.fromkeys((*loads[:1], *loads[-1:]))]
    span = f" {ends[0].removesuffix('%')}-{ends[-1]}" if len(set(ends)) > 1 else "".join(f" {end}" for end in ends[:1])
    if len(gpus) == 1:
        (gpu,) = gpus.values()
        power = [] if gpu.power_w is None else [f"{gpu.power_w:.0f} W"]
        heat = [] if gpu.temperature_c is None else [f"{gpu.temperature_c} C"]
        return " ".join(["GPU", *_load_and_memory(gpu), *power, *heat]) + energy, f"GPU{span}"
    each = (" ".join([f"{number}:", *(_load_and_memory(gpu) or "-")]) for number, gpu in gpus.items())
    return f"GPU {', '.join(each)}{energy}", f"{len(gpus)} GPUs{span}"


def _load_and_memory(gpu: GpuLoad) -> list[str]:
    load = [] if gpu.load is None else [percent(gpu.load)]
    total = "" if gpu.total_bytes is None else f"/{gpu.total_bytes / 1e9:.0f}"
    return load if gpu.used_bytes is None else [*load, f"{gpu.used_bytes / 1e9:.1f}{total} GB"]


_FAST = 0.6
"""A round is near its expected time if the expected time is at least this share of the measured time."""


def expected_words(state: RunState) -> tuple[str, ...]:
    """Wordings of the estimated times, the longest first; empty if unknown, and after the first round."""
    run, entry = state.run, state.figures().get(state.watched)
    if run is None or not run.expected or entry is None or entry.committed:
        return ()
    levels, rows = SIZES[-1]
    rate = 1 / step_s(run.expected)
    plain = f"estimate: {short(rate, 1 if rate >= 1 else 2)} tokens/s plain"
    return f"{plain}, {ms(round_s(run.expected, levels, rows))} ms a round of {rows} rows", plain


def overhead_words(state: RunState) -> tuple[str, ...]:
    """A sentence on measured and estimated time of a round; empty if unknown."""
    run, entry = state.run, state.figures().get(state.watched)
    if not (run and run.expected and entry and is_warm(state, state.watched)):
        return ()
    rounds = entry.rounds - entry.left_out_rounds
    if rounds <= 0 or entry.drafted is None or entry.draft_forwards is None:
        return ()  # the method does not report its drafts
    measured = (entry.decode_s - entry.left_out_s) / rounds
    expected = round_s(run.expected, entry.draft_forwards / entry.rounds, 1 + entry.drafted / entry.rounds)
    needed = f"memory and arithmetic of this machine need {ms(expected)} ms by estimate"
    if expected < _FAST * measured:
        return (f"A round takes {ms(measured)} ms; {needed}, and the rest is a smaller share with larger models.",)
    return (f"A round takes {ms(measured)} ms; {needed}, so only smaller trees or smaller weights help much.",)
