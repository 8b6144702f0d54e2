"""DFlash checkpoints: all weights of all layouts are read, and each fault is reported in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from decoder.errors import PairError
from decoder.forward.language_model import LanguageModel
from decoder.heads.dflash import BlockHead
from decoder.heads.dflash_shape import BlockShape, Convolution, Markov, Selector, Swiglu, usual_layers
from decoder.models.checkpoints import EMBEDDED_DRAFT, load_model
from decoder.models.dflash_config import block_shape
from decoder.models.heads import head_shape, load_head
from decoder.models.heads import load_head as load_block_head
from tests import eagle3_checkpoints, tiny
from tests.dflash_checkpoints import BLOCK, GROUP, LAYOUTS, MASK, RANK, TAPS, configuration, save_head, weights
from tests.eagle3_checkpoints import FAVOURITES, WIDTH, target
from tests.head_files import one_line, reconfigure, rewrite


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return LanguageModel.of_module(target("llama"), "the-target")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_head(tmp_path / "head", LAYOUTS["z-lab"])


def shape_of(folder: Path) -> BlockShape:
    shape = block_shape(str(folder))
    assert shape is not None
    return shape


def load(folder: Path, model: LanguageModel, dtype: torch.dtype = torch.float32) -> BlockHead:
    return load_block_head(str(folder), shape_of(folder), model, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    given = LAYOUTS[layout]
    head, held = load(save_head(tmp_path / "head", given), llama), weights(given)
    body = "model." if given.swiglu else ""
    assert torch.equal(head.state_dict()["fc.weight"], held[f"{body}fc.weight"])
    assert torch.equal(head.state_dict()["layers.1.mlp.up_proj.weight"], held[f"{body}layers.1.mlp.up_proj.weight"])
    assert torch.equal(head.embed_tokens.weight, held.get("embed_tokens.weight", llama.embedding))
    assert torch.equal(head.lm_head.weight, held.get("lm_head.weight", llama.output_head))
    assert (head.tokens is None) == (not given.maps_tokens)
    assert head.shape.mask_token == MASK
    assert not any("confidence" in name for name in head.state_dict())


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        ("z-lab", {"layers": (2, 5, 7), "guesses": BLOCK - 1, "causal": (False, False), "correction": None}),
        ("z-lab, usual layers", {"layers": (2, 6), "convolution": None}),
        ("z-lab, windows", {"causal": (True, False), "fixed_window": False}),
        ("z-lab, windows to both sides", {"causal": (False, False)}),
        ("z-lab, scaled", {"embedding_scale": 1.5, "output_scale": 0.7, "softcap": 4.0}),
        ("JetSpec", {"causal": (True, True)}),
        (
            "DFlash2",
            {"correction": Selector(RANK, 7), "convolution": Convolution(TAPS, GROUP), "causal": (False, False)},
        ),
        ("TreeFlash", {"correction": Swiglu()}),
        ("speculators", {"layers": (0, 2, 5), "guesses": BLOCK - 1, "draft_vocabulary": len(FAVOURITES)}),
        ("speculators, windows", {"causal": (True, False), "fixed_window": True}),
        ("speculators, windows to both sides", {"causal": (False, False)}),
        ("speculators, from the anchor", {"guesses": BLOCK}),
        ("speculators, DFlash2", {"causal": (False, False), "correction": Selector(RANK, 7)}),
        ("speculators, DSpark", {"guesses": BLOCK, "correction": Markov(RANK, "gated")}),
        ("speculators, DSpark, filling in", {"guesses": BLOCK - 1, "correction": Markov(RANK, "rnn")}),
        ("DeepSpec", {"layers": (0, 4, 7), "guesses": BLOCK, "correction": Markov(RANK, "vanilla")}),
        ("DeepSpec, without correction", {"guesses": BLOCK, "correction": None}),
    ],
)
def test_a_layout_says_what_its_publisher_means(
    tmp_path: Path, llama: LanguageModel, layout: str, expected: dict[str, Any]
) -> None:
    head = load(save_head(tmp_path / "head", LAYOUTS[layout]), llama)
    found = {field: head.target_layers if field == "layers" else getattr(head.shape, field) for field in expected}
    assert found == expected


PUBLISHED: dict[str, Any] = {
    "architectures": ["DFlash2DraftModel"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "is_causal": False,
    "dflash_config": {
        "block_size": 16,
        "conv_group_size": 16,
        "conv_kernel_size": 2,
        "final_logit_softcapping": 20.0,
        "mask_token_id": 201818,
        "output_multiplier": 0.19611613513818404,
        "selector_rank": 256,
        "selector_top_k": 16,
        "target_layer_ids": [1, 13, 25, 37, 49],
    },
    "dtype": "bfloat16",
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 6656,
    "intermediate_size": 19968,
    "layer_types": ["sliding_attention"] * 5,
    "max_position_embeddings": 131072,
    "max_window_layers": 5,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "num_target_layers": 52,
    "rms_norm_eps": 1e-05,
    "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"},
    "sliding_window": 2048,
    "use_sliding_window": True,
    "vocab_size": 202048,
}
"""Configuration of a published head, from the test fixtures of the repository z-lab/dflash."""


def test_a_published_configuration_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED))
    shape = shape_of(tmp_path)
    assert (shape.block_size, shape.guesses, shape.mask_token, shape.softcap) == (16, 15, 201818, 20.0)
    assert (shape.correction, shape.convolution) == (Selector(256, 16), Convolution(2, 16))
    assert (shape.target_layers, shape.causal, shape.window(4)) == ((2, 14, 26, 38, 50), (False,) * 5, 2048)
    with torch.device("meta"):
        weights_of = BlockHead("head", shape, shape.layers_of(52)).state_dict()
    assert weights_of["fc.weight"].shape == (6656, 33280)
    assert weights_of["layers.4.attention_conv.kernel_projection.weight"].shape == (1664, 6656)
    assert weights_of["candidate_selector.predecessor_codebook"].shape == (202048, 256)


def test_defaults_are_those_of_the_publishers(tmp_path: Path) -> None:
    fields = configuration(LAYOUTS["speculators, DSpark"])
    for name in ("markov_rank", "markov_head_type", "block_size"):
        del fields[name]
    spark = save_head(tmp_path / "spark", LAYOUTS["speculators, DSpark"])
    (spark / "config.json").write_text(json.dumps(fields))
    assert (shape_of(spark).correction, shape_of(spark).block_size) == (Markov(256, "vanilla"), 8)
    fields = configuration(LAYOUTS["z-lab"])
    del fields["block_size"]
    flat = save_head(tmp_path / "flat", LAYOUTS["z-lab"])
    (flat / "config.json").write_text(json.dumps(fields))
    assert shape_of(flat).block_size == 16


def test_what_stands_in_dflash_config_wins(folder: Path) -> None:
    fields = json.loads((folder / "config.json").read_text())
    fields["dflash_config"]["block_size"] = 3
    reconfigure(folder, {"dflash_config": fields["dflash_config"], "mask_token_id": 5})
    assert (shape_of(folder).block_size, shape_of(folder).mask_token) == (3, MASK)


@pytest.mark.parametrize(
    ("layers", "own", "expected"), [(36, 5, (2, 10, 18, 26, 34)), (36, 1, (19,)), (64, 2, (2, 62)), (8, 2, (2, 6))]
)
def test_the_usual_layers_are_z_lab_s(layers: int, own: int, expected: tuple[int, ...]) -> None:
    """The published heads for Qwen3-8B list outputs 1, 9, 17, 25 and 33 of 36 layers; inputs count one more."""
    assert usual_layers(layers, own) == expected


def test_heads_of_other_kinds_are_no_dflash_heads(tmp_path: Path, llama: LanguageModel) -> None:
    eagle = eagle3_checkpoints.save_head(tmp_path / "eagle", eagle3_checkpoints.LAYOUTS["flat"])
    assert block_shape(str(eagle)) is None
    assert block_shape(str(EMBEDDED_DRAFT)) is None
    assert head_shape(str(EMBEDDED_DRAFT)) is None
    flash = save_head(tmp_path / "flash", LAYOUTS["z-lab"])
    for folder, kind in ((eagle, "EAGLE-3 head"), (flash, "DFlash head")):
        shape = head_shape(str(folder))
        assert shape is not None
        assert load_head(str(folder), shape, llama, torch.float32).kind == shape.kind == kind


def test_codebooks_may_be_saved_as_embeddings(tmp_path: Path, llama: LanguageModel) -> None:
    folder = save_head(tmp_path / "head", LAYOUTS["DFlash2"])
    held, name = load_file(folder / "model.safetensors"), "candidate_selector.successor_codebook"
    rewrite(folder, {name: None, f"{name}.weight": held[name]})
    assert torch.equal(load(folder, llama).state_dict()[name], held[name])


def test_fields_that_change_nothing_are_passed_over(folder: Path, llama: LanguageModel) -> None:
    before = shape_of(folder)
    reconfigure(
        folder,
        {
            "attention_sink_bias": False,
            "quantization_config": None,
            "projector_type": "dflash",
            "is_neox_style": True,
            "num_target_layers": 8,
        },
    )
    assert shape_of(folder) == before
    load(folder, llama)


def test_a_quantised_output_head_of_the_target_is_refused(
    folder: Path, llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.ones((tiny.VOCABULARY, WIDTH), dtype=torch.int8)
    monkeypatch.setattr(LanguageModel, "output_head", property(lambda _: rows))
    with pytest.raises(PairError) as refusal:
        load(folder, llama)
    assert one_line(refusal, "the-target", "quantised")


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_the_output_head_of_a_saved_target_is_its_own(tmp_path: Path, family: str) -> None:
    """The output head is read from the file, since native forms fold its weight into other matrices."""
    module = target(family)
    saved = tiny.save(tmp_path / family, module, tiny.train_tokenizer())
    model = load_model(str(saved), torch.device("cpu"), torch.float32, lambda _: None)
    assert torch.equal(model.output_head, module.get_output_embeddings().weight)


def test_a_tied_output_head_is_held_once(tmp_path: Path) -> None:
    module = tiny.build(tiny.FAMILIES["llama"](num_hidden_layers=8, tie_word_embeddings=True), seed=1)
    saved = tiny.save(tmp_path / "target", module, tiny.train_tokenizer())
    model = load_model(str(saved), torch.device("cpu"), torch.float32, lambda _: None)
    assert model.runs_without_module
    head = load(save_head(tmp_path / "head", LAYOUTS["z-lab"]), model)
    assert head.lm_head.weight.data_ptr() == head.embed_tokens.weight.data_ptr() == model.embedding.data_ptr()
    assert torch.equal(head.lm_head.weight, module.get_output_embeddings().weight)
