"""Checkpoints of EAGLE-3, P-EAGLE and DFlash heads: all weights of all layouts are read, each fault is told in one
line, and no pickle is opened.
"""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from decoder.errors import ModelError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.heads import eagle3
from decoder.heads.dflash import BlockHead
from decoder.heads.dflash_shape import BlockShape, Convolution, Markov, Selector
from decoder.models.checkpoints import EMBEDDED_DRAFT, load_model
from decoder.models.heads import head_shape, load_head
from tests import tiny
from tests.head_files import in_two_files, reconfigure, refused, rewrite
from tests.heads import BLOCK, LAYOUTS, MASK, WIDTH, RowLayout, target

FLAT, FLASH = "flat", "z-lab"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def llama() -> LanguageModel:
    return LanguageModel.of_module(target("llama"), "the-target")


def saved(folder: Path, layout: str) -> Path:
    return LAYOUTS[layout].save(folder / "head")


def shape_of(folder: Path) -> Any:
    shape = head_shape(str(folder))
    assert shape is not None
    return shape


def load(folder: Path, model: LanguageModel, dtype: torch.dtype = torch.float32) -> Any:
    return load_head(str(folder), shape_of(folder), model, dtype)


def weights(layout: str) -> dict[str, torch.Tensor]:
    return LAYOUTS[layout].weights()


def configuration(layout: str) -> dict[str, Any]:
    return LAYOUTS[layout].configuration()


def own(key: str) -> str:
    """The head's name of a published weight."""
    return key.removeprefix("model.").replace("midlayer", "layers.0")


# What is read


ONE_LEVEL = {"proposal_methods": [{"speculative_tokens": 4}]}
ROW, BLOCKS = {"guesses": 1, "mask_token": None}, {"mask_token": MASK}
SAID: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    *((layout, {}, ROW) for layout in ("flat", "nested", "EAGLE-3.1")),
    ("P-EAGLE", {}, {"guesses": 6, "layers": 2, "mask_token": 11}),
    ("P-EAGLE, flat", {}, {"guesses": 8, "layers": 3, "mask_token": 12}),
    *((layout, {}, BLOCKS | {"guesses": BLOCK - 1}) for layout in ("z-lab", "DFlash2", "TreeFlash", "speculators")),
    *((layout, {}, {"guesses": BLOCK}) for layout in ("speculators, from the anchor", "speculators, DSpark")),
    ("speculators, DSpark, filling in", {}, {"guesses": BLOCK - 1, "correction": Markov(6, "rnn")}),
    ("DeepSpec", {}, BLOCKS | {"guesses": BLOCK, "target_layers": (0, 4, 7)}),
    *(
        (FLAT, {"architectures": [name]}, ROW)
        for name in ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM", "Eagle3Speculator", "Eagle3DraftModel")
    ),
    # A mask token makes a head of several guesses.
    (FLAT, {"mask_token_id": 3}, {"guesses": 8, "mask_token": 3}),
    (FLAT, {"pard_token": 0, "ptd_token_id": 5}, {"guesses": 8, "mask_token": 0}),
    (FLAT, {"ptd_token_id": 5, "speculators_config": ONE_LEVEL}, {"guesses": 4, "mask_token": 5}),
    (FLAT, {"speculators_config": ONE_LEVEL}, ROW),
    # What stands in dflash_config wins.
    (FLASH, {"dflash_config": configuration(FLASH)["dflash_config"] | {"block_size": 3}, "mask_token_id": 5},
     BLOCKS | {"block_size": 3}),
    # Fields that are left out
    ("nested", {"norm_before_residual": None}, {"norm_before_residual": True}),
    ("flat", {}, {"norm_before_residual": False}),
    ("speculators, DSpark", dict.fromkeys(("markov_rank", "markov_head_type", "block_size")),
     {"correction": Markov(256, "vanilla"), "block_size": 8}),
    ("z-lab", {"block_size": None}, {"block_size": 16}),
]  # fmt: skip
"""Layouts, changes of their fields (None: left out), and what they then mean; passes show the other meanings."""


@pytest.mark.parametrize(("layout", "changes", "expected"), SAID, ids=str)
def test_a_layout_says_what_its_publisher_means(
    tmp_path: Path, layout: str, changes: dict[str, Any], expected: dict[str, Any]
) -> None:
    left_out = {name for name, value in changes.items() if value is None}
    fields = {name: value for name, value in (configuration(layout) | changes).items() if name not in left_out}
    (tmp_path / "config.json").write_text(json.dumps(fields))
    assert {name: getattr(shape_of(tmp_path), name) for name in expected} == expected


