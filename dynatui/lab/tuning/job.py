"""A complete tuning: loads a pair, divides prompts and time between search and check, searches settings, and compares
the best of them with the shipped settings.

The check uses other passages (prefixes of prompts) than the search, since the best of many settings may be the best
only by chance on the passages of the search.
"""

import math
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from itertools import chain, count
from random import Random
from statistics import median
from typing import TypeAlias

import msgspec

from decoder.analysis.metrics import figures, first_difference
from decoder.engine import Engine
from decoder.errors import DeviceError, PromptError, require
from decoder.methods.dynatree import DynaTree, shipped_preset
from decoder.methods.linear import Linear
from decoder.models.text import encode_prompts
from decoder.prompt import AnyPrompt, templated
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Schedule
from dynatui.lab.bench import Note, Progress
from dynatui.lab.bench.contenders import BASELINE, Contender, own
from dynatui.lab.bench.machine import utc_now
from dynatui.lab.bench.protocol import Assignment, Experiment, Sample, fast_collections, measured_turn, warmed_up
from dynatui.lab.bench.summary import Judge, Samples, differences, near_tie_judge
from dynatui.lab.tuning import outcome
from dynatui.lab.tuning.outcome import Checked, Conditions, Tuned
from dynatui.lab.tuning.search import INITIAL, Compared, MethodSetting, Search
from dynatui.lab.tuning.study import BOUNDS, CHAIN, TREE_METHOD, Study, database, trees
from dynatui.number_format import counted
from dynatui.session import Models

