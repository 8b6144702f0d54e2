"""Measures the quality of the embedded pair on held-out books, in float32 with the shipped weights, and writes the
pair's model card from the recipe, the facts of the training runs and the measurements.
"""

import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import GPTNeoXForCausalLM, PreTrainedTokenizerFast

from dynatui.lab import training as recipe
from dynatui.lab.training import corpus
from dynatui.number_format import counted

BATCH_TOKENS = 8192
EDGES = (0, 32, 64, 128, 256, 512, 1024, 2048)


@dataclass(frozen=True)
class Quality:
    """Measurements on held-out books; pairs and lists hold the figures of the target, then of the draft."""

    windows: int
    window: int
    bits_per_byte: tuple[float, float]
    agreement: float
    bits_by_position: list[dict[str, float]]
    """{range of positions: mean bits per token at these positions}, in windows of the full context."""


def load(folder: Path, dtype: torch.dtype, **more: Any) -> Any:
    """The model in a folder, on the CPU."""
    return GPTNeoXForCausalLM.from_pretrained(folder, dtype=dtype, **more)


def windows(
    files: list[Path], tokenizer: PreTrainedTokenizerFast, window: int, stride: int
) -> tuple[NDArray[np.int64], int]:
    """Token ids of every `stride`-th of the adjacent windows of each book, shape (windows, window), and the number of
    bytes of all these tokens except the first token of each window.
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


@torch.inference_mode()
def scored(model: Any, ids: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    """For each token except the first token of each window: its negative log2-probability, and the model's most
    probable token at the same position. Both have shape (windows, window - 1).
    """
    bits, choices = list[Tensor](), list[Tensor]()
    for rows in torch.from_numpy(ids).split(max(1, BATCH_TOKENS // ids.shape[1])):
        batch = rows.to(device)
        logprobs = model(input_ids=batch).logits[:, :-1].float().log_softmax(-1)
        bits.append(-logprobs.gather(-1, batch[:, 1:, None])[..., 0].double().cpu() / math.log(2))
        choices.append(logprobs.argmax(-1).cpu())
    return torch.cat(bits), torch.cat(choices)


def measure(target: Path, draft: Path, texts: list[Path], device: torch.device, stride: int = 4) -> Quality:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(target)
    models = [load(folder, torch.float32).eval().to(device) for folder in (target, draft)]
    ids, predicted_bytes = windows(texts, tokenizer, 1024, stride)
    (target_bits, target_choices), (draft_bits, draft_choices) = (scored(model, ids, device) for model in models)
    long_ids, _ = windows(texts, tokenizer, EDGES[-1], stride * 2)
    by_position = [scored(model, long_ids, device)[0].mean(0) for model in models]
    return Quality(
        len(ids),
        ids.shape[1],
        (float(target_bits.sum()) / predicted_bytes, float(draft_bits.sum()) / predicted_bytes),
        float((target_choices == draft_choices).double().mean()),
        [
            {f"{low}-{high}": float(bits[low : high - 1].mean()) for low, high in pairwise(EDGES)}
            for bits in by_position
        ],
    )


SAMPLE_PROMPT = "The old man put down his lantern and"


def write(
    path: Path,
    target: Path,
    draft: Path,
    texts: Path,
    stage_facts: Mapping[str, Mapping[str, Any]],
    device: torch.device,
) -> None:
    """Measures the models in the folders `target` and `draft` on the books in `texts`; writes their card to `path`."""
    books = corpus.books(texts)
    quality = measure(target, draft, books, device)
    sizes = [load(folder, torch.float32).num_parameters() for folder in (target, draft)]
    stages = "\n".join(stage_row(name, facts) for name, facts in stage_facts.items())
    of_target, of_draft = quality.bits_by_position
    positions = "\n".join(f"| {place} | {of_target[place]:.3f} | {of_draft[place]:.3f} |" for place in of_target)
    path.write_text(
        f"""# The embedded pair

Two GPT-NeoX models (Pythia's architecture) that share one byte-level BPE tokenizer of {recipe.VOCABULARY} tokens. They
exist so that dynatui runs at once on any machine, offline and on a CPU. They write English prose in the manner of the
public-domain books they were trained on, and are of no other use.

| | `{target.name}` (target) | `{draft.name}` (draft) |
|---|---|---|
| parameters | {sizes[0]:,} | {sizes[1]:,} |
| hidden size, layers, heads | {shape_row(recipe.TARGET)} | {shape_row(recipe.DRAFT)} |
| held-out bits per byte | {quality.bits_per_byte[0]:.3f} | {quality.bits_per_byte[1]:.3f} |

Top-1 agreement of draft and target: {quality.agreement:.3f}. Measured in float32 on {quality.windows} windows of
{quality.window} tokens (every fourth window) of {len(books)} books that were not used in training.

## Training

Data: 220 public-domain English books (110 MB; all dated 1919 or earlier). Weights bfloat16, context {recipe.CONTEXT},
seed {recipe.SEED}. Muon for the hidden matrices, AdamW for the rest, bfloat16 autocast where the device computes in
bfloat16. The draft learned from text first, then from the finished target's distribution (KL divergence), and last from
the overlap of both distributions at temperature {recipe.SAMPLES.temperature} (the probability that a sampled guess is
accepted), on the books and on texts that the target sampled. `python -m dynatui.lab.training all --data DIR` makes such
a pair; the budget of a stage is in minutes, so its number of steps depends on the machine.

| stage | minutes | steps | tokens | window sizes (up to this share of the stage) | peak rate Muon, AdamW | device |
|---|---|---|---|---|---|---|
{stages}

## Loss by position

Bits per token in windows of {EDGES[-1]} tokens.

| position | target | draft |
|---|---|---|
{positions}

## A sample

Temperature 0.8, top-p 0.95, seed {recipe.SEED}, after "{SAMPLE_PROMPT}":

> {sample(target, device)}

Made with torch {torch.__version__} on {platform.machine()}.
""",
        encoding="utf-8",
    )


def shape_row(shape: recipe.Shape) -> str:
    return f"{shape.hidden}, {shape.layers}, {shape.heads}" + (", tied embeddings" if shape.tied else "")


def stage_row(name: str, facts: Mapping[str, Any]) -> str:
    windows = ", ".join(f"{size} ({share:.0%})" for share, size in facts["windows"])
    where = f"{facts['device']}, {counted(facts['threads'], 'thread')}"
    return (
        f"| {name} | {facts['seconds'] / 60:.1f} | {facts['steps']:,} | {facts['tokens']:,} | {windows} "
        f"| {facts['muon_lr']:g}, {facts['adam_lr']:g} | {where} |"
    )


@torch.inference_mode()
def sample(folder: Path, device: torch.device) -> str:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = load(folder, torch.float32).eval().to(device)
    torch.manual_seed(recipe.SEED)
    ids = torch.tensor([tokenizer.backend_tokenizer.encode(SAMPLE_PROMPT).ids], device=device)
    out = model.generate(ids, do_sample=True, temperature=0.8, top_p=0.95, max_new_tokens=160)
    text: str = tokenizer.decode(out[0], skip_special_tokens=True)
    return text.replace("\n\n", "\n>\n> ")
