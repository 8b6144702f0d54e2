"""Reads the metadata of a GGUF file without llama.cpp, describes the file in words, and refuses a file that is broken
or that the engine cannot run.
"""

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from decoder.errors import ConfigError, quoted, shortened
from decoder.models.hub import is_pointer

SUFFIX = ".gguf"
MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_ENTRIES = 1 << 24
"""Upper bound: several times the number of tensors, entries or array items in the largest models."""
LONGEST_NAME = 1 << 16
"""Largest length of a name, in bytes."""
STRING, ARRAY = 8, 9
NUMBERS: Mapping[int, str] = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
"""Format characters of `struct`, by GGUF's type codes."""
FLOAT32 = 0
"""Type code of float32 tensors."""
QUANTISATIONS: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}  # fmt: skip
"""Names of quantisations by llama.cpp's numbers in `general.file_type`."""
AGAIN = "download the file again, or choose another one"
STATES = ("ssm.state_size", "ssm.conv_kernel", "wkv.head_size", "shortconv.l_cache")
"""Metadata entries of architectures whose layers carry a state from token to token."""
BY_PATHS = "a sequence for each draft path"
"""How llama.cpp verifies drafts of models with states."""


@dataclass(frozen=True)
class GgufFile:
    path: Path
    values: Mapping[str, Any]
    """Metadata: numbers, texts, and lists of them."""
    tensors: Mapping[str, int]
    """Size of each tensor in bytes, padding included."""
    in_float32: bool
    file_bytes: int

    @property
    def architecture(self) -> str:
        """Name of the architecture in llama.cpp."""
        return str(self.values.get("general.architecture", ""))

    @property
    def keeps_states(self) -> bool:
        """Whether layers keep a state, as far as the metadata says."""
        return any(self.size(state) for state in STATES)

    @property
    def quantisation(self) -> str:
        """Name of the quantisation, for example Q4_K_M."""
        code = self.values.get("general.file_type")
        return QUANTISATIONS.get(code, "quantised") if isinstance(code, int) else "quantised"

    def size(self, name: str) -> int | None:
        """Metadata entry `ARCHITECTURE.name`; None if it is missing or not an integer."""
        value = self.values.get(f"{self.architecture}.{name}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def tokens(self) -> Sequence[str]:
        """Token texts by id; empty if the file has no tokenizer."""
        tokens = self.values.get("tokenizer.ggml.tokens")
        return tokens if isinstance(tokens, list) else []


def is_gguf(name: str) -> bool:
    return name.lower().endswith(SUFFIX)


def gguf_file(name: str) -> GgufFile:
    """Metadata of the GGUF file at path `name`. Raises ConfigError if the file is missing or broken."""
    path = Path(name)
    if not path.is_file():
        raise ConfigError(f"there is no file {shortened(name)}; give the path of a GGUF file on this machine")
    if is_pointer(path):
        raise ConfigError(f"{shortened(name)} is a Git LFS pointer, not the file itself; run git lfs pull beside it")
    changed = path.stat()
    return _read(path, changed.st_size, changed.st_mtime_ns)


@functools.lru_cache(maxsize=4)
def _read(path: Path, size: int, _changed_ns: int) -> GgufFile:
    """Reads a GGUF file; the result is cached until the file changes."""
    try:
        with path.open("rb") as file:
            return _Reader(file, size).whole(path)
    except OSError as error:
        raise ConfigError(f"cannot read {shortened(path)}: {error.strerror}; {AGAIN}") from error
    except _BrokenError as error:
        raise ConfigError(f"{shortened(path)} {error}; {AGAIN}") from None


class _BrokenError(Exception):
    """The message is the rest of a sentence that begins with the file's name."""


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def whole(self, path: Path) -> GgufFile:
        if self._bytes(4) != MAGIC:
            raise _BrokenError("is not a GGUF file")
        if (version := self._number("I")) not in VERSIONS:
            raise _BrokenError(f"is GGUF version {version}; only versions {VERSIONS[0]} and {VERSIONS[1]} can be read")
        tensors, entries = self._count(), self._count()
        values = {self._text(LONGEST_NAME): self._value(self._number("I")) for _ in range(entries)}
        starts, kinds = dict[str, int](), set[int]()
        for _ in range(tensors):
            name = self._text(LONGEST_NAME)
            for _ in range(self._number("I")):
                self._number("Q")
            kinds.add(self._number("I"))
            starts[name] = self._number("Q")
        if tensors and self._file.tell() + max(starts.values()) >= self._size:
            raise _BrokenError("ends within its weights")
        return GgufFile(path, values, self._sizes(starts), kinds == {FLOAT32}, self._size)

    def _sizes(self, starts: Mapping[str, int]) -> Mapping[str, int]:
        """Size of each tensor, which ends at the start of the next tensor or at the end of the file. The size of the
        last tensor includes the padding before the first tensor.
        """
        in_order = sorted(starts, key=starts.__getitem__)
        ends = [*(starts[name] for name in in_order[1:]), self._size - self._file.tell()]
        return {name: end - starts[name] for name, end in zip(in_order, ends, strict=False)}

    def _bytes(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise _BrokenError("ends within its metadata")
        return self._file.read(count)

    def _number(self, code: str) -> int:
        (number,) = struct.unpack(f"<{code}", self._bytes(struct.calcsize(code)))
        value: int = number
        return value

    def _count(self) -> int:
        count = self._number("Q")
        if count > MOST_ENTRIES:
            raise _BrokenError(f"announces {count} entries, more than any model has")
        return count

    def _text(self, longest: int | None = None) -> str:
        length = self._number("Q")
        if longest is not None and length > longest:
            raise _BrokenError(f"has a name of {length} bytes, which is too long")
        return self._bytes(length).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._text()
        if kind == ARRAY:
            return self._list()
        if kind not in NUMBERS:
            raise _BrokenError(f"has a value of the unknown type {kind}")
        return self._number(NUMBERS[kind])

    def _list(self) -> list[Any]:
        kind, count = self._number("I"), self._count()
        if kind in NUMBERS:
            code = f"{count}{NUMBERS[kind]}"
            return list(struct.unpack(f"<{code}", self._bytes(struct.calcsize(f"<{code}"))))
        if kind == ARRAY:
            raise _BrokenError("has a list of lists, which is not supported")
        return [self._value(kind) for _ in range(count)]


LARGEST = {
    "block_count": 1024,
    "embedding_length": 2**18,
    "context_length": 2**31,
}
"""Upper bounds, several times the sizes of the largest models."""
LIMIT = "choose a decoder-only model"
EMBEDDING = "token_embd.weight"
LONG_FACTORS = "rope_factors_long.weight"


def check_gguf(name: str, file: GgufFile) -> None:
    """Raises ConfigError for a file that llama.cpp cannot load, or with which the engine cannot decode."""
    _check_whole(name, file)
    _check_tokenizer(name, file)
    _check_layers(name, file)


def _check_whole(name: str, file: GgufFile) -> None:
    if not file.architecture:
        raise ConfigError(f"{name} does not name its architecture; {AGAIN}")
    parts = file.values.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise ConfigError(f"{name} is one of {parts} parts of a model; merge all parts with llama-gguf-split --merge")
    for key, most in LARGEST.items():
        if not 1 <= (size := file.size(key) or 0) <= most:
            raise ConfigError(f"{name} says that {key} is {quoted(size)}, but it must be 1 to {most}; {AGAIN}")


def _check_tokenizer(name: str, file: GgufFile) -> None:
    if file.values.get("tokenizer.ggml.model") in (None, "none", "no_vocab") or not file.tokens:
        raise ConfigError(f"{name} has no tokenizer; {AGAIN}")
    if len(set(file.tokens)) < len(file.tokens):  # such a file would make llama.cpp abort the process
        raise ConfigError(f"{name} has a tokenizer that names a token twice; {AGAIN}")


def _check_layers(name: str, file: GgufFile) -> None:
    heads = _by_layer(file, "attention.head_count", 1)
    if not (heads and all(heads)) and not file.keeps_states:
        raise ConfigError(f"{name} has no attention heads; {LIMIT}")
    if EMBEDDING not in file.tensors:
        raise ConfigError(f"{name} has no weights of a language model; {AGAIN}")
    if file.values.get(f"{file.architecture}.attention.causal") is False:
        raise ConfigError(f"{name} is an encoder ({file.architecture}), which writes no text; {LIMIT}")
    if LONG_FACTORS in file.tensors:
        raise ConfigError(
            f"{name} has different rotary frequencies for long texts (longrope), so the text would depend on the size "
            "of the cache; choose a model without longrope"
        )


MIB = 1 << 20
INTERVAL = "full_attention_interval"
"""Metadata entry n of hybrid models: every n-th layer has attention, and the other layers keep a state."""


def gguf_words(name: str) -> str:
    """Description of a GGUF file, from its metadata. Raises ConfigError if the engine cannot decode with it."""
    file, shown = gguf_file(name), Path(name).name
    check_gguf(shown, file)
    memory = f"weights of {file.file_bytes / MIB:.0f} MiB"
    if each := row_bytes(file):
        whole = each * (file.size("context_length") or 0)
        memory += f", keys and values: {each / 1024:.0f} KiB per token, {whole / MIB:.0f} MiB for the whole context"
    form = f"llama.cpp, with {BY_PATHS}" if file.keeps_states else "llama.cpp"
    return f"{shown}: {file.architecture}, {file.quantisation}, {memory}; computed by {form}"


def row_bytes(file: GgufFile) -> int | None:
    """Bytes of the keys and values of one token in all layers; None if the metadata lacks the sizes."""
    layers, width = file.size("block_count"), file.size("embedding_length")
    heads = _by_layer(file, "attention.head_count", layers)
    shared = _by_layer(file, "attention.head_count_kv", layers) or heads
    if not layers or not width or not heads or not heads[0]:
        return None
    head = width // heads[0]
    lengths = (file.size("attention.key_length") or head) + (file.size("attention.value_length") or head)
    interval = file.size(INTERVAL) or 1
    return sum(shared[interval - 1 :: interval]) * lengths * (4 if file.in_float32 else 2)


def _by_layer(file: GgufFile, key: str, layers: int | None) -> list[int]:
    """Values of a metadata entry, one for each layer; empty if the entry is missing."""
    value = file.values.get(f"{file.architecture}.{key}")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return [value] * (layers or 0) if isinstance(value, int) else []
