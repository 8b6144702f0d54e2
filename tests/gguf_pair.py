"""The embedded pair as GGUF files, and what tests of them share."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.gguf_files import write
from decoder.forward.llama_cpp.layouts import PACKAGE
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET

needs_llama_cpp = pytest.mark.skipif(
    find_spec(PACKAGE) is None or find_spec("gguf") is None, reason=f"needs {PACKAGE} and gguf (extra test)"
)


@dataclass(frozen=True)
class GgufPair:
    """Writes the files of the pair into a folder, each once."""

    folder: Path

    def target(self, kind: str = "F32") -> Path:
        """The target as a file."""
        return _written(EMBEDDED_TARGET, self.folder / f"books-16m-{kind}.gguf", kind)

    def draft(self, kind: str = "F32") -> Path:
        """The draft as a file."""
        return _written(EMBEDDED_DRAFT, self.folder / f"books-1m-{kind}.gguf", kind)


@cache
def _written(folder: Path, path: Path, kind: str) -> Path:
    return write(folder, path, kind)
