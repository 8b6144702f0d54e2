"""One sentence on the run: speed relative to plain decoding, number of passes, and whether the text is the same.

Knows neither panels nor widths: the caller chooses a wording.
"""

from decoder.analysis.metrics import differs_by_design
from decoder.analysis.speedup import WARM_UP_TOKENS
from decoder.events import Figures
from dynatui.number_format import short
from dynatui.render.ink import DOT, Ink, Row, joined
from dynatui.render.words import ALONE, BY_DESIGN, is_alone, no_speedup, times_plain
from dynatui.state.run_state import RunState

_SLOWER, _FASTER = 0.995, 1.005
"""Relative speeds in this interval count as equal to the speed of plain decoding."""


def headline(state: RunState) -> tuple[Row, ...]:
    """Wordings, the longest first; empty before the first token."""
    entry = state.figures().get(state.watched)
    if entry is None or not entry.committed:
        return ()
    speeds, passes, texts = _speed(state, entry) or ((),), _passes(entry), compared(state) or ((),)
    sentences = [(speed, passes[0], texts[0]) for speed in speeds[:2]]
    sentences += [(speeds[-1], passes[-1], texts[-1]), (speeds[-1], (), texts[-1])]
    last = speeds[-1] or texts[-1] or passes[-1]
    return tuple(dict.fromkeys((*(joined(filter(None, parts), DOT) for parts in sentences if any(parts)), last)))


def compared(state: RunState) -> tuple[Row, ...]:
    """Wordings, the longest first, on the text against that of plain decoding; empty if unknown."""
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
    """After the warm-up, or once the method has finished."""
    entry = state.figures().get(method)
    return entry is not None and (entry.committed >= WARM_UP_TOKENS or method in state.ends)


def _speed(state: RunState, entry: Figures) -> tuple[Row, ...]:
    if state.watched == "ar":
        return ((("plain decoding", "plain"),),)
    if entry.speedup is None:
        return () if entry.speedup_reason == "warming up" else _inked("warn", *no_speedup(entry))
    ink: Ink = "warn" if entry.speedup < _SLOWER else "plain" if entry.speedup < _FASTER else "good"
    return _inked(ink, *times_plain(entry.speedup))


def _passes(entry: Figures) -> tuple[Row, ...]:
    count = entry.rounds if entry.target_forwards is None else entry.target_forwards
    singular, plural = ("round", "rounds") if entry.target_forwards is None else ("pass", "passes")
    tokens = "1 token" if entry.committed == 1 else f"{entry.committed} tokens"
    return _inked(
        "strong", f"{tokens} in {count} {singular if count == 1 else plural}", f"{entry.committed} in {count}"
    )


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
