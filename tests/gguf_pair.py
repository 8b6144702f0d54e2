"""Writes GGUF files for tests: the embedded pair, and tiny random models of architectures whose layers keep a state,
with the embedded pair's tokenizer.

Names and shapes of tensors are those that llama.cpp's loader expects, the innermost dimension first.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.gguf_files import add_tokenizer, finish, write
from decoder.engine import Engine
from decoder.forward.llama_cpp.library import PACKAGE
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET

WIDTH, INNER, STATE, KERNEL, HEADS, HEAD, FEED, VOCABULARY, CONTEXT = 64, 128, 16, 4, 4, 16, 96, 2048, 1024
Shapes = dict[str, tuple[int, ...]]
MIXER: dict[str, Any] = {"ssm.conv_kernel": KERNEL, "ssm.state_size": STATE, "ssm.time_step_rank": HEADS}
ATTENTION: dict[str, Any] = {"attention.head_count": HEADS, "feed_forward_length": FEED}
DENSE: Shapes = {"ffn_gate.weight": (WIDTH, FEED), "ffn_up.weight": (WIDTH, FEED), "ffn_down.weight": (FEED, WIDTH)}
PROJECTIONS: Shapes = {
    "attn_q.weight": (WIDTH, HEADS * HEAD), "attn_k.weight": (WIDTH, 2 * HEAD), "attn_v.weight": (WIDTH, 2 * HEAD),
    "attn_output.weight": (HEADS * HEAD, WIDTH),
}  # fmt: skip
NORMS: Shapes = {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
DELTA: dict[str, Any] = ATTENTION | MIXER | {
    "attention.head_count_kv": 2, "attention.key_length": HEAD, "attention.value_length": HEAD, "ssm.group_count": 2,
    "rope.dimension_count": HEAD, "ssm.inner_size": HEADS * STATE, "full_attention_interval": 2,
}  # fmt: skip
EXPERTS, EXPERT = 4, 32


def _mamba(_layer: int) -> Shapes:
    rank = HEADS
    return {
        "attn_norm.weight": (WIDTH,), "ssm_in.weight": (WIDTH, 2 * INNER), "ssm_conv1d.weight": (KERNEL, INNER),
        "ssm_conv1d.bias": (INNER,), "ssm_x.weight": (INNER, rank + 2 * STATE), "ssm_dt.weight": (rank, INNER),
        "ssm_dt.bias": (INNER,), "ssm_a": (STATE, INNER), "ssm_d": (INNER,), "ssm_out.weight": (INNER, WIDTH),
    }  # fmt: skip


def _mamba2(_layer: int, groups: int = 2) -> Shapes:
    convolved = INNER + 2 * groups * STATE
    return {
        "attn_norm.weight": (WIDTH,), "ssm_in.weight": (WIDTH, INNER + convolved + HEADS),
        "ssm_conv1d.weight": (KERNEL, convolved), "ssm_conv1d.bias": (convolved,), "ssm_dt.bias": (HEADS,),
        "ssm_a": (1, HEADS), "ssm_d": (1, HEADS), "ssm_norm.weight": (INNER // groups, groups),
        "ssm_out.weight": (INNER, WIDTH),
    }  # fmt: skip


def _lfm2(layer: int) -> Shapes:
    convolution: Shapes = {
        "shortconv.conv.weight": (3, WIDTH), "shortconv.in_proj.weight": (WIDTH, 3 * WIDTH),
        "shortconv.out_proj.weight": (WIDTH, WIDTH),
    }  # fmt: skip
    mixer = PROJECTIONS | NORMS if layer == 1 else convolution
    return {"attn_norm.weight": (WIDTH,), "ffn_norm.weight": (WIDTH,)} | mixer | DENSE


def _falcon_h1(layer: int) -> Shapes:
    return {"ffn_norm": (WIDTH,)} | _mamba2(layer, groups=1) | PROJECTIONS | DENSE


def _delta(layer: int, gates: Shapes) -> Shapes:
    keys, values = 2 * STATE, HEADS * STATE
    delta: Shapes = {
        "attn_qkv.weight": (WIDTH, 2 * keys + values), "attn_gate.weight": (WIDTH, values),
        "ssm_conv1d.weight": (KERNEL, 2 * keys + values), "ssm_dt.bias": (HEADS,), "ssm_a": (HEADS,),
        "ssm_norm.weight": (STATE,), "ssm_out.weight": (values, WIDTH),
    }  # fmt: skip
    full: Shapes = PROJECTIONS | NORMS | {"attn_q.weight": (WIDTH, 2 * HEADS * HEAD)}
    norms: Shapes = {"attn_norm.weight": (WIDTH,), "post_attention_norm.weight": (WIDTH,)}
    return norms | (full if layer == 1 else {**delta, **gates})


def _qwen35(layer: int) -> Shapes:
    gates: Shapes = {"ssm_alpha.weight": (WIDTH, HEADS), "ssm_beta.weight": (WIDTH, HEADS)}
    return {**_delta(layer, gates), **DENSE}


def _qwen3next(layer: int) -> Shapes:
    return {
        **_delta(layer, {"ssm_ba.weight": (WIDTH, 2 * HEADS)}), "ffn_gate_inp.weight": (WIDTH, EXPERTS),
        "ffn_gate_exps.weight": (WIDTH, EXPERT, EXPERTS), "ffn_up_exps.weight": (WIDTH, EXPERT, EXPERTS),
        "ffn_down_exps.weight": (EXPERT, WIDTH, EXPERTS), "ffn_gate_inp_shexp.weight": (WIDTH,),
        "ffn_gate_shexp.weight": (WIDTH, EXPERT), "ffn_up_shexp.weight": (WIDTH, EXPERT),
        "ffn_down_shexp.weight": (EXPERT, WIDTH),
    }  # fmt: skip


def _rwkv7(_layer: int) -> Shapes:
    rank, vectors = 8, ("w0", "a0", "v0", "k_k", "k_a", "r_k", "ln")
    low: Shapes = {f"time_mix_{part}1.weight": (WIDTH, rank) for part in "wavg"}
    high: Shapes = {f"time_mix_{part}2.weight": (rank, WIDTH) for part in "wavg"}
    square: Shapes = {f"time_mix_{part}.weight": (WIDTH, WIDTH) for part in ("key", "value", "receptance", "output")}
    norms: Shapes = {f"{name}.{kind}": (WIDTH,) for name in ("attn_norm", "attn_norm_2") for kind in ("weight", "bias")}
    return {
        **norms, **low, **high, **square, **{f"time_mix_{name}.weight": (WIDTH,) for name in vectors},
        "time_mix_ln.bias": (WIDTH,), "time_mix_lerp_fused.weight": (WIDTH, 1, 1, 6),
        "channel_mix_lerp_k.weight": (WIDTH, 1, 1), "channel_mix_key.weight": (WIDTH, FEED),
        "channel_mix_value.weight": (FEED, WIDTH),
    }  # fmt: skip


USUAL: dict[str, Any] = {
    "context_length": CONTEXT, "embedding_length": WIDTH, "block_count": 2, "feed_forward_length": 0,
    "attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5,
}  # fmt: skip
"""Metadata entries of every file."""
LAYERS: Mapping[str, Callable[[int], Shapes]] = {
    "mamba": _mamba,
    "mamba2": _mamba2,
    "lfm2": _lfm2,
    "falcon-h1": _falcon_h1,
    "qwen35": _qwen35,
    "qwen3next": _qwen3next,
    "rwkv7": _rwkv7,
}
"""Shapes of a layer's tensors, by architecture."""
VALUES: Mapping[str, dict[str, Any]] = {
    "mamba": MIXER | {"ssm.inner_size": INNER},
    "mamba2": MIXER | {"ssm.inner_size": INNER, "ssm.group_count": 2},
    "lfm2": ATTENTION | {"block_count": 3, "attention.head_count_kv": [0, 2, 0], "shortconv.l_cache": 3},
    "falcon-h1": ATTENTION | MIXER | {"attention.head_count_kv": 2, "ssm.inner_size": INNER, "ssm.group_count": 1},
    "qwen35": DELTA | {"rope.dimension_sections": [3, 3, 2, 0]},
    "qwen3next": DELTA | {
        "expert_count": EXPERTS, "expert_used_count": 2,
        "expert_feed_forward_length": EXPERT, "expert_shared_feed_forward_length": EXPERT,
    },
    "rwkv7": {
        # Head size of all checkpoints: the kernel reads up to 64 numbers at once, beyond the end of smaller heads.
        "wkv.head_size": WIDTH, "token_shift_count": 2, "feed_forward_length": FEED, "attention.decay_lora_rank": 8,
        "attention.iclr_lora_rank": 8, "attention.value_residual_mix_lora_rank": 8, "attention.gate_lora_rank": 8,
    },
}  # fmt: skip
"""Further metadata entries, by architecture."""
WHOLE: Mapping[str, Shapes] = {
    "lfm2": {"token_embd_norm.weight": (WIDTH,)},
    "rwkv7": {
        "token_embd_norm.weight": (WIDTH,), "token_embd_norm.bias": (WIDTH,), "output_norm.weight": (WIDTH,),
        "output_norm.bias": (WIDTH,),
    },
}  # fmt: skip
"""Tensors outside the layers other than embedding and output, by architecture; the others have one norm."""


