"""Samples texts from the target for the training of its drafts: the target continues passages of books.

Batches are written one by one, each text with its own seed, so that an interrupted stage can resume.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from decoder.engine import Engine
from decoder.sampling.settings import Sampling, Schedule
from dynatui.lab.training import corpus
from dynatui.lab.training.recipe import SEED, Samples


def sample_texts(
    engine: Engine, books: NDArray[np.uint16], plan: Samples, folder: Path, log: Callable[[str], None]
) -> None:
    """Samples the batches that are not in the folder yet from the engine's target, and writes each to a file.

    Each text takes its random numbers from its own seed. A text does not end at an end token.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sampling = Schedule(Sampling(temperature=plan.temperature))
    endless = replace(engine, pair=replace(engine.pair, eos=frozenset()))
    for number in range(plan.batches):
        path = folder / f"{number:03}.npy"
        if path.exists():
            continue
        first = number * plan.rows
        prompts = corpus.batch([books], first, plan.rows, plan.prompt - 1).tolist()
        rows = [
            [*prompt, *_continued(endless.sampled(SEED + first + index, sampling), prompt, plan.length - plan.prompt)]
            for index, prompt in enumerate(prompts)
        ]
        partial = path.with_suffix(".partial.npy")
        np.save(partial, np.array(rows, dtype=np.uint16))
        partial.replace(path)
        log(f"{number + 1} of {plan.batches} batches of {plan.rows} samples")


def _continued(engine: Engine, prompt: Sequence[int], count: int) -> list[int]:
    """The next `count` tokens of the engine's target, in plain decoding."""
    session = engine.session(prompt, count, None)
    session.prefill()
    tokens: list[int] = []
    while len(tokens) < count:
        tokens += session.step(()).committed
    session.close()
    return tokens


def sampled_texts(folder: Path) -> NDArray[np.uint16]:
    """Token ids of all samples in the folder, concatenated; raises FileNotFoundError if there are no samples."""
    files = sorted(folder.glob("[0-9][0-9][0-9].npy"))
    if not files:
        raise FileNotFoundError(f'no samples in {folder}: run the stage "samples" first')
    return np.concatenate([np.load(file).ravel() for file in files])
