"""A complete tuning: loads a pair, divides prompts and time between search and check, searches settings, and compares
the best of them with the shipped settings on texts that the search has not used.
"""

import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import count
from random import Random
from statistics import median
from typing import Any, TypeAlias

import msgspec

from decoder.analysis.metrics import figures, first_difference
from decoder.engine import Engine
from decoder.errors import DeviceError, require
from decoder.forward.near_tie import Judge
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.models.text import encode_prompts
from decoder.prompts.prompt import AnyPrompt, as_prompt, templated
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Schedule
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.machine import utc_now
from dynatui.lab.bench.on_pair import Note, OnPair
from dynatui.lab.bench.protocol import Assignment, Experiment, Sample, measured, warmed_up
from dynatui.lab.bench.summary import Samples
from dynatui.lab.tuning import outcome, study
from dynatui.lab.tuning.outcome import Checked, Conditions, Tuned, TuneProgress, verdict
from dynatui.lab.tuning.passages import FEWEST, Passages, split, whole
from dynatui.lab.tuning.search import INITIAL, MethodSetting, PassageSpeeds, Search, State

MOST_REPEATS = 6
"""Largest number of times that each text of the check is decoded."""
MOST_MINUTES = 24 * 60
CHECK_SHARE = 0.3
"""Share of the total time that is reserved for the check."""
SEARCHED = 3
"""Number of contenders on each text of the search: candidate, leader and plain decoding."""
TRIED = study.BRANCHINGS, study.DEEPEST, study.LONGEST_CHAIN, study.MOST_NODES
"""Bounds of the search space. They are part of a study's name, since a study with other bounds cannot be resumed."""
DIGITS = 12
Take: TypeAlias = Callable[[Mapping[str, MethodSetting], int, int], list[Sample]]
"""(settings by name, number of the text, repeat) -> samples of each setting and of plain decoding."""
IsNearTie: TypeAlias = Callable[[int, Sequence[int], Sequence[int]], bool]
"""(number of the text, tokens, tokens of plain decoding) -> whether both texts first differ at a near tie."""
Watch: TypeAlias = Callable[[TuneProgress], None]


@dataclass(frozen=True)
class OnPrompts(OnPair):
    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    minutes: float = 5.0
    """Minutes for search and check together, without the time to load the models."""
    exact: bool = False
    compiled: bool = False
    kernels: bool = True
    storage: str | None = None
    """URL of the Optuna database that stores trials, so that a search can resume; None keeps trials in memory."""


class Turns:
    """Measures turns, in each of which one setting or plain decoding decodes one passage; must be closed after use. All
    turns belong to one call of `measured`, since each call begins with a costly garbage collection.
    """

    def __init__(self, engine: Engine, config: RunConfig, passages: Sequence[Sequence[int]]) -> None:
        """`engine` has the sampling settings of `config`; `passages` are token ids."""
        self._engine = engine
        self._config = config
        self._passages = passages
        self._judge = Judge(engine.pair.target, engine.gumbel_noise())
        self._random = Random(config.seed)
        self._warm: set[MethodSetting] = set()
        self._contenders: list[Contender] = []
        self._due: deque[Assignment | None] = deque()
        self._samples = self._begun()

    def block(self, candidate: MethodSetting, leader: MethodSetting, passage: int) -> PassageSpeeds | None:
        try:
            samples = self.samples({"candidate": candidate, "leader": leader}, passage, 0)
        except DeviceError:  # a tree is too large for the device's memory; the search goes on with smaller trees
            self._due.clear()
            self._samples = self._begun()
            return None
        texts = {sample.contender: sample.tally.tokens for sample in samples}
        speeds = {sample.contender: figures(sample.tally, None).tokens_per_second for sample in samples}
        plain, text = texts[BASELINE], texts["candidate"]
        assert all(speeds.values()), "a decoded text must have tokens and a decode time"  # noqa: S101 - a programmer's mistake
        known = {name: speed if texts[name] == plain else None for name, speed in speeds.items()}
        right = text == plain or self.near_tie(passage, text, plain)
        return PassageSpeeds(speeds[BASELINE] or 0.0, known["candidate"], known["leader"], right)

    def samples(self, settings: Mapping[str, MethodSetting], passage: int, repeat: int) -> list[Sample]:
        """Samples of settings and of plain decoding on one passage; a sample's contender is the setting's name."""
        by_name = {BASELINE: MethodSetting(BASELINE), **settings}
        contenders = [contender(name, setting, self._config) for name, setting in by_name.items()]
        cold = [one for one, setting in zip(contenders, by_name.values(), strict=True) if setting not in self._warm]
        warmed_up(self._engine, Experiment(cold, (), [max(self._passages, key=len)]), lambda _: None)
        self._warm.update(by_name.values())
        self._contenders[:] = contenders
        order = self._random.sample(range(len(contenders)), len(contenders))
        self._due.extend(Assignment(repeat, passage, number) for number in order)
        return [next(self._samples) for _ in order]

    def near_tie(self, passage: int, text: Sequence[int], plain: Sequence[int]) -> bool:
        differs = first_difference(text, plain)
        if differs is None:
            return False
        before = [*self._passages[passage], *plain[:differs]]
        return self._judge(before, (plain[differs], text[differs])).near_tie

    def close(self) -> None:
        self._due.clear()
        self._due.append(None)
        next(self._samples, None)

    def _begun(self) -> Iterator[Sample]:
        plan = Experiment(self._contenders, self._passages, (), attempts=1)
        return measured(self._engine, plan, iter(self._due.popleft, None))


