"""Configurations that are understood to the last field: what config.json says of a model of a fast family.

Every field must be known by its name, with a value of which it is certain what transformers makes of it; of any other
configuration nothing is said here, and `decoder.models.hf_checkpoints` reads it. Knows no files.
"""

import math
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from decoder.device import DTYPES
from decoder.forward.families.architecture import Architecture
from decoder.forward.families.registry import FAMILIES, runs

Check = Callable[[Any], bool]
"""Whether a field's value is understood."""
Fields = dict[str, Check]


def is_count(value: Any) -> bool:
    """A whole number from 1 on."""
    return type(value) is int and value >= 1


def is_number(value: Any) -> bool:
    """A positive number that is finite."""
    return type(value) in (int, float) and 0 < value < math.inf


def is_share(value: Any) -> bool:
    """From 0 to 1."""
    return type(value) in (int, float) and 0 <= value <= 1


def is_flag(value: Any) -> bool:
    """True or false."""
    return type(value) is bool


def is_token(value: Any) -> bool:
    """A token's id, or none."""
    return value is None or (type(value) is int and value >= 0)


def are_tokens(value: Any) -> bool:
    """One, several or none."""
    return all(map(is_count_or_zero, value)) if isinstance(value, list) else is_token(value)


def is_count_or_zero(value: Any) -> bool:
    """A whole number from 0 on."""
    return type(value) is int and value >= 0


def is_text(value: Any) -> bool:
    """A string."""
    return isinstance(value, str)


def just(*values: Any) -> Check:
    """One of these values, which have no effect."""
    return lambda value: any(type(value) is type(each) and value == each for each in values)


