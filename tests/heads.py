"""Tiny random drafting heads of every kind in the published layouts, and their targets.

A random head guesses at random. The target nearly always chooses one of a few favourite tokens, and most heads have
only these in their vocabulary, so that some guesses are right.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from tests import tiny
from tests.head_files import FAVOURITES, Weights, with_favourites

Shapes = dict[str, tuple[int, ...]]
LAYERS = 8
"""Number of the target's layers: enough for the three layers that a head reads by default to differ."""
WIDTH = 32
"""Hidden size of the tiny targets."""
HEADS, SHARED, HEAD_WIDTH, INNER = 4, 2, 8, 40
"""Number of attention heads, number of key-value heads, width of a head, and width of the MLP."""
RANK, TAPS, GROUP = 6, 2, 8
MASK = 270
"""Token id of mask tokens of blocks, which no text contains."""
BLOCK = 5
"""Number of rows of a block."""
LAYER: dict[str, Any] = {
    "vocab_size": tiny.VOCABULARY, "num_attention_heads": HEADS, "num_key_value_heads": SHARED, "head_dim": HEAD_WIDTH,
    "intermediate_size": INNER, "hidden_act": "silu", "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
    "attention_bias": False,
}  # fmt: skip
"""Fields of every head's configuration."""


def target(family: str, **shape: Any) -> Any:
    """A tiny target of eight layers that nearly always chooses one of its favourites."""
    depth = {"n_layer" if family == "gpt2" else "num_hidden_layers": LAYERS}
    return with_favourites(tiny.build(tiny.FAMILIES[family](**depth | shape), seed=1, spread=0.2))


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Configuration and weights of a head as its publisher writes them."""

    kind: str
    target_layers: tuple[int, ...] | None = None
    """Target layers as the configuration lists them: by outputs or by inputs; None: not listed."""
    embeds: bool = False
    maps_tokens: bool = False
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def guessed(self) -> int:
        """Size of the head's vocabulary."""
        return len(FAVOURITES) if self.maps_tokens else tiny.VOCABULARY

    def configuration(self) -> dict[str, Any]:
        """config.json as published, including fields that the engine ignores."""
        raise NotImplementedError

    def shapes(self) -> Shapes:
        """Shapes of all tensors of a checkpoint, by their published names."""
        raise NotImplementedError

    def weights(self) -> Weights:
        """All tensors of a checkpoint, by their published names, with the maps between the two vocabularies."""
        generator, found = torch.Generator().manual_seed(6), Weights()
        for name, shape in self.shapes().items():
            numbers = torch.randn(shape, generator=generator)
            found[name] = 1 + 0.2 * numbers if "norm" in name or "base_kernel" in name else 0.35 * numbers
        if self.maps_tokens:
            found["d2t"] = torch.tensor([token - index for index, token in enumerate(FAVOURITES)])
            found["t2d"] = torch.tensor([token in FAVOURITES for token in range(tiny.VOCABULARY)])
        return found

    def save(self, folder: Path) -> Path:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(self.configuration()))
        save_file(self.weights(), folder / "model.safetensors", metadata={"format": "pt"})
        return folder


def layer_shapes(width: int, given: int, *, norms: bool) -> Shapes:
    """Weights of a layer whose attention reads rows of width `given`, with or without norms of the heads."""
    sizes = {
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
        **({f"self_attn.{part}_norm": (HEAD_WIDTH,) for part in "qk"} if norms else {}),
        "self_attn.q_proj": (HEADS * HEAD_WIDTH, given),
        "self_attn.k_proj": (SHARED * HEAD_WIDTH, given),
        "self_attn.v_proj": (SHARED * HEAD_WIDTH, given),
        "self_attn.o_proj": (width, HEADS * HEAD_WIDTH),
        "mlp.gate_proj": (INNER, width),
        "mlp.up_proj": (INNER, width),
        "mlp.down_proj": (width, INNER),
    }
    return {f"{name}.weight": size for name, size in sizes.items()}