PUBLISHED: dict[str, dict[str, Any]] = {
    "EAGLE-3, nested, with all that is newer": {
        "architectures": ["Eagle3DraftModel"], "base_model_ep_plan": None, "draft_vocab_size": 32000,
        "dtype": "bfloat16", "eagle_aux_hidden_state_layer_ids": None, "embed_requires_grad": False,
        "norm_before_fc": False, "norm_before_residual": True, "speculators_model_type": "eagle3",
        "target_hidden_size": None, "tie_word_embeddings": False,
        "transformer_layer_config": {
            "dtype": "bfloat16", "head_dim": 192, "hidden_size": 7168, "intermediate_size": 14336,
            "model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
            "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}, "vocab_size": 131072,
        },
    },
    "DFlash2, of the repository z-lab/dflash": {
        "architectures": ["DFlash2DraftModel"], "attention_bias": False, "attention_dropout": 0.0, "is_causal": False,
        "dflash_config": {
            "block_size": 16, "conv_group_size": 16, "conv_kernel_size": 2, "final_logit_softcapping": 20.0,
            "mask_token_id": 201818, "output_multiplier": 0.19611613513818404, "selector_rank": 256,
            "selector_top_k": 16, "target_layer_ids": [1, 13, 25, 37, 49],
        },
        "dtype": "bfloat16", "head_dim": 128, "hidden_act": "silu", "hidden_size": 6656, "intermediate_size": 19968,
        "layer_types": ["sliding_attention"] * 5, "max_position_embeddings": 131072, "max_window_layers": 5,
        "model_type": "qwen3", "num_attention_heads": 32, "num_hidden_layers": 5, "num_key_value_heads": 8,
        "num_target_layers": 52, "rms_norm_eps": 1e-05,
        "rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}, "sliding_window": 2048,
        "use_sliding_window": True, "vocab_size": 202048,
    },
}  # fmt: skip
"""Published configurations, without the fields that name their owners."""


@pytest.mark.parametrize(
    ("named", "fields", "sizes"),
    [
        (
            "EAGLE-3, nested, with all that is newer",
            {"norm_before_residual": True},
            {"fc": (7168, 21504), "layers.0.self_attn.q_proj": (6144, 14336)},
        ),
        (
            "DFlash2, of the repository z-lab/dflash",
            {
                "block_size": 16,
                "guesses": 15,
                "mask_token": 201818,
                "softcap": 20.0,
                "causal": (False,) * 5,
                "correction": Selector(256, 16),
                "convolution": Convolution(2, 16),
                "target_layers": (2, 14, 26, 38, 50),
            },
            {"fc": (6656, 33280), "layers.4.attention_conv.kernel_projection": (1664, 6656)},
        ),
    ],
)
def test_published_configurations_are_understood(
    tmp_path: Path, named: str, fields: dict[str, Any], sizes: dict[str, tuple[int, ...]]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[named]))
    shape = shape_of(tmp_path)
    assert {name: getattr(shape, name) for name in fields} == fields
    blocks = isinstance(shape, BlockShape)
    with torch.device("meta"):
        found = (BlockHead if blocks else eagle3.Head)("head", shape, shape.layers_of(52)).state_dict()
    assert {name: tuple(found[f"{name}.weight"].shape) for name in sizes} == sizes
    assert not blocks or shape.window(4) == 2048
    key, size = ("candidate_selector.predecessor_codebook", (202048, 256)) if blocks else ("d2t", (32000,))
    assert tuple(found[key].shape) == size


def test_other_checkpoints_are_no_heads(tmp_path: Path) -> None:
    reconfigure(plain := saved(tmp_path, FLAT), {"architectures": ["LlamaForCausalLM"]})
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    for other in (plain, EMBEDDED_DRAFT, tmp_path, tmp_path / "broken", tmp_path / "nowhere"):
        assert head_shape(str(other)) is None


def test_the_usual_layers_are_those_of_the_publishers(tmp_path: Path) -> None:
    """z-lab's heads for Qwen3-8B list outputs 1, 9, 17, 25 and 33 of 36 layers; inputs count one more."""
    shape = shape_of(saved(tmp_path, FLAT))
    found = [shape.usual_layers(layers) for layers in (16, 28, 32, 36)]
    assert found == [(2, 8, 13), (2, 14, 25), (2, 16, 29), (2, 18, 33)]
    shape = shape_of(saved(tmp_path / "blocks", FLASH))
    for own, layers, expected in ((5, 36, (2, 10, 18, 26, 34)), (1, 36, (19,)), (2, 64, (2, 62)), (2, 8, (2, 6))):
        assert replace(shape, layer=replace(shape.layer, num_hidden_layers=own)).usual_layers(layers) == expected


