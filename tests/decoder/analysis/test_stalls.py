"""Detection of stalled rounds, their exclusion from rates, and the note about them."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.analysis.stalls import (
    FEW,
    LEVELS_S,
    MANY,
    RECENT,
    Stalls,
    Times,
    left_out_from,
    level_of,
    stall_notes,
    stalled_s,
)
from decoder.events import Figures

USUAL = [0.005] * RECENT
BUSY, WAITED = "the machine is busy: ", "waited long for a processor; rates "
SECONDS = st.floats(0, 1e6)


def stalls(*lost_s: float) -> Stalls:
    """Rounds of one token each; a round takes one second plus the time it lost."""
    notes = Stalls()
    for seconds in lost_s:
        notes = notes.with_round(seconds, Times(rounds=1, timed_tokens=1, decode_s=seconds + 1))
    return notes


@pytest.mark.parametrize(
    ("round_s", "waited_s", "earlier", "lost_s"),
    [
        pytest.param(1.068, 1.063, USUAL, 1.063, id="a wait of a second"),
        *(pytest.param(0.005 + s, s, USUAL, 0, id=f"a short wait of {s}") for s in (0.0, 0.003, 0.99 * LEVELS_S[0])),
        pytest.param(0.1, 0.1, [0.1] * RECENT, 0, id="a wait that made the round no longer"),
        # its own time net of waits, 0, counts too
        pytest.param(0.1, 0.1, [0.02, 0.03, 0.04], 0.1 - 0.025, id="no more than it was longer than usual"),
        pytest.param(0.1, 0.032, USUAL, 0, id="a larger tree, whatever waited for a moment"),
        pytest.param(0.1, 0.034, USUAL, 0.034, id="a third of the round"),
        pytest.param(1.02, 1.0, [], 1.0, id="the first round"),
        pytest.param(0.26, 0.06, [0.2] * RECENT, 0, id="a small share of a long round"),
        pytest.param(0.36, 0.16, [0.2] * RECENT, 0.16, id="a large one"),
    ],
)
def test_a_round_loses_what_it_waited_longer_than_usual(
    round_s: float, waited_s: float, earlier: Sequence[float], lost_s: float
) -> None:
    assert stalled_s(round_s, waited_s, earlier) == pytest.approx(lost_s)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(round_s=SECONDS, waited_s=SECONDS, earlier=st.lists(SECONDS, max_size=5))
def test_what_is_lost_is_part_of_wait_and_round(round_s: float, waited_s: float, earlier: Sequence[float]) -> None:
    lost_s = stalled_s(round_s, min(waited_s, round_s), earlier)
    assert lost_s == 0 or LEVELS_S[0] <= lost_s <= min(waited_s, round_s)


@pytest.mark.parametrize(
    ("lost", "rounds", "left_out"),
    [
        ([], 100, []),
        ([0.02], 1, [0.02]),
        ([0.02, 0.03], 10, [0.02, 0.03]),
        ([0.02, 0.03, 0.04], 10, []),  # too many of the rounds: the machine is busy
        ([0.02, 0.03, 0.04, 1.98], 10, [1.98]),
        ([0.02, 0.03, 0.04, 0.2, 1.98], 10, [0.2, 1.98]),
        ([0.2, 0.3, 0.4, 1.98], 10, [1.98]),
        ([2.0, 2.0, 2.0], 10, []),
    ],
)
def test_few_stalls_are_left_out_and_of_many_the_worst(lost: list[float], rounds: int, left_out: list[float]) -> None:
    notes = stalls(*lost)
    level = left_out_from([notes], rounds)
    times = notes.from_level(level)
    assert [seconds for seconds in lost if level_of(seconds) >= level] == left_out
    assert (times.rounds, times.timed_tokens) == (len(left_out), len(left_out))
    assert times.decode_s == pytest.approx(sum(left_out) + len(left_out))


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(groups=st.lists(st.lists(st.floats(0.01, 10), max_size=20), max_size=4), rounds=st.integers(0, 200))
def test_never_more_are_left_out_than_a_few(groups: list[list[float]], rounds: int) -> None:
    each = [stalls(*group) for group in groups]
    level = left_out_from(each, rounds)
    count = sum(one.from_level(level).rounds for one in each)
    assert count <= FEW + MANY * rounds
    assert count == sum(level_of(seconds) >= level for group in groups for seconds in group)


def test_without_a_part_the_other_rounds_are_left() -> None:
    every = Times(rounds=3, timed_tokens=7, decode_s=2.0, draft_s=0.5, verify_s=1.0, commit_s=None)
    part = Times(rounds=1, timed_tokens=2, decode_s=1.5, draft_s=0.25, verify_s=0.5, commit_s=0.1)
    assert every.without(part) == Times(2, 5, 0.5, 0.25, 0.5, None)
    assert every.without(part).plus(part) == every
    assert every.without(Times()) is every
    assert every.without(every) == Times()
    assert every.without(every).tokens_per_second is None


@pytest.mark.parametrize(
    ("figures", "long", "short"),
    [
        ([(0, 0, 0.0)], None, None),
        ([(1, 1, 1.068)], "rates leave out 1 stalled round (1.07 s)", "1 stalled round left out"),
        ([(1, 1, 1.0), (2, 2, 2.0)], "rates leave out 3 stalled rounds (3.00 s)", "3 stalled rounds left out"),
        ([(30, 0, 0.0)], f"{BUSY}30 rounds {WAITED}count them", "busy machine: 30 rounds stalled"),
        (
            [(30, 1, 1.98), (9, 0, 0.0)],
            f"{BUSY}39 rounds {WAITED}leave out 1 stalled round (1.98 s)",
            "busy machine: 39 rounds stalled",
        ),
    ],
)
def test_it_is_said_what_rates_leave_out(
    figures: list[tuple[int, int, float]], long: str | None, short: str | None
) -> None:
    notes = stall_notes(Figures(stalled_rounds=a, left_out_rounds=b, left_out_s=c) for a, b, c in figures)
    assert (*notes[:2],) == (() if long is None else (long, short))
