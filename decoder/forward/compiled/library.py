"""The compiled library of `passes.c`, which `hatch_build.py` builds for each level of the instruction set, and the
layouts of its structs. Independent of how models are stored.
"""

import ctypes
import functools
import hashlib
import platform
import sys
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.sampling.noise import Estimate, Offsets, gumbel_by_numpy, starts_on_host
from decoder.sampling.ranking import Best
from decoder.sampling.settings import Sampling

SOURCE = Path(__file__).with_name("passes.c")
LEVELS = {"AVX512": "x86_64_v4", "AVX2": "x86_64_v3"}
"""Instruction set level by torch's name of the CPU's capability; other x86-64 CPUs have the level `LEAST`."""
LEAST = "x86_64_v2"
ENDINGS = {"win32": "dll", "darwin": "dylib"}
"""File ending of libraries by `sys.platform`; `so` on all other platforms."""
NUMBERS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
LOWEST, MOST = 1e-30, (1 << 31) - 1
"""Least temperature and largest top-k that a `TruncationStruct` gets."""
ADVICE = "install dynatui again, with the same command"


class MatrixStruct(Structure):
    """A linear layer; its weights are stored in panels, each of which has the weights of `columns` outputs."""

    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        *((name, c_int32) for name in ("inputs", "panels", "number")),
    )


class NormStruct(Structure):
    """A norm; `bias` is null for an RMS norm."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class TruncationStruct(Structure):
    """Temperature, top-k and top-p of a `Sampling`; see `_numbers`."""

    _fields_ = (("temperature", c_float), ("top_k", c_int32), ("top_p", c_double))


class LayerStruct(Structure):
    """A layer; 0 as `window` means full attention, and a null weight of a query or key norm means no such norm."""

    _fields_ = (
        *((name, NormStruct) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm")),
        *((name, MatrixStruct) for name in ("inward", "outward", "up", "down")),
        ("window", c_int32),
    )


class ModelStruct(Structure):
    _fields_ = (
        *((name, c_int32) for name in ("layer_count", "width", "inner", "heads", "groups", "head", "rotated")),
        *((name, c_int32) for name in ("parallel", "gated", "activation", "vocabulary", "embedding_number")),
        ("epsilon", c_float),
        ("scale", c_float),
        ("embedding", c_void_p),
        ("layers", POINTER(LayerStruct)),
        ("last_norm", NormStruct),
        ("output", MatrixStruct),
    )


class BestStruct(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("offsets", "factors", "tokens", "logprobs", "own_logprobs")),
        ("count", c_int32),
    )


class PassStruct(Structure):
    _fields_ = (
        ("model", POINTER(ModelStruct)),
        *((name, c_void_p) for name in ("tokens", "positions")),
        ("visible", c_char_p),
        *((name, c_void_p) for name in ("stored_positions", "rotations", "store")),
        *((name, c_void_p) for name in ("taps", "residual", "normed", "normed_mlp", "attended", "hidden", "logits")),
        ("scores", c_void_p),
        *((name, c_int64) for name in ("capacity", "used", "scores_stride")),
        *((name, c_int32) for name in ("rows", "recent", "first_logits")),
        *((name, c_void_p) for name in ("best", "counters")),
        ("gate", c_int32 * 2),
    )


@dataclass(frozen=True)
class PassLibrary:
    functions: ctypes.CDLL
    columns: int
    """Number of outputs of a panel."""
    lanes: int
    """Number of float32 values of a SIMD vector."""
    line: int
    """Number of 4-byte counters reserved for each step of a pass, so that steps share no cache line."""
    queries: int
    """Largest number of rows whose attention a thread computes at once."""


def machine() -> str:
    """Name of the CPU's instruction set; on x86-64, the level that torch uses, which ATEN_CPU_CAPABILITY can lower."""
    name = platform.machine().lower()
    if name in {"x86_64", "amd64"}:
        return LEVELS.get(torch.backends.cpu.get_cpu_capability(), LEAST)
    return {"arm64": "aarch64"}.get(name, name)


def library_path() -> Path:
    return SOURCE.with_name(f"passes-{machine()}.{ENDINGS.get(sys.platform, 'so')}")


def source_number(folder: Path = SOURCE.parent) -> int:
    """Hash of the C files of a folder; a library returns the hash of the C files from which it was built."""
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.c")))
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "little") >> 1