def contender(name: str, setting: MethodSetting, config: RunConfig) -> Contender:
    run = config if setting.rules is None else config.with_rules(setting.method, setting.rules)
    return own(name, setting.method, setting.method, run)


def rounds(
    take: Take, settings: Mapping[str, MethodSetting], texts: Sequence[int], seed: int, over: Callable[[], bool]
) -> Iterator[list[Sample]]:
    """Yields the samples of one text at a time, until `over()` is true; at least `FEWEST` texts, since fewer give no
    useful interval. Each repeat has its own random order of texts.
    """
    random, taken = Random(seed), count(1)
    for repeat in range(MOST_REPEATS):
        for text in random.sample(texts, len(texts)):
            yield take(settings, text, repeat)
            if next(taken) >= FEWEST and over():
                return


def checked(samples: Iterable[Sample], contenders: Sequence[Contender], seed: int, near_tie: IsNearTie) -> Checked:
    """Speeds and speed ratios of contenders, and contenders with wrong texts; one contender must be plain decoding."""
    known = Samples(samples, contenders)
    names = [contender.name for contender in contenders]
    wrong = frozenset(name for name, text, tokens in known.differing() if not near_tie(text, tokens, known.texts[text]))
    return Checked(
        len(known.prompts),
        {name: known.speed(name, seed) for name in names},
        {(one, other): known.ratio(one, other, seed) for one in names for other in names if one != other},
        wrong,
    )


def tuned(job: OnPrompts, note: Note, watch: Watch, stopped: Callable[[], bool]) -> Tuned:
    """Searches settings and checks the best. If `stopped` returns True, the search ends early, but the check still
    runs. Raises DecoderError if prompts, database, models or device cannot be used.
    """
    within = f"give more than 0 and at most {MOST_MINUTES} (one day)"
    require(0 < job.minutes <= MOST_MINUTES, f"--minutes is {job.minutes:g}; {within}")
    with study.database(job.storage) as storage:
        engine = _loaded(job, note)
        pair, config = engine.pair, job.config
        length = config.max_new_tokens
        prompts = encode_prompts(pair.tokenizer, job.prompts, length, pair.context, limit=pair.limit, chat=config.chat)
        by_template = any(templated(prompt, config.chat) for prompt in job.prompts)
        passages = whole(prompts) if by_template else split(prompts, length)
        how = (config.sampling, config.seed, length, len(passages.search), passages.prompts)
        conditions = Conditions(pair.target_name, pair.draft_name, pair.device, pair.dtype, *how)
        name = _name(job, conditions, pair.draft_dtype)
        spaces = study.trees(config.sampling.temperature), study.CHAIN
        studies = [study.Study(space, config.seed, storage, name) for space in spaces]
        turns = Turns(engine, config, [*passages.search, *passages.check])
        try:
            return _Tuning(job, conditions, passages, turns, watch).run(studies, stopped)
        finally:
            turns.close()


def reserve_s(whole_s: float, blocks_s: Sequence[float]) -> float:
    """Seconds of `whole_s` that are reserved for the check: the share `CHECK_SHARE`, or more if the minimum number of
    texts takes longer. The seconds per text are estimated from `blocks_s`, those of the search so far.
    """
    # the first few texts give no estimate: they are slower, since caches are cold and graphs are captured
    text_s = median(blocks_s) * len(outcome.NAMES) / SEARCHED if len(blocks_s) >= FEWEST else 0.0
    return max(CHECK_SHARE * whole_s, FEWEST * text_s)


