"""A complete tuning: loads a pair, splits prompts and the time, searches settings, and checks the best of them
against the shipped settings on texts that the search has not used.
"""

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import count
from random import Random
from statistics import median
from typing import Protocol

import msgspec

from decoder.engine import Engine
from decoder.errors import require
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.models.text import encode_prompts
from decoder.prompts.prompt import AnyPrompt, as_prompt, templated
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.settings import Schedule
from dynatui.lab.bench.contenders import Contender
from dynatui.lab.bench.machine import utc_now
from dynatui.lab.bench.on_pair import Note, OnPair
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.samples import Samples, estimate, tokens_per_second
from dynatui.lab.tuning.outcome import Conditions, Tuned, TuneProgress
from dynatui.lab.tuning.passages import FEWEST, Passages, split, whole
from dynatui.lab.tuning.search import INITIAL, Block, Search, Setting, State
from dynatui.lab.tuning.study import BRANCHINGS, DEEPEST, LONGEST_CHAIN, MOST_NODES, Study, database, trees
from dynatui.lab.tuning.study import CHAIN as CHAIN_SPACE
from dynatui.lab.tuning.turns import Turns, contender
from dynatui.lab.tuning.verdict import AUTO, CHAIN, FOUND, PLAIN, SHIPPED, SHIPPED_CHAIN, Checked, verdict

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


MOST_MINUTES = 24 * 60
CHECK_SHARE = 0.3
"""Share of the total time that is reserved for the check."""
SEARCHED = 3
"""Number of contenders on each text of the search: candidate, incumbent and plain decoding."""
TRIED = BRANCHINGS, DEEPEST, LONGEST_CHAIN, MOST_NODES
"""Bounds of the search space. They are part of a study's name, since a study with other bounds cannot be resumed."""
DIGITS = 12
"""Number of hexadecimal digits of the digest in a study's name."""


@dataclass(frozen=True)
class OnPrompts(OnPair):
    """Request to tune the settings for given prompts within a given time."""

    prompts: tuple[AnyPrompt, ...]
    config: RunConfig
    """Length limit, sampling and seed."""
    minutes: float = 5.0
    """Minutes for search and check together, without the loading of the models."""
    exact: bool = False
    compiled: bool = False
    kernels: bool = True
    storage: str | None = None
    """URL of the Optuna database that stores trials, so that a search can resume; None keeps trials in memory."""


def tuned(job: OnPrompts, note: Note, watch: Callable[[TuneProgress], None], stopped: Callable[[], bool]) -> Tuned:
    """Searches settings and checks the best settings. If `stopped` returns True, the search ends early, but the check
    still runs.

    Raises:
        DecoderError: Prompts are too few or do not fit, Optuna or its database cannot be used, or the models or the
            device fail.
    """
    within = f"give more than 0 and at most {MOST_MINUTES} (one day)"
    require(0 < job.minutes <= MOST_MINUTES, f"--minutes is {job.minutes:g}; {within}")
    with database(job.storage) as storage:
        engine = _loaded(job, note)
        pair, config = engine.pair, job.config
        length = config.max_new_tokens
        prompts = encode_prompts(pair.tokenizer, job.prompts, length, pair.context, limit=pair.limit, chat=config.chat)
        by_template = any(templated(prompt, config.chat) for prompt in job.prompts)
        passages = whole(prompts) if by_template else split(prompts, length)
        how = (config.sampling, config.seed, length, len(passages.search), passages.prompts)
        conditions = Conditions(pair.target_name, pair.draft_name, pair.device, pair.dtype, *how)
        name = _name(job, conditions, pair.draft_dtype)
        studies = [
            Study(space, config.seed, storage, name) for space in (trees(config.sampling.temperature), CHAIN_SPACE)
        ]
        turns = Turns(engine, config, [*passages.search, *passages.check])
        try:
            return _Tuning(job, conditions, passages, turns, watch).run(studies, stopped)
        finally:
            turns.close()


def reserve_s(whole_s: float, blocks_s: Sequence[float]) -> float:
    """Seconds reserved for the check: `CHECK_SHARE` of the time, or more if the minimum number of texts takes longer.

    Args:
        whole_s: Seconds for search and check.
        blocks_s: Seconds of each text of the search.
    """
    count = len((FOUND, SHIPPED, AUTO, CHAIN, SHIPPED_CHAIN, PLAIN))
    # the first few texts give no estimate: they are slower, since caches are cold and graphs are captured
    text_s = median(blocks_s) * count / SEARCHED if len(blocks_s) >= FEWEST else 0.0
    return max(CHECK_SHARE * whole_s, FEWEST * text_s)