@dataclass(frozen=True, kw_only=True)
class RowLayout(Layout):
    """Of an EAGLE-3 head, or of a P-EAGLE head, which guesses several tokens in one pass."""

    kind: str = "llama"
    """Model type of the layers."""
    maps_tokens: bool = True
    nested: bool = False
    """Whether the configuration is nested, as speculators writes it; otherwise it is flat."""
    switches: tuple[str, ...] = ()
    """Names of the configuration's flags that are true."""
    width: int = WIDTH
    """Hidden size of the head; if it is not the target's, the head needs its own embedding."""
    depth: int = 1
    guesses: int = 1

    def configuration(self) -> dict[str, Any]:
        layer = LAYER | {
            "model_type": self.kind, "hidden_size": self.width, "num_hidden_layers": self.depth,
            "rope_theta": 10000.0, "rope_scaling": None, "initializer_range": 0.02,
        }  # fmt: skip
        own: dict[str, Any] = {
            "draft_vocab_size": self.guessed,
            **dict.fromkeys(self.switches, True),
            "auto_map": {"": "eagle3.Code"},
            **({"target_hidden_size": WIDTH} if self.width != WIDTH else {}),
            **({"eagle_aux_hidden_state_layer_ids": self.target_layers} if self.target_layers else {}),
            **self.extras,
        }
        if not self.nested:
            return {"architectures": ["LlamaForCausalLMEagle3"], **layer, **own}
        parallel = self.guesses > 1
        kind, guesses = ("peagle", self.guesses) if parallel else ("eagle3", 3)
        return {
            "architectures": ["PEagleDraftModel" if parallel else "Eagle3DraftModel"],
            "speculators_model_type": kind,
            "speculators_config": {"algorithm": kind, "proposal_methods": [{"speculative_tokens": guesses}]},
            "norm_before_residual": False,
            **own,
            "transformer_layer_config": layer,
        }

    def shapes(self) -> Shapes:
        states = 3 if self.target_layers is None else len(self.target_layers)
        width, seen = self.width, states * WIDTH
        first = "layers.0" if self.nested else "midlayer"
        found: Shapes = {"fc.weight": (width, seen), f"{first}.hidden_norm.weight": (width,)}
        for number in range(self.depth):
            layer = layer_shapes(width, width if number else 2 * width, norms=self.kind == "qwen3")
            found |= {f"{f'layers.{number}' if number else first}.{name}": size for name, size in layer.items()}
        found |= {"norm.weight": (width,), "lm_head.weight": (self.guessed, width)}
        if "norm_before_fc" in self.switches:
            found["input_norm.weight"] = (seen,)
        if "fc_norm" in self.switches:
            found |= {f"fc_norm.{state}.weight": (WIDTH,) for state in range(states)}
        if self.embeds:
            found["embed_tokens.weight"] = (tiny.VOCABULARY, width)
        return found | ({"mask_hidden": (1, 1, seen)} if self.guesses > 1 else {})


SLIDING, FULL = "sliding_attention", "full_attention"


