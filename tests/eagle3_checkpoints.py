"""Tiny random EAGLE-3 and P-EAGLE heads in the published layouts."""

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
    SHARED,
    WIDTH,
    Heads,
    Weights,
    drawn,
    saved_head,
)


@dataclass(frozen=True)
class Layout:
    nested: bool = False
    """Whether the configuration is nested, as speculators writes it; otherwise it is flat."""
    kind: str = "llama"
    switches: tuple[str, ...] = ()
    """Names of the configuration's flags that are true."""
    width: int = WIDTH
    """Hidden size of the head; if it is not the target's, the head needs its own embedding."""
    embeds: bool = False
    maps_tokens: bool = True
    target_layers: tuple[int, ...] | None = None
    depth: int = 1
    guesses: int = 1
    """Number of tree levels that one pass drafts; more than 1 in P-EAGLE."""
    extras: dict[str, Any] = field(default_factory=dict)


LAYOUTS = {
    "flat": Layout(),
    "flat, for outputs of layers": Layout(extras={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 4, 6]}}),
    "flat, all tokens": Layout(maps_tokens=False, embeds=True),
    "nested": Layout(nested=True, switches=("norm_before_residual",)),
    "nested, of another width": Layout(nested=True, width=24, embeds=True, target_layers=(1, 3, 7)),
    "nested, layers of Qwen3": Layout(nested=True, kind="qwen3", target_layers=(0, 5)),
    "EAGLE-3.1": Layout(nested=True, switches=("norm_before_residual", "norm_before_fc", "norm_output")),
    "EAGLE-3.1, norms one by one": Layout(switches=("fc_norm", "norm_output")),
    "P-EAGLE": Layout(nested=True, guesses=6, depth=2, embeds=True, extras={"mask_token_id": 11}),
    "P-EAGLE, flat": Layout(guesses=8, depth=3, kind="qwen3", switches=("fc_norm",), extras={"pard_token": 12}),
}
"""Layouts by their distinguishing features."""


def save_head(folder: Path, layout: Layout) -> Path:
    return saved_head(folder, configuration(layout), weights(layout))


def configuration(layout: Layout) -> dict[str, Any]:
    """config.json as published, including fields that the engine ignores."""
    layer = LAYER | {
        "model_type": layout.kind, "hidden_size": layout.width, "num_hidden_layers": layout.depth,
        "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False, "initializer_range": 0.02,
    }  # fmt: skip
    own: dict[str, Any] = {
        "draft_vocab_size": len(FAVOURITES) if layout.maps_tokens else tiny.VOCABULARY,
        **dict.fromkeys(layout.switches, True),
        "auto_map": {"": "eagle3.Code"},
        **({"target_hidden_size": WIDTH} if layout.width != WIDTH else {}),
        **({"eagle_aux_hidden_state_layer_ids": layout.target_layers} if layout.target_layers else {}),
        **layout.extras,
    }
    if not layout.nested:
        return {"architectures": ["LlamaForCausalLMEagle3"], **layer, **own}
    parallel = layout.guesses > 1
    kind, guesses = ("peagle", layout.guesses) if parallel else ("eagle3", 3)
    return {
        "architectures": ["PEagleDraftModel" if parallel else "Eagle3DraftModel"],
        "speculators_model_type": kind,
        "speculators_config": {"algorithm": kind, "proposal_methods": [{"speculative_tokens": guesses}]},
        "norm_before_residual": False,
        **own,
        "transformer_layer_config": layer,
    }


def weights(layout: Layout) -> Weights:
    """All tensors of a checkpoint, by their published names."""
    states = 3 if layout.target_layers is None else len(layout.target_layers)
    width, seen = layout.width, states * WIDTH
    shapes: dict[str, tuple[int, ...]] = {"fc": (width, seen)}
    for number in range(layout.depth):
        layer = "midlayer" if not number and not layout.nested else f"layers.{number}"
        given = width if number else 2 * width
        shapes |= {
            f"{layer}.input_layernorm": (width,),
            **({} if number else {f"{layer}.hidden_norm": (width,)}),
            f"{layer}.self_attn.q_proj": (HEADS * HEAD_WIDTH, given),
            f"{layer}.self_attn.k_proj": (SHARED * HEAD_WIDTH, given),
            f"{layer}.self_attn.v_proj": (SHARED * HEAD_WIDTH, given),
            f"{layer}.self_attn.o_proj": (width, HEADS * HEAD_WIDTH),
            f"{layer}.post_attention_layernorm": (width,),
            f"{layer}.mlp.gate_proj": (INNER, width),
            f"{layer}.mlp.up_proj": (INNER, width),
            f"{layer}.mlp.down_proj": (width, INNER),
        }
        if layout.kind == "qwen3":
            shapes |= {f"{layer}.self_attn.{part}_norm": (HEAD_WIDTH,) for part in "qk"}
    shapes |= {"norm": (width,), "lm_head": (len(FAVOURITES) if layout.maps_tokens else tiny.VOCABULARY, width)}
    if "norm_before_fc" in layout.switches:
        shapes["input_norm"] = (seen,)
    if "fc_norm" in layout.switches:
        shapes |= {f"fc_norm.{state}": (WIDTH,) for state in range(states)}
    if layout.embeds:
        shapes["embed_tokens"] = (tiny.VOCABULARY, width)
    named = {f"{name}.weight": shape for name, shape in shapes.items()}
    mask = {"mask_hidden": (1, 1, seen)} if layout.guesses > 1 else {}
    return drawn(named | mask, maps_tokens=layout.maps_tokens)


EAGLE3 = Heads("eagle3", LAYOUTS, save_head)
name, pair, PAIRS = EAGLE3.name, EAGLE3.pair, EAGLE3.pairs()