@cache
def write_states(path: Path, architecture: str, noise: float = 0.0, kind: str = "F32") -> Path:
    """Writes a random model with matrices of a type, F32 or Q8_0; noise is relative to the weights."""
    import gguf  # noqa: PLC0415 - of the extra `test`

    writer = gguf.GGUFWriter(path, architecture)
    adding: dict[type, Callable[[str, Any], None]]
    adding = {int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
    for name, value in (USUAL | VALUES[architecture]).items():
        adding[type(value)](f"{architecture}.{name}", value)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32 if kind == "F32" else gguf.LlamaFileType.MOSTLY_Q8_0)
    config, tokenizer = (json.loads((EMBEDDED_TARGET / f"{name}.json").read_text()) for name in ("config", "tokenizer"))
    add_tokenizer(writer, tokenizer, config)
    random, noises = np.random.default_rng(0), np.random.default_rng(1)
    for name, shape in _tensors(architecture):
        numbers = _weights(name, shape, random)
        numbers *= 1 + noise * noises.standard_normal(numbers.shape, np.float32)
        matrix = len(shape) == 2 and shape[0] >= WIDTH and "norm" not in name
        own = gguf.GGMLQuantizationType[kind if matrix else "F32"]
        writer.add_tensor(name, gguf.quants.quantize(numbers, own), raw_dtype=own)
    finish(writer)
    return path


