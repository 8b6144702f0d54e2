"""A loaded GGUF model of llama.cpp, and its contexts (KV caches with their passes). When the Python object of a model
or context is freed, llama.cpp frees the model or context too.

llama.cpp ends the process on some wrong calls, so sizes are checked here before each call.
"""

import ctypes as c
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from decoder.errors import ConfigError, DeviceError, ModelError, shortened
from decoder.forward.llama_cpp.library import (
    FLOAT16,
    FLOAT32,
    NO_FLASH_ATTENTION,
    PACKAGE,
    RELEASE,
    Batch,
    IntPointer,
    LlamaLibrary,
    library,
)

MOST_ROWS = 512
CACHE_STEP = 256
"""Rows are reserved in multiples of this number, as llama.cpp does."""
ALL_LAYERS = -1


class LlamaModel:
    def __init__(self, path: Path, *, gpu_layers: int | None = None, words_only: bool = False) -> None:
        """Loads a file whose contents were already checked. If `gpu_layers` is None, llama.cpp chooses a number. Raises
        ConfigError if the pinned library is missing or cannot load the file, ModelError if the library is unusable.
        """
        self.library = library()
        params = self.library.model_default_params()
        params.vocab_only = words_only
        params.n_gpu_layers = ALL_LAYERS if gpu_layers is None else gpu_layers
        self.library.last_error()
        self.handle: int | None = self.library.model_load_from_file(str(path).encode(), params)
        if not self.handle:
            why = self.library.last_error() or "the library gives no reason"
            raise ConfigError(f"llama.cpp cannot load {shortened(path)}: {why}; choose another file")
        weakref.finalize(self, self.library.model_free, self.handle)
        self.vocabulary: int = self.library.model_get_vocab(self.handle)
        self.width: int = self.library.vocab_n_tokens(self.vocabulary)

    @property
    def keeps_states(self) -> bool:
        """Whether some layers have a state; the state after fewer tokens cannot be recovered."""
        return bool(self.library.model_is_recurrent(self.handle) or self.library.model_is_hybrid(self.handle))


