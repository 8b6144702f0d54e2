"""Targets that compute NaN, infinite or excluded logits: checkpoints with a damaged embedding, and forward forms that
change logits.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from decoder.engine import Engine
from decoder.forward.kv_cache import KvCache
from decoder.forward.protocol import Forward
from tests.decoder.makers import with_pair

Change = Callable[[Sequence[int], Tensor], None]
"""Changes the logits of a pass in place; the first argument is the tokens of the pass's rows."""
_EMBEDDING = re.compile(r"(model|gpt_neox|transformer)\.(embed_tokens|embed_in|wte)\.weight")
"""Names of the matrix of embeddings."""


@dataclass(frozen=True)
class Changed(Forward):
    form: Forward
    change: Change

    def __getattr__(self, name: str) -> Any:
        return getattr(self.form, name)

    def new_cache(self, capacity: int) -> KvCache:
        return self.form.new_cache(capacity)

    def forward(
        self, cache: KvCache, tokens: Sequence[int], positions: Sequence[int], visible: NDArray[np.bool_]
    ) -> Tensor:
        logits = self.form.forward(cache, tokens, positions, visible).clone()
        self.change(tokens, logits)
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Tensor:
        logits = self.form.read(cache, tokens).clone()
        self.change(tokens[-1:], logits[None])
        return logits


def with_target_logits(engine: Engine, change: Change) -> Engine:
    return with_pair(engine, target=engine.pair.target.with_forward(Changed(engine.pair.target.runs_by, change)))


def with_draft_logits(engine: Engine, change: Change) -> Engine:
    return with_pair(
        engine, draft=engine.pair.draft_model.with_forward(Changed(engine.pair.draft_model.runs_by, change))
    )


def after(token: int, value: float) -> Change:
    """Sets all logits after a token to a value."""

    def change(tokens: Sequence[int], logits: Tensor) -> None:
        logits[[row for row, given in enumerate(tokens) if given == token]] = value

    return change


def damaged(path: Path, home: Path, token: int, value: float) -> Path:
    """A copy of a checkpoint in which the embedding of one token has this value everywhere."""
    shutil.copytree(path, home, dirs_exist_ok=True)
    weights = load_file(home / "model.safetensors")
    (embedding,) = (weight for key, weight in weights.items() if _EMBEDDING.fullmatch(key))
    embedding[token] = value
    save_file(weights, home / "model.safetensors", {"format": "pt"})
    return home
