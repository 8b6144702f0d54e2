"""The samples of a measurement that count: which text is right, who has a speed on which prompt, and who is fastest.

Knows nothing of how it is reported.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from decoder.analysis.metrics import figures
from decoder.bench.contenders import BASELINE, Contender
from decoder.bench.protocol import Sample
from decoder.bench.statistics import Groups, Median, estimate, ratios
from decoder.events import Figures
from decoder.sampling.settings import Sampling

Measure = Callable[[Figures], float | None]
"""One figure of a text; None: it is not known."""


class Samples:
    """The samples of all prompts and repeats that everyone went through, and which of them have a speed."""

    def __init__(
        self, samples: Iterable[Sample], contenders: Sequence[Contender], *, sampling: Sampling | None = None
    ) -> None:
        """Takes samples of contenders; at a temperature above 0 the foreign ones write texts of their own."""
        self.groups: dict[str, str] = {contender.name: contender.group for contender in contenders}
        self.foreign = {contender.name for contender in contenders if contender.foreign}
        self.draws_alone = self.foreign if sampling and not sampling.greedy else frozenset[str]()
        """Those, if they do."""
        blocks: defaultdict[tuple[int, int], dict[str, Sample]] = defaultdict(dict)
        for sample in samples:
            blocks[sample.repeat, sample.prompt][sample.contender] = sample
        self._blocks = {at: block for at, block in blocks.items() if block.keys() == self.groups.keys()}
        self.prompts = sorted({prompt for _, prompt in self._blocks})
        self.texts = {prompt: self.turns(BASELINE, prompt)[0].tally.tokens for prompt in self.prompts}
        """ar's, which is the right one."""
        compared = (turn for turn in self.all() if turn.contender not in self.draws_alone and self._is_right(turn))
        self.by_design = {turn.contender for turn in compared if turn.tally.tokens != self.texts[turn.prompt]}
        """Who has written another text where they may."""

    def same(self, name: str) -> list[int]:
        """Prompts on which every text of a contender is ar's, as far as it should be."""
        return [prompt for prompt in self.prompts if all(map(self._is_right, self.turns(name, prompt)))]

    def both(self, one: str, other: str) -> list[int]:
        """Prompts on which two contenders have such texts, and so a speed."""
        others = set(self.same(other))
        return [prompt for prompt in self.same(one) if prompt in others]

    def values(self, name: str, measure: Measure, prompts: Sequence[int]) -> Groups:
        """One figure of a contender, prompt by prompt and repeat by repeat."""
        return [[measure(figures(turn.tally, None)) for turn in self.turns(name, prompt)] for prompt in prompts]

    def ratio(self, name: str, than: str, seed: int) -> Median | None:
        """How much faster one contender is than another, on the prompts where both have a speed."""
        both = self.both(name, than)
        over, under = (self.values(contender, tokens_per_second, both) for contender in (name, than))
        return estimate(ratios(over, under), seed)

    def best(self, groups: Sequence[str], seed: int) -> str | None:
        """The fastest contender of these groups."""
        speeds = {name: self.ratio(name, BASELINE, seed) for name, group in self.groups.items() if group in groups}
        known = {name: speed.value for name, speed in speeds.items() if speed is not None}
        return max(known, key=lambda name: known[name]) if known else None

    def differing(self) -> Iterable[tuple[str, int, Sequence[int]]]:
        """(contender, prompt, its first text that is not ar's and should be)."""
        for name in self.groups:
            for prompt in self.prompts:
                wrong = (turn.tally.tokens for turn in self.turns(name, prompt) if not self._is_right(turn))
                if other := next(wrong, None):
                    yield name, prompt, other

    def all(self) -> list[Sample]:
        """Every sample that counts, in the order of repeats and prompts."""
        return [sample for block in self._blocks.values() for sample in block.values()]

    def turns(self, name: str, prompt: int) -> list[Sample]:
        """A contender's samples of one prompt, repeat by repeat."""
        return [block[name] for (_, which), block in sorted(self._blocks.items()) if which == prompt]

    def _is_right(self, turn: Sample) -> bool:
        """Whether a text is ar's as far as it should be."""
        until = None if turn.contender in self.draws_alone else turn.same_until
        return until is None or turn.tally.tokens[:until] == self.texts[turn.prompt][:until]


def tokens_per_second(found: Figures) -> float | None:
    """Speed as a `Measure`."""
    return found.tokens_per_second