def _tensors(architecture: str) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and dimensions of all tensors; the first dimension is the innermost."""
    yield "token_embd.weight", (WIDTH, VOCABULARY)
    yield "output.weight", (WIDTH, VOCABULARY)
    yield from WHOLE.get(architecture, {"output_norm.weight": (WIDTH,)}).items()
    for layer in range((USUAL | VALUES[architecture])["block_count"]):
        for name, shape in LAYERS[architecture](layer).items():
            yield f"blk.{layer}.{name}", shape


def _weights(name: str, shape: Sequence[int], random: np.random.Generator) -> NDArray[np.float32]:
    """Random weights that make texts varied and the end-of-text token improbable."""
    numbers: Any = random.standard_normal(shape[::-1], np.float32)
    if name.endswith("ssm_a"):
        numbers = -np.exp(numbers)
    elif name.endswith(("bias", "ssm_d")):
        numbers /= 2
    elif "norm" in name or "_ln." in name:
        numbers = 1 + numbers / 10
    elif "lerp" in name:
        numbers = 1 / (1 + np.exp(-numbers))
    elif len(shape) > 1 and name != "token_embd.weight":
        numbers *= 2 / np.sqrt(shape[0])
    if name == "output.weight":
        numbers[0] = 0.0
    weights: NDArray[np.float32] = np.asarray(numbers, np.float32)
    return weights


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
        return _written(EMBEDDED_TARGET, self.folder / f"books-16m-{kind}.gguf", kind)

    def draft(self, kind: str = "F32") -> Path:
        return _written(EMBEDDED_DRAFT, self.folder / f"books-1m-{kind}.gguf", kind)


_written = cache(write)


@dataclass(frozen=True)
class GgufStates:
    """Writes tiny random models whose layers keep a state into a folder, each once."""

    folder: Path

    def target(self, architecture: str, kind: str = "F32") -> Path:
        return write_states(self.folder / f"{architecture}-{kind}.gguf", architecture, kind=kind)

    def draft(self, architecture: str) -> Path:
        """Path of a model whose weights differ a little from those of `target`."""
        return write_states(self.folder / f"{architecture}-draft.gguf", architecture, noise=NOISE)


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
