"""DFlash and P-EAGLE heads have the logits of their publishers' code; tests are skipped where that is not installed.

Run with dflash 0.1.0 (z-lab) and speculators 0.9.0 (`pip install --no-deps dflash==0.1.0 speculators==0.9.0
hs-connectors==0.9.0 loguru openai sniffio distro jiter`). Without these packages, other tests compare heads with
`tests.head_reference`.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, Qwen3Config

from decoder.forward.language_model import LanguageModel
from decoder.models.heads import head_shape, load_head
from tests import tiny
from tests.heads import BLOCKS, MASK, RANK

LENGTH, BLOCK, GUESSES = 40, 6, 4
LAYERS = [2, 4, 5]
GUESSED = 40
"""Vocabulary size of heads with a smaller vocabulary than the target's."""
CLASSES = {"dflash": "DFlash", "dflash2": "DFlash2", "dspark": "DSpark", "peagle": "PEagle"}
SELECTED = {"selector_rank": 5, "selector_top_k": 9, "conv_group_size": 8}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dflash": ("dflash", {}),
    "dflash, own tokens": ("dflash", {"draft_vocab_size": GUESSED}),
    "dflash, windows": ("dflash", {"sliding": (0, 1)}),
    "dflash, windows to both sides": ("dflash", {"sliding": (0,), "sliding_window_non_causal": True}),
    "dflash, from the anchor": ("dflash", {"sample_from_anchor": True}),
    "dflash2": ("dflash2", SELECTED),
    "dflash2, windows": ("dflash2", SELECTED | {"sliding": (1,)}),
    "dspark, vanilla": ("dspark", {"markov_head_type": "vanilla"}),
    "dspark, gated": ("dspark", {"markov_head_type": "gated", "draft_vocab_size": GUESSED}),
    "dspark, rnn": ("dspark", {"markov_head_type": "rnn"}),
    "dspark, rnn, filling in": ("dspark", {"markov_head_type": "rnn", "sample_from_anchor": False}),
    "peagle": ("peagle", {}),
    "peagle, norms one by one": ("peagle", {"fc_norm": True}),
    "peagle, one norm": ("peagle", {"norm_before_fc": True, "norm_before_residual": True}),
    "peagle, own tokens": ("peagle", {"draft_vocab_size": GUESSED}),
}


@pytest.fixture(scope="module")
def speculators() -> Any:
    for needed in ("loguru", "openai"):
        pytest.importorskip(needed)
    return pytest.importorskip("speculators")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[LanguageModel, Path]:
    module = tiny.build(tiny.FAMILIES["qwen3"](num_hidden_layers=8), seed=1, spread=0.3)
    folder = tmp_path_factory.mktemp("target")
    module.save_pretrained(folder)
    return LanguageModel.of_module(module, "the-target"), folder


def loaded(folder: Path, target: LanguageModel) -> Any:
    shape: Any = head_shape(str(folder))
    return load_head(str(folder), shape, target, torch.float32)


