"""The library of compiled passes: found for this CPU, loaded, and described as ctypes structs.

`hatch_build.py` builds it with the package, once for each level of the instruction set. Knows the layouts of
`passes.c`, and nothing of models.
"""

import ctypes
import functools
import hashlib
import platform
import sys
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("passes.c")
LEVELS = {"AVX512": "x86_64_v4", "AVX2": "x86_64_v3"}
"""Level of the instruction set by torch's name of the CPU's capability; other x86-64 CPUs have the level `LEAST`."""
LEAST = "x86_64_v2"
ENDINGS = {"win32": "dll", "darwin": "dylib"}
"""Endings of libraries by `sys.platform`; `so` elsewhere."""
NUMBERS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Numbers of the dtypes in which weights are stored."""
ADVICE = "install dynatui again, with the same command"
"""How to get a library."""


class Matrix(Structure):
    """A linear layer whose weights are stored in panels."""

    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        *((name, c_int32) for name in ("inputs", "panels", "number")),
    )


class Norm(Structure):
    """A norm; RMS norms have no bias."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p))


class Layer(Structure):
    """A layer; a window of 0 tokens is none, and so is a norm of heads without a weight."""

    _fields_ = (
        *((name, Norm) for name in ("attention_norm", "mlp_norm", "query_norm", "key_norm")),
        *((name, Matrix) for name in ("inward", "outward", "up", "down")),
        ("window", c_int32),
    )


class Model(Structure):
    """A model."""

    _fields_ = (
        *((name, c_int32) for name in ("layer_count", "width", "inner", "heads", "groups", "head", "rotated")),
        *((name, c_int32) for name in ("parallel", "gated", "activation", "vocabulary", "embedding_number")),
        ("epsilon", c_float),
        ("scale", c_float),
        ("embedding", c_void_p),
        ("layers", POINTER(Layer)),
        ("last_norm", Norm),
        ("output", Matrix),
    )


class Pass(Structure):
    """A pass, with its buffers."""

    _fields_ = (
        ("model", POINTER(Model)),
        *((name, c_void_p) for name in ("tokens", "positions", "visible", "stored_positions", "rotations", "store")),
        *((name, c_void_p) for name in ("taps", "residual", "normed", "normed_mlp", "attended", "hidden", "logits")),
        ("scores", c_void_p),
        *((name, c_int64) for name in ("capacity", "used", "scores_stride")),
        *((name, c_int32) for name in ("rows", "recent", "first_logits")),
        ("counters", c_void_p),
        ("gate", c_int32 * 2),
    )


@dataclass(frozen=True)
class Library:
    """The loaded library."""

    functions: ctypes.CDLL
    columns: int
    """Number of output columns of a panel."""
    lanes: int
    """Number of columns of a vector."""
    line: int
    """Number of counters of a step."""
    queries: int
    """Largest number of rows whose attention a thread computes together."""


def machine() -> str:
    """Instruction set of this process, as in the library's name; it follows torch's choice, so ATEN_CPU_CAPABILITY
    also lowers the level of this library.
    """
    name = platform.machine().lower()
    if name in {"x86_64", "amd64"}:
        return LEVELS.get(torch.backends.cpu.get_cpu_capability(), LEAST)
    return {"arm64": "aarch64"}.get(name, name)


def library_path() -> Path:
    """Where the library for this CPU is, if the package was built for it."""
    return SOURCE.with_name(f"passes-{machine()}.{ENDINGS.get(sys.platform, 'so')}")


def source_number(source: Path = SOURCE) -> int:
    """Number that identifies the source text a library was built from."""
    return int.from_bytes(hashlib.sha256(source.read_bytes()).digest()[:4], "little") >> 1


@functools.cache
def library() -> Library | None:
    """The library for this CPU; None if there is none, see `missing`."""
    if missing():
        return None
    functions = ctypes.CDLL(str(library_path()))
    functions.dynatui_pass.argtypes, functions.dynatui_pass.restype = [c_void_p], None
    functions.dynatui_help.argtypes, functions.dynatui_help.restype = [c_void_p, c_int32], None
    functions.dynatui_best.argtypes = [c_void_p, c_int64, *[c_void_p] * 2, *[c_int32] * 3, *[c_void_p] * 3]
    functions.dynatui_choices.argtypes = [c_void_p, c_int64, c_void_p, *[c_int32] * 2, c_void_p]
    functions.dynatui_best.restype = functions.dynatui_choices.restype = None
    sizes = (c_int32 * 4)()
    functions.dynatui_sizes(sizes)
    return Library(functions, *sizes)


@functools.cache
def missing() -> str:
    """Why there is no library for this CPU; empty if there is one. For the remedy, see `ADVICE`."""
    path = library_path()
    if not path.exists():
        return f"dynatui was not built for this CPU: {path.name} is missing"
    built_from = ctypes.CDLL(str(path)).dynatui_source()
    return "" if built_from == source_number() else f"{path.name} was built from another passes.c"
