"""Least times of a run's passes in words: before its first round, and beside the measured times.

Knows neither panels nor widths: the caller chooses a wording.
"""

from decoder.analysis.roofline import SIZES, round_s, step_s
from decoder.events import Expected, Figures
from dynatui.number_format import short
from dynatui.render.headline import is_warm
from dynatui.state.run_state import RunState


def expected_words(state: RunState) -> tuple[str, ...]:
    """The highest speed of plain decoding and the least time of a large round, as wordings, the longest first; empty if
    unknown, and once the watched method has decoded a round.
    """
    run, entry = state.run, state.figures().get(state.watched)
    if run is None or not run.expected or entry is None or entry.committed:
        return ()
    levels, rows = SIZES[-1]
    plain = f"at most {_rate(run.expected)} tokens/s plain"
    least = _ms(round_s(run.expected, levels, rows))
    return f"{plain}, a round of {rows} rows at least {least} ms", plain


def measured_words(state: RunState) -> tuple[str, ...]:
    """Measured times beside the expected ones, as wordings, the longest first; empty if unknown."""
    run, figures = state.run, state.figures()
    if run is None or not run.expected:
        return ()
    long, brief = list[str](), list[str]()
    entry, ar = figures.get(state.watched), figures.get("ar")
    if entry is not None and state.watched != "ar" and (times := _round_times(run.expected, entry)):
        measured, least = map(_ms, times)
        long.append(f"a round of {state.watched} takes {measured} ms, expected at least {least}")
        brief.append(f"round {measured} ms, at least {least}")
    if ar is not None and ar.tokens_per_second and is_warm(state, "ar"):
        rate, most = short(ar.tokens_per_second, 1), _rate(run.expected)
        long.append(f"ar decodes {rate} tokens/s, expected at most {most}")
        brief.append(f"ar {rate}/s, at most {most}")
    return ("; ".join(long), "; ".join(brief), brief[0]) if brief else ()


def _round_times(expected: Expected, entry: Figures) -> tuple[float, float] | None:
    """Mean seconds of a method's rounds, measured and least; None if it has no rounds or does not report its work."""
    rounds = entry.rounds - entry.left_out_rounds
    if rounds <= 0 or entry.drafted is None or entry.draft_forwards is None:
        return None
    measured = (entry.decode_s - entry.left_out_s) / rounds
    return measured, round_s(expected, entry.draft_forwards / entry.rounds, 1 + entry.drafted / entry.rounds)


def _rate(expected: Expected) -> str:
    rate = 1 / step_s(expected)
    return short(rate, 1 if rate >= 1 else 2)


def _ms(seconds: float) -> str:
    return short(1000 * seconds)
