"""Books as one long array of token ids, and windows that cover this array evenly.

Knows nothing of models. Every book starts with the end-of-text token, so a window may contain the border of two books.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END_OF_TEXT = "<|endoftext|>"
GOLDEN_RATIO = (5**0.5 - 1) / 2


def books(folder: Path) -> list[Path]:
    """Text files of a folder, sorted by name; raises FileNotFoundError if there are no text files."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise FileNotFoundError(
            f"no .txt files in {folder}: point --data at a folder that holds books/ and books_test/"
        )
    return files


def train_tokenizer(files: list[Path], vocabulary: int, sample_bytes: int = 120_000) -> PreTrainedTokenizerFast:
    """Trains a byte-level BPE tokenizer on the middle of each book; every string can be encoded and decoded exactly."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_middles(files, sample_bytes), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT)


def _middles(files: list[Path], sample_bytes: int) -> Iterator[str]:
    for file in files:
        text = file.read_text(encoding="utf-8")
        start = max(0, len(text) // 2 - sample_bytes // 2)
        yield text[start : start + sample_bytes]


def tokenize(files: list[Path], tokenizer: PreTrainedTokenizerFast, cache: Path) -> NDArray[np.uint16]:
    """Token ids of all books, one after the other, memory-mapped from `cache`, which is written if missing."""
    if not cache.exists():
        end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
        parts = []
        for file in files:
            book = tokenizer.backend_tokenizer.encode(file.read_text(encoding="utf-8")).ids
            parts.append(np.array([end, *book], dtype=np.uint16))
        partial = cache.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(parts))
        partial.replace(cache)
    ids: NDArray[np.uint16] = np.load(cache, mmap_mode="r")
    return ids


def batch(texts: Sequence[NDArray[np.uint16]], first: int, rows: int, window: int) -> NDArray[np.int64]:
    """Windows `first` to `first + rows - 1` of an endless sequence of windows, which come from the texts in turn and
    cover each text evenly.

    The start of a text's window i, as a share of the text's length, is i times the golden ratio modulo 1. These starts
    cover the text evenly after any number of windows, and depend only on i, so that a run can resume.

    Returns:
        Token ids, shape (rows, window + 1): all columns but the last are inputs, and all columns but the first are
        labels.
    """
    windows = []
    for number in range(first, first + rows):
        ids = texts[number % len(texts)]
        start = int((number // len(texts) * GOLDEN_RATIO) % 1.0 * (len(ids) - window - 1))
        windows.append(ids[start : start + window + 1])
    return np.stack(windows).astype(np.int64)
