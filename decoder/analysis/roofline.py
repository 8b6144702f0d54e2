"""Expected times of a pair's passes and rounds, from the sizes of the models and the speed of the device alone.

By the roofline model (Williams et al. 2009, doi 10.1145/1498765.1498785), a pass reads its bytes at the memory's
bandwidth and computes at the device's peak rate. Both may overlap, so the pass takes the longer of the two times:

    pass_s(n rows) = max(bytes / bytes_per_s, n * flops_of_a_row / flops_per_s)
    step_s = pass_s(1) of the target
    round_s(D levels, n rows) = D * pass_s(1) of the draft + pass_s(n) of the target
    break_even(D, n) = round_s / step_s, in tokens per round

All rows of a pass share one reading of the weights; without this, speculative decoding could not be faster. The times
are estimates, not bounds: launches, waits, softmax and sampling are not counted, the speed of a CPU is measured while
other programs may run, and data in a cache is read faster than from memory. Imports no code of models or devices.
"""

from collections.abc import Callable
from dataclasses import dataclass

from decoder.events import Expected

SIZES: tuple[tuple[int, int], ...] = ((1, 2), (4, 16), (8, 64))
"""(levels drafted, rows verified) of the rounds whose times are printed."""
FLOPS = 2
"""Operations per weight and row: a multiplication and an addition."""


@dataclass(frozen=True)
class PassWork:
    weights_bytes: int
    """Bytes of weights that a pass of one row reads."""
    weights: int = 0
    """Number of weights by which each row is multiplied; 0 if unknown."""
    cached_bytes: Callable[[int], int] = lambda _: 0
    """(length of the text) -> bytes of keys and values that a pass reads."""
    sparse: bool = False
    """Whether rows choose different experts. Experts that only rows after the first choose are not counted."""


@dataclass(frozen=True)
class DeviceSpeed:
    bytes_per_s: float
    flops_per_s: float | None = None
    """Peak operations per second; None if unknown: the time of arithmetic is then not counted."""


def expected_times(
    target: PassWork,
    on: DeviceSpeed,
    draft: PassWork | None = None,
    draft_on: DeviceSpeed | None = None,
    *,
    text: int = 0,
) -> Expected:
    """`draft` is None if no model drafts or if the draft's work is unknown. `draft_on`: device speed for the draft if
    it differs from `on`, for example because a small draft is in the processor's cache. `text`: length in tokens.
    """
    speed = draft_on or on
    return Expected(
        target_read_s=_read_s(target, on, text),
        target_row_s=_row_s(target, on),
        draft_pass_s=max(_read_s(draft, speed, text), _row_s(draft, speed)) if draft else 0.0,
    )


def _read_s(work: PassWork, speed: DeviceSpeed, text: int) -> float:
    return (work.weights_bytes + work.cached_bytes(text)) / speed.bytes_per_s


def _row_s(work: PassWork, speed: DeviceSpeed) -> float:
    return FLOPS * work.weights / speed.flops_per_s if speed.flops_per_s else 0.0


def verify_s(expected: Expected, rows: float) -> float:
    return max(expected.target_read_s, rows * expected.target_row_s)


def step_s(expected: Expected) -> float:
    return verify_s(expected, 1)


def round_s(expected: Expected, draft_passes: float, rows: float) -> float:
    """Convex in the last two arguments, so the result for means over rounds is at most the mean time of the rounds."""
    return draft_passes * expected.draft_pass_s + verify_s(expected, rows)


def break_even(expected: Expected, draft_passes: float, rows: float) -> float:
    """Tokens per round, bonus token included, above which rounds of this size are expected to beat plain decoding."""
    return round_s(expected, draft_passes, rows) / step_s(expected)