CODEBOOK = "candidate_selector.successor_codebook"


@pytest.mark.parametrize(
    ("layout", "named"),
    [(FLAT, {key: f"model.{key}" for key in weights(FLAT)}), ("DFlash2", {CODEBOOK: f"{CODEBOOK}.weight"})],
    ids=["with a prefix", "as an embedding"],
)
def test_weights_may_have_other_names(tmp_path: Path, llama: LanguageModel, layout: str, named: dict[str, str]) -> None:
    folder, held = saved(tmp_path, layout), weights(layout)
    rewrite(folder, dict.fromkeys(named) | {new: held[key] for key, new in named.items()})
    found = load(folder, llama).state_dict()
    assert all(torch.equal(found[own(key)], held[key]) for key in named if key not in ("d2t", "t2d"))


def test_what_changes_nothing_is_passed_over(tmp_path: Path, llama: LanguageModel) -> None:
    """What training left beside the weights, and fields whose value is the usual one."""
    folder = saved(tmp_path, FLAT)
    rewrite(folder, {"verifier_norm.weight": torch.ones(3), "verifier_lm_head.weight": torch.ones(3)})
    assert "verifier_norm.weight" not in load(folder, llama).state_dict()
    folder = saved(tmp_path / "other", FLASH)
    before, off = shape_of(folder), {"attention_sink_bias": False, "quantization_config": None}
    reconfigure(folder, off | {"projector_type": "dflash", "is_neox_style": True, "num_target_layers": 8})
    assert shape_of(folder) == before
    load(folder, llama)


def test_weights_in_several_files_are_read(tmp_path: Path, llama: LanguageModel) -> None:
    folder = saved(tmp_path, FLASH)
    whole = load(folder, llama)
    second = [*weights(FLASH)][1::2]
    files = in_two_files(folder, second.__contains__)
    again = load(folder, llama)
    assert all(torch.equal(again.state_dict()[key], weight) for key, weight in whole.state_dict().items())
    (folder / files[1]).unlink()
    with refused(ModelError, "safetensors"):
        load(folder, llama)


def test_the_file_may_change_once_it_was_read(tmp_path: Path, llama: LanguageModel) -> None:
    folder = saved(tmp_path, FLAT)
    head, path = load(folder, llama), folder / "model.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    shutil.rmtree(folder)
    assert torch.equal(head.state_dict()["fc.weight"], weights(FLAT)["fc.weight"])


def test_a_tied_output_head_is_held_once(tmp_path: Path) -> None:
    module = tiny.build(tiny.FAMILIES["llama"](num_hidden_layers=8, tie_word_embeddings=True), seed=1)
    model = load_model(str(tiny.save(tmp_path / "target", module, tiny.train_tokenizer())), CPU, torch.float32)
    assert model.runs_without_module
    head = load(saved(tmp_path, FLASH), model)
    assert head.lm_head.weight.data_ptr() == head.embed_tokens.weight.data_ptr() == model.embedding.data_ptr()
    assert torch.equal(head.lm_head.weight, module.get_output_embeddings().weight)


# What is refused


LOST = {
    "z-lab": ["fc.weight", "hidden_norm.weight"],
    "z-lab, usual layers": ["layers.1.self_attn.v_proj.bias"],
    "DFlash2": ["layers.0.mlp_conv.base_kernel", CODEBOOK],
    "speculators": ["lm_head.weight", "d2t"],
    "speculators, DSpark": ["markov_head.gate_proj.bias"],
    "DeepSpec, rnn": ["markov_head.joint_proj.weight"],
    "TreeFlash": ["ar_approximation.ug.weight"],
    **{
        name: [key for key in weights(name) if key != "t2d"]
        for name in ("flat", "nested, layers of Qwen3", "EAGLE-3.1", "EAGLE-3.1, norms one by one", "P-EAGLE, flat")
    },
}


def written(size: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, size))})"


@pytest.mark.parametrize("layout", LOST)
def test_every_weight_that_is_missing_or_of_another_shape_is_named(
    tmp_path: Path, llama: LanguageModel, layout: str
) -> None:
    broken, held = saved(tmp_path, layout), weights(layout)
    for key in LOST[layout]:
        tensor = held[key]
        shape = (*tensor.shape[:-1], tensor.shape[-1] + 1)
        for wrong, said in ((None, ()), (torch.ones(shape).to(tensor.dtype), (written(shape),))):
            rewrite(broken, {key: wrong})
            with refused(ModelError, own(key), written(tensor.shape), *said):
                load(broken, llama)
        rewrite(broken, {key: tensor})