@dataclass
class _Tuning:
    job: OnPrompts
    conditions: Conditions
    passages: Passages
    turns: Turns
    watch: Watch
    began: float = field(default_factory=time.monotonic)
    """`time.monotonic()` at the start of the time that search and check share."""
    blocks_s: list[float] = field(default_factory=list)

    def run(self, studies: Sequence[study.Study], stopped: Callable[[], bool]) -> Tuned:
        search = Search(studies, self._block, len(self.passages.search), self.job.config.seed)
        for state in search.run(lambda: stopped() or self._left_s() <= 0):
            left_s, check_s = max(0.0, self._left_s()), self._reserve_s()
            self.watch(TuneProgress(self.conditions, state, checking=False, left_s=left_s, check_s=check_s))
        tree_space, chain_space = (each.space for each in studies)
        tree, chain = (search.state.leaders[space.method] for space in (tree_space, chain_space))
        settings = {
            outcome.FOUND: tree.setting,
            outcome.SHIPPED: MethodSetting(tree_space.method, tree_space.shipped),
            outcome.AUTO: MethodSetting(outcome.AUTO),
            outcome.CHAIN: chain.setting,
            outcome.SHIPPED_CHAIN: MethodSetting(chain_space.method, chain_space.shipped),
        }
        if tree.trial == INITIAL:
            del settings[outcome.FOUND]
        if chain.trial == INITIAL:
            del settings[outcome.SHIPPED_CHAIN]
        checked = self._check(settings, search.state)
        return Tuned(
            self.conditions,
            tree.setting.rules if isinstance(tree.setting.rules, DynaTree) and outcome.FOUND in settings else None,
            chain.setting.rules if isinstance(chain.setting.rules, Linear) else Linear(),
            search.state,
            checked,
            verdict(checked),
            utc_now(),
        )

    def _check(self, settings: dict[str, MethodSetting], state: State) -> Checked:
        takes_s = self._reserve_s()
        until = time.monotonic() + takes_s
        texts = range(len(self.passages.search), len(self.passages.search) + len(self.passages.check))
        samples = []
        config = self.job.config
        blocks = rounds(self.turns.samples, settings, texts, config.seed, lambda: time.monotonic() >= until)
        for number, block in enumerate(blocks, 1):
            samples += block
            left_s = max(0.0, until - time.monotonic())
            self.watch(
                TuneProgress(self.conditions, state, checking=True, left_s=left_s, check_s=takes_s, checked=number)
            )
        contenders = [
            contender(name, one, config)
            for name, one in {outcome.PLAIN: MethodSetting(outcome.PLAIN), **settings}.items()
        ]
        return checked(samples, contenders, config.seed, self.turns.near_tie)

    def _block(self, candidate: MethodSetting, leader: MethodSetting, passage: int) -> PassageSpeeds | None:
        began = time.monotonic()
        block = self.turns.block(candidate, leader, passage)
        self.blocks_s.append(time.monotonic() - began)
        return block

    def _reserve_s(self) -> float:
        return reserve_s(60 * self.job.minutes, self.blocks_s)

    def _left_s(self) -> float:
        return 60 * self.job.minutes - (time.monotonic() - self.began) - self._reserve_s()


def _loaded(job: OnPrompts, note: Note) -> Engine:
    how: dict[str, Any] = {"exact": job.exact, "compiled": job.compiled, "kernels": job.kernels}
    engine = load_pair(**job.pair_options, **how, run=job.config, report=note)
    return engine.sampled(job.config.seed, Schedule(job.config.sampling))


def _name(job: OnPrompts, conditions: Conditions, draft_dtype: str) -> str:
    """Name of the study in a database; names differ between requests and machines, so that they share no trials."""
    # If all prompts are plain text, the values None and False of `chat` have the same effect.
    conversations = any(as_prompt(prompt).earlier is not None for prompt in job.prompts)
    chat = job.config.chat if conversations else bool(job.config.chat)
    how = (draft_dtype, job.prompts, chat, job.exact, job.compiled, job.kernels)
    about = (asdict(conditions), *how, platform.node(), TRIED)
    digest = sha256(msgspec.json.encode(about, order="deterministic")).hexdigest()
    return f"dynatui tune {conditions.target}, {conditions.draft}, {digest[:DIGITS]}"
