"""P-EAGLE heads that are made and saved by the speculators library have the library's logits; skipped without it.

Run with speculators 0.9.0, installed as in `test_dflash_publishers`. Without the library, other tests compare heads
with `tests.eagle3_reference`.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig

from decoder.forward.language_model import LanguageModel
from decoder.heads.eagle3 import Head
from decoder.models.heads import head_shape, load_head
from tests import tiny

pytest.importorskip("loguru")
pytest.importorskip("openai")
speculators = pytest.importorskip("speculators")

pytestmark = pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
LENGTH, ANCHORS, GUESSES = 30, (3, 12, 29), 4
MASK = 280
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "norms one by one": {"fc_norm": True},
    "one norm": {"norm_before_fc": True, "norm_before_residual": True},
    "own tokens": {"draft_vocab_size": 40},
}


def made(folder: Path, **options: Any) -> Any:
    """A random head of two layers, made by the library's code."""
    layer = LlamaConfig(
        vocab_size=tiny.VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )
    layer._attn_implementation = "eager"
    described = speculators.SpeculatorsConfig(
        algorithm="peagle",
        proposal_methods=[speculators.proposals.greedy.GreedyTokenProposalConfig(speculative_tokens=GUESSES)],
        default_proposal_method="greedy",
        verifier=speculators.VerifierConfig.from_pretrained(str(folder)),
    )
    config = speculators.models.peagle.PEagleSpeculatorConfig(
        transformer_layer_config=layer,
        eagle_aux_hidden_state_layer_ids=[2, 4, 5],
        mask_token_id=MASK,
        speculators_config=described,
        **({"draft_vocab_size": tiny.VOCABULARY} | options),
    )
    model = speculators.models.peagle.PEagleDraftModel(config)
    generator = torch.Generator().manual_seed(3)
    if "draft_vocab_size" in options:
        chosen = torch.randperm(tiny.VOCABULARY, generator=generator)[:40].sort().values
        model.load_vocab_mappings(torch.isin(torch.arange(tiny.VOCABULARY), chosen), chosen - torch.arange(40))
    model.load_verifier_weights()
    with torch.no_grad():
        for weight in model.parameters():
            drawn = torch.randn(weight.shape, generator=generator)
            weight.copy_(0.3 * drawn if weight.dim() > 1 else 1 + 0.2 * drawn)
    return model.eval()


def logits_of(model: Any, states: Tensor, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The library's logits of all rows of a text, followed by those of the mask rows after each anchor."""
    core, found = speculators.models.peagle.core, list[Tensor]()
    masks = range(1, GUESSES)
    anchors = torch.tensor([*range(LENGTH), *(anchor for anchor in ANCHORS for _ in masks)])
    depths = torch.tensor([0] * LENGTH + [depth for _ in ANCHORS for depth in masks])
    monkeypatch.setattr(core, "generate_cod_sample_indices", lambda **_: (anchors, depths))
    monkeypatch.setattr(core, "compute_metrics", lambda **_: (None, {}))
    # Mask rows of the last anchor are beyond the text's end; the library looks up tokens there and then replaces them.
    longer = LENGTH + GUESSES
    padded = torch.cat([ids, ids[:, :GUESSES]], -1), torch.cat([states, states[:, :GUESSES]], 1)
    hook = model.lm_head.register_forward_hook(lambda _module, _given, output: found.append(output[0]))
    with torch.no_grad():
        model(padded[1], padded[0], torch.zeros(1, longer).long(), verifier_last_hidden_states=padded[1][..., :32])
    hook.remove()
    return found[0]


@pytest.mark.parametrize("variant", VARIANTS)
def test_logits_are_those_of_the_library_that_made_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variant: str
) -> None:
    module = tiny.build(tiny.FAMILIES["llama"](num_hidden_layers=8), seed=1, spread=0.3)
    module.save_pretrained(tmp_path / "target")
    model = made(tmp_path / "target", **VARIANTS[variant])
    model.save_pretrained(tmp_path / "head")
    shape = head_shape(str(tmp_path / "head"))
    assert shape is not None
    head = load_head(str(tmp_path / "head"), shape, LanguageModel.of_module(module, "target"), torch.float32)
    assert isinstance(head, Head)
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(0, MASK, (1, LENGTH), generator=generator)
    states = torch.randn((1, LENGTH, 3 * 32), generator=generator)
    expected = logits_of(model, states, ids, monkeypatch)
    masks, hidden = head.masks
    for number, anchor in enumerate(ANCHORS):
        end, cache = anchor + 1, head.new_cache(LENGTH + GUESSES)
        rows = torch.cat([head.fused(states[0, :end]), hidden])
        tokens = [*ids[0, :end].tolist(), *masks]
        outputs = head.forward(cache, tokens, rows, range(len(tokens)), np.tri(len(tokens), dtype=np.bool_))
        logits = head.logits(outputs)
        own = logits if head.tokens is None else logits[:, head.tokens]
        first = LENGTH + number * (GUESSES - 1)
        theirs = torch.cat([expected[:end], expected[first : first + GUESSES - 1]])
        assert own.detach().numpy() == pytest.approx(theirs.numpy(), abs=2e-4)
