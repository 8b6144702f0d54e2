"""Tiny random DFlash heads in the published layouts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import tiny
from tests.head_files import (
    FAVOURITES,
    HEAD_WIDTH,
    HEADS,
    INNER,
    LAYER,
    LAYERS,
    SHARED,
    WIDTH,
    Heads,
    Weights,
    drawn,
    saved_head,
)

RANK, TAPS, GROUP = 6, 2, 8
MASK = 270
"""Token id of mask tokens, which no text contains."""
BLOCK = 5
"""Number of rows of a block."""


@dataclass(frozen=True)
class Layout:
    publisher: str = "z-lab"
    kind: str = "DFlashDraftModel"
    """Name of the architecture in a flat layout; `speculators_model_type` in the layout of speculators."""
    layer_types: tuple[str, ...] = ("full_attention", "full_attention")
    window: int = 6
    target_layers: tuple[int, ...] | None = (1, 4, 6)
    """Target layers as the configuration lists them: by outputs or by inputs; None: not listed."""
    markov: str | None = None
    second: bool = False
    """Whether the head has DFlash2's convolutions and selector."""
    swiglu: bool = False
    """Whether the head has TreeFlash's correction."""
    maps_tokens: bool = False
    embeds: bool = False
    biased: bool = False
    extras: dict[str, Any] = field(default_factory=dict)


SLIDING, FULL = "sliding_attention", "full_attention"
LAYOUTS: Mapping[str, Layout] = {
    "z-lab": Layout(),
    "z-lab, usual layers": Layout(target_layers=None, biased=True),
    "z-lab, windows": Layout(layer_types=(SLIDING, FULL)),
    "z-lab, windows to both sides": Layout(layer_types=(SLIDING, SLIDING), window=3, extras={"is_causal": False}),
    "z-lab, scaled": Layout(
        extras={"input_embedding_scale": 1.5, "output_multiplier": 0.7, "final_logit_softcapping": 4.0}
    ),
    "JetSpec": Layout(extras={"causal_head": True}),
    "DFlash2": Layout(
        kind="DFlash2DraftModel", second=True, layer_types=(SLIDING, SLIDING), extras={"is_causal": False}
    ),
    "TreeFlash": Layout(kind="TreeFlashDraftModel", swiglu=True),
    "speculators": Layout("speculators", "dflash", maps_tokens=True, target_layers=(0, 2, 5)),
    "speculators, windows": Layout("speculators", "dflash", (SLIDING, FULL), embeds=True),
    "speculators, windows to both sides": Layout(
        "speculators", "dflash", (SLIDING, SLIDING), 3, extras={"sliding_window_non_causal": True}
    ),
    "speculators, from the anchor": Layout("speculators", "dflash", extras={"sample_from_anchor": True}),
    "speculators, DFlash2": Layout("speculators", "dflash2", (SLIDING, FULL), second=True),
    "speculators, DSpark": Layout("speculators", "dspark", markov="gated", maps_tokens=True),
    "speculators, DSpark, filling in": Layout(
        "speculators", "dspark", markov="rnn", extras={"sample_from_anchor": False}
    ),
    "DeepSpec": Layout("DeepSpec", "Qwen3DSparkModel", markov="vanilla", embeds=True, target_layers=(-1, 3, 6)),
    "DeepSpec, rnn": Layout("DeepSpec", "Qwen3DSparkModel", markov="rnn", embeds=True),
    "DeepSpec, without correction": Layout("DeepSpec", "Qwen3DSparkModel", embeds=True),
}
"""Layouts by publisher or kind of head, and a distinguishing feature."""


def save_head(folder: Path, layout: Layout) -> Path:
    return saved_head(folder, configuration(layout), weights(layout))


def states(layout: Layout) -> int:
    """Number of target layers that the head reads."""
    return len(layout.layer_types if layout.target_layers is None else layout.target_layers)


def configuration(layout: Layout) -> dict[str, Any]:
    """config.json as published, including fields that the engine ignores."""
    layer = LAYER | {
        "model_type": "qwen3", "hidden_size": WIDTH, "num_hidden_layers": len(layout.layer_types),
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "attention_bias": layout.biased,
        "attention_dropout": 0.0, "layer_types": list(layout.layer_types),
        "sliding_window": layout.window if SLIDING in layout.layer_types else None,
        "use_sliding_window": SLIDING in layout.layer_types, "tie_word_embeddings": False,
    }  # fmt: skip
    own: dict[str, Any] = {"mask_token_id": MASK, **layout.extras}
    if layout.second:
        own |= {"conv_kernel_size": TAPS, "conv_group_size": GROUP, "selector_rank": RANK, "selector_top_k": 7}
    if layout.markov:
        own |= {"markov_rank": RANK, "markov_head_type": layout.markov, "enable_confidence_head": True}
    if layout.publisher == "speculators":
        return {
            "architectures": ["DFlashSpeculator"],
            "auto_map": {"": "dflash.Code"},
            "speculators_model_type": layout.kind,
            "speculators_config": {"algorithm": layout.kind, "proposal_methods": [{"speculative_tokens": 4}]},
            "draft_vocab_size": len(FAVOURITES) if layout.maps_tokens else tiny.VOCABULARY,
            "block_size": BLOCK,
            "aux_hidden_state_layer_ids": layout.target_layers,
            "transformer_layer_config": layer,
            **own,
        }
    listed = {} if layout.target_layers is None else {"target_layer_ids": layout.target_layers}
    flat = {"architectures": [layout.kind], "auto_map": {"AutoModel": "dflash.Code"}, "block_size": BLOCK, **layer}
    if layout.publisher == "DeepSpec":
        return {**flat, "num_anchors": 512, "markov_rank": 0, **listed, **own}
    if "is_causal" in own:
        flat["is_causal"] = own.pop("is_causal")
    if layout.swiglu:
        flat["treeflash_config"] = {"candidate_tokens": 16, "ar_approximation": "swiglu"}
    return {**flat, "num_target_layers": LAYERS, "dflash_config": {**listed, **own}}


