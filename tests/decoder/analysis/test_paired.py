"""Comparisons of two settings over the same tokens: false verdicts on equal settings, power, and blocks of a text."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from decoder.analysis.paired import BLOCK, LOOKS, WARM_UP, Block, Blocks, Comparison, Side, between, compared, places
from decoder.events import Round
from tests.dynatui.scripted_runs import plain_round

ROUND = plain_round("dynatree", 0)
TOKENS, MOST = BLOCK * (WARM_UP + 32), 1000
"""Tokens of a simulated text, and the most rounds of both sides together."""
LONGEST = 6
"""Guesses of a simulated round."""
COMPARISONS = 200
MOST_FALSE = 17
"""Of 200 comparisons at most this number is false with probability .98, if one in 20 is on average."""


def slowly(random: np.random.Generator, count: int, memory: float, spread: float) -> NDArray[np.float64]:
    """A series in which neighbours resemble each other, with mean 0 and this standard deviation."""
    steps = math.sqrt(1 - memory**2) * random.normal(size=count)
    return spread * np.array([*accumulate(steps, lambda value, step: memory * value + step)])


@dataclass
class Lane:
    seconds: float
    """Of a round on an idle machine."""
    right: NDArray[np.bool_]
    """Whether a guess would be right, by place in the text."""
    place: int = 0
    t: float = 0.0
    rounds: list[Round] = field(default_factory=list)

    def step(self, slowness: float) -> None:
        guesses = self.right[self.place : self.place + LONGEST]
        count = 1 + (LONGEST if guesses.all() else int(guesses.argmin()))
        self.t += self.seconds * slowness
        self.rounds.append(structs.replace(ROUND, position=self.place, t=self.t, committed=[7] * count))
        self.place += count


Sides = Callable[[np.random.Generator, NDArray[np.float64]], tuple[Lane, Lane]]
"""From the chance of a right guess at each place."""


def equal(random: np.random.Generator, chances: NDArray[np.float64]) -> tuple[Lane, Lane]:
    """Rounds of equal settings, which differ in their times alone."""
    right = random.uniform(size=len(chances)) < chances
    return Lane(0.01, right), Lane(0.01, right)


def as_good(random: np.random.Generator, chances: NDArray[np.float64]) -> tuple[Lane, Lane]:
    """Other settings, with which other guesses are right, but as many on average."""
    a, b = (Lane(0.01, random.uniform(size=len(chances)) < chances) for _ in range(2))
    return a, b


def quicker(random: np.random.Generator, chances: NDArray[np.float64]) -> tuple[Lane, Lane]:
    """The same guesses are right, but B is 15 % faster."""
    a, b = equal(random, chances)
    return a, Lane(a.seconds / 1.15, b.right)


def quicker_with_others(random: np.random.Generator, chances: NDArray[np.float64]) -> tuple[Lane, Lane]:
    """B is 15 % faster, and other guesses are right."""
    a, b = as_good(random, chances)
    return a, Lane(a.seconds / 1.15, b.right)


def texts(seed: int, sides: Sides) -> Iterator[Blocks]:
    """Blocks of one race after the other. Texts differ in difficulty, which also changes slowly within each. The
    machine's speed differs between texts, drifts within each and changes from round to round; some rounds take twice as
    long.
    """
    random = np.random.default_rng(seed)
    while True:
        logits = slowly(random, TOKENS + LONGEST, 0.97, 0.8) + random.normal(0.4, 0.5)
        drift = np.linspace(0, random.normal(0, 0.2), MOST) + slowly(random, MOST, 0.99, 0.15)
        late = math.log(2) * (random.uniform(size=MOST) < 0.02)
        slowness = np.exp(random.normal(0, 0.2) + drift + slowly(random, MOST, 0.5, 0.08) + late)
        a, b = sides(random, 1 / (1 + np.exp(-logits)))
        for each in slowness:
            going = [lane for lane in (a, b) if lane.place < TOKENS]
            if not going:
                break
            min(going, key=lambda lane: lane.t).step(float(each))
        yield blocks(a.rounds, b.rounds)


def blocks(a: Sequence[Round], b: Sequence[Round]) -> Blocks:
    sides = places(a), places(b)
    ends = range(WARM_UP, min(map(len, sides)) - 1)
    return tuple(Block(*(between(side[number], side[number + 1]) for side in sides)) for number in ends)


def looks(found: Sequence[Blocks]) -> list[Comparison]:
    """Every verdict that a user could see, from the first look to the last."""
    whole = [block for text in found for block in text]
    seen = (compared(tuple(whole[:count])) for count in LOOKS if count <= len(whole))
    return [look for look in seen if look]


@pytest.mark.parametrize("sides", [equal, as_good])
def test_settings_as_fast_as_each_other_are_called_different_at_most_once_in_20_comparisons(sides: Sides) -> None:
    """Even if the user looks at every verdict of four texts, on a machine whose speed drifts."""
    false = 0
    for seed in range(COMPARISONS):
        seen = looks([*islice(texts(seed, sides), 4)])
        assert len(seen) == 4
        false += any(look.verdict != "unclear" for look in seen)
    assert false <= MOST_FALSE


@pytest.mark.parametrize(("sides", "count"), [(quicker, 64), (quicker_with_others, 256)])
def test_a_difference_of_15_percent_is_found_within_so_many_blocks(sides: Sides, count: int) -> None:
    verdicts = [looks([*islice(texts(seed, sides), count // 32)])[-1].verdict for seed in range(50)]
    assert verdicts.count("faster") >= 45
    assert "slower" not in verdicts


def test_the_interval_holds_the_true_ratio_almost_always() -> None:
    last = [looks([*islice(texts(seed, quicker_with_others), 2)])[-1].rate for seed in range(100)]
    assert sum(ratio.low <= 1.15 <= ratio.high for ratio in last) >= 96
    assert all(ratio.low < ratio.value < ratio.high for ratio in last)


def even(count: int, seconds: float = 0.02, tokens: int = BLOCK // 2, first: int = 0) -> list[Round]:
    """Rounds without noise."""
    numbers = range(first, first + count)
    return [
        structs.replace(ROUND, round=n, position=tokens * n, t=seconds * (n + 1), committed=[7] * tokens)
        for n in numbers
    ]


def test_a_comparison_of_steady_sides_is_exact() -> None:
    found = compared(blocks(even(80), even(80, 0.016)))
    assert found is not None
    assert (found.blocks, found.verdict) == (32, "faster")
    assert (found.rate.value, found.rate.low, found.rate.high) == pytest.approx((1.25, 1.25, 1.25))
    assert found.tokens_per_round.value == pytest.approx(1)
    assert (found.a.tokens, found.a.rounds) == pytest.approx((32 * BLOCK, 64))
    slower = compared(blocks(even(80), even(80, 0.025)))
    assert slower is not None
    assert slower.verdict == "slower"


def test_a_side_compared_with_itself_is_unclear_and_exactly_as_fast() -> None:
    found = compared(blocks(even(80), even(80)))
    assert found is not None
    assert (found.verdict, found.rate.value, found.tokens_per_round.value) == ("unclear", 1, 1)


def test_there_is_no_verdict_between_two_looks_but_that_of_the_one_before() -> None:
    whole = blocks(even(200), even(200, 0.016))
    assert compared(whole[: LOOKS[0] - 1]) is None
    assert {(count, found.blocks) for count in (16, 31, 32, 63) if (found := compared(whole[:count]))} == {
        *((16, 16), (31, 16), (32, 32), (63, 32)),
    }


def test_a_round_across_a_boundary_counts_on_both_sides_of_it_by_its_tokens() -> None:
    first = structs.replace(ROUND, t=0.1, committed=[1] * 6)
    found = places([first, structs.replace(ROUND, position=6, t=0.3, committed=[1] * 4)])
    assert found == [pytest.approx(place) for place in (Side(0, 0, 0, 0, 0), Side(8, 0.2, 1.5, 0, 0))]


def stalled(*numbers: int) -> Comparison:
    late = [
        structs.replace(event, t=event.t + sum(number >= at for at in numbers)) for number, event in enumerate(even(80))
    ]
    late = [structs.replace(event, stalled_s=1.0) if event.round in numbers else event for event in late]
    found = compared(blocks(late, even(80)))
    assert found is not None
    return found


def test_blocks_with_stalled_rounds_are_left_out_and_many_make_the_machine_busy() -> None:
    one = stalled(40)
    assert one.verdict == "unclear"
    assert one.rate.value == pytest.approx(1)
    assert stalled(*range(20, 60, 8)).verdict == "machine busy"


def test_long_waits_for_a_processor_leave_no_verdict() -> None:
    waiting = [structs.replace(event, waited_s=0.01) for event in even(80)]
    found = compared(blocks(waiting, even(80, 0.016)))
    assert found is not None
    assert found.verdict == "machine busy"