@functools.cache
def library() -> PassLibrary | None:
    """The library for this CPU; None if `missing` gives a reason."""
    if missing():
        return None
    functions = ctypes.CDLL(str(library_path()))
    functions.dynatui_pass.argtypes, functions.dynatui_pass.restype = [c_void_p], None
    functions.dynatui_help.argtypes, functions.dynatui_help.restype = [c_void_p, c_int32], None
    functions.dynatui_best.argtypes = [c_void_p, c_int64, *[c_int32] * 2, c_void_p]
    functions.dynatui_gumbel.argtypes, functions.dynatui_gumbel.restype = [c_void_p, *[c_int32] * 2, c_void_p], None
    functions.dynatui_choices.argtypes = [c_void_p, c_int64, c_void_p, *[c_int32] * 2, c_void_p]
    functions.dynatui_truncate.argtypes = [c_void_p, c_int64, *[c_void_p] * 2, *[c_int32] * 2, c_float, *[c_void_p] * 2]
    functions.dynatui_best.restype = functions.dynatui_choices.restype = functions.dynatui_truncate.restype = None
    functions.dynatui_kept_choice.argtypes = [*[c_void_p] * 3, c_int32, c_void_p]
    functions.dynatui_kept_choice.restype = c_int32
    sizes = (c_int32 * 4)()
    functions.dynatui_sizes(sizes)
    functions.dynatui_begin_tree.argtypes, functions.dynatui_begin_tree.restype = [c_void_p, c_int64, c_int32], None
    functions.dynatui_set_level.argtypes, functions.dynatui_set_level.restype = [c_void_p], None
    functions.dynatui_grow.argtypes = [c_void_p]
    return PassLibrary(functions, *sizes)


@functools.cache
def missing() -> str:
    """Reason why no library can be used on this CPU; empty if one can."""
    path = library_path()
    if not path.exists():
        return f"dynatui was not built for this CPU: {path.name} is missing"
    built_from = ctypes.CDLL(str(path)).dynatui_source()
    return "" if built_from == source_number() else f"{path.name} was built from other C files"


class BestTokens:
    """Request for the `count` best tokens of each row of logits, and memory for the result. The best token comes first;
    tokens with equal scores are ordered by id. Scores are (logits + offsets) * factors.
    """

    def __init__(self, rows: int, count: int, *, own: bool = False) -> None:
        """With `own`, the result includes the tokens' log-probabilities by the logits, without offsets and factors."""
        self._count, numbers = count, c_float * (rows * count)
        self._tokens, self._logprobs = (c_int32 * (rows * count))(), numbers()
        self._own = (numbers if own else c_float * 0)()
        self._factors, self._addresses = (c_float * rows)(), (c_void_p * rows)()
        self._offsets: Offsets | None = None
        self.struct = BestStruct(
            None,
            None,
            ctypes.addressof(self._tokens),
            ctypes.addressof(self._logprobs),
            ctypes.addressof(self._own) if own else None,
            count,
        )

    def ask(self, estimate: Estimate | None) -> None:
        """Sets the factors and offsets of an estimate, but not its truncation. If None, the scores are the logits."""
        self.struct.factors = self.struct.offsets = None
        if estimate is not None:
            self._factors[:] = [*estimate.factors]
            self.struct.factors = ctypes.addressof(self._factors)
            self.set_offsets(estimate.offsets)

    def set_offsets(self, offsets: Offsets | None) -> None:
        self._offsets = offsets
        if offsets is not None:
            self._addresses[:] = [row.data_ptr() for row in offsets]
            self.struct.offsets = ctypes.addressof(self._addresses)

    def lists(self) -> Best:
        """For each row: tokens, their log-probabilities by the scores, and (with `own`) by the logits. A row's
        log-probabilities are NaN if its scores have NaN or plus infinity, or no finite number.
        """
        tokens, logprobs, own = self._tokens[:], self._logprobs[:], self._own[:]
        if len(tokens) == self._count:
            return Best([tokens], [logprobs], [own])
        parts = [slice(at, at + self._count) for at in range(0, len(tokens), self._count)]
        return Best([tokens[part] for part in parts], [logprobs[part] for part in parts], [own[part] for part in parts])


