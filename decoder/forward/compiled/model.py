"""A model of a native family whose passes the compiled library computes, and the threads for these passes. Arithmetic
is in float32. A row's bits do not depend on the other rows of its pass, so plain decoding and the verification of a
tree give the same logits, bit for bit. Independent of checkpoints.
"""

import ctypes
import functools
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from decoder.forward.compiled.huge_pages import zeros
from decoder.forward.compiled.library import BestStruct, BestTokens, ModelStruct, PassLibrary, PassStruct
from decoder.forward.families.model import Heads, Rotation
from decoder.forward.kv_cache import KvCache
from decoder.forward.layer_kinds import Windows
from decoder.forward.protocol import Ints, Mask
from decoder.forward.taps import Native, Note
from decoder.sampling.ranking import Best, Ranking


@dataclass(eq=False)
class Helper:
    functions: ctypes.CDLL
    number: int
    """Number of the thread, from 1; the thread that calls for a pass is number 0."""
    job: PassStruct = field(default_factory=PassStruct)
    caller_cpu: int = -1
    """CPU of the thread that began the pass; -1 if unknown."""
    asleep: bool = False
    wakeup: threading.Lock = field(default_factory=threading.Lock)

    def start(self) -> None:
        self.wakeup.acquire()
        threading.Thread(target=self._work, name=f"pass helper {self.number}", daemon=True).start()

    def wake(self, job: PassStruct, caller_cpu: int) -> None:
        """Makes the thread compute a part of a pass, unless the thread is still busy with another pass."""
        if self.asleep:
            self.asleep, self.job, self.caller_cpu = False, job, caller_cpu
            self.wakeup.release()

    def _work(self) -> None:
        while True:
            self.asleep = True
            self.wakeup.acquire()
            if self.functions.dynatui_cpu() == self.caller_cpu >= 0:
                leave_cpu(self.caller_cpu)
            self.functions.dynatui_help(ctypes.addressof(self.job), self.number)


def leave_cpu(cpu: int) -> None:
    """Moves the calling thread to another CPU. Some kernels, mostly in virtual machines, run a thread on the CPU of the
    thread that woke it even if another CPU is idle; both threads then run at half speed.
    """
    if sys.platform == "linux" and (others := os.sched_getaffinity(os.getpid()) - {cpu}):
        os.sched_setaffinity(0, others)


class Team:
    """Threads that compute one pass at a time."""

    def __init__(self, library: PassLibrary) -> None:
        self._functions = library.functions
        self._helpers: list[Helper] = []
        self._busy = threading.Lock()

    def run(self, job: PassStruct, threads: int) -> None:
        """Computes a pass with at most `threads` threads; with one thread if the team is computing another pass."""
        if threads == 1 or not self._busy.acquire(blocking=False):
            job.counters = None
            self._functions.dynatui_pass(ctypes.addressof(job))
            return
        try:
            while len(self._helpers) < threads - 1:
                self._helpers.append(Helper(self._functions, len(self._helpers) + 1))
                self._helpers[-1].start()
            cpu = self._functions.dynatui_cpu()
            for helper in self._helpers[: threads - 1]:
                helper.wake(job, cpu)
            self._functions.dynatui_pass(ctypes.addressof(job))
        finally:
            self._busy.release()


SHARED_FROM = 1 << 23
"""Least number of multiplications of a pass that several threads share; smaller passes end before threads wake up."""
SPARE_KEYS = 256
MADE_AT_ONCE = 1 << 16
"""Number of logits in one allocation, which serves several passes if each has fewer logits."""
STEPS_PER_LAYER, FURTHER_STEPS = 8, 3
"""Upper bounds of the number of steps of a pass: in each layer, and before and after the layers together."""


