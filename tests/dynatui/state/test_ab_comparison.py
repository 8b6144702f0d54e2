"""Which blocks of which runs are compared, under which settings of both sides."""

from collections.abc import Iterable
from functools import reduce

from msgspec import structs

from decoder.analysis.paired import BLOCK, WARM_UP
from decoder.events import End, Event, Round
from decoder.methods.dynatree import DynaTree
from dynatui.state.ab_comparison import Pair, Pairs, blocks_of, measured, side_a, with_run
from dynatui.state.run_state import RunState, apply
from tests.dynatui.compared_runs import ROUNDS, A, begun, compared, turned, turns
from tests.dynatui.scripted_runs import delayed_run, drawn_round, state_of, story

BLOCKS = 3 * ROUNDS // BLOCK - WARM_UP


def paired(*runs: Iterable[Event]) -> Pairs:
    none: Pairs = {}
    return reduce(with_run, map(state_of, runs), none)


def counts(pairs: Pairs) -> dict[tuple[float, float], int]:
    """Blocks by the values of D0 of A and B."""
    return {(_d0(pair, 0), _d0(pair, 1)): measured(pairs, pair).blocks for pair in pairs}


def _d0(pair: Pair, side: int) -> float:
    return dict(pair[side].knobs)["d0"]


def test_both_sides_are_compared_over_the_same_tokens_after_the_warm_up() -> None:
    pairs = paired(compared())
    assert counts(pairs) == {(5, 6): BLOCKS}
    (pair,) = pairs
    assert pair.a.method == pair.b.method == "dynatree"
    found = measured(pairs, pair).comparison
    assert found is not None
    assert found.verdict == "faster"
    assert all(block.a.tokens == block.b.tokens == BLOCK for block in blocks_of(pairs, pair))


def test_a_run_without_side_a_has_nothing_to_compare() -> None:
    state = state_of(story())
    assert with_run({}, state) == {}
    assert side_a(state, "dynatree") is None
    assert with_run({}, RunState()) == {}


def test_blocks_of_several_prompts_are_joined_and_a_run_that_is_shown_again_counts_once() -> None:
    first, second = compared(), compared(at="2", prompt="Then")
    assert counts(paired(first, second)) == {(5, 6): 2 * BLOCKS}
    again = paired(first, second, first[:80], first)
    assert counts(again) == {(5, 6): 2 * BLOCKS}


def test_a_turn_of_b_begins_a_pair_of_its_own_and_the_block_of_the_turn_counts_for_none() -> None:
    run = [begun(), *turns(0, 50), turned(50, "d0", 6, 7), *turns(50, ROUNDS)]
    assert counts(paired(run)) == {(5, 6): 150 // BLOCK - WARM_UP, (5, 7): 3 * ROUNDS // BLOCK - -(-150 // BLOCK)}
    back = [*run[:-40], turned(80, "d0", 7, 6), *run[-40:]]
    assert list(counts(paired(back))) == [(5, 7), (5, 6)], "the latest pair is the last one"


def test_a_block_that_b_has_decoded_before_a_turn_is_compared_when_a_comes_there_after_it() -> None:
    b_ahead = [event for event in turns(0, 50) if isinstance(event, Round) and event.method == "dynatree"]
    behind = [event for event in turns(0, 50) if isinstance(event, Round) and event.method == A]
    run: list[Event] = [begun(), *b_ahead, turned(50, "d0", 6, 7), *behind]
    assert counts(paired(run)) == {(5, 6): 150 // BLOCK - WARM_UP, (5, 7): 0}


def test_a_turn_that_comes_back_adds_to_the_earlier_stretch() -> None:
    run = [begun(), *turns(0, 40), turned(40, "d0", 6, 7), turned(40, "d0", 7, 6), *turns(40, ROUNDS)]
    assert counts(paired(run)) == {(5, 6): BLOCKS}


def test_texts_are_compared_only_as_far_as_they_are_equal() -> None:
    run = [
        structs.replace(event, committed=[1, 2, 3])
        if isinstance(event, Round) and event.method == A and event.round >= 50
        else event
        for event in compared()
    ]
    assert counts(paired(run)) == {(5, 6): 150 // BLOCK - WARM_UP}


def test_methods_with_noise_of_their_own_are_compared_by_whole_texts() -> None:
    own = delayed_run(("delayed",))
    start = structs.replace(own, methods={"delayed": own.methods["delayed"], "delayed:A": own.methods["delayed"]})
    rounds = [
        structs.replace(drawn_round(number), method=name, committed=[side, number, 3])
        for number in range(40)
        for side, name in enumerate(("delayed", "delayed:A"))
    ]
    ends = [End(method=name, reason="length") for name in ("delayed", "delayed:A")]
    unfinished, whole = (
        [measured(pairs, pair).blocks for pair in pairs]
        for pairs in (paired([start, *rounds]), paired([start, *rounds, *ends]))
    )
    assert (unfinished, whole) == ([0], [1])


def test_another_baseline_is_another_pair() -> None:
    assert counts(paired(compared(), compared(at="2", a=DynaTree(d0=4)))) == {(5, 6): BLOCKS, (4, 6): BLOCKS}


def test_impossible_times_of_a_recording_are_left_out() -> None:
    events = [
        structs.replace(event, t=1.0) if isinstance(event, Round) and event.method == A else event
        for event in compared()
    ]
    assert counts(paired(events)) == {(5, 6): 0}


def test_the_state_is_compared_as_far_as_it_is_shown() -> None:
    events = compared()
    for end in (1, 61, 121):
        state = reduce(apply, events[:end], RunState())
        assert counts(with_run({}, state)) == {(5, 6): max(0, 3 * (end // 2) // BLOCK - WARM_UP)}
