"""Expected times of a pair, from the sizes of the models and the speed of the device, before any round.

The roofline model (Williams et al. 2009, doi 10.1145/1498765.1498785): a pass takes as long as its bytes need at the
memory's bandwidth or its arithmetic at the device's peak rate, whichever is longer, since both may overlap:

    pass_s(n rows) = max(bytes / bytes_per_s, n * flops_of_a_row / flops_per_s)
    step_s = pass_s(1) of the target
    round_s(D levels, n rows) = D * pass_s(1) of the draft + pass_s(n) of the target
    break_even(D, n) = round_s / step_s, in tokens per round

All rows of a pass share one reading of the weights, which is why speculative decoding pays at all. These are estimates,
not bounds: launches, waits, softmax and sampling are not counted, a CPU's speed is itself measured while other programs
run, and what fits in a cache is read faster than from memory. This module knows neither models nor devices.
"""

from collections.abc import Callable
from dataclasses import dataclass

from decoder.events import Expected

SIZES: tuple[tuple[int, int], ...] = ((1, 2), (4, 16), (8, 64))
"""(levels that the draft drafts, rows that the target verifies) of the rounds whose times are printed."""
FLOPS = 2
"""A multiplication and an addition."""


@dataclass(frozen=True)
class PassWork:
    weights_bytes: int
    """Read by a pass of one row."""
    weights: int = 0
    """Weights by which each row is multiplied; 0 if unknown."""
    cached_bytes: Callable[[int], int] = lambda _: 0
    """Length of the text -> bytes of keys and values that a pass reads."""
    sparse: bool = False
    """Whether rows choose different experts, so that further rows read further weights, which are not counted."""


@dataclass(frozen=True)
class DeviceSpeed:
    bytes_per_s: float
    flops_per_s: float | None = None
    """None if unknown; arithmetic is then not counted."""


def expected_times(
    target: PassWork,
    on: DeviceSpeed,
    draft: PassWork | None = None,
    draft_on: DeviceSpeed | None = None,
    *,
    text: int = 0,
) -> Expected:
    """`draft` is None if no model drafts or its work is unknown; `draft_on` is its device's speed if it differs, as
    with a small model in the processor's cache.
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
    """Convex in both numbers: for mean numbers it is at most the mean over the rounds."""
    return draft_passes * expected.draft_pass_s + verify_s(expected, rows)


def break_even(expected: Expected, draft_passes: float, rows: float) -> float:
    """Tokens per round, the target's own included, from which such rounds beat steps in the expected times."""
    return round_s(expected, draft_passes, rows) / step_s(expected)