class Workspace:
    """Buffers that one pass at a time uses; they grow to the largest numbers of rows and keys so far."""

    def __init__(self, model: "CompiledModel") -> None:
        self.job = PassStruct(model=ctypes.pointer(model.described))
        self.tokens = self.positions = (ctypes.c_int32 * 0)()
        self._buffers: dict[str, Tensor] = {}
        self._counters = np.empty(0, dtype=np.int32)
        self._model = model
        self._rows = self._keys = self._threads = self._rotated = 0
        self._rotations = torch.empty(0)
        """Table of rotations; this reference keeps the table in memory, since `job` has only its address."""
        self._new_logits: dict[int, list[Float[Tensor, "N V"]]] = {}
        self._read_rows, self._read_logits = 0, None
        self._best_tokens: dict[tuple[int, int, bool], BestTokens] = {}

    @property
    def hidden(self) -> Float[Tensor, "N X"]:
        """Rows after all layers; valid until the next pass."""
        return self._buffers["residual"]

    def new_logits(self, rows: int) -> Float[Tensor, "N V"]:
        """An uninitialised tensor for the logits of the next pass, which no other pass overwrites."""
        ready = self._new_logits.setdefault(rows, [])
        if not ready:
            # Several tensors are made at once: after a pass, which fills the CPU caches, a torch call takes 20 us.
            columns = self._model.columns
            # A caller outside inference mode could not modify tensors that were made in inference mode.
            with torch.inference_mode(mode=False):
                ready += torch.empty(max(1, MADE_AT_ONCE // (rows * columns)) * rows, columns).split(rows)
        logits = ready.pop()
        self.job.logits = logits.data_ptr()
        return logits

    def best_tokens(self, rows: int, count: int, *, own: bool) -> BestTokens:
        """Memory for the result of the next pass, whose logits are not returned; valid until the next call."""
        self.keep_logits(rows)
        key = rows, count, own
        if key not in self._best_tokens:
            self._best_tokens[key] = BestTokens(rows, count, own=own)
        return self._best_tokens[key]

    def keep_logits(self, rows: int) -> None:
        """Makes the next pass write its logits to memory that later passes overwrite."""
        if rows > self._read_rows:
            self._read_rows = rows
            self._buffer("logits", rows, self._model.columns)
            self._read_logits = self.job.logits
        self.job.logits = self._read_logits

    def make_room(self, rows: int, keys: int, threads: int, position: int) -> None:
        """Enlarges the buffers that are too small for a pass; `position` is the largest position of the pass."""
        model, columns = self._model, self._model.library.columns
        if position >= self._rotated:
            self._rotations = model.rotation.table(position)
            self.job.rotations, self._rotated = self._rotations.data_ptr(), len(self._rotations)
        if rows > self._rows:
            self._rows = rows
            self.tokens, self.positions = (ctypes.c_int32 * rows)(), (ctypes.c_int32 * rows)()
            self.job.tokens, self.job.positions = map(ctypes.addressof, (self.tokens, self.positions))
            width, heads = padded(model.embedding.shape[1], columns), model.heads
            for name in ("residual", "normed", "normed_mlp"):
                self._buffer(name, rows, width)
            self._buffer("attended", rows, padded(heads.queries + 2 * heads.heads * heads.width, columns))
            self._buffer("hidden", rows, padded(model.inner, columns))
        if keys > self._keys or threads > self._threads:
            self._keys, self._threads = max(self._keys, keys + SPARE_KEYS), max(self._threads, threads)
            # `passes.c` writes up to one vector of numbers after the last score.
            self.job.scores_stride = self._keys + columns
            self._buffer("scores", self._threads * model.library.queries, self.job.scores_stride)
        if threads > 1:
            if not len(self._counters):
                steps = STEPS_PER_LAYER * model.layers + FURTHER_STEPS
                self._counters = np.empty(steps * model.library.line, dtype=np.int32)
            self._counters.fill(0)
            self.job.counters = self._counters.ctypes.data

    def _buffer(self, name: str, *shape: int) -> None:
        self._buffers[name] = torch.empty(shape)
        setattr(self.job, name, self._buffers[name].data_ptr())


@dataclass(eq=False)
class CompiledModel(Native):
    library: PassLibrary
    embedding: Float[Tensor, "V X"]
    rotation: Rotation
    heads: Heads
    windows: Windows
    layers: int
    inner: int
    """Width of the MLP's intermediate layer."""
    described: ModelStruct
    held: Sequence[object]
    """Objects that own the memory to which `described` points."""
    weights: int
    """Number of weights of all matrices."""
    weight_bytes: int
    """Size of all matrices in bytes, as stored."""
    notes: Mapping[int, Note] = field(default_factory=dict)
    spaces: list[Workspace] = field(default_factory=list)
    """Workspaces that no pass uses at present."""
    vocabulary: int = field(init=False)
    columns: int = field(init=False)
    """Length of a row of logits in memory, with padding."""
    team: Team = field(init=False)

    def __post_init__(self) -> None:
        # Sizes are stored, since right after a pass even reading the shape of a tensor takes 10 us.
        self.vocabulary = len(self.embedding)
        self.columns = padded(self.vocabulary, self.library.columns)
        self.team = team(self.library)

    def noting(self, notes: Mapping[int, Note]) -> "CompiledModel":
        """As `Native.noting`, but all notes are called after the pass."""
        return replace(self, notes=notes, spaces=[])

    def new_cache(self, capacity: int) -> KvCache:
        cache = KvCache(zeros((self.layers, 2, self.heads.heads, capacity, self.heads.width)))
        return cache.with_positions() if self.windows.sizes else cache

    def forward(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask) -> Float[Tensor, "N V"]:
        space, logits = self._logits(cache, tokens, positions, visible, 0)
        self.spaces.append(space)
        return logits

    def read(self, cache: KvCache, tokens: Sequence[int]) -> Float[Tensor, "V"]:
        positions = range(cache.length, cache.length + len(tokens))
        space, logits = self._logits(cache, tokens, positions, _causal_mask(len(tokens)), len(tokens) - 1)
        self.spaces.append(space)
        cache.keep(positions)
        return logits[0]

    def best(self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, ranking: Ranking) -> Best:
        """As `LanguageModel.best`, but the library ranks the tokens within the pass, so `ranking` must not need logits;
        the same is true of `best_after`.
        """
        return self._best(cache, tokens, positions, visible, 0, ranking)

    def best_after(self, cache: KvCache, tokens: Sequence[int], ranking: Ranking) -> Best:
        positions = range(cache.length, cache.length + len(tokens))
        best = self._best(cache, tokens, positions, _causal_mask(len(tokens)), len(tokens) - 1, ranking)
        cache.keep(positions)
        return best

    def read_ranked(self, space: Workspace, cache: KvCache, tokens: Sequence[int], best: BestStruct) -> None:
        """Like `best_after`, but writes the result to `best`, which the caller has allocated."""
        positions = range(cache.length, cache.length + len(tokens))
        self._run(space, cache, tokens, positions, _causal_mask(len(tokens)), len(tokens) - 1, best)
        cache.keep(positions)

    def threads(self, rows: int) -> int:
        return torch.get_num_threads() if rows * self.weights >= SHARED_FROM else 1

    @property
    def rows_alone(self) -> int:
        """Largest number of rows of a pass by one thread."""
        return sys.maxsize if torch.get_num_threads() == 1 else (SHARED_FROM - 1) // self.weights

    def with_hidden(
        self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, first_logits: int = 0
    ) -> tuple[Float[Tensor, "N X"], Float[Tensor, "M V"]]:
        space, logits = self._logits(cache, tokens, positions, visible, first_logits)
        hidden = space.hidden[: len(tokens), : self.embedding.shape[1]].clone()
        self.spaces.append(space)
        return hidden, logits

    def _best(
        self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, first_logits: int, ranking: Ranking
    ) -> Best:
        space, rows = self._space(), len(tokens) - first_logits
        best = space.best_tokens(rows, min(ranking.count, self.vocabulary), own=ranking.own)
        best.ask(ranking.estimate)
        self._run(space, cache, tokens, positions, visible, first_logits, best.struct)
        self.spaces.append(space)
        return best.lists()

    def _logits(
        self, cache: KvCache, tokens: Ints, positions: Ints, visible: Mask, first_logits: int
    ) -> tuple[Workspace, Float[Tensor, "M V"]]:
        space = self._space()
        logits = space.new_logits(len(tokens) - first_logits)
        self._run(space, cache, tokens, positions, visible, first_logits)
        return space, logits if self.columns == self.vocabulary else logits[:, : self.vocabulary]

    def _space(self) -> Workspace:
        return self.spaces.pop() if self.spaces else Workspace(self)

    def _run(
        self,
        space: Workspace,
        cache: KvCache,
        tokens: Ints,
        positions: Ints,
        visible: Mask,
        first_logits: int,
        best: BestStruct | None = None,
    ) -> None:
        rows, used, capacity = len(tokens), cache.used, cache.capacity
        keys = used + rows
        # The library checks no bounds.
        if keys > capacity or min(tokens) < 0 or max(tokens) >= self.vocabulary or min(positions) < 0:
            raise IndexError(
                f"{rows} rows do not fit: {keys} of {capacity} cached rows, tokens below {self.vocabulary}"
            )
        threads = self.threads(rows)
        space.make_room(rows, keys, threads, max(positions))
        # Arrays of ctypes and bytes: numpy would take three times as long for a few numbers.
        space.tokens[:rows], space.positions[:rows] = [*tokens], [*positions]
        taps = {number: torch.empty(rows, self.described.width) for number in self.notes}
        job, pointers = space.job, _addresses(taps, self.layers) if taps else None
        job.visible, job.recent = visible.tobytes(), visible.shape[1]
        job.stored_positions = cache.note(positions).ctypes.data if self.windows.sizes else None
        job.store, job.capacity, job.used = cache.store.data_ptr(), capacity, used
        job.taps = ctypes.addressof(pointers) if pointers else None
        job.rows, job.first_logits = rows, first_logits
        job.best = ctypes.addressof(best) if best else None
        self.team.run(job, threads)
        cache.used = keys
        for number, note in self.notes.items():
            note(taps[number], None, number)


@functools.lru_cache(maxsize=16)
def _causal_mask(rows: int) -> Mask:
    """Cached, since most passes that read text in a round have the same few numbers of rows."""
    return np.tri(rows, dtype=np.bool_)


def _addresses(tensors: Mapping[int, Tensor], count: int) -> "ctypes.Array[ctypes.c_void_p]":
    """Addresses of the tensors 0 to `count` - 1; null for missing tensors."""
    return (ctypes.c_void_p * count)(*(tensors[at].data_ptr() if at in tensors else None for at in range(count)))


@functools.cache
def team(library: PassLibrary) -> Team:
    return Team(library)


def padded(count: int, columns: int) -> int:
    """The least multiple of `columns` that is not less than `count`."""
    return -(-count // columns) * columns
