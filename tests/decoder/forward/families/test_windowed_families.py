"""Native families with attention windows: tree nodes have the logits of plain text."""

import numpy as np
import pytest
import torch
from transformers import MistralConfig

from decoder.forward.families.architecture import Architecture
from tests.decoder.family_models import like_llama, made, native_of
from tests.decoder.random_trees import path

WINDOWED = ("mistral, windows of 8", "qwen2, windows in half of its layers")
WINDOW, VOCABULARY = 8, 96
TEXT = np.random.default_rng(5).integers(0, VOCABULARY, 40).tolist()
PARENTS = [-1, 0, 0, 1, 1, 2, 5, 3, 7, 8, 9, 10, 11, 12]
"""Parent of each tree node; the tree is deeper than the window."""
PATHS = [path(PARENTS, node) for node in range(len(PARENTS))]
VISIBLE = np.array([[other in nodes for other in range(len(PARENTS))] for nodes in PATHS])


@pytest.mark.parametrize("name", WINDOWED)
@torch.inference_mode()
def test_nodes_have_the_logits_of_plain_text_round_by_round(name: str) -> None:
    """Kept rows keep their positions regardless of their place in the tree."""
    module = made(name, torch.float64)
    model, text = native_of(module), TEXT[: WINDOW + 3]
    cache = model.new_cache(len(text))
    model.read(cache, text[:4])
    model.read(cache, text[4:])
    for kept in ([0, 2, 5], [0, 1, 3, 7, 8, 9, 10, 11, 12], [0, 1, 4], [0]):
        tokens = [(7 * node + len(text)) % VOCABULARY for node in range(len(PARENTS))]
        cache.reserve(len(text) + len(tokens))
        found = model.forward(cache, tokens, [len(text) + len(nodes) - 1 for nodes in PATHS], VISIBLE)
        for logits, nodes in zip(found, PATHS, strict=True):
            right = module(torch.tensor([text + [tokens[node] for node in nodes]])).logits[0, -1]
            torch.testing.assert_close(logits, right, rtol=0, atol=1e-10)
        cache.keep([cache.length + node for node in kept])
        text += [tokens[node] for node in kept]


@pytest.mark.parametrize(("window", "kind"), [(191, "sliding_attention"), (192, "full_attention")])
def test_a_window_as_long_as_the_context_limits_nothing(window: int, kind: str) -> None:
    config = like_llama(MistralConfig, sliding_window=window)
    assert Architecture.of(config).layer_types == (kind,) * config.num_hidden_layers
