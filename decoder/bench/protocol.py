"""Who decodes which prompt when, and what is kept of it.

A machine's speed drifts over minutes, so nothing is compared that was not measured side by side: all contenders take
their turns on a prompt before the next prompt, in an order that is drawn anew each time, so that none always follows
the same one. Before, each decodes one prompt for nothing, which warms it up.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random

import torch

from decoder.bench.contenders import Contender, Trial
from decoder.bench.machine import peak_during
from decoder.errors import DeviceError
from decoder.metrics import Tally
from decoder.models import Pair


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
    models_s: float | None = None
    """See `Trial`."""


def schedule(contenders: int, prompts: int, repeats: int, seed: int) -> Iterator[Turn]:
    """All turns in order: repeat by repeat, prompt by prompt, each contender once in an order of its own."""
    random = Random(seed)
    for repeat in range(repeats):
        for prompt in range(prompts):
            yield from (Turn(repeat, prompt, contender) for contender in random.sample(range(contenders), contenders))


def warmed_up(
    pair: Pair, contenders: Sequence[Contender], prompt: Sequence[int], report: Callable[[str], None]
) -> list[Contender]:
    """Lets every contender decode one prompt for nothing; a foreign one that fails is reported and left out.

    Raises:
        DeviceError: The device's memory is full.
    """
    return [contender for contender in contenders if _works(pair, contender, prompt, report)]


def measured(
    pair: Pair, contenders: Sequence[Contender], prompts: Sequence[Sequence[int]], repeats: int, seed: int
) -> Iterator[Sample]:
    """Samples as they come.

    Raises:
        DeviceError: The device's memory is full.
    """
    gc.collect()
    gc.freeze()  # what is there by now would cost every tidying up a good part of a second
    try:
        for turn in schedule(len(contenders), len(prompts), repeats, seed):
            contender = contenders[turn.contender]
            trial = _alone(pair, contender, prompts[turn.prompt])
            yield Sample(contender.name, contender.group, turn.prompt, turn.repeat, trial.tally, trial.models_s)
    finally:
        gc.unfreeze()


def _works(pair: Pair, contender: Contender, prompt: Sequence[int], report: Callable[[str], None]) -> bool:
    try:
        _alone(pair, contender, prompt)
    except DeviceError:
        raise
    except Exception as error:
        if not contender.foreign:
            raise
        report(f"{contender.name} is left out: {(str(error).strip().splitlines() or [type(error).__name__])[0]}")
        return False
    return True


def _alone(pair: Pair, contender: Contender, prompt: Sequence[int]) -> Trial:
    """One turn, on a machine that has nothing left to tidy up."""
    gc.collect(1)
    with peak_during(pair.target.device) as peak:
        try:
            trial = contender.run(pair, prompt)
        except torch.OutOfMemoryError as error:
            raise DeviceError(
                f"the memory of {pair.device} is full; choose smaller models, --dtype float16 or fewer --max-new-tokens"
            ) from error
    return replace(trial, tally=replace(trial.tally, peak_bytes=peak()))
