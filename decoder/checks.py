"""Refuses models that the engine cannot decode exactly, each with one sentence, before any text depends on them.

A configuration or two tokenizers tell most of it. The rest is tried: a few tokens go through a model as a tree and as
plain text, so that attention which does not follow a tree mask is noticed here and not later.
"""

from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from decoder.checkpoints import load_tokenizer
from decoder.errors import PairError, first_line, quoted
from decoder.models import LanguageModel, longest_text

SAMPLE = "The quick brown fox, naïve as ever, jumped over 12 lazy dogs.\n\tdef f(x): return x"
"""Text that tokenizers of one vocabulary may still cut differently."""
MOST = {
    "num_hidden_layers": 1024,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 4096,
    "hidden_size": 2**18,
    "intermediate_size": 2**20,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**31,
}
"""Of each size in a configuration: several times what the largest models have."""
SIBLINGS = 32
"""In the probe's tree. A model that counts rows where it should go by positions is off by as many, which shows in half
precision too; off by one would pass for rounding."""


def check_architecture(name: str, config: Any) -> None:
    """Refuses what is no plain decoder with full attention.

    Raises:
        PairError: The model is of another kind; the sentence says which.
    """
    _check_sizes(name, config)
    remedy = "choose a decoder-only model with full attention"
    if getattr(config, "is_encoder_decoder", False):
        raise PairError(f"{name} is an encoder-decoder; {remedy}")
    layers = set(getattr(config, "layer_types", None) or ())
    if other := sorted(layers - {"full_attention"}):
        raise PairError(f"{name} has layers of type {', '.join(other)}; {remedy}")
    if "local" in (getattr(config, "attention_layers", None) or ()):
        raise PairError(f"{name} has local attention; {remedy}")
    window = getattr(config, "sliding_window", None)
    narrow = window and (not isinstance(window, int) or window < longest_text(config))
    if narrow and getattr(config, "use_sliding_window", True):
        raise PairError(f"{name} attends to a sliding window of {quoted(window)} tokens; {remedy}")
    if not getattr(config, "num_attention_heads", None):
        raise PairError(f"{name} has no attention heads (a recurrent model?); {remedy}")


def _check_sizes(name: str, config: Any) -> None:
    """Refuses numbers that no model has, before hours go into making it, or a memory that nobody has."""
    for key, most in MOST.items():
        found = getattr(config, key, None)
        if found is not None and not (isinstance(found, int) and 1 <= found <= most):
            raise PairError(
                f"the configuration of {name} says that {key} is {quoted(found)}, where 1 to {most} is possible; "
                "download it again"
            )


def common_tokenizer(target: str, draft: str) -> PreTrainedTokenizerBase:
    """The tokenizer that both share.

    Raises:
        PairError: They are not the same.
    """
    first, second = load_tokenizer(target), load_tokenizer(draft)
    if first.get_vocab() != second.get_vocab() or first(SAMPLE).input_ids != second(SAMPLE).input_ids:
        raise PairError(f"{target} and {draft} have different tokenizers; choose two models of one family")
    return first


@torch.inference_mode()
def probe(model: LanguageModel) -> None:
    """Runs a small tree and some of its paths as plain text; both must agree.

    Raises:
        PairError: They do not: this model cannot be verified as a tree.
    """
    prefix, first, second, third = [1, 2, 3], 4, 5, 6
    tokens = [prefix[-1], *[first] * (SIBLINGS - 1), second, third]
    positions = [2, *[3] * SIBLINGS, 4]
    visible = np.eye(len(tokens), dtype=np.bool_)
    visible[:, 0] = visible[-1, 1] = True
    try:
        cache = model.new_cache(len(prefix) + len(tokens))
        model.read(cache, prefix[:-1])
        as_tree = model.forward(cache, tokens, positions, visible)[[0, 1, SIBLINGS, SIBLINGS + 1]].float()
        plain = [
            model.module(input_ids=torch.tensor([path], device=model.device)).logits[0, -1].float()
            for path in (prefix, [*prefix, first], [*prefix, second], [*prefix, first, third])
        ]
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError) as error:
        raise PairError(
            f"{model.name} cannot run a draft tree ({first_line(error)}); "
            "choose a decoder-only model with full attention"
        ) from error
    as_text = torch.stack(plain)
    if not as_text.isfinite().all():
        raise PairError(
            f"{model.name} computes logits in {str(model.dtype).removeprefix('torch.')} that are no finite numbers; "
            "choose another dtype, float32 for example, or another model"
        )
    scale = max(1.0, float(as_text.abs().max()))
    tolerance = scale * (1e-3 if model.dtype in (torch.float32, torch.float64) else 0.1)
    worst = float((as_tree - as_text).abs().max())
    if not worst <= tolerance:  # no number is not within it either
        raise PairError(
            f"{model.name} computes other logits for a draft tree of {len(tokens)} nodes than for plain text "
            f"(by {worst:.2g}); choose a decoder-only model with full attention"
        )
