"""Tiny random targets whose checkpoints have an MTP layer, in the published layouts.

A module is built with one layer more than the target has; its last layer is saved as the MTP layer, under the published
names. The MTP layer guesses among the target's favourite tokens too, since it shares the target's output head.
"""

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from tests import tiny
from tests.decoder.any_family import EXPERTS, LATENT, SHAPE, built
from tests.decoder.recurrent_families import DELTA
from tests.head_files import Weights, reconfigure, rewrite, with_favourites

WIDTH: int = SHAPE["hidden_size"]
CONTEXT = 320
SHARED = {"shared_expert_intermediate_size": 16, "mlp_only_layers": []}
HYBRID = {"layer_types": ["linear_attention", "full_attention", "full_attention"]}
FAMILIES: Mapping[str, dict[str, Any]] = {
    "glm4_moe": EXPERTS | {"use_qk_norm": True, "num_nextn_predict_layers": 1},
    "glm4_moe_lite": EXPERTS | LATENT | {"num_nextn_predict_layers": 1},
    "deepseek_v3": EXPERTS | LATENT | {"num_nextn_predict_layers": 1},
    "mellum": EXPERTS | {
        "layer_types": ["full_attention", "sliding_attention", "sliding_attention"], "sliding_window": 12,
        "num_nextn_predict_layers": 1,
    },
    "qwen3_next": EXPERTS | HYBRID | DELTA | SHARED,
    "qwen3_5_text": HYBRID | DELTA,
    "qwen3_5_moe_text": EXPERTS | HYBRID | DELTA | SHARED,
}  # fmt: skip
"""Configuration of each family; its last layer becomes the MTP layer."""
AS_LAYER = ("glm4_moe", "glm4_moe_lite", "deepseek_v3")
"""Families whose MTP layer is named as one more layer; in the other families its names begin with `mtp.`."""
PREFIX = "model.layers.2."
"""Prefix of the names of the last layer's weights."""


def around(family: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the MTP weights outside the decoder layer."""
    own = PREFIX if family in AS_LAYER else "mtp."
    names = (
        ("enorm", "hnorm", "eh_proj", "shared_head.norm")
        if family in AS_LAYER
        else ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
    )
    sizes = (WIDTH,), (WIDTH,), (WIDTH, 2 * WIDTH), (WIDTH,)
    return {f"{own}{name}.weight": size for name, size in zip(names, sizes, strict=True)}


def save_target(family: str, home: Path) -> Path:
    shape = SHAPE | {"vocab_size": tiny.VOCABULARY, "max_position_embeddings": CONTEXT} | FAMILIES[family]
    module = with_favourites(built(AutoConfig.for_model(family, **shape)))
    folder = tiny.save(home, module, tiny.train_tokenizer())
    config = json.loads((folder / "config.json").read_text())
    listed = {field: config[field][:2] for field in ("layer_types", "mlp_layer_types") if config.get(field)}
    reconfigure(folder, {"num_hidden_layers": 2} | listed)
    own = PREFIX if family in AS_LAYER else "mtp.layers.0."
    rewrite(folder, lambda weights: {key.replace(PREFIX, own): each for key, each in weights.items()} | _drawn(family))
    return folder


def _drawn(family: str) -> Weights:
    generator = torch.Generator().manual_seed(5)
    drawn = {key: torch.randn(size, generator=generator) for key, size in around(family).items()}
    return {key: 0.25 * weight if weight.dim() > 1 else 1 + 0.2 * weight for key, weight in drawn.items()}


def name(family: str) -> str:
    """Name in `TinyModels` of a target of this family with its MTP layer as draft."""
    return f"mtp {family}"


def pair(family: str, home: Path) -> tiny.TinyPair:
    """A target, and the word that names its MTP layer as draft."""
    return tiny.TinyPair(save_target(family, home / "target"), Path("mtp"))


PAIRS: dict[str, Callable[[Path], tiny.TinyPair]] = {name(family): partial(pair, family) for family in FAMILIES}