class _Tuning:
    """Search and check, which share one clock."""

    def __init__(
        self,
        job: OnPrompts,
        conditions: Conditions,
        passages: Passages,
        turns: Turns,
        watch: Callable[[TuneProgress], None],
    ) -> None:
        self._job = job
        self._conditions = conditions
        self._passages = passages
        self._turns = turns
        self._watch = watch
        self._whole_s = 60 * job.minutes
        self._began = time.monotonic()
        self._blocks_s: list[float] = []

    def run(self, studies: Sequence[Study], stopped: Callable[[], bool]) -> Tuned:
        search = Search(studies, self._block, len(self._passages.search), self._job.config.seed)
        for state in search.run(lambda: stopped() or self._left_s() <= 0):
            self._watch(
                TuneProgress(
                    self._conditions, state, checking=False, left_s=max(0.0, self._left_s()), check_s=self._reserve_s()
                )
            )
        tree_space, chain_space = (study.space for study in studies)
        tree, chain = (search.state.leaders[space.method] for space in (tree_space, chain_space))
        settings = {
            FOUND: tree.setting,
            SHIPPED: Setting(tree_space.method, tree_space.shipped),
            AUTO: Setting(AUTO),
            CHAIN: chain.setting,
            SHIPPED_CHAIN: Setting(chain_space.method, chain_space.shipped),
        }
        if tree.trial == INITIAL:
            del settings[FOUND]
        if chain.trial == INITIAL:
            del settings[SHIPPED_CHAIN]
        checked = self._check(settings, search.state)
        return Tuned(
            self._conditions,
            tree.setting.rules if isinstance(tree.setting.rules, DynaTree) and FOUND in settings else None,
            chain.setting.rules if isinstance(chain.setting.rules, Linear) else Linear(),
            search.state,
            checked,
            verdict(checked),
            utc_now(),
        )

    def _check(self, settings: dict[str, Setting], state: State) -> Checked:
        takes_s = self._reserve_s()
        until = time.monotonic() + takes_s
        texts = range(len(self._passages.search), len(self._passages.search) + len(self._passages.check))
        samples = []
        config = self._job.config
        blocks = rounds(self._turns.samples, settings, texts, config.seed, lambda: time.monotonic() >= until)
        for number, block in enumerate(blocks, 1):
            samples += block
            left_s = max(0.0, until - time.monotonic())
            self._watch(
                TuneProgress(self._conditions, state, checking=True, left_s=left_s, check_s=takes_s, checked=number)
            )
        contenders = [contender(name, one, config) for name, one in {PLAIN: Setting(PLAIN), **settings}.items()]
        return checked(samples, contenders, config.seed, self._turns.near_tie)

    def _block(self, settings: Sequence[Setting], passage: int) -> Block | None:
        began = time.monotonic()
        block = self._turns.block(settings, passage)
        self._blocks_s.append(time.monotonic() - began)
        return block

    def _reserve_s(self) -> float:
        return reserve_s(self._whole_s, self._blocks_s)

    def _left_s(self) -> float:
        """Seconds until the check has to begin."""
        return self._whole_s - (time.monotonic() - self._began) - self._reserve_s()


def _loaded(job: OnPrompts, note: Note) -> Engine:
    engine = load_pair(
        **job.pair_options,
        exact=job.exact,
        compiled=job.compiled,
        kernels=job.kernels,
        run=job.config,
        report=note,
    )
    return engine.sampled(job.config.seed, Schedule(job.config.sampling))


def _name(job: OnPrompts, conditions: Conditions, draft_dtype: str) -> str:
    """Name of the study in a database. Studies of other requests or machines have other names, so a search never uses
    their trials.
    """
    about = (
        asdict(conditions),
        draft_dtype,
        job.prompts,
        _chat(job),
        job.exact,
        job.compiled,
        job.kernels,
        platform.node(),
        TRIED,
    )
    digest = sha256(msgspec.json.encode(about, order="deterministic")).hexdigest()
    return f"dynatui tune {conditions.target}, {conditions.draft}, {digest[:DIGITS]}"


def _chat(job: OnPrompts) -> bool | None:
    """The setting of chat templates; None and False are one setting for prompts that are all plain text."""
    conversations = any(as_prompt(prompt).earlier is not None for prompt in job.prompts)
    return job.config.chat if conversations else bool(job.config.chat)
