"""Model card of the embedded pair, made from the recipe, the training runs and measurements."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from dynatui.lab.tables.data import counted
from dynatui.lab.training import corpus, measure, recipe

SAMPLE_PROMPT = "The old man put down his lantern and"


def write(
    path: Path,
    target: Path,
    draft: Path,
    texts: Path,
    stage_facts: Mapping[str, Mapping[str, Any]],
    device: torch.device,
) -> None:
    """Measures the pair and writes its card.

    Args:
        path: File of the card.
        target: Folder of the shipped target.
        draft: Folder of the shipped draft.
        texts: Folder of held-out books.
        stage_facts: Facts of each training stage, by the stage's name.
        device: Device of the measurements.
    """
    books = corpus.books(texts)
    quality = measure.measure(target, draft, books, device)
    sizes = {folder.name: parameters(folder) for folder in (target, draft)}
    stages = "\n".join(stage_row(name, facts) for name, facts in stage_facts.items())
    positions = "\n".join(
        f"| {place} | {bits:.3f} | {quality.draft_bits_by_position[place]:.3f} |"
        for place, bits in quality.target_bits_by_position.items()
    )
    path.write_text(
        f"""# The embedded pair

Two GPT-NeoX models (Pythia's architecture) that share one byte-level BPE tokenizer of {recipe.VOCABULARY} tokens. They
exist so that dynatui runs at once on any machine, offline and on a CPU. They write English prose in the manner of the
public-domain books they were trained on, and are of no other use.

| | `{target.name}` (target) | `{draft.name}` (draft) |
|---|---|---|
| parameters | {sizes[target.name]:,} | {sizes[draft.name]:,} |
| hidden size, layers, heads | {shape_row(recipe.TARGET)} | {shape_row(recipe.DRAFT)} |
| held-out bits per byte | {quality.target_bits_per_byte:.3f} | {quality.draft_bits_per_byte:.3f} |

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

Bits per token in windows of {measure.EDGES[-1]} tokens.

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


def parameters(folder: Path) -> int:
    """Number of weights of a model."""
    return sum(weight.numel() for weight in measure.load(folder, torch.device("cpu")).parameters())


def shape_row(shape: recipe.Shape) -> str:
    """A cell in the table of both models: hidden size, layers, heads."""
    return f"{shape.hidden}, {shape.layers}, {shape.heads}" + (", tied embeddings" if shape.tied else "")


def stage_row(name: str, facts: Mapping[str, Any]) -> str:
    """Row of one stage in the table of training stages."""
    windows = ", ".join(f"{size} ({share:.0%})" for share, size in facts["windows"])
    where = f"{facts['device']}, {counted(facts['threads'], 'thread')}"
    return (
        f"| {name} | {facts['seconds'] / 60:.1f} | {facts['steps']:,} | {facts['tokens']:,} | {windows} "
        f"| {facts['muon_lr']:g}, {facts['adam_lr']:g} | {where} |"
    )


@torch.inference_mode()
def sample(folder: Path, device: torch.device) -> str:
    """Sampled continuation of `SAMPLE_PROMPT` by the target."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = measure.load(folder, device)
    torch.manual_seed(recipe.SEED)
    ids = torch.tensor([tokenizer.backend_tokenizer.encode(SAMPLE_PROMPT).ids], device=device)
    out = model.generate(ids, do_sample=True, temperature=0.8, top_p=0.95, max_new_tokens=160)
    text: str = tokenizer.decode(out[0], skip_special_tokens=True)
    return text.replace("\n\n", "\n>\n> ")
