"""What the inks of the text stand for, and the legend that says so with its numbers.

Hot is what a reader looks for: guesses that the draft gave little, tokens that took long.
"""

import math
import statistics
from bisect import bisect_right
from collections.abc import Callable, Sequence

from dynatui.number_format import short
from dynatui.render.ink import Ink, Row, Span, joined, width_of
from dynatui.render.scene import Heat, Scene
from dynatui.state.run_state import RunState
from dynatui.state.tokens import Origin, Token

HOT: tuple[Ink, ...] = ("heat1", "heat2", "heat3", "heat4", "heat5")
"""From calm to hot."""
BANDS: tuple[Ink, Ink] = ("plain", "band")
_ORIGINS: dict[Origin, Ink] = {"prompt": "prompt", "accepted": "accepted", "bonus": "bonus", "plain": "plain"}
_PROBABILITIES = (0.2, 0.4, 0.6, 0.8)
_TIMES = (0.5, 0.8, 1.25, 2.0)
"""Edges of the bins of time, relative to the median."""
_DOT: Row = ((" · ", "dim"),)


def inks(heat: Heat, tokens: Sequence[Token]) -> Callable[[Token], Ink]:
    """How a token is inked among all tokens."""
    match heat:
        case "origin":
            return lambda token: _ORIGINS[token.origin]
        case "probability":
            return _by_probability
        case "round":
            return lambda token: BANDS[token.round % 2]
        case "time":
            edges = time_edges(tokens)
            return lambda token: HOT[bisect_right(edges, 1000 * token.spent_s)]


def time_edges(tokens: Sequence[Token]) -> list[float]:
    """Edges of the bins of time in ms, rounded as the legend writes them."""
    median_ms = _median_ms(tokens)
    return [_rounded(median_ms * part) for part in _TIMES]


def legend(scene: Scene, room: int) -> Row:
    """The panel's title: what the inks mean, in the longest wording that fits."""
    wordings = _LEGENDS[scene.heat](scene.state)
    return next((row for row in wordings if width_of(row) <= room), wordings[-1])


def _by_probability(token: Token) -> Ink:
    if token.probability is None:
        return _ORIGINS[token.origin]
    return HOT[-1 - bisect_right(_PROBABILITIES, token.probability)]


def _median_ms(tokens: Sequence[Token]) -> float:
    return 1000 * statistics.median_low([token.spent_s for token in tokens] or [0.0])


def _rounded(value: float) -> float:
    """Two digits, so that a median that hardly moves recolours nothing."""
    return float(f"{value:.2g}") if math.isfinite(value) else value


def _named(start: str, *parts: Span, by: str = "", separator: Row = _DOT) -> Row:
    return (("Text", "title"), (f"{by} ─ {start}", "dim"), *joined([(part,) for part in parts], separator))


def _origin(state: RunState) -> list[Row]:
    by = f" by {state.watched}"
    return [
        _named("", ("drafted and accepted", "accepted"), ("target's own", "bonus"), ("prompt", "prompt"), by=by),
        _named("", ("draft", "accepted"), ("target", "bonus"), ("prompt", "prompt")),
    ]


def _probability(_state: RunState) -> list[Row]:
    shares = ("80-100%", "60-80", "40-60", "20-40", "0-20")
    long: list[Span] = list(zip(shares, HOT, strict=True))
    brief: list[Span] = list(zip(("80-100%", "60", "40", "20", "0"), HOT, strict=True))
    return [
        _named("the draft gave it ", *long, ("target's own", "bonus")),
        _named("draft gave it ", *long, ("target", "bonus")),
        _named("", *brief, ("target", "bonus"), separator=((" ", "dim"),)),
    ]


def _round(state: RunState) -> list[Row]:
    sizes = [len(event.committed) for event in state.lane.past]
    mean, most = sum(sizes) / max(1, len(sizes)), max(sizes, default=0)
    parts: tuple[Span, ...] = (("one round", BANDS[0]), ("the next", BANDS[1]))
    counts: Span = (f"{short(mean, 1)} tokens each, at most {most}", "dim")
    return [_named("one check by the target each: ", *parts, counts), _named("", *parts, counts), _named("", *parts)]


def _time(state: RunState) -> list[Row]:
    edges = [f"{edge:g}" for edge in time_edges(state.lane.tokens)]
    median: Span = (f"median {_rounded(_median_ms(state.lane.tokens)):g}", "dim")
    long: list[Span] = [(f"to {edge}", ink) for edge, ink in zip(edges, HOT, strict=False)]
    brief: list[Span] = list(zip(edges, HOT, strict=False))
    return [
        _named("ms per token: ", *long, ("slower", HOT[-1]), median),
        _named("ms per token: ", *long, ("slower", HOT[-1])),
        _named("ms ", *brief, ("more", HOT[-1]), separator=((" ", "dim"),)),
    ]


_LEGENDS: dict[Heat, Callable[[RunState], list[Row]]] = {
    "origin": _origin,
    "probability": _probability,
    "round": _round,
    "time": _time,
}
