"""Training of the embedded pair, the target and draft that dynatui ships. No other package imports this package.

This module has the recipe: model shapes, stages and their budgets. Learning rate and window depend on the share of the
budget that is spent, so a stage completes its learning-rate decay on any machine.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    tied: bool
    """Whether input embedding and output head share one matrix, which is better for a very small model."""


@dataclass(frozen=True)
class Stage:
    minutes: float
    """Budget of training time, without evaluation and start-up."""
    muon_lr: float
    """Peak learning rate of the hidden matrices, in Muon's "match_rms_adamw" scale."""
    adam_lr: float
    """Peak learning rate of embeddings, head, norms and biases."""
    windows: Sequence[tuple[float, int]]
    """Pairs (share, window): training sequences have `window` tokens until this share of the budget is spent. Shares
    ascend; the last share is 1.
    """
    batch_tokens: int = 8192
    """Number of tokens in a training step."""
    warmup: float = 0.01
    """Share of the budget over which the learning rate rises from 0."""
    decay: float = 0.4
    """Final share of the budget, over which the learning rate falls to 0."""
    weight_decay: float = 0.05

    def rate(self, progress: float) -> float:
        """Factor on the peak learning rates after the share `progress` of the budget: rises to 1, stays, falls to 0."""
        return max(0.0, min(1.0, progress / self.warmup, (1.0 - progress) / self.decay))

    def window(self, progress: float) -> int:
        return next((size for until, size in self.windows if progress < until), self.windows[-1][1])


@dataclass(frozen=True)
class Samples:
    """Plan of the texts that are sampled from the target to train a draft, which later drafts in such texts."""

    temperature: float
    prompt: int
    length: int
    rows: int
    batches: int


@dataclass(frozen=True)
class HeadRecipe:
    hidden: int
    heads: int
    intermediate: int
    layers: tuple[int, ...]
    steps: int
    """Number of drafted levels that are unrolled in training."""
    step_weight: float
    """Ratio of a level's weight in the loss to the weight of the level before."""


SEED = 0
VOCABULARY = 2048
CONTEXT = 2048
TARGET = Shape(hidden=384, layers=8, heads=6, tied=False)
DRAFT = Shape(hidden=192, layers=2, heads=3, tied=True)
HEAD = HeadRecipe(hidden=192, heads=3, intermediate=768, layers=(3, 5, 7), steps=3, step_weight=0.8)
SAMPLES = Samples(temperature=0.6, prompt=64, length=256, rows=64, batches=40)

STAGES = {
    "target": Stage(
        minutes=106, muon_lr=4e-3, adam_lr=3e-3, windows=((0.55, 256), (0.8, 512), (0.95, 1024), (1.0, 2048))
    ),
    "draft": Stage(minutes=4, muon_lr=6e-3, adam_lr=5e-3, windows=((1.0, 256),), decay=0.1),
    "distil": Stage(minutes=11, muon_lr=5e-3, adam_lr=4e-3, windows=((0.6, 256), (0.9, 1024), (1.0, 2048)), decay=0.6),
    "overlap": Stage(
        minutes=20, muon_lr=2e-3, adam_lr=1.5e-3, windows=((0.3, 256), (0.6, 1024), (1.0, 2048)), decay=0.7
    ),
    "head": Stage(minutes=75, muon_lr=5e-3, adam_lr=4e-3, windows=((0.7, 256), (1.0, 1024)), decay=0.5),
}