WRONG_WEIGHTS: list[tuple[str, Any, tuple[str, ...]]] = [
    *(
        (FLAT, {key: torch.ones(8)}, (own(key), "(8)", "EAGLE-3 head"))
        for key in ("fc.bias", "layers.1.mlp.up_proj.weight", "midlayer.self_attn.q_norm.weight", "mask_hidden")
    ),
    *(
        (FLASH, {key: torch.ones(8)}, (key, "(8)", "DFlash head"))
        for key in ("fc.bias", "layers.2.mlp.up_proj.weight", "markov_head.markov_w1.weight", "lilicorr.w")
    ),
    (FLAT, {"d2t": weights(FLAT)["d2t"].float()}, ("d2t", "torch.float32")),
    (FLAT, {"fc.weight": weights(FLAT)["fc.weight"].to(torch.int8)}, ("fc.weight", "torch.int8")),
    *(
        (FLAT, {"d2t": torch.tensor(offsets)}, ("d2t", str(tiny.VOCABULARY)))
        for offsets in ([0, 0, 0, 0, -1], [0, 0, 0, 0, tiny.VOCABULARY], [-1, 0, 0, 0, 0])
    ),
    (
        FLAT,
        {"fc.weight": None, "norm.weight": torch.ones(3), "extra.weight": torch.ones(2)},
        ("fc.weight", "norm.weight", "extra.weight"),
    ),
    (
        FLAT,
        {f"other.{at}.weight": torch.ones(2) for at in range(9)},
        ("other.0.weight", "other.3.weight", "and 5 more faults"),
    ),
]


@pytest.mark.parametrize(
    ("layout", "changes", "said"),
    WRONG_WEIGHTS,
    ids=[f"{layout}: {next(iter(each))}" for layout, each, _ in WRONG_WEIGHTS],
)
def test_weights_that_are_not_the_head_s_are_told_all_in_one_message_up_to_a_few(
    tmp_path: Path, llama: LanguageModel, layout: str, changes: dict[str, torch.Tensor | None], said: tuple[str, ...]
) -> None:
    rewrite(folder := saved(tmp_path, layout), changes)
    with refused(ModelError, *said):
        load(folder, llama)


@pytest.mark.parametrize("length", [0, 4, 1000, 20_000])
def test_a_file_that_broke_off_is_named(tmp_path: Path, llama: LanguageModel, length: int) -> None:
    path = saved(tmp_path, FLAT) / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    with refused(ModelError, "model.safetensors"):
        load(path.parent, llama)


def test_what_is_pickled_is_not_opened(tmp_path: Path, llama: LanguageModel) -> None:
    folder = saved(tmp_path, FLASH)
    torch.save(torch.ones(WIDTH), folder / "mask_embedding.pt")
    with refused(ModelError, "mask_embedding.pt", "pickled"):
        load(folder, llama)
    (folder / "mask_embedding.pt").unlink()
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    with refused(ModelError, "pickled"):
        load(folder, llama)


