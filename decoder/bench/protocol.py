"""Who decodes which prompt when, and what is kept of it.

A machine's speed drifts over minutes, so nothing is compared that was not measured side by side: all contenders take
their turns on a prompt before the next prompt, in an order that is drawn anew each time, so that none always follows
the same one. Before, each decodes one prompt without counting, which warms it up. A turn that other processes
disturbed is taken again.
"""

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

from msgspec import structs

from decoder.analysis.metrics import Tally
from decoder.bench.contenders import Contender, Trial
from decoder.bench.instrumented import Seen
from decoder.bench.machine import peak_during
from decoder.device import memory_is_full
from decoder.engine import Engine
from decoder.errors import DeviceError, PairError
from decoder.methods import WHOLE, same_until
from decoder.waiting import waited_s

DISTURBED = 0.03
"""A turn whose threads waited longer for a processor, as a share of its time, is taken again."""
ATTEMPTS = 3


@dataclass(frozen=True)
class Turn:
    """One contender decodes one prompt."""

    repeat: int
    prompt: int
    contender: int


@dataclass(frozen=True)
class Sample:
    """What came of a turn."""

    contender: str
    group: str
    prompt: int
    repeat: int
    tally: Tally
    seen: Seen | None = None
    """See `Trial`, as for the next two."""
    kv_bytes: int | None = None
    waits: int | None = None
    waited: float | None = None
    """Time that threads waited for a processor, over the turn's; None where the system does not say."""
    same_until: int | None = WHOLE
    """So many first tokens of the text must be ar's; None: nothing is known of that."""


def schedule(contenders: int, prompts: int, repeats: int, seed: int) -> Iterator[Turn]:
    """All turns in order: repeat by repeat, prompt by prompt, each contender once in an order of its own."""
    random = Random(seed)
    for repeat in range(repeats):
        for prompt in range(prompts):
            yield from (Turn(repeat, prompt, contender) for contender in random.sample(range(contenders), contenders))


def mixed(contenders: int, prompts: int, repeats: int, seed: int) -> Iterator[Turn]:
    """All turns in order: repeat by repeat, everyone on every prompt in an order that is drawn anew.

    For prompts that are compared with each other, and not only contenders on each.
    """
    random = Random(seed)
    for repeat in range(repeats):
        turns = [Turn(repeat, prompt, contender) for prompt in range(prompts) for contender in range(contenders)]
        yield from random.sample(turns, len(turns))


def warmed_up(
    engine: Engine, contenders: Sequence[Contender], prompts: Sequence[Sequence[int]], report: Callable[[str], None]
) -> list[Contender]:
    """Lets every contender decode these prompts without counting.

    A foreign one that fails is reported and left out, and so is a method that cannot decode with this pair.

    Raises:
        DeviceError: The device's memory is full.
    """
    return [
        contender for contender in contenders if all(_works(engine, contender, prompt, report) for prompt in prompts)
    ]


def measured(
    engine: Engine,
    contenders: Sequence[Contender],
    prompts: Sequence[Sequence[int]],
    turns: Iterable[Turn],
    attempts: int = ATTEMPTS,
) -> Iterator[Sample]:
    """Samples as they come; see `taken`."""
    for turn, trial, waited in taken(engine, contenders, prompts, turns, attempts):
        contender = contenders[turn.contender]
        yield Sample(
            contender.name,
            contender.group,
            turn.prompt,
            turn.repeat,
            trial.tally,
            seen=trial.seen,
            kv_bytes=trial.kv_bytes,
            waits=trial.waits,
            waited=waited,
            same_until=same_until(contender.group, contender.settings, len(prompts[turn.prompt])),
        )


def taken(
    engine: Engine,
    contenders: Sequence[Contender],
    prompts: Sequence[Sequence[int]],
    turns: Iterable[Turn],
    attempts: int = ATTEMPTS,
) -> Iterator[tuple[Turn, Trial, float | None]]:
    """Turns as they were taken, in their order, each with the share of its time that threads waited for a processor.

    Args:
        engine: The pair.
        contenders: Who takes turns.
        prompts: Token ids.
        turns: By the numbers of contenders and prompts.
        attempts: Times that a turn is taken at most, where others disturb it.

    Raises:
        DeviceError: The device's memory is full.
    """
    gc.collect()
    gc.freeze()  # what is there by now would cost every tidying up a good part of a second
    try:
        for turn in turns:
            yield turn, *_undisturbed(engine, contenders[turn.contender], prompts[turn.prompt], attempts)
    finally:
        gc.unfreeze()


def _undisturbed(
    engine: Engine, contender: Contender, prompt: Sequence[int], attempts: int
) -> tuple[Trial, float | None]:
    """A turn that other processes hardly disturbed, or the least disturbed of a few, and what share of it was waiting.

    What decides is how long threads waited for a processor, never how fast the turn was.
    """
    found: list[tuple[float, Trial]] = []
    while len(found) < attempts:
        before, start = waited_s(), time.perf_counter()
        trial = _alone(engine, contender, prompt)
        after, took = waited_s(), time.perf_counter() - start
        if before is None or after is None:
            return trial, None
        found.append(((after - before) / took, trial))
        if found[-1][0] <= DISTURBED:
            break
    waited, trial = min(found, key=lambda turn: turn[0])
    return trial, waited


def _works(engine: Engine, contender: Contender, prompt: Sequence[int], report: Callable[[str], None]) -> bool:
    try:
        _alone(engine, contender, prompt)
    except DeviceError:
        raise
    except Exception as error:
        if not (contender.foreign or isinstance(error, PairError)):
            raise
        report(f"{contender.name} is left out: {(str(error).strip().splitlines() or [type(error).__name__])[0]}")
        return False
    return True


def _alone(engine: Engine, contender: Contender, prompt: Sequence[int]) -> Trial:
    """One turn, on a machine that has nothing left to tidy up."""
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