FEWEST = 6
"""Minimum number of passages for the search and for the check each; an interval over fewer passages is too wide."""
WANTED = 16
"""Number of passages for the search and for the check each, if prompts are long enough."""
SHORTEST = 8
"""Minimum length of a passage, and minimum difference in length of two passages of one prompt, in tokens."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Passages:
    """Token ids of the passages; no passage is used both for the search and for the check."""

    search: tuple[Tokens, ...]
    check: tuple[Tokens, ...]
    prompts: int
    """Number of different prompts. Confidence intervals ignore that passages of one prompt resemble each other."""


def split(prompts: Sequence[Sequence[int]], length: int) -> Passages:
    """Splits prompts into passages. The lengths of passages of one prompt differ by at least `length` tokens if prompts
    are long enough. Raises PromptError if the prompts are too few or too short.
    """
    distinct = _distinct(prompts)
    if len(distinct) >= 2 * FEWEST:
        search, check = (
            tuple(chain.from_iterable(_beginnings(prompt, -(-WANTED // len(half)), length) for prompt in half))
            for half in (distinct[::2], distinct[1::2])
        )
        return Passages(search, check, len(distinct))
    wanted = max(2 * FEWEST, -(-2 * WANTED // len(distinct)))
    cut = [_beginnings(prompt, wanted, length) for prompt in distinct]
    if min(map(len, _halves(cut))) < FEWEST:
        cut = [_beginnings(prompt, 2 * FEWEST, SHORTEST) for prompt in distinct]
    search, check = _halves(cut)
    if min(len(search), len(check)) < FEWEST:
        raise PromptError(
            f"{counted(len(distinct), 'different prompt')} of {sum(map(len, distinct))} tokens in all cannot be split "
            f"into texts for the search and texts for the check; give {2 * FEWEST} prompts or more, or one prompt of "
            f"{2 * FEWEST * SHORTEST} tokens or more"
        )
    return Passages(search, check, len(distinct))


def whole(prompts: Sequence[Sequence[int]]) -> Passages:
    """Assigns chat prompts to search and check without cutting them, since a cut prompt lacks the template's end.
    Raises PromptError if the prompts are too few.
    """
    distinct = _distinct(prompts)
    if len(distinct) < 2 * FEWEST:
        raise PromptError(
            f"{counted(len(distinct), 'different chat prompt')} cannot be split into texts for the search and texts "
            f"for the check, since chat prompts are not cut; give {2 * FEWEST} prompts or more, or omit --chat"
        )
    return Passages(tuple(distinct[::2]), tuple(distinct[1::2]), len(distinct))


def _distinct(prompts: Sequence[Sequence[int]]) -> list[Tokens]:
    return list(dict.fromkeys(map(tuple, prompts)))


def _halves(cut: Sequence[Sequence[Tokens]]) -> tuple[tuple[Tokens, ...], tuple[Tokens, ...]]:
    """Passages of all prompts, split in two: the earlier half of the passages of each prompt, and the later half."""
    early = chain.from_iterable(beginnings[: len(beginnings) // 2] for beginnings in cut)
    late = chain.from_iterable(beginnings[len(beginnings) // 2 :] for beginnings in cut)
    return tuple(early), tuple(late)


def _beginnings(prompt: Tokens, wanted: int, apart: int) -> list[Tokens]:
    """`wanted` prefixes of a prompt, whose lengths rise in equal steps up to the whole prompt; fewer prefixes if the
    steps would be shorter than `apart` tokens.
    """
    count = max(1, min(wanted, len(prompt) // max(SHORTEST, apart)))
    return [prompt[: len(prompt) * part // count] for part in range(1, count + 1)]


MOST_REPEATS = 6
"""Largest number of times that each text of the check is decoded."""
MOST_MINUTES = 24 * 60
CHECK_SHARE = 0.3
"""Share of the total time that is reserved for the check."""
SEARCHED = 3
"""Number of contenders on each text of the search: candidate, leader and plain decoding."""
DIGITS = 12
_PLAIN = MethodSetting(BASELINE)
_NEARLY = 0.99
"""Largest share that is reported, since a search or check may last a little longer than planned."""
Take: TypeAlias = Callable[[Mapping[str, MethodSetting], int, int], list[Sample]]
"""(settings by name, number of the text, repeat) -> samples of each setting and of plain decoding."""


@dataclass(frozen=True)
class OnPrompts:
    models: Models
    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    minutes: float = 5.0
    """Minutes for search and check together, without the time to load the models."""
    storage: str | None = None
    """URL of the Optuna database that stores trials, so that a search can resume; None keeps trials in memory."""


class Turns:
    """Measures turns, in each of which one setting or plain decoding decodes one passage."""

    def __init__(self, engine: Engine, config: RunConfig, passages: Sequence[Sequence[int]]) -> None:
        """`engine` has the sampling settings of `config`; `passages` are token ids."""
        self._engine = engine
        self._config = config
        self._passages = passages
        self.judge = near_tie_judge(engine, passages)
        self._random = Random(config.seed)
        self._warm: set[MethodSetting] = set()
        self.compared_s: list[float] = []
        """Seconds of each call of `compared`."""

    def compared(self, candidate: MethodSetting, leader: MethodSetting, passage: int) -> Compared | None:
        """Both settings beside plain decoding; None if a tree is too large for the device's memory."""
        began = time.monotonic()
        try:
            samples = self.samples({"candidate": candidate, "leader": leader}, passage, 0)
        except DeviceError:
            return None
        finally:
            self.compared_s.append(time.monotonic() - began)
        texts = {sample.contender: sample.tally.tokens for sample in samples}
        speeds = {sample.contender: figures(sample.tally, None).tokens_per_second or 0.0 for sample in samples}
        plain, text = texts[BASELINE], texts["candidate"]
        alike = text == plain == texts["leader"]
        right = text == plain or self.near_tie(passage, text, plain)
        return Compared(speeds["candidate"] / speeds["leader"] if alike else None, right)

    def samples(self, settings: Mapping[str, MethodSetting], passage: int, repeat: int) -> list[Sample]:
        """Samples of settings and of plain decoding on one passage; a sample's contender is the setting's name."""
        contenders = contenders_of(settings, self._config)
        every = [_PLAIN, *settings.values()]
        cold = [one for one, setting in zip(contenders, every, strict=True) if setting not in self._warm]
        warmed_up(self._engine, Experiment(cold, (), [max(self._passages, key=len)]), lambda _: None)
        self._warm.update(every)
        plan = Experiment(contenders, self._passages, (), attempts=1)
        order = self._random.sample(range(len(contenders)), len(contenders))
        return [measured_turn(self._engine, plan, Assignment(repeat, passage, number)) for number in order]

    def near_tie(self, passage: int, text: Sequence[int], plain: Sequence[int]) -> bool:
        """Whether a text first differs from that of plain decoding at a near tie."""
        differs = first_difference(text, plain)
        if differs is None:
            return False
        verdict = self.judge(passage, plain[:differs], (plain[differs], text[differs]), False)
        return verdict is not None and verdict.near_tie


