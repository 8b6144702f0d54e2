"""Runner of every benchmark. In a turn, one contender decodes one prompt. The result of a turn is a sample: the totals
(tokens, rounds, times) of the whole text, and of its first tokens at several text lengths.
"""

import gc
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import TypeAlias

from msgspec import structs

from decoder.analysis.metrics import Tally, tally_round
from decoder.engine import Engine
from decoder.errors import DeviceError, PairError
from decoder.methods import WHOLE, same_until
from decoder.system.device import memory_is_full
from decoder.system.waiting import waited_s
from dynatui.lab.bench import Note
from dynatui.lab.bench.contenders import Contender, DecodedText, Seen
from dynatui.lab.bench.machine import peak_during

DISTURBED = 0.03
"""Largest `Sample.waited` at which a turn counts as undisturbed; turns with larger values are repeated."""
ATTEMPTS = 3
"""Maximum number of attempts at one turn if other processes disturb the turn."""
Tokens: TypeAlias = Sequence[int]


def totals_at(trial: DecodedText, lengths: Sequence[int]) -> tuple[Tally, ...]:
    """Totals of a text's first tokens, for each number in `lengths`; only the last totals include the peak memory."""
    cuts = [cut(trial, length) for length in lengths]
    return (*cuts[:-1], *(structs.replace(last, peak_bytes=trial.tally.peak_bytes) for last in cuts[-1:]))


def cut(trial: DecodedText, length: int) -> Tally:
    """Totals of a text's rounds up to `length` new tokens (at least 1), without tokens beyond this length."""
    tally = Tally(prefill_s=trial.tally.prefill_s)
    for event in trial.rounds:
        left = length - len(tally.tokens)
        if left <= 0:
            break
        within = structs.replace(event, committed=event.committed[:left], accepted=event.accepted[: left - 1])
        tally = tally_round(tally, event if len(event.committed) <= left else within)
    return tally


@dataclass(frozen=True)
class Assignment:
    repeat: int
    prompt: int
    contender: int


@dataclass(frozen=True)
class Sample:
    """Result of one turn."""

    contender: str
    group: str
    prompt: int
    repeat: int
    tally: Tally
    at: tuple[Tally, ...] = ()
    """Totals at each of `Experiment.lengths`; only the last totals include the peak memory of the turn."""
    seen: Seen | None = None
    kv_bytes: int | None = None
    waits: int | None = None
    waited: float | None = None
    """Waiting time of all threads for a processor, divided by the turn's time; None if unknown."""
    same_until: int | None = WHOLE
    """Number of leading tokens that must equal the tokens of `ar`; None if all tokens may differ."""


def schedule(contenders: int, prompts: int, repeats: int, seed: int) -> Iterator[Assignment]:
    """All turns, ordered by repeat, then by prompt; the contenders of each prompt are in random order."""
    random = Random(seed)
    for repeat in range(repeats):
        for prompt in range(prompts):
            yield from (
                Assignment(repeat, prompt, contender) for contender in random.sample(range(contenders), contenders)
            )


def mixed(contenders: int, prompts: int, repeats: int, seed: int) -> Iterator[Assignment]:
    """All turns, ordered by repeat; the prompts and contenders within a repeat are in random order.

    This order is for benchmarks that compare prompts as well as contenders.
    """
    random = Random(seed)
    for repeat in range(repeats):
        turns = [Assignment(repeat, prompt, contender) for prompt in range(prompts) for contender in range(contenders)]
        yield from random.sample(turns, len(turns))


@dataclass(frozen=True)
class Experiment:
    """Contenders and prompts that are measured together, and the order of the turns."""

    contenders: Sequence[Contender]
    prompts: Sequence[Tokens]
    warm_up: Sequence[Tokens]
    """Prompts that each contender decodes before its first turn, without being measured."""
    repeats: int = 1
    seed: int = 0
    lengths: Sequence[int] = ()
    """Numbers of new tokens, in ascending order; a sample has the totals of the text's first tokens for each number."""
    order: Callable[[int, int, int, int], Iterator[Assignment]] = schedule
    attempts: int = ATTEMPTS

    def turns(self, done: Collection[tuple[int, int]] = ()) -> list[Assignment]:
        """All turns in order, except those of the (repeat, prompt) blocks in `done`, which are already measured."""
        order = self.order(len(self.contenders), len(self.prompts), self.repeats, self.seed)
        return [turn for turn in order if (turn.repeat, turn.prompt) not in done]


