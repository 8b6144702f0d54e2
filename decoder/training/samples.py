"""Samples texts from the target for the training of its drafts: the target continues passages of books.

Batches are written one by one, each with its own seed, so that an interrupted stage can resume.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from decoder.training import corpus
from decoder.training.recipe import SEED, Samples


def sample_texts(
    target: Any, books: NDArray[np.uint16], plan: Samples, folder: Path, log: Callable[[str], None]
) -> None:
    """Samples the batches that are not in the folder yet, and writes each to a file."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(plan.batches):
        path = folder / f"{number:03}.npy"
        if path.exists():
            continue
        prompts = corpus.batch([books], number * plan.rows, plan.rows, plan.prompt - 1)
        torch.manual_seed(SEED + number)
        rows = target.generate(
            torch.from_numpy(prompts).to(target.device),
            attention_mask=torch.ones(prompts.shape, dtype=torch.long, device=target.device),
            do_sample=True,
            temperature=plan.temperature,
            top_k=0,
            min_new_tokens=plan.length - plan.prompt,
            max_new_tokens=plan.length - plan.prompt,
        )
        partial = path.with_suffix(".partial.npy")
        np.save(partial, rows.cpu().numpy().astype(np.uint16))
        partial.replace(path)
        log(f"{number + 1} of {plan.batches} batches of {plan.rows} samples")


def sampled_texts(folder: Path) -> NDArray[np.uint16]:
    """Token ids of all samples in the folder, concatenated; raises FileNotFoundError if there are no samples."""
    files = sorted(folder.glob("[0-9][0-9][0-9].npy"))
    if not files:
        raise FileNotFoundError(f'no samples in {folder}: run the stage "samples" first')
    return np.concatenate([np.load(file).ravel() for file in files])