def made(speculators: Any, kind: str, folder: Path, sliding: tuple[int, ...] = (), **options: Any) -> Any:
    """A random head of two layers for the target in a folder, made by the code of the speculators library."""
    layer = (LlamaConfig if kind == "peagle" else Qwen3Config)(
        vocab_size=tiny.VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    layer._attn_implementation = "eager"
    if kind != "peagle":
        layer.layer_types = ["sliding_attention" if number in sliding else "full_attention" for number in range(2)]
        layer.sliding_window = 7 if sliding else None
    guesses = GUESSES if kind == "peagle" else BLOCK - 1
    described = speculators.SpeculatorsConfig(
        algorithm=kind,
        proposal_methods=[speculators.proposals.greedy.GreedyTokenProposalConfig(speculative_tokens=guesses)],
        default_proposal_method="greedy",
        verifier=speculators.VerifierConfig.from_pretrained(str(folder)),
    )
    own: dict[str, Any] = {"mask_token_id": MASK, "speculators_config": described}
    own["eagle_aux_hidden_state_layer_ids" if kind == "peagle" else "aux_hidden_state_layer_ids"] = LAYERS
    own |= {} if kind == "peagle" else {"block_size": BLOCK}
    own |= {"markov_rank": RANK} if kind == "dspark" else {}
    module = getattr(speculators.models, kind)
    config = getattr(module, f"{CLASSES[kind]}SpeculatorConfig")(
        transformer_layer_config=layer, **own | {"draft_vocab_size": tiny.VOCABULARY} | options
    )
    model = getattr(module, f"{CLASSES[kind]}DraftModel")(config)
    generator, few = torch.Generator().manual_seed(3), config.draft_vocab_size != tiny.VOCABULARY
    if few:
        chosen = torch.randperm(tiny.VOCABULARY, generator=generator)[:GUESSED].sort().values
        model.load_vocab_mappings(torch.isin(torch.arange(tiny.VOCABULARY), chosen), chosen - torch.arange(GUESSED))
    model.load_verifier_weights()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            shared = any(part in name for part in ("embed_tokens", "verifier", "lm_head"))
            if kind == "peagle" or not shared or (few and "lm_head" in name and "verifier" not in name):
                drawn = torch.randn(weight.shape, generator=generator)
                weight.copy_(0.3 * drawn if weight.dim() > 1 else 1 + 0.2 * drawn)
    return model.eval()


# DFlash

ANCHORS = [3, 9, 17, 30]


def corrected(model: Any, kind: str, logits: Tensor, hidden: Tensor, before: Tensor) -> Tensor:
    """The library's logits of one block over the head's own tokens, corrected for the token before each row."""
    if kind == "dspark":
        logits = logits + model.markov_head.block_bias(prev_token_ids=before, hidden_states=hidden)
    if kind == "dflash2":
        candidates, scores = model.candidate_selector.select(logits, hidden, before)
        logits = torch.full_like(logits, -1e4).scatter(-1, candidates, scores)
    return logits[0]


@pytest.mark.parametrize("named", [name for name, (kind, _) in KINDS.items() if kind != "peagle"])
def test_logits_of_blocks_are_those_of_the_library_that_made_the_head(
    speculators: Any, target: tuple[LanguageModel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    (kind, options), generator = KINDS[named], torch.Generator().manual_seed(4)
    model = made(speculators, kind, target[1], **options)
    model.save_pretrained(tmp_path / "head")
    head = loaded(tmp_path / "head", target[0])
    ids = torch.randint(0, MASK, (1, LENGTH), generator=generator)
    states = torch.randn((1, LENGTH, len(LAYERS) * 32), generator=generator)
    core = speculators.models.dflash.core
    monkeypatch.setattr(core, "select_anchors", lambda *_: (torch.tensor(ANCHORS), torch.ones(len(ANCHORS)).bool()))
    given = states, ids, torch.ones(1, LENGTH), states[..., :32], torch.zeros(1, LENGTH).long()
    with torch.no_grad():
        hidden, logits, *_ = model._backbone_forward(*given, max_anchors=len(ANCHORS))
    hidden, logits = (rows.view(len(ANCHORS), 1, BLOCK, -1) for rows in (hidden, logits))
    cache = head.new_cache(8)
    for number, anchor in enumerate(ANCHORS):
        head.read(cache, states[0, cache.length : anchor])
        (block,), path = head.blocks(cache, [int(ids[0, anchor])]), ids[0, anchor : anchor + BLOCK].tolist()
        before = torch.tensor([path if head.shape.from_anchor else [path[0], *path[:-1]]])
        with torch.no_grad():
            expected = corrected(model, kind, logits[number], hidden[number], before)[-head.shape.guesses :]
        memory = block.memory
        for row, token, theirs in zip(block.rows, path, expected, strict=False):
            found, memory = head.logits(row, [token], memory)
            own = found[0] if head.tokens is None else found[0, head.tokens]
            assert own.numpy() == pytest.approx(theirs.numpy(), abs=1e-4)
            assert int(own.argmax()) == int(theirs.argmax())


ZLAB = [layout for layout, given in BLOCKS.items() if given.kind in ("DFlashDraftModel", "DFlash2DraftModel")]
ZLAB.remove("JetSpec")  # z-lab's code does not support JetSpec's causal head


@pytest.mark.parametrize("layout", ZLAB)
def test_z_lab_s_own_network_agrees_over_rounds_that_keep_a_cache(
    target: tuple[LanguageModel, Path], tmp_path: Path, layout: str
) -> None:
    """z-lab's code reads the folder that the engine reads. For DFlash2 heads, the drafted path is compared too."""
    theirs_module = pytest.importorskip("dflash.model")
    given = BLOCKS[layout]
    folder, module = given.save(tmp_path / "head"), target[0].hf.module
    head = loaded(folder, target[0])
    theirs = getattr(theirs_module, given.kind).from_pretrained(folder, dtype=torch.float32).eval()
    cache, other = head.new_cache(8), theirs_module._make_cache(theirs.config)
    generator = torch.Generator().manual_seed(6)
    states = torch.randn((1, LENGTH, given.states * 32), generator=generator)
    size = head.shape.block_size
    for first, anchor in pairwise([0, *ANCHORS]):
        head.read(cache, states[0, first:anchor])
        (block,) = head.blocks(cache, [7])
        tokens = torch.tensor([[7] + [MASK] * (size - 1)])
        scale = float(theirs_module._draft_value(theirs.config, "input_embedding_scale", 1.0))
        with torch.no_grad():
            hidden = theirs(
                target_hidden=states[:, first:anchor],
                noise_embedding=theirs_module._raw_input_embeddings(module, tokens, scale),
                position_ids=torch.arange(first, anchor + size)[None],
                past_key_values=other,
                use_cache=True,
            )[:, 1:]
            theirs_module._crop_to(other, anchor)
            logits = theirs.compute_logits(hidden, module.lm_head)
        for row, expected in zip(block.rows, logits[0], strict=True):
            assert row.logits.numpy() == pytest.approx(expected.numpy(), abs=1e-4)
        if given.second:
            path, _, _ = theirs.propose(hidden, torch.tensor([7]), module.lm_head, 0.0)
            drafted, memory = [7], block.memory
            for row in block.rows:
                found, memory = head.logits(row, drafted[-1:], memory)
                drafted.append(int(found[0].argmax()))
            assert drafted[1:] == path[0].tolist()


# P-EAGLE

TEXT, ENDS = 30, (3, 12, 29)


def logits_of(speculators: Any, model: Any, states: Tensor, ids: Tensor, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The library's logits of all rows of a text, followed by those of the mask rows after each end."""
    core, found, masks = speculators.models.peagle.core, list[Tensor](), range(1, GUESSES)
    anchors = torch.tensor([*range(TEXT), *(end for end in ENDS for _ in masks)])
    depths = torch.tensor([0] * TEXT + [depth for _ in ENDS for depth in masks])
    monkeypatch.setattr(core, "generate_cod_sample_indices", lambda **_: (anchors, depths))
    monkeypatch.setattr(core, "compute_metrics", lambda **_: (None, {}))
    # Mask rows of the last end are beyond the text's end; the library looks up tokens there and then replaces them.
    tokens, states = torch.cat([ids, ids[:, :GUESSES]], -1), torch.cat([states, states[:, :GUESSES]], 1)
    hook = model.lm_head.register_forward_hook(lambda _module, _given, output: found.append(output[0]))
    with torch.no_grad():
        model(states, tokens, torch.zeros(1, TEXT + GUESSES).long(), verifier_last_hidden_states=states[..., :32])
    hook.remove()
    return found[0]


@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated:FutureWarning")
@pytest.mark.parametrize("named", [name for name, (kind, _) in KINDS.items() if kind == "peagle"])
def test_logits_of_masks_are_those_of_the_library_that_made_the_head(
    speculators: Any, target: tuple[LanguageModel, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    model = made(speculators, "peagle", target[1], **KINDS[named][1])
    model.save_pretrained(tmp_path / "head")
    head, generator = loaded(tmp_path / "head", target[0]), torch.Generator().manual_seed(4)
    ids = torch.randint(0, MASK, (1, TEXT), generator=generator)
    states = torch.randn((1, TEXT, 3 * 32), generator=generator)
    expected = logits_of(speculators, model, states, ids, monkeypatch)
    masks, hidden = head.masks
    for number, anchor in enumerate(ENDS):
        end, cache = anchor + 1, head.new_cache(TEXT + GUESSES)
        rows = torch.cat([head.fused(states[0, :end]), hidden])
        tokens = [*ids[0, :end].tolist(), *masks]
        outputs = head.forward(cache, tokens, rows, range(len(tokens)), np.tri(len(tokens), dtype=np.bool_))
        logits = head.logits(outputs)
        own = logits if head.tokens is None else logits[:, head.tokens]
        first = TEXT + number * (GUESSES - 1)
        theirs = torch.cat([expected[:end], expected[first : first + GUESSES - 1]])
        assert own.detach().numpy() == pytest.approx(theirs.numpy(), abs=2e-4)