def endless(engine: Engine) -> Engine:
    """Engine whose texts ignore the end-of-text token, so that all texts have the same length."""
    return replace(engine, pair=replace(engine.pair, eos=frozenset()))


def continued(engine: Engine, prompt: Tokens, most: int) -> list[int]:
    """Tokens with which the target continues a prompt, until the text ends or has `most` new tokens."""
    session = engine.session(prompt, most, None)
    tokens, finished = list[int](), None
    try:
        session.prefill()
        while finished is None:
            outcome = session.step(())
            tokens += outcome.committed
            finished = outcome.finished
    finally:
        session.close()
    return tokens


def longest_first(prompts: Sequence[Tokens]) -> list[Tokens]:
    """Prompts by descending length, since a longer text discards the CUDA graphs and memory made for shorter texts."""
    return sorted(prompts, key=len, reverse=True)


def warmed_up(engine: Engine, experiment: Experiment, note: Note) -> Experiment:
    """Decodes the warm-up prompts with each contender; returns the experiment without contenders that cannot do so."""
    able = [contender for contender in experiment.contenders if can_decode(engine, contender, experiment.warm_up, note)]
    return replace(experiment, contenders=able)


def can_decode(engine: Engine, contender: Contender, prompts: Sequence[Tokens], note: Note) -> bool:
    """Decodes the prompts without measuring. Returns False if this fails; `note` then receives the reason."""
    try:
        for prompt in prompts:
            _alone(engine, contender, prompt)
    except DeviceError:
        raise
    except Exception as error:
        if not (contender.foreign or isinstance(error, PairError)):
            raise
        note(f"{contender.name} is left out: {(str(error).strip().splitlines() or [type(error).__name__])[0]}")
        return False
    return True


@contextmanager
def fast_collections() -> Iterator[None]:
    """Context in which garbage collections do not scan the models' objects, which takes a large part of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def measured(engine: Engine, experiment: Experiment, turns: Iterable[Assignment]) -> Iterator[Sample]:
    """Yields the sample of each turn as soon as it is measured, in the order of the turns."""
    with fast_collections():
        for turn in turns:
            yield measured_turn(engine, experiment, turn)


def disturbed(waits: Iterable[float | None]) -> int:
    """Number of disturbed turns; `waits` has `Sample.waited` of each turn."""
    return sum(waited > DISTURBED for waited in waits if waited is not None)


def measured_turn(engine: Engine, experiment: Experiment, turn: Assignment) -> Sample:
    """Measures one turn, in `fast_collections`."""
    contender, prompt = experiment.contenders[turn.contender], experiment.prompts[turn.prompt]
    trial, waited = _undisturbed(engine, contender, prompt, experiment.attempts)
    return Sample(
        contender.name,
        contender.group,
        turn.prompt,
        turn.repeat,
        trial.tally,
        at=totals_at(trial, experiment.lengths),
        seen=trial.seen,
        kv_bytes=trial.kv_bytes,
        waits=trial.waits,
        waited=waited,
        same_until=same_until(contender.group, contender.settings, len(prompt)),
    )


def _undisturbed(
    engine: Engine, contender: Contender, prompt: Tokens, attempts: int
) -> tuple[DecodedText, float | None]:
    """First attempt that was not disturbed, or else the least disturbed of all attempts, with the attempt's value of
    `Sample.waited`. The choice of the attempt depends on this value only, and not on the speed.
    """
    trials: list[tuple[float, DecodedText]] = []
    while len(trials) < attempts:
        before, start = waited_s(), time.perf_counter()
        trial = _alone(engine, contender, prompt)
        after, duration_s = waited_s(), time.perf_counter() - start
        if before is None or after is None:
            return trial, None
        trials.append(((after - before) / duration_s, trial))
        if trials[-1][0] <= DISTURBED:
            break
    waited, trial = min(trials, key=lambda turn: turn[0])
    return trial, waited


def _alone(engine: Engine, contender: Contender, prompt: Tokens) -> DecodedText:
    """Collects garbage, then decodes one text; the returned totals include the peak memory."""
    gc.collect(1)
    with peak_during(engine.pair.target.device) as peak:
        try:
            trial = contender.run(engine, prompt)
        except (RuntimeError, MemoryError) as error:
            if not memory_is_full(error):
                raise
            raise DeviceError(
                f"the memory of {engine.pair.device} is full; choose smaller models, smaller trees, --dtype float16 "
                "or fewer --max-new-tokens"
            ) from error
    return replace(trial, tally=structs.replace(trial.tally, peak_bytes=peak()))
