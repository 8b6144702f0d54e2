"""Quality of the pair on held-out books: bits per byte, agreement, loss by position.

All figures are measured in float32 on the shipped weights.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import GPTNeoXForCausalLM, PreTrainedTokenizerFast

BATCH_TOKENS = 8192
EDGES = (0, 32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Quality:
    """Held-out figures of the pair."""

    windows: int
    window: int
    target_bits_per_byte: float
    draft_bits_per_byte: float
    agreement: float
    """Share of positions at which target and draft have the same most probable token."""
    target_bits_by_position: dict[str, float]
    """Mean bits per token of the target in windows of the full context, by position in the window."""
    draft_bits_by_position: dict[str, float]


def load(folder: Path, device: torch.device) -> Any:
    """A model in float32, ready to score text."""
    model: Any = GPTNeoXForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval().to(device)


def windows(
    files: list[Path], tokenizer: PreTrainedTokenizerFast, window: int, stride: int
) -> tuple[NDArray[np.int64], int]:
    """Cuts each book into adjacent windows; returns every `stride`-th window, and the number of bytes to predict.

    Returns:
        Token ids of shape (windows, window), and the number of bytes of all tokens except the first of each window.
    """
    rows: list[list[int]] = []
    for file in files:
        ids = tokenizer.backend_tokenizer.encode(file.read_text(encoding="utf-8")).ids
        rows.extend(ids[i : i + window] for i in range(0, len(ids) - window + 1, window * stride))
    # A byte-level token is spelled with one character for each byte, so the spelling's length is the number of bytes.
    spellings = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    lengths = np.array([len(spelling) for spelling in spellings])
    table = np.array(rows)
    return table, int(lengths[table[:, 1:]].sum())


def batches(ids: NDArray[np.int64], device: torch.device) -> Iterator[Tensor]:
    """Windows in batches of at most `BATCH_TOKENS` tokens."""
    rows = max(1, BATCH_TOKENS // ids.shape[1])
    for start in range(0, len(ids), rows):
        yield torch.from_numpy(ids[start : start + rows]).to(device)


@torch.inference_mode()
def bits(model: Any, batch: Tensor) -> tuple[Tensor, Tensor]:
    """For each token except the first of each window: the token's number of bits, and the model's most probable token
    at this position. Both results have the shape (rows, window - 1).
    """
    logprobs = model(input_ids=batch).logits[:, :-1].float().log_softmax(-1)
    scored = logprobs.gather(-1, batch[:, 1:, None])[..., 0]
    return -scored / math.log(2), logprobs.argmax(-1)


def measure(target: Path, draft: Path, texts: list[Path], device: torch.device, stride: int = 4) -> Quality:
    """All figures of the pair on `texts`; every `stride`-th window is scored."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target)
    models = (load(target, device), load(draft, device))
    ids, predicted_bytes = windows(texts, tokenizer, 1024, stride)
    totals, agreed, positions = [0.0, 0.0], 0, 0
    for batch in batches(ids, device):
        (target_bits, target_choice), (draft_bits, draft_choice) = (bits(model, batch) for model in models)
        totals[0] += float(target_bits.double().sum())
        totals[1] += float(draft_bits.double().sum())
        agreed += int((target_choice == draft_choice).sum())
        positions += target_choice.numel()
    long_ids, _ = windows(texts, tokenizer, EDGES[-1], stride * 2)
    by_position = [by_position_of(model, long_ids, device) for model in models]
    return Quality(
        windows=len(ids),
        window=ids.shape[1],
        target_bits_per_byte=totals[0] / predicted_bytes,
        draft_bits_per_byte=totals[1] / predicted_bytes,
        agreement=agreed / positions,
        target_bits_by_position=by_position[0],
        draft_bits_by_position=by_position[1],
    )


def by_position_of(model: Any, ids: NDArray[np.int64], device: torch.device) -> dict[str, float]:
    """Mean bits per token in each range of positions between `EDGES`."""
    total = torch.zeros(ids.shape[1] - 1, dtype=torch.float64)
    for batch in batches(ids, device):
        total += bits(model, batch)[0].double().sum(0).cpu()
    mean = total / len(ids)
    return {f"{low}-{high}": float(mean[low : high - 1].mean()) for low, high in pairwise(EDGES)}