def contenders_of(settings: Mapping[str, MethodSetting], config: RunConfig) -> list[Contender]:
    """Plain decoding, then a contender for each setting."""
    runs = {
        name: (each.method, config if each.rules is None else config.with_rules(each.method, each.rules))
        for name, each in {BASELINE: _PLAIN, **settings}.items()
    }
    return [own(name, method, method, run) for name, (method, run) in runs.items()]


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


def checked(samples: Iterable[Sample], contenders: Sequence[Contender], seed: int, judge: Judge) -> Checked:
    """Speeds and speed ratios of contenders, and contenders with wrong texts; one contender must be plain decoding."""
    known = Samples(samples, contenders)
    names = [contender.name for contender in contenders]
    wrong = frozenset(each.name for each in differences(known, judge) if not each.near_tie)
    return Checked(
        len(known.prompts),
        {name: known.speed(name, seed) for name in names},
        {(one, other): known.ratio(one, other, seed) for one in names for other in names if one != other},
        wrong,
    )


def reserve_s(whole_s: float, compared_s: Sequence[float]) -> float:
    """Seconds of `whole_s` that are reserved for the check: the share `CHECK_SHARE`, or more if the minimum number of
    texts takes longer. The seconds per text are estimated from `compared_s`, those of the search so far.
    """
    # the first few texts give no estimate: they are slower, since caches are cold and graphs are captured
    text_s = median(compared_s) * len(outcome.NAMES) / SEARCHED if len(compared_s) >= FEWEST else 0.0
    return max(CHECK_SHARE * whole_s, FEWEST * text_s)


@contextmanager
def opened(job: OnPrompts, note: Note) -> Iterator["Tuning"]:
    """A tuning whose models and database are open in the `with` block. Raises DecoderError if prompts, database, models
    or device cannot be used.
    """
    within = f"give more than 0 and at most {MOST_MINUTES} (one day)"
    require(0 < job.minutes <= MOST_MINUTES, f"--minutes is {job.minutes:g}; {within}")
    with database(job.storage) as storage:
        config = job.config
        loaded = load_pair(**vars(job.models), run=config, report=note)
        engine, pair = loaded.sampled(config.seed, Schedule(config.sampling)), loaded.pair
        length = config.max_new_tokens
        prompts = encode_prompts(pair.tokenizer, job.prompts, length, pair.context, limit=pair.limit, chat=config.chat)
        by_template = any(templated(prompt, config.chat) for prompt in job.prompts)
        passages = whole(prompts) if by_template else split(prompts, length)
        texts = (config.sampling, config.seed, length, len(passages.search), passages.prompts)
        conditions = Conditions(pair.target_name, pair.draft_name, pair.device, pair.dtype, *texts)
        name = _name(job, conditions, pair.draft_dtype)
        studies = [Study(space, config.seed, storage, name) for space in (trees(config.sampling.temperature), CHAIN)]
        turns = Turns(engine, config, [*passages.search, *passages.check])
        search = Search(studies, turns.compared, len(passages.search), config.seed)
        with fast_collections():
            yield Tuning(job, conditions, passages, turns, search)


