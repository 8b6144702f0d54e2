"""Measures draft and target passes in alternation, as in a round, since a draft pass is slower after a target pass than
after another draft pass. This takes less than two seconds. Beyond the largest measured size, times are extrapolated.

Drafting heads are timed without a target: zeros replace its hidden states, so their predictions are meaningless.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.tree_size.cost_model import SELDOM_STEP, Costs, RowCostCurve
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward, Ints, Mask
from decoder.heads.dflash import BlockHead, DraftBlock
from decoder.heads.eagle3 import Head
from decoder.heads.parts import GuidedHead, StatesReader
from decoder.models.pair import Pair
from decoder.system.device import ComputingClock

VERIFIED_ROWS = (2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 17, 33, 65)
DRAFTED_ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 32, 64)
"""Measured numbers of rows, ascending: after a much larger pass, weights are not in caches, so a pass is slower."""
UNSETTLED = 3
"""Discarded one-row passes after the largest pass: cold caches make them up to twice as slow as in decoding."""
REPEATS = 15
LIMIT_S = 0.5
"""Seconds after which no further repetition of all measurements begins."""
LATEST_S = 1.5
"""Seconds after which no further size is measured."""
HOST_SHARE = 0.03
"""Initial estimate of the time outside passes, and of the time of lookups, as a fraction of a plain round."""
NOTHING = {1: 0.0}
"""Times by number of rows, for passes that are never made."""


class DeviceClock(Protocol):
    def now(self) -> float:
        """Seconds since a fixed moment; waits until the device has finished its work."""


@torch.inference_mode()
def measure_costs(pair: Pair, rows: int, clock: DeviceClock | None = None) -> Costs:
    """Measures costs on a text of about `rows` tokens. The default clock stops while the thread waits for a processor,
    so the time limits allow as many repetitions on a busy machine as on an idle machine.
    """
    rows = max(0, min(rows, pair.context - max(VERIFIED_ROWS)))
    clock = clock or ComputingClock(pair.target.device)
    target = _Calls(pair.target, rows, clock)
    drafting = timed(pair.head) if pair.head else pair.draft
    room = pair.draft.context - max(VERIFIED_ROWS) if pair.draft else rows
    draft = _Calls(drafting, max(0, min(rows, room)), clock) if drafting else None
    started = clock.now()
    plain: list[float] = []
    caught, drafted, verified = (defaultdict[int, list[float]](list) for _ in range(3))
    for repeat in range(REPEATS):
        if repeat and clock.now() - started > LIMIT_S:
            break
        plain += [target.seconds(1) for _ in range(UNSETTLED + 2)][UNSETTLED:]
        for many, few in zip(VERIFIED_ROWS, DRAFTED_ROWS, strict=True):
            if verified and clock.now() - started > LATEST_S:
                break
            if many > pair.context:
                continue
            if draft:
                caught[few].append(draft.reading_seconds(few))
                drafted[few].append(draft.seconds(few))
            verified[many].append(target.seconds(many))
    first = _undisturbed(plain)
    return Costs(
        plain=RowCostCurve({1: first}, SELDOM_STEP),
        catch_up=RowCostCurve({rows: _undisturbed(times) for rows, times in caught.items()} or NOTHING),
        draft=RowCostCurve({rows: _undisturbed(times) for rows, times in drafted.items()} or NOTHING),
        verify=RowCostCurve({1: first} | {rows: _undisturbed(times) for rows, times in verified.items()}),
        host=RowCostCurve({1: first * HOST_SHARE}),
        lookup=RowCostCurve({1: first * HOST_SHARE}, SELDOM_STEP),
    )


def _undisturbed(times: Sequence[float]) -> float:
    """The second shortest of several times, since disturbances only add time."""
    return sorted(times)[:2][-1]


class _Calls:
    """Passes after a text of `rows` arbitrary tokens."""

    def __init__(self, model: Forward, rows: int, clock: DeviceClock) -> None:
        self._model, self._clock, self._rows = model, clock, rows
        self._cache: Any = model.new_cache(rows + max(VERIFIED_ROWS))
        # This first pass allocates the keys and values of the text. They remain zeros, which take as long to read as
        # other values.
        self._timed(lambda: model.read(self._cache, [0])[None])

    def seconds(self, rows: int) -> float:
        """Time of a pass over `rows` siblings, until the most probable tokens are known."""
        siblings = np.eye(rows, dtype=np.bool_)
        return self._timed(lambda: self._model.forward(self._cache, [0] * rows, [self._cache.length] * rows, siblings))

    def reading_seconds(self, rows: int) -> float:
        """Time of a pass over `rows` tokens of text, until the most probable next token is known."""
        return self._timed(lambda: self._model.read(self._cache, [0] * rows)[None])

    def _timed(self, call: Callable[[], Tensor]) -> float:
        start = self._clock.now()
        call().float().argmax(-1).tolist()
        seconds = self._clock.now() - start
        self._cache.assume(self._rows)
        return seconds


def timed(head: StatesReader) -> Forward:
    """Raises TypeError if the kind of the head is unknown."""
    if isinstance(head, BlockHead):
        return _Blocks(head)
    if isinstance(head, Head) and head.shape.parallel:
        return _Parallel(head)
    if isinstance(head, GuidedHead):
        return _Guided(head)
    raise TypeError(f"{type(head).__name__} is not a known kind of drafting head")


class _Guided(Forward):
    """An EAGLE-3 head or MTP layer: `read` takes as long as a pass over text, `forward` as a pass over drafted rows."""

    def __init__(self, head: GuidedHead) -> None:
        self._head = head

    def new_cache(self, capacity: int) -> KvCache:
        return self._head.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        before = self._head.no_hidden(len(tokens))
        return self._head.logits(self._head.forward(cache, tokens, before, positions, visible))

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        return self._head.logits(self._outputs(cache, tokens, [], self._head.no_hidden(0))[-1:])[0]

    def _outputs(
        self, cache: KvCache, tokens: Sequence[int], masks: Sequence[int], hidden: Float[Tensor, "M X"]
    ) -> Float[Tensor, "N X"]:
        """Outputs of a text, whose rows are kept in the cache, then of mask rows, which are not kept."""
        given = torch.cat([self._head.fused(self._head.no_states(len(tokens))), hidden])
        rows = range(cache.length, cache.length + len(given))
        outputs = self._head.forward(cache, [*tokens, *masks], given, rows, np.tri(len(given), dtype=np.bool_))
        cache.keep(rows[: len(tokens)])
        return outputs


class _Parallel(_Guided):
    """A P-EAGLE head: `forward` runs no pass, but returns a row of logits of the latest `read` for a whole level."""

    def __init__(self, head: Head) -> None:
        super().__init__(head)
        self._masks, self._guesses = head.masks, head.shape.guesses
        self._levels: Float[Tensor, "K V"] = torch.empty(0)

    def new_cache(self, capacity: int) -> KvCache:
        return super().new_cache(capacity + self._guesses)

    def forward(self, *_: object) -> Float[Tensor, "1 V"]:
        return self._levels[-1:]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        self._levels = self._head.logits(self._outputs(cache, tokens, *self._masks)[len(tokens) - 1 :])
        return self._levels[0]


class _Blocks(Forward):
    """A DFlash head: `read` takes as long as reading a text and its block, `forward` as correcting one level."""

    def __init__(self, head: BlockHead) -> None:
        self._head = head
        self._latest: list[DraftBlock] = []

    def new_cache(self, capacity: int) -> KvCache:
        return self._head.new_cache(capacity)

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        del cache, positions, visible
        (block,) = self._latest
        return self._head.logits(block.rows[0], tokens, block.memory.expand(len(tokens), -1))[0]

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        self._head.read(cache, self._head.fc.weight.new_zeros((len(tokens), self._head.fc.in_features)))
        self._latest = self._head.blocks(cache, tokens[-1:])
        (block,) = self._latest
        return self._head.logits(block.rows[0], [block.anchor], block.memory)[0][0]
