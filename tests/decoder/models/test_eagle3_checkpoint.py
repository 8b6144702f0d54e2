"""EAGLE-3 checkpoints: all weights of both layouts are read, and each fault is reported in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from decoder.errors import ModelError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.heads.eagle3 import Head, usual_layers
from decoder.models.checkpoints import EMBEDDED_DRAFT
from decoder.models.head_config import head_shape
from decoder.models.heads import load_head
from tests import tiny
from tests.eagle3_checkpoints import FAVOURITES, LAYOUTS, Layout, configuration, save_head, target, weights
from tests.head_files import one_line, reconfigure, rewrite

EMBEDDED = "embed_tokens.weight"


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return LanguageModel.of_module(target("llama"), "the-target")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_head(tmp_path / "head", Layout())


def load(folder: Path, model: LanguageModel, dtype: torch.dtype = torch.float32) -> Head:
    shape = head_shape(str(folder))
    assert shape is not None
    return load_head(str(folder), shape, model, dtype)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_is_read(tmp_path: Path, llama: LanguageModel, layout: str) -> None:
    given = LAYOUTS[layout]
    head = load(save_head(tmp_path / "head", given), llama)
    held = weights(given)
    assert torch.equal(head.state_dict()["fc.weight"], held["fc.weight"])
    assert torch.equal(head.state_dict()["layers.0.mlp.up_proj.weight"], held[_published(given, "mlp.up_proj.weight")])
    assert torch.equal(head.embed_tokens.weight, held[EMBEDDED] if given.embeds else llama.embedding)
    assert (head.tokens is None) == (not given.maps_tokens)
    assert head.target_layers == ((1, 5, 7) if "eagle_config" in given.extras else given.target_layers or (2, 4, 5))
    assert (head.shape.layers, head.shape.guesses) == (given.depth, given.guesses)
    assert head.kind == ("P-EAGLE head" if given.guesses > 1 else "EAGLE-3 head")


def _published(layout: Layout, name: str) -> str:
    return f"{'layers.0' if layout.nested else 'midlayer'}.{name}"


def test_d2t_holds_what_is_added_to_a_token_s_own_number(folder: Path, llama: LanguageModel) -> None:
    tokens = load(folder, llama).tokens
    assert tokens is not None
    assert tuple(tokens.tolist()) == FAVOURITES


@pytest.mark.parametrize(
    "named",
    [["LlamaForCausalLMEagle3"], ["Eagle3LlamaForCausalLM"], ["Eagle3Speculator"], ["Eagle3DraftModel"]],
    ids=str,
)
def test_a_head_is_known_by_its_architecture(folder: Path, named: list[str]) -> None:
    reconfigure(folder, {"architectures": named})
    assert head_shape(str(folder))


@pytest.mark.parametrize(
    ("changes", "guesses", "token"),
    [
        ({"mask_token_id": 3}, 8, 3),
        ({"pard_token": 0, "ptd_token_id": 5}, 8, 0),
        ({"ptd_token_id": 5, "speculators_config": {"proposal_methods": [{"speculative_tokens": 4}]}}, 4, 5),
        ({"speculators_config": {"proposal_methods": [{"speculative_tokens": 4}]}}, 1, None),
    ],
    ids=str,
)
def test_a_mask_token_makes_a_head_of_several_guesses(
    folder: Path, changes: dict[str, Any], guesses: int, token: int | None
) -> None:
    reconfigure(folder, changes)
    shape = head_shape(str(folder))
    assert shape is not None
    assert (shape.guesses, shape.mask_token) == (guesses, token)


PUBLISHED: dict[str, dict[str, Any]] = {
    "nested, of Llama 3.1 8B": {
        "architectures": ["Eagle3Speculator"],
        "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
        "draft_vocab_size": 32000,
        "has_no_defaults_at_init": False,
        "norm_before_residual": False,
        "speculators_model_type": "eagle3",
        "target_hidden_size": None,
        "torch_dtype": "float32",
        "transformer_layer_config": {
            "attention_bias": False,
            "attention_dropout": 0.0,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 2048,
            "mlp_bias": False,
            "model_type": "llama",
            "num_attention_heads": 32,
            "num_hidden_layers": 1,
            "num_key_value_heads": 8,
            "pretraining_tp": 1,
            "rms_norm_eps": 1e-05,
            "rope_scaling": None,
            "rope_theta": 10000.0,
            "use_cache": True,
            "vocab_size": 128256,
        },
    },
    "nested, with all that is newer": {
        "architectures": ["Eagle3DraftModel"],
        "base_model_ep_plan": None,
        "draft_vocab_size": 32000,
        "dtype": "bfloat16",
        "eagle_aux_hidden_state_layer_ids": None,
        "embed_requires_grad": False,
        "norm_before_fc": False,
        "norm_before_residual": True,
        "speculators_model_type": "eagle3",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": {
            "dtype": "bfloat16",
            "head_dim": 192,
            "hidden_size": 7168,
            "intermediate_size": 14336,
            "model_type": "llama",
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-06,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
            "vocab_size": 131072,
        },
    },
}
"""Configurations from the hub, without the fields that name their owners."""


@pytest.mark.parametrize(
    ("named", "width", "queries", "residual"),
    [("nested, of Llama 3.1 8B", 4096, 4096, False), ("nested, with all that is newer", 7168, 6144, True)],
)
def test_published_configurations_are_understood(
    tmp_path: Path, named: str, width: int, queries: int, *, residual: bool
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[named]))
    shape = head_shape(str(tmp_path))
    assert shape is not None
    assert shape.norm_before_residual == residual
    with torch.device("meta"):
        wanted = Head(named, shape, shape.layers_of(32)).state_dict()
    assert wanted["fc.weight"].shape == (width, 3 * width)
    assert wanted["layers.0.self_attn.q_proj.weight"].shape == (queries, 2 * width)
    assert wanted["d2t"].shape == (32000,)


def test_other_checkpoints_are_no_heads(folder: Path, tmp_path: Path) -> None:
    reconfigure(folder, {"architectures": ["LlamaForCausalLM"]})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    for other in (folder, EMBEDDED_DRAFT, tmp_path, tmp_path / "broken", tmp_path / "nowhere"):
        assert head_shape(str(other)) is None


def test_the_usual_layers_are_a_low_a_middle_and_a_high_one() -> None:
    assert [usual_layers(layers) for layers in (16, 28, 32, 36)] == [(2, 8, 13), (2, 14, 25), (2, 16, 29), (2, 18, 33)]


def test_what_the_nested_layout_leaves_out_is_what_vllm_takes_for_it(tmp_path: Path) -> None:
    found = save_head(tmp_path / "head", Layout(nested=True))
    config = configuration(Layout(nested=True))
    del config["norm_before_residual"]
    (found / "config.json").write_text(json.dumps(config))
    nested = head_shape(str(found))
    flat = head_shape(str(save_head(tmp_path / "flat", Layout())))
    assert nested is not None
    assert flat is not None
    assert (nested.norm_before_residual, flat.norm_before_residual) == (True, False)


def test_code_that_a_checkpoint_names_is_not_run(folder: Path, llama: LanguageModel) -> None:
    (folder / "eagle3.py").write_text("raise SystemExit('code of a checkpoint was run')")
    reconfigure(folder, {"auto_map": {"AutoConfig": "eagle3.Code", "AutoModel": "eagle3.Code"}})
    assert load(folder, llama).shape.draft_vocabulary == len(FAVOURITES)


def test_names_may_begin_with_model(folder: Path, llama: LanguageModel) -> None:
    held = load_file(folder / "model.safetensors")
    rewrite(folder, dict.fromkeys(held) | {f"model.{key}": tensor for key, tensor in held.items()})
    assert torch.equal(load(folder, llama).state_dict()["fc.weight"], held["fc.weight"])


def test_what_training_left_beside_the_weights_is_passed_over(folder: Path, llama: LanguageModel) -> None:
    rewrite(folder, {"verifier_norm.weight": torch.ones(3), "verifier_lm_head.weight": torch.ones(3)})
    assert "verifier_norm.weight" not in load(folder, llama).state_dict()


@pytest.mark.parametrize(("key", "dtype"), [("d2t", torch.float32), ("fc.weight", torch.int8)])
def test_a_weight_of_a_wrong_kind_is_named(folder: Path, llama: LanguageModel, key: str, dtype: torch.dtype) -> None:
    rewrite(folder, {key: weights(Layout())[key].to(dtype)})
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, key, str(dtype))


@pytest.mark.parametrize("offsets", [[0, 0, 0, 0, -1], [0, 0, 0, 0, tiny.VOCABULARY], [-1, 0, 0, 0, 0]])
def test_tokens_that_the_target_has_not_or_twice_are_refused(
    folder: Path, llama: LanguageModel, offsets: list[int]
) -> None:
    rewrite(folder, {"d2t": torch.tensor(offsets)})
    with pytest.raises(ModelError) as refusal:
        load(folder, llama)
    assert one_line(refusal, "d2t", str(tiny.VOCABULARY))


def test_a_target_of_few_layers_has_not_the_usual_ones(folder: Path) -> None:
    shallow = LanguageModel.of_module(tiny.build(tiny.FAMILIES["llama"](), seed=1), "shallow")
    with pytest.raises(PairError) as refusal:
        load(folder, shallow)
    assert one_line(refusal, "shallow", "2, 1, -1")


def test_rows_of_another_width_need_an_embedding_of_their_own(tmp_path: Path, llama: LanguageModel) -> None:
    broken = save_head(tmp_path / "head", Layout(width=24))
    with pytest.raises(ModelError) as refusal:
        load(broken, llama)
    assert one_line(refusal, EMBEDDED, f"({tiny.VOCABULARY}, 24)")