def best_tokens(library: PassLibrary, logits: Float[Tensor, "N V"], best: BestTokens) -> None:
    """Fills `best` for logits in the layout that `in_rows` makes."""
    library.functions.dynatui_best(logits.data_ptr(), logits.stride(0), *logits.shape, ctypes.byref(best.struct))


def chosen_tokens(library: PassLibrary, logits: Float[Tensor, "N V"], offsets: Offsets | None = None) -> list[int]:
    """Each row's token with the largest logit plus offset; of equals, the lowest id; -1 where `choices` would raise."""
    rows, vocabulary = logits.shape
    tokens = (ctypes.c_int32 * rows)()
    library.functions.dynatui_choices(
        logits.data_ptr(), logits.stride(0), _addresses(offsets), rows, vocabulary, tokens
    )
    return list(tokens)


def truncated_offsets(
    library: PassLibrary,
    logits: Float[Tensor, "N V"],
    offsets: Offsets | None,
    settings: Sequence[Sampling],
    penalty: float,
) -> Float[Tensor, "N V"]:
    """The offsets, minus the penalty for tokens that truncation by the row's settings excludes. Up to rounding of the
    sum of probabilities, `decoder.sampling.truncation.truncation_mask` excludes the same tokens.
    """
    rows, vocabulary = logits.shape
    weights, truncated = logits.new_empty(vocabulary + library.lanes), logits.new_empty(rows, vocabulary)
    library.functions.dynatui_truncate(
        logits.data_ptr(),
        logits.stride(0),
        _addresses(offsets),
        (TruncationStruct * rows)(*(TruncationStruct(*_numbers(each)) for each in settings)),
        rows,
        vocabulary,
        penalty,
        weights.data_ptr(),
        truncated.data_ptr(),
    )
    return truncated


def kept_token(library: PassLibrary, logits: Float[Tensor, "V"], offset: Float[Tensor, "V"], sampling: Sampling) -> int:
    """The token with the largest logit plus offset among those that truncation keeps; -1 as in `chosen_tokens`."""
    weights = logits.new_empty(len(logits) + library.lanes)
    truncation = TruncationStruct(*_numbers(sampling))
    addresses = logits.data_ptr(), offset.data_ptr(), ctypes.byref(truncation)
    token: int = library.functions.dynatui_kept_choice(*addresses, len(logits), weights.data_ptr())
    return token


def gumbel_noise(library: PassLibrary, starts: Sequence[int], vocabulary: int) -> Float[Tensor, "N V"]:
    """Gumbel noise of all tokens of a vocabulary from `decoder.sampling.noise.starts_on_host`."""
    noise = torch.empty(len(starts), vocabulary)
    library.functions.dynatui_gumbel((c_uint64 * len(starts))(*starts), *noise.shape, noise.data_ptr())
    return noise


def _numbers(sampling: Sampling) -> tuple[float, int, float]:
    """Temperature, top-k and top-p for a `TruncationStruct`. The temperature and top-k are clamped to the ranges of
    their fields, which does not change the kept tokens. Without truncation, the numbers keep all tokens.
    """
    if not sampling.truncates:
        return 1.0, 0, 1.0
    return max(sampling.temperature, LOWEST), min(sampling.top_k, MOST), sampling.top_p


def _addresses(offsets: Offsets | None) -> "ctypes.Array[ctypes.c_void_p] | None":
    if offsets is None:
        return None
    return (ctypes.c_void_p * len(offsets))(*(row.data_ptr() for row in offsets))


def in_rows(logits: Float[Tensor, "N V"]) -> Float[Tensor, "N V"]:
    """The logits in float32, with the columns of a row adjacent in memory; copied only if necessary."""
    # Right after a pass, a call of torch takes 15 us even if it changes nothing, so unneeded calls are avoided.
    rows = logits if logits.dtype is torch.float32 else logits.float()
    return rows if rows.stride(-1) == 1 else rows.contiguous()


def gumbel_on_host(seed: int, positions: Sequence[int], vocabulary: int) -> Float[Tensor, "N V"]:
    """Gumbel noise, by the compiled library if there is one, since numpy's temporary arrays cost page faults."""
    if found := library():
        return gumbel_noise(found, starts_on_host(seed, positions), vocabulary)
    return gumbel_by_numpy(seed, positions, vocabulary)