class Context:
    """A KV cache of a model, and the passes that use it; sequence 0 holds a text, other sequences hold draft paths."""

    def __init__(self, model: LlamaModel, rows: int, sequences: int, *, half: bool, threads: int) -> None:
        """Keys and values are float16 if `half`, else float32. Raises DeviceError if there is too little memory,
        ModelError if the library's parameters have another layout than expected.
        """
        self._model, self._library = model, model.library
        self._threads = threads
        params = self._library.context_default_params()
        sizes = {
            # At least MOST_ROWS, because llama.cpp lowers n_batch to n_ctx.
            "n_ctx": max(MOST_ROWS, -(-rows // CACHE_STEP) * CACHE_STEP),
            "n_batch": MOST_ROWS,
            "n_ubatch": MOST_ROWS,
            "n_seq_max": sequences,
        }
        others = {
            "type_k": FLOAT16 if half else FLOAT32,
            "type_v": FLOAT16 if half else FLOAT32,
            "flash_attn_type": NO_FLASH_ATTENTION,
            "kv_unified": True,
            "swa_full": True,
            "n_threads": threads,
            "n_threads_batch": threads,
        }
        for name, value in {**sizes, **others}.items():
            setattr(params, name, value)
        self._library.last_error()
        handle: int | None = self._library.init_from_model(model.handle, params)
        if not handle:
            why = self._library.last_error() or "the library gives no reason"
            raise DeviceError(
                f"llama.cpp cannot allocate a KV cache of {rows} rows: {why}; give fewer --max-new-tokens"
            )
        self._handle: int = handle
        # The finalizer references the model, so that the model is freed after its contexts.
        weakref.finalize(self, _free, self._library, handle, model)
        _require_sizes(self._library, handle, sizes)
        self.rows: int = sizes["n_ctx"]
        self._memory: int = self._library.get_memory(handle)
        self._batch = _Arrays(MOST_ROWS, sequences)

    def decode(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: Sequence[bool],
    ) -> NDArray[np.float32]:
        """A copy of the logits of the wanted rows. Raises ValueError if a token or the number of rows is out of bounds,
        DeviceError if the pass failed.
        """
        if not 0 < len(tokens) <= MOST_ROWS or min(tokens) < 0 or max(tokens) >= self._model.width:
            raise ValueError(f"a pass cannot have {len(tokens)} rows with tokens from {min(tokens)} to {max(tokens)}")
        batch = self._batch.filled(tokens, positions, sequences, wanted)
        result = self._library.decode(self._handle, batch)
        if result:
            why = self._library.last_error() or f"llama_decode returned {result}"
            raise DeviceError(f"llama.cpp failed in a pass of {len(tokens)} rows: {why}; give fewer --max-new-tokens")
        count = sum(map(bool, wanted))
        if not count:
            return np.zeros((0, self._model.width), np.float32)
        logits = self._library.get_logits(self._handle)
        return np.ctypeslib.as_array(logits, shape=(count, self._model.width)).copy()

    def use_threads(self, count: int) -> None:
        if count != self._threads:
            self._library.set_n_threads(self._handle, count, count)
            self._threads = count

    def copy(self, source: int, target: int, end: int = -1) -> None:
        """Copies a sequence's rows at positions below `end`, by default all rows."""
        self._library.memory_seq_cp(self._memory, source, target, 0, end)

    def keep_only(self, sequence: int) -> None:
        self._library.memory_seq_keep(self._memory, sequence)

    def drop(self, sequence: int, start: int = 0) -> None:
        """Drops a sequence's rows from position `start` on. Raises ModelError if llama.cpp cannot drop them."""
        if not self._library.memory_seq_rm(self._memory, sequence, start, -1):
            raise ModelError("llama.cpp cannot drop rows from this model's memory; choose a model with full attention")

    def clear(self) -> None:
        self._library.memory_clear(self._memory, False)

    def state(self) -> bytes:
        """All rows with their sequences; `restore` can load them into another context of the model."""
        size = self._library.state_get_size(self._handle)
        buffer = c.create_string_buffer(size)
        written = self._library.state_get_data(self._handle, buffer, size)
        return buffer.raw[:written]

    def restore(self, state: bytes) -> None:
        if self._library.state_set_data(self._handle, state, len(state)) != len(state):
            raise DeviceError(f"llama.cpp cannot enlarge its cache: {self._library.last_error()}; restart the run")


def _free(library: LlamaLibrary, handle: int, _model: LlamaModel) -> None:
    library.free(handle)


def _require_sizes(library: LlamaLibrary, handle: int, sizes: Mapping[str, int]) -> None:
    for name, asked in sizes.items():
        if (got := getattr(library, name)(handle)) != asked:
            raise ModelError(
                f"llama.cpp of {PACKAGE} reads {name} {asked} as {got}, so its struct layouts are not those of release "
                f"{RELEASE}; reinstall {PACKAGE}"
            )


class _Arrays:
    """Reused arrays for the arguments of passes: filling new ctypes arrays would take as long as a small pass."""

    def __init__(self, rows: int, sequences: int) -> None:
        self._tokens, self._positions, self._counts = (np.zeros(rows, np.int32) for _ in range(3))
        self._wanted = np.zeros(rows, np.int8)
        self._sequences = np.zeros((rows, sequences), np.int32)
        first, stride = self._sequences.ctypes.data, self._sequences.strides[0]
        self._rows = (IntPointer * rows)(*(c.cast(first + row * stride, IntPointer) for row in range(rows)))
        self._batch = Batch(
            token=self._tokens.ctypes.data_as(IntPointer),
            pos=self._positions.ctypes.data_as(IntPointer),
            n_seq_id=self._counts.ctypes.data_as(IntPointer),
            seq_id=c.cast(self._rows, c.POINTER(IntPointer)),
            logits=self._wanted.ctypes.data_as(c.POINTER(c.c_int8)),
        )

    def filled(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        wanted: Sequence[bool],
    ) -> Any:
        """The arguments of one pass, as a `Batch` that is valid until the next call."""
        count = len(tokens)
        self._tokens[:count], self._positions[:count] = tokens, positions
        self._wanted[:count] = wanted
        for row, members in enumerate(sequences):
            self._counts[row] = len(members)
            self._sequences[row, : len(members)] = members
        self._batch.n_tokens = count
        return self._batch