@dataclass(frozen=True, kw_only=True)
class BlockLayout(Layout):
    """Of a DFlash head."""

    kind: str = "DFlashDraftModel"
    """Name of the architecture in a flat layout; `speculators_model_type` in the layout of speculators."""
    publisher: str = "z-lab"
    target_layers: tuple[int, ...] | None = (1, 4, 6)
    layer_types: tuple[str, ...] = (FULL, FULL)
    window: int = 6
    markov: str | None = None
    second: bool = False
    """Whether the head has DFlash2's convolutions and selector."""
    swiglu: bool = False
    """Whether the head has TreeFlash's correction."""
    biased: bool = False

    @property
    def states(self) -> int:
        """Number of target layers that the head reads."""
        return len(self.layer_types if self.target_layers is None else self.target_layers)

    def configuration(self) -> dict[str, Any]:
        layer = LAYER | {
            "model_type": "qwen3", "hidden_size": WIDTH, "num_hidden_layers": len(self.layer_types),
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "attention_bias": self.biased,
            "attention_dropout": 0.0, "layer_types": list(self.layer_types),
            "sliding_window": self.window if SLIDING in self.layer_types else None,
            "use_sliding_window": SLIDING in self.layer_types, "tie_word_embeddings": False,
        }  # fmt: skip
        own: dict[str, Any] = {"mask_token_id": MASK, **self.extras}
        if self.second:
            own |= {"conv_kernel_size": TAPS, "conv_group_size": GROUP, "selector_rank": RANK, "selector_top_k": 7}
        if self.markov:
            own |= {"markov_rank": RANK, "markov_head_type": self.markov, "enable_confidence_head": True}
        if self.publisher == "speculators":
            return {
                "architectures": ["DFlashSpeculator"],
                "auto_map": {"": "dflash.Code"},
                "speculators_model_type": self.kind,
                "speculators_config": {"algorithm": self.kind, "proposal_methods": [{"speculative_tokens": 4}]},
                "draft_vocab_size": self.guessed,
                "block_size": BLOCK,
                "aux_hidden_state_layer_ids": self.target_layers,
                "transformer_layer_config": layer,
                **own,
            }
        listed = {} if self.target_layers is None else {"target_layer_ids": self.target_layers}
        flat = {"architectures": [self.kind], "auto_map": {"AutoModel": "dflash.Code"}, "block_size": BLOCK, **layer}
        if self.publisher == "DeepSpec":
            return {**flat, "num_anchors": 512, "markov_rank": 0, **listed, **own}
        if "is_causal" in own:
            flat["is_causal"] = own.pop("is_causal")
        if self.swiglu:
            flat["treeflash_config"] = {"candidate_tokens": 16, "ar_approximation": "swiglu"}
        return {**flat, "num_target_layers": LAYERS, "dflash_config": {**listed, **own}}

    def shapes(self) -> Shapes:
        body = "model." if self.swiglu else ""
        layer = layer_shapes(WIDTH, WIDTH, norms=True)
        if self.biased:
            sizes = zip("qkvo", (HEADS * HEAD_WIDTH, *[SHARED * HEAD_WIDTH] * 2, WIDTH), strict=True)
            layer |= {f"self_attn.{part}_proj.bias": (rows,) for part, rows in sizes}
        if self.second:
            for part in ("attention_conv", "mlp_conv"):
                layer[f"{part}.base_kernel"] = (2, TAPS, WIDTH)
                layer[f"{part}.kernel_projection.weight"] = (2 * TAPS * WIDTH // GROUP, WIDTH)
        found: Shapes = {
            f"{body}fc.weight": (WIDTH, self.states * WIDTH),
            f"{body}hidden_norm.weight": (WIDTH,),
            f"{body}norm.weight": (WIDTH,),
            **{f"{body}layers.{at}.{key}": size for at in range(len(self.layer_types)) for key, size in layer.items()},
        }
        if self.embeds:
            found["embed_tokens.weight"] = (tiny.VOCABULARY, WIDTH)
        if self.maps_tokens or self.publisher == "DeepSpec":
            found["lm_head.weight"] = (self.guessed, WIDTH)
        return found | self._of_corrections()

    def weights(self) -> Weights:
        found = super().weights()
        if "lm_head.weight" in found and not self.maps_tokens:
            others = [token for token in range(tiny.VOCABULARY) if token not in FAVOURITES]
            found["lm_head.weight"][others] *= 0.05
        return found

    def _of_corrections(self) -> Shapes:
        found: Shapes = {}
        if self.markov:
            found |= {
                "markov_head.markov_w1.weight": (tiny.VOCABULARY, RANK),
                "markov_head.markov_w2.weight": (self.guessed, RANK),
                "confidence_head.proj.weight": (1, WIDTH + RANK),
                "confidence_head.proj.bias": (1,),
            }
        if self.markov in ("gated", "rnn"):
            gated = self.markov == "gated"
            part, rows, given = ("gate_proj", RANK, RANK) if gated else ("joint_proj", 3 * RANK, 2 * RANK)
            found |= {f"markov_head.{part}.weight": (rows, given + WIDTH), f"markov_head.{part}.bias": (rows,)}
        if self.second:
            found |= {
                "candidate_selector.predecessor_codebook": (tiny.VOCABULARY, RANK),
                "candidate_selector.successor_codebook": (tiny.VOCABULARY, RANK),
                "candidate_selector.hidden_projection.weight": (RANK, WIDTH),
            }
        if self.swiglu:
            found |= {
                "ar_approximation.ug.weight": (2 * INNER, 2 * WIDTH),
                "ar_approximation.ug.bias": (2 * INNER,),
                "ar_approximation.d.weight": (WIDTH, INNER),
                "ar_approximation.norm.weight": (WIDTH,),
            }
        return found


ROWS: Mapping[str, RowLayout] = {
    "flat": RowLayout(),
    "flat, for outputs of layers": RowLayout(extras={"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 4, 6]}}),
    "flat, all tokens": RowLayout(maps_tokens=False, embeds=True),
    "nested": RowLayout(nested=True, switches=("norm_before_residual",)),
    "nested, of another width": RowLayout(nested=True, width=24, embeds=True, target_layers=(1, 3, 7)),
    "nested, layers of Qwen3": RowLayout(nested=True, kind="qwen3", target_layers=(0, 5)),
    "EAGLE-3.1": RowLayout(nested=True, switches=("norm_before_residual", "norm_before_fc", "norm_output")),
    "EAGLE-3.1, norms one by one": RowLayout(switches=("fc_norm", "norm_output")),
    "P-EAGLE": RowLayout(nested=True, guesses=6, depth=2, embeds=True, extras={"mask_token_id": 11}),
    "P-EAGLE, flat": RowLayout(guesses=8, depth=3, kind="qwen3", switches=("fc_norm",), extras={"pard_token": 12}),
}
"""Layouts of heads that guess row by row, by their distinguishing features."""
_speculators = partial(BlockLayout, publisher="speculators", kind="dflash")
_deep_spec = partial(BlockLayout, publisher="DeepSpec", kind="Qwen3DSparkModel", embeds=True)
BLOCKS: Mapping[str, BlockLayout] = {
    "z-lab": BlockLayout(),
    "z-lab, usual layers": BlockLayout(target_layers=None, biased=True),
    "z-lab, windows": BlockLayout(layer_types=(SLIDING, FULL)),
    "z-lab, windows to both sides": BlockLayout(layer_types=(SLIDING, SLIDING), window=3, extras={"is_causal": False}),
    "z-lab, scaled": BlockLayout(
        extras={"input_embedding_scale": 1.5, "output_multiplier": 0.7, "final_logit_softcapping": 4.0}
    ),
    "JetSpec": BlockLayout(extras={"causal_head": True}),
    "DFlash2": BlockLayout(
        kind="DFlash2DraftModel", second=True, layer_types=(SLIDING, SLIDING), extras={"is_causal": False}
    ),
    "TreeFlash": BlockLayout(kind="TreeFlashDraftModel", swiglu=True),
    "speculators": _speculators(maps_tokens=True, target_layers=(0, 2, 5)),
    "speculators, windows": _speculators(layer_types=(SLIDING, FULL), embeds=True),
    "speculators, windows to both sides": _speculators(
        layer_types=(SLIDING, SLIDING), window=3, extras={"sliding_window_non_causal": True}
    ),
    "speculators, from the anchor": _speculators(extras={"sample_from_anchor": True}),
    "speculators, DFlash2": _speculators(kind="dflash2", layer_types=(SLIDING, FULL), second=True),
    "speculators, DSpark": _speculators(kind="dspark", markov="gated", maps_tokens=True),
    "speculators, DSpark, filling in": _speculators(kind="dspark", markov="rnn", extras={"sample_from_anchor": False}),
    "DeepSpec": _deep_spec(markov="vanilla", target_layers=(-1, 3, 6)),
    "DeepSpec, rnn": _deep_spec(markov="rnn"),
    "DeepSpec, without correction": _deep_spec(),
}
"""Layouts of heads that guess in blocks, by publisher or kind of head, and a distinguishing feature."""
LAYOUTS: Mapping[str, Layout] = {**ROWS, **BLOCKS}


def name(family: str, layout: str) -> str:
    """Name in `TinyModels` of a target with a head of this layout."""
    return f"head {family} {layout}"


def pair(family: str, layout: str, home: Path) -> tiny.TinyPair:
    made = tiny.save(home / "target", target(family), tiny.train_tokenizer())
    return tiny.TinyPair(made, LAYOUTS[layout].save(home / "head"))


PAIRS: dict[str, Callable[[Path], tiny.TinyPair]] = {
    name(*each): partial(pair, *each) for each in product(tiny.FAMILIES, LAYOUTS)
}
"""A pair of every layout with every family of targets, by name."""
