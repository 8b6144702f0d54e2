"""Tiny random EAGLE-3 and P-EAGLE heads in the published layouts, with targets whose tokens they sometimes guess.

A random head guesses at random. The target nearly always chooses one of a few favourite tokens, and most heads have
only these in their vocabulary, so that some guesses are right.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from tests import tiny

LAYERS = 8
"""Number of the target's layers: enough for the three layers that a head reads by default to differ."""
WIDTH = 32
"""Hidden size of the tiny targets."""
FAVOURITES = (7, 41, 99, 150, 250)
"""Tokens that the targets choose nearly always."""


@dataclass(frozen=True)
class Layout:
    """Published layout and architecture of a head."""

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
    """Number of the head's layers."""
    guesses: int = 1
    """Number of tree levels that one pass drafts; more than 1 in P-EAGLE."""
    extras: dict[str, Any] = field(default_factory=dict)
    """Further fields of the configuration."""


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


def target(family: str) -> Any:
    """A tiny target of eight layers that nearly always chooses one of its favourites."""
    depth = "n_layer" if family == "gpt2" else "num_hidden_layers"
    model = tiny.build(tiny.FAMILIES[family](**{depth: LAYERS}), seed=1, spread=0.2)
    others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
    with torch.no_grad():
        model.get_output_embeddings().weight[others] *= 0.05
    return model


def save_head(folder: Path, layout: Layout) -> Path:
    """Writes a random head."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(configuration(layout)))
    save_file(weights(layout), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def configuration(layout: Layout) -> dict[str, Any]:
    """config.json as published, including fields that the engine ignores."""
    guessed = len(FAVOURITES) if layout.maps_tokens else tiny.VOCABULARY
    layer = {
        "model_type": layout.kind,
        "vocab_size": tiny.VOCABULARY,
        "hidden_size": layout.width,
        "num_hidden_layers": layout.depth,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "intermediate_size": 40,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "initializer_range": 0.02,
    }
    own: dict[str, Any] = {
        "draft_vocab_size": guessed,
        **dict.fromkeys(layout.switches, True),
        "auto_map": {"": "eagle3.Code"},
        **({"target_hidden_size": WIDTH} if layout.width != WIDTH else {}),
        **({"eagle_aux_hidden_state_layer_ids": layout.target_layers} if layout.target_layers else {}),
        **layout.extras,
    }
    if not layout.nested:
        return {"architectures": ["LlamaForCausalLMEagle3"], **layer, **own}
    parallel = layout.guesses > 1
    kind = "peagle" if parallel else "eagle3"
    return {
        "architectures": ["PEagleDraftModel" if parallel else "Eagle3DraftModel"],
        "speculators_model_type": kind,
        "speculators_config": {
            "algorithm": kind,
            "proposal_methods": [{"speculative_tokens": layout.guesses if parallel else 3}],
        },
        "norm_before_residual": False,
        **own,
        "transformer_layer_config": layer,
    }


def weights(layout: Layout, seed: int = 5) -> dict[str, Tensor]:
    """All tensors of a checkpoint, by their published names."""
    generator = torch.Generator().manual_seed(seed)
    states = 3 if layout.target_layers is None else len(layout.target_layers)
    width, seen = layout.width, states * WIDTH
    layer = "layers.0" if layout.nested else "midlayer"
    guessed = FAVOURITES if layout.maps_tokens else range(tiny.VOCABULARY)
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (width, seen),
        f"{layer}.input_layernorm": (width,),
        f"{layer}.hidden_norm": (width,),
        f"{layer}.self_attn.q_proj": (32, 2 * width),
        f"{layer}.self_attn.k_proj": (16, 2 * width),
        f"{layer}.self_attn.v_proj": (16, 2 * width),
        f"{layer}.self_attn.o_proj": (width, 32),
        f"{layer}.post_attention_layernorm": (width,),
        f"{layer}.mlp.gate_proj": (40, width),
        f"{layer}.mlp.up_proj": (40, width),
        f"{layer}.mlp.down_proj": (width, 40),
        "norm": (width,),
        "lm_head": (len(guessed), width),
    }
    if layout.kind == "qwen3":
        shapes |= {f"{layer}.self_attn.{part}_norm": (8,) for part in "qk"}
    plain = {key: size for key, size in shapes.items() if key.startswith(layer) and not key.endswith("hidden_norm")}
    for number in range(1, layout.depth):
        for key, (rows, *columns) in plain.items():
            size = (rows, *(width if count == 2 * width else count for count in columns))
            shapes[key.replace(layer, f"layers.{number}")] = size
    if "norm_before_fc" in layout.switches:
        shapes["input_norm"] = (seen,)
    if "fc_norm" in layout.switches:
        shapes |= {f"fc_norm.{state}": (WIDTH,) for state in range(states)}
    if layout.embeds:
        shapes["embed_tokens"] = (tiny.VOCABULARY, width)
    found = {f"{name}.weight": _random(shape, generator) for name, shape in shapes.items()}
    if layout.guesses > 1:
        found["mask_hidden"] = _random((1, 1, seen), generator)
    if layout.maps_tokens:
        found["d2t"] = torch.tensor([token - index for index, token in enumerate(FAVOURITES)])
        found["t2d"] = torch.tensor([token in FAVOURITES for token in range(tiny.VOCABULARY)])
    return found


def _random(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    drawn = torch.randn(shape, generator=generator)
    return 1 + 0.2 * drawn if len(shape) == 1 else 0.35 * drawn


def pair(family: str, layout: str, home: Path) -> tiny.TinyPair:
    """A target and a head for it, saved in `home`."""
    made = tiny.save(home / "target", target(family), tiny.train_tokenizer())
    return tiny.TinyPair(made, save_head(home / "head", LAYOUTS[layout]))


def name(family: str, layout: str) -> str:
    """Name of a pair in `TinyModels`."""
    return f"eagle3 {family} {layout}"


PAIRS: dict[str, Callable[[Path], tiny.TinyPair]] = {
    name(family, layout): partial(pair, family, layout) for family in tiny.FAMILIES for layout in LAYOUTS
}
"""A pair of every layout with every family of targets, by name."""
