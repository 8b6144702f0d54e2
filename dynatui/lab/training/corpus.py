"""Training texts: books as one long array of token ids, windows that cover arrays evenly, and texts that the target
samples. Every book starts with the end-of-text token, so a window may contain the border of two books.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from decoder.engine import Engine
from decoder.sampling.settings import Sampling, Schedule
from dynatui.lab.bench.protocol import continued, endless
from dynatui.lab.training import SEED, Samples

END_OF_TEXT = "<|endoftext|>"
GOLDEN_RATIO = (5**0.5 - 1) / 2
SAMPLE_BYTES = 120_000


def books(folder: Path) -> list[Path]:
    """Text files of a folder, sorted by name; raises FileNotFoundError if there are none."""
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise FileNotFoundError(
            f"no .txt files in {folder}: point --data at a folder that holds books/ and books_test/"
        )
    return files


def train_tokenizer(files: list[Path], vocabulary: int) -> PreTrainedTokenizerFast:
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
    tokenizer.train_from_iterator(map(_middle, files), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=END_OF_TEXT, eos_token=END_OF_TEXT)


def _middle(file: Path) -> str:
    text = file.read_text(encoding="utf-8")
    start = max(0, (len(text) - SAMPLE_BYTES) // 2)
    return text[start : start + SAMPLE_BYTES]


def tokenize(files: list[Path], tokenizer: PreTrainedTokenizerFast, cache: Path) -> NDArray[np.uint16]:
    """Token ids of all books, one after the other, memory-mapped from `cache`, which is written if missing."""
    if not cache.exists():
        end = tokenizer.convert_tokens_to_ids(END_OF_TEXT)
        parts = []
        for file in files:
            book = tokenizer.backend_tokenizer.encode(file.read_text(encoding="utf-8")).ids
            parts.append(np.array([end, *book], dtype=np.uint16))
        _save_whole(cache, np.concatenate(parts))
    ids: NDArray[np.uint16] = np.load(cache, mmap_mode="r")
    return ids


def _save_whole(path: Path, ids: NDArray[np.uint16]) -> None:
    partial = path.with_suffix(".partial.npy")
    np.save(partial, ids)
    partial.replace(path)


def batch(texts: Sequence[NDArray[np.uint16]], first: int, rows: int, window: int) -> NDArray[np.int64]:
    """Windows `first` to `first + rows - 1` of an endless sequence that takes one window from each text in turn; shape
    (rows, window + 1). Window i of a text starts at the fraction i * GOLDEN_RATIO modulo 1 of the text's length: such
    starts cover the text evenly after any number of windows, and depend only on i, so that a run can resume.
    """
    windows = []
    for number in range(first, first + rows):
        ids = texts[number % len(texts)]
        start = int((number // len(texts) * GOLDEN_RATIO) % 1.0 * (len(ids) - window - 1))
        windows.append(ids[start : start + window + 1])
    return np.stack(windows).astype(np.int64)


def sample_texts(
    engine: Engine, books: NDArray[np.uint16], plan: Samples, folder: Path, log: Callable[[str], None]
) -> None:
    """Samples texts with the engine's target, as continuations of passages of books, and writes the batches that the
    folder lacks. Each text has its own seed, so that a stage can resume. End-of-text tokens do not end a text.
    """
    folder.mkdir(parents=True, exist_ok=True)
    sampling, writer = Schedule(Sampling(temperature=plan.temperature)), endless(engine)
    for number in range(plan.batches):
        path = folder / f"{number:03}.npy"
        if path.exists():
            continue
        first = number * plan.rows
        prompts = batch([books], first, plan.rows, plan.prompt - 1).tolist()
        rows = [
            [*prompt, *continued(writer.sampled(SEED + first + index, sampling), prompt, plan.length - plan.prompt)]
            for index, prompt in enumerate(prompts)
        ]
        _save_whole(path, np.array(rows, dtype=np.uint16))
        log(f"{number + 1} of {plan.batches} batches of {plan.rows} samples")


def sampled_texts(folder: Path) -> NDArray[np.uint16]:
    """Token ids of all samples, concatenated; raises FileNotFoundError if there are none."""
    files = sorted(folder.glob("[0-9][0-9][0-9].npy"))
    if not files:
        raise FileNotFoundError(f'no samples in {folder}: run the stage "samples" first')
    return np.concatenate([np.load(file).ravel() for file in files])
