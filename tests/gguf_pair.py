"""Helpers of the tests of GGUF files: write the embedded pair and models whose layers keep a state."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks.gguf_files import write
from decoder.engine import Engine
from decoder.forward.llama_cpp.library import PACKAGE
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from tests.gguf_states import write_states

NOISE = 0.01
"""Relative noise of a draft's weights; so small that most of the draft's tokens are those of the target."""
needs_llama_cpp = pytest.mark.skipif(
    find_spec(PACKAGE) is None or find_spec("gguf") is None, reason=f"needs {PACKAGE} and gguf (extra test)"
)


@dataclass(frozen=True)
class GgufPair:
    """Writes the files of the embedded pair into a folder, each once."""

    folder: Path

    def target(self, kind: str = "F32") -> Path:
        """Path of the target's file."""
        return _written(EMBEDDED_TARGET, self.folder / f"books-16m-{kind}.gguf", kind)

    def draft(self, kind: str = "F32") -> Path:
        """Path of the draft's file."""
        return _written(EMBEDDED_DRAFT, self.folder / f"books-1m-{kind}.gguf", kind)


@cache
def _written(folder: Path, path: Path, kind: str) -> Path:
    return write(folder, path, kind)


@dataclass(frozen=True)
class GgufStates:
    """Writes tiny random models whose layers keep a state into a folder, each once."""

    folder: Path

    def target(self, architecture: str, kind: str = "F32") -> Path:
        """Path of a model of the architecture."""
        return _random(self.folder / f"{architecture}-{kind}.gguf", architecture, 0.0, kind)

    def draft(self, architecture: str) -> Path:
        """Path of a model whose weights differ a little from those of `target`."""
        return _random(self.folder / f"{architecture}-draft.gguf", architecture, NOISE, "F32")


@cache
def _random(path: Path, architecture: str, noise: float, kind: str) -> Path:
    return write_states(path, architecture, noise=noise, kind=kind)


def plain_text(engine: Engine, prompt: str, count: int) -> list[int]:
    """Greedy decoding by one-token passes of llama.cpp."""
    target, ids = engine.pair.target, engine.pair.tokenizer(prompt).input_ids
    cache, text = target.new_cache(len(ids) + count), list[int]()
    logits = torch.empty(0)
    for token in ids:
        logits = target.read(cache, [token])
    for _ in range(count):
        text.append(int(logits.argmax()))
        logits = target.read(cache, text[-1:])
    return text
