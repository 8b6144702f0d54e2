"""What is trained and how long: the numbers that the model card repeats.

Knows no tensors. A stage is budgeted in minutes of training time, because that is what a machine has; the learning rate
and the window follow the share of the budget that is spent, so a stage always ends with its full decay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Objective = Literal["text", "distillation"]


@dataclass(frozen=True)
class Shape:
    """The free dimensions of a GPT-NeoX model."""

    hidden: int
    layers: int
    heads: int
    tied: bool
    """True: one matrix embeds the input and scores the output, which is worth its parameters in a very small model."""


@dataclass(frozen=True)
class Stage:
    """One run of the training loop."""

    objective: Objective
    minutes: float
    """Training time, evaluation and start-up excluded."""
    batch_tokens: int
    muon_lr: float
    """Peak rate of the hidden matrices, in Muon's "match_rms_adamw" scale."""
    adam_lr: float
    """Peak rate of embeddings, head, norms and biases."""
    windows: Sequence[tuple[float, int]]
    """(share of the budget up to which, window in tokens), ascending; the last share is 1."""
    warmup: float = 0.01
    """Share of the budget over which the rate rises from 0."""
    decay: float = 0.4
    """Share of the budget at the end over which the rate falls to 0."""
    weight_decay: float = 0.05

    def rate(self, progress: float) -> float:
        """Factor on the peak rates, in [0, 1], after `progress` of the budget: rise, hold, fall."""
        return max(0.0, min(1.0, progress / self.warmup, (1.0 - progress) / self.decay))

    def window(self, progress: float) -> int:
        """Tokens a training sequence has after `progress` of the budget."""
        return next((size for until, size in self.windows if progress < until), self.windows[-1][1])


SEED = 0
VOCABULARY = 2048
CONTEXT = 2048
TARGET = Shape(hidden=384, layers=8, heads=6, tied=False)
DRAFT = Shape(hidden=192, layers=2, heads=3, tied=True)

TARGET_STAGE = Stage(
    "text",
    minutes=106,
    batch_tokens=8192,
    muon_lr=4e-3,
    adam_lr=3e-3,
    windows=((0.55, 256), (0.8, 512), (0.95, 1024), (1.0, 2048)),
)
DRAFT_STAGE = Stage(
    "text",
    minutes=4,
    batch_tokens=8192,
    muon_lr=6e-3,
    adam_lr=5e-3,
    windows=((1.0, 256),),
    decay=0.1,
)
DISTILLATION_STAGE = Stage(
    "distillation",
    minutes=11,
    batch_tokens=8192,
    muon_lr=5e-3,
    adam_lr=4e-3,
    windows=((0.6, 256), (0.9, 1024), (1.0, 2048)),
    decay=0.6,
)
