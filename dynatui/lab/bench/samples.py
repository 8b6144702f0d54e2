"""Samples of complete blocks: which texts equal the text of `ar`, which contenders have a speed, and which is fastest.

A text is right if it equals the text of `ar` in every token that must be equal; a contender has a speed on a prompt on
which all its texts are right. This module does not depend on reports.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from decoder.analysis.metrics import figures
from decoder.events import Figures
from decoder.sampling.settings import Sampling
from dynatui.lab.bench.contenders import BASELINE, Contender
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.statistics import Groups, estimate, ratios
from dynatui.lab.frame import Median

Measure = Callable[[Figures], float | None]


class Samples:
    """Samples of all blocks (prompt, repeat) in which every contender had its turn."""

    def __init__(
        self, samples: Iterable[Sample], contenders: Sequence[Contender], *, sampling: Sampling | None = None
    ) -> None:
        """Groups samples by block; at a temperature above 0, texts of foreign contenders are not compared with `ar`."""
        self.groups: dict[str, str] = {contender.name: contender.group for contender in contenders}
        self.foreign = {contender.name for contender in contenders if contender.foreign}
        self.draws_alone = self.foreign if sampling and not sampling.greedy else frozenset[str]()
        """Contenders whose texts are not compared with the texts of `ar`."""
        blocks: defaultdict[tuple[int, int], dict[str, Sample]] = defaultdict(dict)
        for sample in samples:
            blocks[sample.repeat, sample.prompt][sample.contender] = sample
        self._blocks = {at: block for at, block in blocks.items() if block.keys() == self.groups.keys()}
        self.prompts = sorted({prompt for _, prompt in self._blocks})
        self.texts = {prompt: self.turns(BASELINE, prompt)[0].tally.tokens for prompt in self.prompts}
        """Text of `ar`, the reference, by prompt."""
        compared = (turn for turn in self.all() if turn.contender not in self.draws_alone and self.is_right(turn))
        self.by_design = {turn.contender for turn in compared if turn.tally.tokens != self.texts[turn.prompt]}
        """Contenders with a text that differs from the text of `ar` only in tokens that may differ by design."""

    def same(self, name: str) -> list[int]:
        """Prompts on which a contender has a speed."""
        return [prompt for prompt in self.prompts if all(map(self.is_right, self.turns(name, prompt)))]

    def both(self, one: str, other: str) -> list[int]:
        others = set(self.same(other))
        return [prompt for prompt in self.same(one) if prompt in others]

    def values(self, name: str, measure: Measure, prompts: Sequence[int]) -> Groups:
        """One figure of a contender: for each prompt, a list with one value per repeat."""
        return [[measure(figures(turn.tally, None)) for turn in self.turns(name, prompt)] for prompt in prompts]

    def ratio(self, name: str, than: str, seed: int) -> Median | None:
        """Ratio of the speeds of two contenders, on the prompts on which both have one."""
        both = self.both(name, than)
        over, under = (self.values(contender, tokens_per_second, both) for contender in (name, than))
        return estimate(ratios(over, under), seed)

    def best(self, groups: Sequence[str], seed: int) -> str | None:
        """Fastest contender in these groups; None if none of them has a speed."""
        speeds = {name: self.ratio(name, BASELINE, seed) for name, group in self.groups.items() if group in groups}
        known = {name: speed.value for name, speed in speeds.items() if speed is not None}
        return max(known, key=lambda name: known[name]) if known else None

    def differing(self) -> Iterable[tuple[str, int, Sequence[int]]]:
        """Yields (contender, prompt, first wrong text) for each contender and prompt with a wrong text."""
        for name in self.groups:
            for prompt in self.prompts:
                wrong = (turn.tally.tokens for turn in self.turns(name, prompt) if not self.is_right(turn))
                if other := next(wrong, None):
                    yield name, prompt, other

    def all(self) -> list[Sample]:
        """Samples of all complete blocks, one block after the other."""
        return [sample for block in self._blocks.values() for sample in block.values()]

    def turns(self, name: str, prompt: int) -> list[Sample]:
        """Samples of a contender on one prompt, in the order of repeats."""
        return [block[name] for (_, which), block in sorted(self._blocks.items()) if which == prompt]

    def until(self, turn: Sample) -> int | None:
        """Number of leading tokens of a text that must equal those of `ar`; None if all may differ."""
        return None if turn.contender in self.draws_alone else turn.same_until

    def is_right(self, turn: Sample) -> bool:
        until = self.until(turn)
        return until is None or turn.tally.tokens[:until] == self.texts[turn.prompt][:until]


def tokens_per_second(text_figures: Figures) -> float | None:
    return text_figures.tokens_per_second