@dataclass
class Tuning:
    """A tuning, in three steps: `searching`, `checking`, `result`."""

    job: OnPrompts
    conditions: Conditions
    passages: Passages
    turns: Turns
    search: Search
    samples: list[Sample] = field(default_factory=list)
    """Samples of the check."""

    def searching(self, stopped: Callable[[], bool]) -> Iterator[Progress]:
        """Searches settings, and yields after every text; ends early if `stopped` returns True."""
        until, trials = time.monotonic() + 60 * self.job.minutes, self.search.trials
        for _ in self.search.run(lambda: stopped() or time.monotonic() >= until - self._reserve_s()):
            tried = f"{counted(trials.finished, 'setting')} tried, {trials.pruned} stopped early"
            yield self._progress(f"{self._best()}; {tried}", until)

    def checking(self) -> Iterator[Progress]:
        """Compares the best settings with the shipped ones on other texts, and yields after every text."""
        until, first = time.monotonic() + self._reserve_s(), len(self.passages.search)
        texts = range(first, first + len(self.passages.check))
        settings, seed = self._settings(), self.job.config.seed
        blocks = rounds(self.turns.samples, settings, texts, seed, lambda: time.monotonic() >= until)
        for number, block in enumerate(blocks, 1):
            self.samples += block
            yield self._progress(f"checking on other texts: {number} done", until)

    def result(self) -> Tuned:
        config, settings = self.job.config, self._settings()
        found, chain = (settings[name].rules if name in settings else None for name in (outcome.FOUND, outcome.CHAIN))
        return Tuned(
            self.conditions,
            found if isinstance(found, DynaTree) else None,
            chain if isinstance(chain, Linear) else Linear(),
            self.search.trials,
            self.search.importance(),
            checked(self.samples, contenders_of(settings, config), config.seed, self.turns.judge),
            utc_now(),
        )

    def _settings(self) -> dict[str, MethodSetting]:
        """Settings that the check compares, by name; see `outcome.NAMES`."""
        tree, chain = self.search.leaders.values()
        shipped = trees(self.job.config.sampling.temperature).shipped
        settings = {
            outcome.FOUND: tree.setting,
            outcome.SHIPPED: MethodSetting(tree.setting.method, shipped),
            outcome.AUTO: MethodSetting(outcome.AUTO),
            outcome.CHAIN: chain.setting,
            outcome.SHIPPED_CHAIN: MethodSetting(chain.setting.method, CHAIN.shipped),
        }
        if tree.trial == INITIAL:
            del settings[outcome.FOUND]
        if chain.trial == INITIAL:
            del settings[outcome.SHIPPED_CHAIN]
        return settings

    def _best(self) -> str:
        """The leader, in few words, since a terminal shows only the beginning of a long line."""
        leader, shipped = self.search.leaders[TREE_METHOD], shipped_preset(self.conditions.sampling.temperature)
        if leader.trial == INITIAL:
            return f"{shipped} leads"
        return f"setting {leader.trial} leads, {math.exp(leader.worth):.2f} x {shipped}"

    def _progress(self, line: str, until: float) -> Progress:
        share = 1 - (until - time.monotonic()) / (60 * self.job.minutes)
        return Progress(line, max(0.0, min(share, _NEARLY)))

    def _reserve_s(self) -> float:
        return reserve_s(60 * self.job.minutes, self.turns.compared_s)


def _name(job: OnPrompts, conditions: Conditions, draft_dtype: str) -> str:
    """Name of the study in a database; names differ between requests and machines, so that they share no trials."""
    models = job.models
    how = (draft_dtype, job.prompts, job.config.chat, models.exact, models.compiled, models.kernels)
    about = (asdict(conditions), *how, platform.node(), BOUNDS)
    digest = sha256(msgspec.json.encode(about, order="deterministic")).hexdigest()
    return f"dynatui tune {conditions.target}, {conditions.draft}, {digest[:DIGITS]}"
