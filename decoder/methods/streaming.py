"""streaming: a chain of drafted tokens with StreamingLLM's KV cache: attention sinks and a rolling window, with
positions counted within the cache. The drafted chain does not change the tokens to which a position attends, so the
text equals the text of plain decoding with the same cache. While the text fits into sinks and window, it also equals
the text of `ar`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from decoder.errors import require
from decoder.events import Limit
from decoder.knobs import HIGHEST_DEPTH, KnobInfo
from decoder.methods.linear import K, Linear
from decoder.methods.method import Method, Option, Sweep, whole_numbers
from decoder.session.steering import KnobState
from decoder.tree_rules import Rules, TreeRule

if TYPE_CHECKING:
    from decoder.engine import Engine
    from decoder.session.protocol import Session

MOST_SINKS = 64
"""Largest number of sinks: each token of a round needs its own copy of the sinks."""


@dataclass(frozen=True)
class Streaming(Rules):
    """A chain of `k` drafted tokens; attention to the `sinks` first and the `window` latest tokens."""

    sinks: int = 4
    window: int = 1020
    k: int = 5

    knobs: ClassVar[tuple[KnobInfo, ...]] = (K,)

    def __post_init__(self) -> None:
        require(0 <= self.sinks <= MOST_SINKS, f"streaming has {self.sinks} sinks; give 0 to {MOST_SINKS}")
        # The chain must fit into the window for all values of the knob `k`.
        least = 1 + max(HIGHEST_DEPTH, self.chain.k)
        require(self.window >= least, f"streaming's window is {self.window} tokens; give {least} or more")

    @property
    def chain(self) -> Linear:
        return Linear(self.k)

    def rule(self) -> TreeRule:
        return self.chain.rule()

    def limit(self, depth: int, probability: float) -> Limit:
        return self.chain.limit(depth, probability)


def _opened(engine: "Engine", prompt_ids: Sequence[int], max_new_tokens: int, rules: Streaming) -> "Session":
    streaming = replace(engine, pair=engine.pair.streaming(rules.sinks, rules.window), slots=None)
    return streaming.session(prompt_ids, max_new_tokens, KnobState(rules))


def _same_until(parameters: Mapping[str, Any], prompt_tokens: int) -> int | None:
    """See `Method.same_until`. Token i (from 0) is predicted at position `prompt_tokens` + i - 1, where all earlier
    tokens are attended to if the position is below `sinks` + `window`.
    """
    match parameters:
        case {"sinks": int(sinks), "window": int(window)}:
            return max(0, sinks + window - prompt_tokens + 1)
        case _:
            return None


def _read(given: str) -> Mapping[str, Any]:
    return dict(zip(("sinks", "window", "k"), whole_numbers("--streaming", given, example="4,1020,5"), strict=True))


METHOD = Method(
    "streaming",
    "a chain of K drafted tokens, with attention sinks and a window",
    Streaming(),
    opened=_opened,
    same_until=_same_until,
    needs_model=True,
    whole_target=True,
    options=(
        Option(
            "streaming",
            str,
            "S,W,K",
            "Attention sinks (first tokens), window (latest tokens) and chain length of streaming. By design, a "
            "text that is longer than sinks and window together may differ from the text of ar.",
            ("sinks", "window", "k"),
            _read,
            lambda own: f"{own.sinks},{own.window},{own.k}",
        ),
    ),
    sweep=Sweep(
        "SxWxK,..",
        "Settings of streaming to measure, each as attention sinks x window x chain length.",
        f"{Streaming.sinks}x{Streaming.window}x{Streaming.k}",
        "4x1020x5",
        lambda sinks, window, k: {"sinks": sinks, "window": window, "k": k},
    ),
)
