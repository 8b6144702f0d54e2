"""Runs settings and plain decoding on passages in turns, and compares each text with the text of plain decoding.

The whole search is one run of `dynatui.lab.bench.protocol`, to which this module passes the turns one by one.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from random import Random

from decoder.analysis.metrics import figures, first_difference
from decoder.engine import Engine
from decoder.errors import DeviceError
from decoder.forward.near_tie import Judge
from decoder.run.config import RunConfig
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.protocol import Experiment, Sample, Turn, measured, warmed_up
from dynatui.lab.tuning.search import Block, PassageResult, Setting


class Turns:
    """Runs turns, in each of which one setting decodes one passage. A `Turns` object must be closed after use."""

    def __init__(self, engine: Engine, config: RunConfig, passages: Sequence[Sequence[int]], attempts: int = 1) -> None:
        """Begins a run.

        Args:
            engine: Engine of the pair, with the sampling settings of `config`.
            config: Length limit, and parameters for settings that have no parameters of their own.
            passages: Token ids of each passage.
            attempts: Maximum number of times that a turn is run if other processes disturb it.
        """
        self._engine = engine
        self._config = config
        self._passages = passages
        self._judge = Judge(engine.pair.target, engine.gumbel_noise())
        self._random = Random(config.seed)
        self._warm: set[Setting] = set()
        self._attempts = attempts
        self._contenders: list[Contender] = []
        self._due: deque[Turn] = deque()
        self._open = True
        self._samples = self._begun()

    def block(self, settings: Sequence[Setting], passage: int) -> Block | None:
        """Results of settings and of plain decoding on one passage, run in random order; used as `search.Measure`."""
        numbered = {str(number): setting for number, setting in enumerate(settings)}
        try:
            samples = {sample.contender: sample for sample in self.samples(numbered, passage, 0)}
        except DeviceError:  # a tree is too large for the device's memory; the search goes on with smaller trees
            self._due.clear()
            self._samples = self._begun()
            return None
        plain = samples.pop(BASELINE)
        results = [self._result(samples[number], plain, passage) for number in numbered]
        return Block(_speed(plain), results)

    def samples(self, settings: Mapping[str, Setting], passage: int, repeat: int) -> list[Sample]:
        """Samples of settings and of plain decoding on one passage; a sample's contender is the setting's name."""
        by_name = {BASELINE: Setting(BASELINE), **settings}
        contenders = [contender(name, setting, self._config) for name, setting in by_name.items()]
        cold = [one for one, setting in zip(contenders, by_name.values(), strict=True) if setting not in self._warm]
        warmed_up(self._engine, Experiment(cold, (), [max(self._passages, key=len)]), lambda _: None)
        self._warm.update(by_name.values())
        self._contenders[:] = contenders
        order = self._random.sample(range(len(contenders)), len(contenders))
        self._due.extend(Turn(repeat, passage, number) for number in order)
        return [next(self._samples) for _ in order]

    def near_tie(self, passage: int, text: Sequence[int], plain: Sequence[int]) -> bool:
        """Whether the first difference from the text of plain decoding is at a near tie."""
        differs = first_difference(text, plain)
        if differs is None:
            return False
        before = [*self._passages[passage], *plain[:differs]]
        return self._judge(before, (plain[differs], text[differs])).near_tie

    def close(self) -> None:
        """Ends the run."""
        self._open = False
        next(self._samples, None)

    def _begun(self) -> Iterator[Sample]:
        plan = Experiment(self._contenders, self._passages, (), attempts=self._attempts)
        return measured(self._engine, plan, self._turns())

    def _turns(self) -> Iterator[Turn]:
        while self._open:
            yield self._due.popleft()

    def _result(self, sample: Sample, plain: Sample, passage: int) -> PassageResult:
        text, right = sample.tally.tokens, plain.tally.tokens
        if text == right:
            return PassageResult(_speed(sample))
        return PassageResult(None, right=self.near_tie(passage, text, right))


def contender(name: str, setting: Setting, config: RunConfig) -> Contender:
    """Contender that decodes under a setting."""
    run = config if setting.rules is None else config.with_rules(setting.method, setting.rules)
    return own(name, setting.method, setting.method, run)


def _speed(sample: Sample) -> float:
    speed = figures(sample.tally, None).tokens_per_second
    assert speed, "a decoded text must have tokens and a decode time"  # noqa: S101 - a programmer's mistake
    return speed
