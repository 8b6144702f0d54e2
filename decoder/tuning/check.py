"""The check: what the search found against what there was, on texts that the search has not seen.

The gain that is reported comes from here alone. All take turns on every text; ratios and their intervals are those of
`decoder.bench`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import Protocol

from decoder.bench.contenders import Contender
from decoder.bench.protocol import Sample
from decoder.bench.samples import Samples, tokens_per_second
from decoder.bench.statistics import estimate
from decoder.tuning.passages import FEWEST
from decoder.tuning.search import Setting
from decoder.tuning.verdict import Checked

MOST_REPEATS = 6
"""Times that everyone decodes a text."""

Take = Callable[[Mapping[str, Setting], int, int], list[Sample]]
"""(settings by name, number of the text, repeat) -> a sample of each, and of plain decoding."""


class IsNearTie(Protocol):
    """Judges a text that is not plain decoding's."""

    def __call__(self, text_number: int, text: Sequence[int], plain: Sequence[int], /) -> bool:
        """Whether it became another one where two tokens were as good as equal."""


def rounds(
    take: Take, settings: Mapping[str, Setting], texts: Sequence[int], seed: int, over: Callable[[], bool]
) -> Iterator[list[Sample]]:
    """Samples, a text at a time: each text once in an order of its own, and again, until it is over.

    A few texts are decoded even when it is over before, since fewer tell nothing.
    """
    random, taken = Random(seed), count(1)
    for repeat in range(MOST_REPEATS):
        for text in random.sample(texts, len(texts)):
            yield take(settings, text, repeat)
            if next(taken) >= FEWEST and over():
                return


def checked(samples: Iterable[Sample], contenders: Sequence[Contender], seed: int, near_tie: IsNearTie) -> Checked:
    """What samples tell of these contenders, plain decoding among them."""
    known = Samples(samples, contenders)
    names = [contender.name for contender in contenders]
    wrong = frozenset(name for name, text, tokens in known.differing() if not near_tie(text, tokens, known.texts[text]))
    return Checked(
        len(known.prompts),
        {name: estimate(known.values(name, tokens_per_second, known.same(name)), seed) for name in names},
        {(one, other): known.ratio(one, other, seed) for one in names for other in names if one != other},
        wrong,
    )
