"""Least times of a run's passes in words: before its first round, and beside the measured times.

Knows neither panels nor widths: the caller chooses a wording.
"""

from decoder.analysis.roofline import SIZES, round_s, step_s
from decoder.events import Expected, Figures
from dynatui.number_format import short
from dynatui.render.headline import is_warm
from dynatui.state.run_state import RunState

_FAST = 0.6
"""A round is near its least time if the least time is at least this share of it."""


def expected_words(state: RunState) -> tuple[str, ...]:
    """Wordings, the longest first; empty if unknown, and once a round is decoded."""
    run, entry = state.run, state.figures().get(state.watched)
    if run is None or not run.expected or entry is None or entry.committed:
        return ()
    levels, rows = SIZES[-1]
    rate = 1 / step_s(run.expected)
    plain = f"at most {short(rate, 1 if rate >= 1 else 2)} tokens/s plain"
    least = _ms(round_s(run.expected, levels, rows))
    return f"{plain}, a round of {rows} rows at least {least} ms", plain


def overhead_words(state: RunState) -> tuple[str, ...]:
    """A sentence; empty if unknown."""
    run, entry = state.run, state.figures().get(state.watched)
    times = _round_times(run.expected, entry) if run and run.expected and entry else None
    if times is None or not is_warm(state, state.watched):
        return ()
    measured, least = times
    if least < _FAST * measured:
        return (
            f"A round takes {_ms(measured)} ms, of which memory and arithmetic of this machine need {_ms(least)}; the "
            "rest is overhead, which is a smaller share with larger models.",
        )
    return (
        f"A round takes {_ms(measured)} ms, near the least time on this machine, {_ms(least)} ms: only smaller trees "
        "or smaller weights shorten it.",
    )


def _round_times(expected: Expected, entry: Figures) -> tuple[float, float] | None:
    """Mean seconds of a round, measured and least; None if the method does not report its work."""
    rounds = entry.rounds - entry.left_out_rounds
    if rounds <= 0 or entry.drafted is None or entry.draft_forwards is None:
        return None
    measured = (entry.decode_s - entry.left_out_s) / rounds
    return measured, round_s(expected, entry.draft_forwards / entry.rounds, 1 + entry.drafted / entry.rounds)


def _ms(seconds: float) -> str:
    return short(1000 * seconds)
