"""Check of a tuning: compares the settings that the search found with the shipped settings, on new texts.

The reported gain is measured in the check alone, since the search has not used these texts. On each text, the settings
decode one after the other; `dynatui.lab.bench` computes ratios and intervals.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Protocol

from dynatui.lab.bench.contenders import Contender
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.samples import Samples, estimate, tokens_per_second
from dynatui.lab.tuning.passages import FEWEST
from dynatui.lab.tuning.search import Setting
from dynatui.lab.tuning.verdict import Checked

MOST_REPEATS = 6
"""Largest number of times that each text is decoded."""

Take = Callable[[Mapping[str, Setting], int, int], list[Sample]]
"""(settings by name, number of the text, repeat) -> samples of each setting and of plain decoding."""


class IsNearTie(Protocol):
    """Function that decides whether a text differs from the text of plain decoding only because of a near tie."""

    def __call__(self, text_number: int, text: Sequence[int], plain: Sequence[int], /) -> bool:
        """Whether the first difference is a near tie of two tokens."""


def rounds(
    take: Take, settings: Mapping[str, Setting], texts: Sequence[int], seed: int, over: Callable[[], bool]
) -> Iterator[list[Sample]]:
    """Yields the samples of one text at a time, until `over()` is true. Each repeat has its own random order of texts.

    At least `FEWEST` texts are decoded in any case, since fewer texts give no useful interval.
    """
    random, taken = Random(seed), count(1)
    for repeat in range(MOST_REPEATS):
        for text in random.sample(texts, len(texts)):
            yield take(settings, text, repeat)
            if next(taken) >= FEWEST and over():
                return


def checked(samples: Iterable[Sample], contenders: Sequence[Contender], seed: int, near_tie: IsNearTie) -> Checked:
    """Speeds of these contenders, ratios of speeds, and names of contenders with wrong texts.

    One of the contenders must be plain decoding.
    """
    known = Samples(samples, contenders)
    names = [contender.name for contender in contenders]
    wrong = frozenset(name for name, text, tokens in known.differing() if not near_tie(text, tokens, known.texts[text]))
    return Checked(
        len(known.prompts),
        {name: estimate(known.values(name, tokens_per_second, known.same(name)), seed) for name in names},
        {(one, other): known.ratio(one, other, seed) for one in names for other in names if one != other},
        wrong,
    )
