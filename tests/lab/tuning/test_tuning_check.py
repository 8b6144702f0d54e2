"""The check measures every setting on each unseen text, repeats while time is left, and measures a few in any case."""

from collections.abc import Mapping, Sequence
from itertools import count

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from dynatui.lab.bench.contenders import Contender, Trial
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.tuning.job import MOST_REPEATS, checked, rounds
from dynatui.lab.tuning.outcome import FOUND, PLAIN, SHIPPED, Checked
from dynatui.lab.tuning.passages import FEWEST
from dynatui.lab.tuning.search import Setting

SETTINGS = {FOUND: Setting("dynatree"), SHIPPED: Setting("dynatree")}
SPEEDS = {PLAIN: 100.0, FOUND: 240.0, SHIPPED: 200.0}


def sample(name: str, text: int, repeat: int, tokens: Sequence[int] = (1, 2, 3)) -> Sample:
    seconds = len(tokens) / (SPEEDS[name] * (1 + text + repeat))
    tally = Tally(rounds=1, timed_tokens=len(tokens), decode_s=seconds, log=TokenLog().plus(list(tokens)))
    return Sample(name, name, text, repeat, tally)


def take(settings: Mapping[str, Setting], text: int, repeat: int) -> list[Sample]:
    return [sample(name, text, repeat) for name in (PLAIN, *settings)]


def taken(looks: int, texts: Sequence[int] = range(10, 18)) -> list[list[Sample]]:
    """Samples taken when the time is over after `looks` readings of the clock."""
    clock = count()
    return list(rounds(take, SETTINGS, texts, 0, lambda: next(clock) >= looks))


def told(samples: Sequence[Sample], *, near_tie: bool = False) -> Checked:
    contenders = [Contender(name, name, lambda *_: Trial(Tally()), {}) for name in SPEEDS]
    return checked(samples, contenders, 0, lambda *_: near_tie)


def test_every_text_comes_once_before_any_comes_again() -> None:
    blocks = taken(100)
    assert len(blocks) == 8 * MOST_REPEATS
    assert sorted(block[0].prompt for block in blocks[:8]) == list(range(10, 18))
    assert {sample.repeat for block in blocks[:8] for sample in block} == {0}


def test_a_few_texts_are_decoded_when_time_is_over_before() -> None:
    assert len(taken(0)) == FEWEST
    assert len(taken(3)) == FEWEST + 3


def test_ratios_are_those_of_the_same_text_side_by_side() -> None:
    found = told([each for block in taken(20) for each in block])
    gain = found.ratios[FOUND, SHIPPED]
    assert gain is not None
    assert gain.low is not None
    assert abs(gain.value - 1.2) < 1e-9
    assert abs(gain.low - 1.2) < 1e-9
    assert found.texts == 8
    assert found.faster(FOUND, SHIPPED)
    assert not found.faster(SHIPPED, FOUND)
    assert not found.faster(SHIPPED, "nobody")


def test_a_text_that_is_another_one_is_named_unless_it_is_a_near_tie() -> None:
    samples = [each for block in taken(20) for each in block]
    samples[[each.contender for each in samples].index(FOUND)] = sample(FOUND, samples[0].prompt, 0, (1, 2, 4))
    assert told(samples).wrong == {FOUND}
    assert told(samples, near_tie=True).wrong == frozenset()