FLASH2 = configuration("DFlash2")["dflash_config"]
WRONG: list[tuple[str, str, dict[str, Any]]] = [
    *((layout, "hidden_size", {"hidden_size": "32"}) for layout in (FLAT, FLASH)),
    *((layout, "hidden_act", {"hidden_act": "gelu"}) for layout in (FLAT, FLASH)),
    (FLAT, "sliding_attention", {"layer_types": ["sliding_attention"]}),
    (FLAT, "model_type", {"model_type": "deepseek_v3"}),
    (FLAT, "num_hidden_layers", {"num_hidden_layers": 2}),
    (FLAT, "yarn", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}),
    (FLAT, "positions of an unsupported", {"rope_scaling": {"rope_type": "linear"}}),
    (FLAT, "positions of an unsupported", {"rope_scaling": {"rope_type": "linear", "type": "default", "factor": 2.0}}),
    (FLAT, "positions of an unsupported", {"rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5}),
    (FLAT, "must be in ascending order", {"eagle_aux_hidden_state_layer_ids": [5, 2, 1]}),
    (FLAT, "must be in ascending order", {"eagle_aux_hidden_state_layer_ids": [2, 2, 5]}),
    (FLAT, "last layer", {"eagle_config": {"use_aux_hidden_state": False}}),
    (FLAT, "key-value heads", {"num_key_value_heads": 3}),
    (FLAT, "the mask token 288, but its vocabulary has only 288", {"mask_token_id": 288}),
    (FLAT, "lacks mask_token_id", {"speculators_model_type": "peagle"}),
    (FLAT, "lacks mask_token_id, the token", {"architectures": ["PEagleDraftModel"]}),
    (FLASH, "yarn", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}}),
    (FLASH, "must be in ascending order", {"dflash_config": {"target_layer_ids": [5, 2], "mask_token_id": MASK}}),
    (FLASH, "lacks mask_token_id", {"dflash_config": {"target_layer_ids": [2, 5]}}),
    (FLASH, "layer_types", {"layer_types": ["linear_attention"] * 2}),
    (FLASH, "3 layer types", {"layer_types": ["full_attention"] * 3}),
    (FLASH, "sliding window of 0 tokens", {"layer_types": ["sliding_attention"] * 2}),
    (FLASH, "mask token 300", {"dflash_config": {"mask_token_id": 300}}),
    (FLASH, "predicts no token", {"block_size": 1}),
    (FLASH, "hidden rows of width 48", {"target_hidden_size": 48}),
    (FLASH, "attention_sink_bias is True", {"attention_sink_bias": True}),
    (FLASH, "add_swa_attention_sink_bias is True", {"add_swa_attention_sink_bias": True}),
    (FLASH, "attention_value_scale is 0.5", {"attention_value_scale": 0.5}),
    (FLASH, "is_neox_style is False", {"dflash_config": {"is_neox_style": False, "mask_token_id": MASK}}),
    (FLASH, "quantization_config is", {"quantization_config": {"quant_method": "fp8"}}),
    (FLASH, "projector_type is", {"projector_type": "domino"}),
    (FLASH, "lilicorr_rank is 4", {"lilicorr_rank": 4}),
    (FLASH, "use_xpress is True", {"use_xpress": True}),
    ("DFlash2", "groups of 5", {"dflash_config": FLASH2 | {"conv_group_size": 5}}),
    ("DFlash2", "selector_top_k", {"dflash_config": FLASH2 | {"selector_top_k": 999}}),
    ("DFlash2", "lacks selector_rank", {"dflash_config": FLASH2 | {"selector_rank": None}}),
]


@pytest.mark.parametrize(("layout", "said", "changes"), WRONG)
def test_a_configuration_that_is_not_understood_is_refused(
    tmp_path: Path, layout: str, said: str, changes: dict[str, Any]
) -> None:
    reconfigure(folder := saved(tmp_path, layout), changes)
    with refused(ModelError, said):
        head_shape(str(folder))


@pytest.mark.parametrize(
    ("layout", "changes", "said"),
    [
        (FLAT, {"vocab_size": 300}, ("300", "288")),
        (FLAT, {"target_hidden_size": 48}, ("48", "32")),
        (FLAT, {"eagle_aux_hidden_state_layer_ids": [2, 4, 8]}, ("2, 4, 8", "8")),
        (FLASH, {"vocab_size": 300}, ("300", "288")),
        (FLASH, {"hidden_size": 48}, ("48", "32")),
        # It reads the output of the last layer, which no pass of the target gives to a head.
        (FLASH, {"dflash_config": {"target_layer_ids": [1, 4, 7], "mask_token_id": MASK}}, ("2, 5, 8", "8")),
    ],
    ids=str,
)
def test_a_head_of_another_target_is_refused(
    tmp_path: Path, llama: LanguageModel, layout: str, changes: dict[str, Any], said: tuple[str, ...]
) -> None:
    reconfigure(folder := saved(tmp_path, layout), changes)
    with refused(PairError, "the-target", *said):
        load(folder, llama)


def test_a_target_of_few_layers_has_not_the_usual_ones(tmp_path: Path) -> None:
    shallow = LanguageModel.of_module(tiny.build(tiny.FAMILIES["llama"](), seed=1), "shallow")
    with refused(PairError, "shallow", "2, 1, -1", "counted from 0"):
        load(saved(tmp_path, FLAT), shallow)


def test_rows_of_another_width_need_an_embedding_of_their_own(tmp_path: Path, llama: LanguageModel) -> None:
    broken = RowLayout(width=24).save(tmp_path / "head")
    with refused(ModelError, "embed_tokens.weight", f"({tiny.VOCABULARY}, 24)"):
        load(broken, llama)


def test_a_quantised_output_head_of_the_target_is_refused(
    tmp_path: Path, llama: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.ones((tiny.VOCABULARY, WIDTH), dtype=torch.int8)
    monkeypatch.setattr(LanguageModel, "output_head", property(lambda _: rows))
    with refused(PairError, "the-target", "quantised"):
        load(saved(tmp_path, FLASH), llama)