COMMON: Fields = {
    "model_type": is_text,
    "architectures": lambda value: value is None or isinstance(value, list),
    "vocab_size": is_count,
    "hidden_size": is_count,
    "num_hidden_layers": is_count,
    "num_attention_heads": is_count,
    "intermediate_size": is_count,
    "max_position_embeddings": is_count,
    "hidden_act": is_text,
    "tie_word_embeddings": is_flag,
    "rope_parameters": lambda value: value is None or isinstance(value, dict),
    "rope_scaling": lambda value: value is None or isinstance(value, dict),
    "dtype": just(None, *DTYPES),
    "torch_dtype": just(None, *DTYPES),
    "bos_token_id": is_token,
    "eos_token_id": are_tokens,
    "pad_token_id": is_token,
    # These change nothing that is computed.
    "attention_dropout": is_share,
    "initializer_range": is_share,
    "use_cache": is_flag,
    "transformers_version": is_text,
    "_name_or_path": is_text,
    # These do, unless they are this.
    "output_attentions": just(False),
    "output_hidden_states": just(False),
    "return_dict": just(True),
    "chunk_size_feed_forward": just(0),
    "is_encoder_decoder": just(False),
    "is_decoder": just(False),
    "id2label": just(None),
    "label2id": just(None),
    "problem_type": just(None),
}
NEEDED = frozenset(
    {
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
        "hidden_act",
    }
)
"""Fields of every family that have no value of their own."""
_LLAMA: Fields = {"rms_norm_eps": is_number, "num_key_value_heads": is_count, "rope_theta": is_number}
_HEAD: Fields = {"head_dim": lambda value: value is None or is_count(value)}
FIELDS: Mapping[str, tuple[Fields, frozenset[str], Mapping[str, Any]]] = {
    "gpt_neox": (
        {
            "layer_norm_eps": is_number,
            "attention_bias": is_flag,
            "use_parallel_residual": is_flag,
            "hidden_dropout": is_share,
            "classifier_dropout": is_share,
            "rotary_pct": is_share,
            "rotary_emb_base": is_number,
        },
        frozenset({"layer_norm_eps"}),
        {"attention_bias": True, "use_parallel_residual": True},
    ),
    "llama": (
        _LLAMA | _HEAD | {"attention_bias": is_flag, "mlp_bias": is_flag, "pretraining_tp": just(1)},
        frozenset({"rms_norm_eps"}),
        {},
    ),
    "mistral": (
        _LLAMA | _HEAD | {"sliding_window": just(None)},
        frozenset({"rms_norm_eps", "num_key_value_heads", "sliding_window"}),
        {},
    ),
    "qwen2": (
        _LLAMA
        | {
            "use_sliding_window": just(False),
            "sliding_window": lambda value: value is None or is_count(value),
            "max_window_layers": is_count_or_zero,
            "layer_types": lambda value: isinstance(value, list) and set(value) == {"full_attention"},
        },
        frozenset({"rms_norm_eps", "num_key_value_heads"}),
        {},
    ),
}
"""Type of model to its further fields, those of them that must be there, and values of those that need not be."""
ROTARY: Mapping[str, frozenset[str]] = {
    "default": frozenset(),
    "linear": frozenset({"factor"}),
    "llama3": frozenset({"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}),
}
"""Kind of rotary positions to its numbers."""
THETA, PARTIAL = 10000.0, 0.25
"""What transformers takes where a configuration does not say it; the second only for GPT-NeoX."""


def understood(values: Mapping[str, Any], fields: Fields, needed: frozenset[str] = frozenset()) -> bool:
    """Whether each of the values is of a known field, and what it may be, and none is missing."""
    return needed <= values.keys() <= fields.keys() and all(fields[name](value) for name, value in values.items())


def architecture(config: Any) -> Architecture | None:
    """What a configuration says, as it was read from JSON; None where any of it is not understood."""
    kind = config.get("model_type") if isinstance(config, dict) else None
    if not isinstance(kind, str) or kind not in FIELDS:
        return None
    fields, needed, values = FIELDS[kind]
    if not understood(config, {**COMMON, **fields}, NEEDED | needed) or not _fits(config, kind):
        return None
    rope = _rotary(config, kind)
    if rope is None:
        return None
    named = config.get("dtype") or config.get("torch_dtype")
    look = Architecture.of(
        SimpleNamespace(**{**values, **config, "rope_parameters": rope, "dtype": DTYPES[named] if named else None})
    )
    return look if runs(look) and look.head_dim % 2 == 0 else None


def _fits(config: Mapping[str, Any], kind: str) -> bool:
    """Whether the fields fit each other."""
    heads, pad = config["num_attention_heads"], config.get("pad_token_id")
    return (
        (config.get("architectures") or [FAMILIES[kind].name]) == [FAMILIES[kind].name]
        and config["hidden_size"] % heads == 0
        and heads % config.get("num_key_value_heads", heads) == 0
        and (pad is None or pad < config["vocab_size"])
        and len(config.get("layer_types", ())) in (0, config["num_hidden_layers"])
    )


def _rotary(config: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """Rotary positions as transformers keeps them, however they are written; None where they are not understood."""
    given, before = config.get("rope_parameters"), config.get("rope_scaling")
    if given and (before or {"rope_theta", "rotary_emb_base", "rotary_pct"} & config.keys()):
        return None
    rope = {"rope_theta": config.get("rope_theta", config.get("rotary_emb_base", THETA)), **(given or before or {})}
    if kind == "gpt_neox":
        rope = {"partial_rotary_factor": config.get("rotary_pct", PARTIAL), **rope}
    way = rope.pop("type", None)
    rope.setdefault("rope_type", way or "default")
    own = {"rope_theta", "partial_rotary_factor"} if kind == "gpt_neox" else {"rope_theta"}
    named = rope["rope_type"]
    known = isinstance(named, str) and named in ROTARY and way in (None, named)
    if not known or rope.keys() != {*own, *ROTARY[named], "rope_type"}:
        return None
    numbers = all(is_number(value) for name, value in rope.items() if name != "rope_type")
    return rope if numbers and rope.get("partial_rotary_factor", 1) <= 1 else None
