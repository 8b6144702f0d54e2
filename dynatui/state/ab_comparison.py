"""Comparison of two settings of one method that decode the same texts side by side, from the states of their runs."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from decoder.analysis.metrics import first_difference
from decoder.analysis.paired import (
    BLOCK,
    LOOKS,
    WARM_UP,
    Block,
    Blocks,
    Comparison,
    between,
    compared,
    is_sound,
    places,
)
from decoder.knobs import KNOB_DIGITS, KnobName
from decoder.methods import SIDE_A, draws_alone
from dynatui.state.lane import LaneState
from dynatui.state.run_state import RunState

_MOST_PAIRS = 64
_MOST_BLOCKS = 2 * LOOKS[-1]
"""Once a pair of settings has this number of blocks, no further runs are kept for the pair."""


@dataclass(frozen=True)
class KnobSetting:
    """Knobs as the user has set them; the history rule may have changed some of them since."""

    method: str
    knobs: tuple[tuple[KnobName, float], ...]
    """Rounded to `KNOB_DIGITS` digits."""

    @classmethod
    def of(cls, method: str, values: Mapping[KnobName, float]) -> "KnobSetting":
        return cls(method, tuple(sorted((name, round(value, KNOB_DIGITS)) for name, value in values.items())))


class Pair(NamedTuple):
    a: KnobSetting
    b: KnobSetting


Pairs: TypeAlias = Mapping[Pair, Mapping[str, Blocks]]
"""Blocks by pair of settings and by the run's start time, which identifies the run; the pair compared last is last."""


@dataclass(frozen=True)
class Measured:
    """A setting of a method compared with the baseline setting A over the same tokens."""

    pair: Pair
    blocks: int
    """Number of blocks without stalled rounds."""
    comparison: Comparison | None
    """None while there are too few blocks for a verdict (`decoder.analysis.paired.LOOKS`)."""


def measured(pairs: Pairs, pair: Pair) -> Measured:
    blocks = blocks_of(pairs, pair)
    return Measured(pair, sum(not block.stalled for block in blocks), compared(blocks))


def side_a(state: RunState, method: str) -> LaneState | None:
    """The lane of side A if the run compares two settings of this method."""
    return state.lanes.get(f"{method}{SIDE_A}")


def blocks_of(pairs: Pairs, pair: Pair) -> Blocks:
    """Blocks of all runs, in the order of decoding."""
    return tuple(block for blocks in pairs.get(pair, {}).values() for block in blocks)


def with_run(pairs: Pairs, state: RunState) -> Pairs:
    """`pairs` and the decoded part of the run in `state`; a run that a replay shows again counts once."""
    if state.run is None:
        return pairs
    found, run = dict(pairs), state.run.started_at
    for pair, blocks in _stretches(state):
        runs = dict(found.pop(pair, {}))
        if len(blocks) > len(runs.get(run, ())) and sum(map(len, runs.values())) < _MOST_BLOCKS:
            runs[run] = blocks
        found[pair] = runs
    return dict(list(found.items())[-_MOST_PAIRS:])


def _stretches(state: RunState) -> Iterator[tuple[Pair, Blocks]]:
    """The settings of both sides in each stretch of text between knob changes, and the stretch's blocks. If a pair of
    settings occurs again, its blocks include those of its earlier stretches.
    """
    for method, b in state.lanes.items():
        if (a := side_a(state, method)) is None:
            continue
        begins = sorted({begin for lane in (a, b) for begin, _ in lane.spans})
        blocks, found = _blocks(state, method, a, b), dict[Pair, Blocks]()
        for begin, end in pairwise((*begins, sys.maxsize)):
            pair = Pair(*(_setting_at(begin, method, lane) for lane in (a, b)))
            own = (block for first, last, block in blocks if begin <= first and last <= end)
            found[pair] = (*found.get(pair, ()), *own)
            yield pair, found[pair]


def _setting_at(token: int, method: str, lane: LaneState) -> KnobSetting:
    in_force = [knobs for begin, knobs in lane.spans if begin <= token]
    return KnobSetting.of(method, in_force[-1] if in_force else {})


def _blocks(state: RunState, method: str, a: LaneState, b: LaneState) -> list[tuple[int, int, Block]]:
    """(first token, first token after the block, block) of each block after the warm-up. If both sides draw noise of
    their own, their texts differ: once both texts have ended, the part that both have is one block. Otherwise, the
    blocks cover the part in which the texts are equal.
    """
    names = method, f"{method}{SIDE_A}"
    sides = places(a.past), places(b.past)
    if state.race.sampled and draws_alone(method):
        over = all(name in state.ends and state.ends[name].reason in ("length", "eos") for name in names)
        ends = [(WARM_UP, min(map(len, sides)) - 1)] if over else []
        ends = [(first, last) for first, last in ends if first < last]
    else:
        tokens_b, tokens_a = (state.race.tallies[name].tokens for name in names)
        difference = first_difference(tokens_b, tokens_a)
        known = min(map(len, sides)) - 1 if difference is None else difference // BLOCK
        ends = [(number, number + 1) for number in range(WARM_UP, known)]
    blocks = [Block(*(between(side[first], side[last]) for side in sides)) for first, last in ends]
    found = zip(ends, blocks, strict=True)
    return [(BLOCK * first, BLOCK * last, block) for (first, last), block in found if is_sound(block)]