def weights(layout: Layout) -> Weights:
    """All tensors of a checkpoint, by their published names."""
    body = "model." if layout.swiglu else ""
    queries, keys = HEADS * HEAD_WIDTH, SHARED * HEAD_WIDTH
    guessed = len(FAVOURITES) if layout.maps_tokens else tiny.VOCABULARY
    layer: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (WIDTH,),
        "post_attention_layernorm.weight": (WIDTH,),
        "self_attn.q_norm.weight": (HEAD_WIDTH,),
        "self_attn.k_norm.weight": (HEAD_WIDTH,),
        "self_attn.q_proj.weight": (queries, WIDTH),
        "self_attn.k_proj.weight": (keys, WIDTH),
        "self_attn.v_proj.weight": (keys, WIDTH),
        "self_attn.o_proj.weight": (WIDTH, queries),
        "mlp.gate_proj.weight": (INNER, WIDTH),
        "mlp.up_proj.weight": (INNER, WIDTH),
        "mlp.down_proj.weight": (WIDTH, INNER),
    }
    if layout.biased:
        sizes = zip("qkvo", (queries, keys, keys, WIDTH), strict=True)
        layer |= {f"self_attn.{part}_proj.bias": (rows,) for part, rows in sizes}
    if layout.second:
        for part in ("attention_conv", "mlp_conv"):
            layer[f"{part}.base_kernel"] = (2, TAPS, WIDTH)
            layer[f"{part}.kernel_projection.weight"] = (2 * TAPS * WIDTH // GROUP, WIDTH)
    shapes: dict[str, tuple[int, ...]] = {
        f"{body}fc.weight": (WIDTH, states(layout) * WIDTH),
        f"{body}hidden_norm.weight": (WIDTH,),
        f"{body}norm.weight": (WIDTH,),
        **{f"{body}layers.{at}.{key}": size for at in range(len(layout.layer_types)) for key, size in layer.items()},
    }
    if layout.embeds:
        shapes["embed_tokens.weight"] = (tiny.VOCABULARY, WIDTH)
    if layout.maps_tokens or layout.publisher == "DeepSpec":
        shapes["lm_head.weight"] = (guessed, WIDTH)
    found = drawn(shapes | _correction_shapes(layout, guessed), maps_tokens=layout.maps_tokens)
    if "lm_head.weight" in found and not layout.maps_tokens:
        others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
        found["lm_head.weight"][others] *= 0.05
    return found


def _correction_shapes(layout: Layout, guessed: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {}
    if layout.markov:
        shapes |= {
            "markov_head.markov_w1.weight": (tiny.VOCABULARY, RANK),
            "markov_head.markov_w2.weight": (guessed, RANK),
            "confidence_head.proj.weight": (1, WIDTH + RANK),
            "confidence_head.proj.bias": (1,),
        }
    if layout.markov in ("gated", "rnn"):
        gated = layout.markov == "gated"
        part, rows, given = ("gate_proj", RANK, RANK) if gated else ("joint_proj", 3 * RANK, 2 * RANK)
        shapes |= {f"markov_head.{part}.weight": (rows, given + WIDTH), f"markov_head.{part}.bias": (rows,)}
    if layout.second:
        shapes |= {
            "candidate_selector.predecessor_codebook": (tiny.VOCABULARY, RANK),
            "candidate_selector.successor_codebook": (tiny.VOCABULARY, RANK),
            "candidate_selector.hidden_projection.weight": (RANK, WIDTH),
        }
    if layout.swiglu:
        shapes |= {
            "ar_approximation.ug.weight": (2 * INNER, 2 * WIDTH),
            "ar_approximation.ug.bias": (2 * INNER,),
            "ar_approximation.d.weight": (WIDTH, INNER),
            "ar_approximation.norm.weight": (WIDTH,),
        }
    return shapes


DFLASH = Heads("dflash", LAYOUTS, save_head)
name, pair, PAIRS = DFLASH.name, DFLASH.pair, DFLASH.pairs()
