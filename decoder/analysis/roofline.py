"""Expected times of a pair: lower bounds from the sizes of the models and the speed of the device, before any round.

The roofline model (Williams et al. 2009, doi 10.1145/1498765.1498785): a pass takes at least as long as its bytes need
at the memory's bandwidth, and at least as long as its arithmetic needs at the device's peak rate, and both may overlap:

    pass_s(n rows) = max(bytes / bytes_per_s, n * flops_of_a_row / flops_per_s)
    step_s = pass_s(1) of the target
    round_s(D levels, n rows) = D * pass_s(1) of the draft + pass_s(n) of the target
    break_even(D, n) = round_s / step_s, in tokens per round

All rows of a pass share one reading of the weights, which is why speculative decoding pays at all. Launches of kernels,
waits, softmax and sampling are not counted, so a round takes longer. This module knows neither models nor devices.
"""

from collections.abc import Callable
from dataclasses import dataclass

from decoder.events import Expected

SIZES: tuple[tuple[int, int], ...] = ((1, 2), (4, 16), (8, 64))
"""Sizes of rounds for which times are printed: (levels that the draft drafts, rows that the target verifies, of which
one is the root).
"""
FLOPS = 2
"""Floating-point operations of one weight and one row: a multiplication and an addition."""


@dataclass(frozen=True)
class PassWork:
    """What a forward pass of a model reads and computes."""

    weights_bytes: int
    """Bytes of weights that a pass of one row reads."""
    weights: int = 0
    """Number of weights by which each row is multiplied; 0 if unknown."""
    cached_bytes: Callable[[int], int] = lambda _: 0
    """Function from the length of the text in tokens to the bytes of keys and values that a pass reads."""
    sparse: bool = False
    """Whether rows choose different experts, so that further rows read further weights, which are not counted here."""


@dataclass(frozen=True)
class DeviceSpeed:
    """Speed of a device."""

    bytes_per_s: float
    """Bandwidth of the memory, in bytes per second."""
    flops_per_s: float | None = None
    """Floating-point operations per second; None if unknown, and then arithmetic is not counted."""


def expected_times(
    target: PassWork,
    on: DeviceSpeed,
    draft: PassWork | None = None,
    draft_on: DeviceSpeed | None = None,
    *,
    text: int = 0,
) -> Expected:
    """Lower bounds of the times of passes.

    Args:
        target: Work of a pass of the target.
        on: Speed of the target's device.
        draft: Work of a pass of the draft; None if no model drafts, or if its work is unknown.
        draft_on: Speed of the device for the draft, if it differs from that for the target: a small model may be read
            from the processor's cache.
        text: Length of the text in tokens.
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
    """Least seconds of a pass of the target with this number of rows."""
    return max(expected.target_read_s, rows * expected.target_row_s)


def step_s(expected: Expected) -> float:
    """Least seconds of a step of plain decoding, which decodes one token."""
    return verify_s(expected, 1)


def round_s(expected: Expected, draft_passes: float, rows: float) -> float:
    """Least seconds of a round with this number of draft passes, one for each level, and of rows to verify.

    The bound is convex in both numbers, so that for mean numbers it is also a bound of the mean time of rounds.
    """
    return draft_passes * expected.draft_pass_s + verify_s(expected, rows)


def break_even(expected: Expected, draft_passes: float, rows: float) -> float:
    """Tokens per round, the target's own token included, from which on such rounds are faster than plain decoding, if
    rounds and steps reach their bounds.
    """
    return round_s(expected, draft_passes, rows) / step_s(expected)
