"""Families that run through their modules, by rows, with states, or as whole paths: tree nodes have the logits of plain
text, methods write the text of `generate`, and what does not support them refuses.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    DogeConfig,
    FalconConfig,
    Gemma2Config,
    GPTJConfig,
    GPTNeoConfig,
    GptOssConfig,
    InternLM3Config,
    IQuestCoderConfig,
    MixtralConfig,
    MptConfig,
    OPTConfig,
    Phi3Config,
    WhisperConfig,
)

from decoder import DynaTree, Fixed, RunConfig
from decoder.errors import ConfigError, PairError
from decoder.forward.hf import ModuleForward
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import UNCAPTURED
from decoder.forward.near_tie import Judge
from decoder.forward.protocol import Forward
from decoder.forward.recurrent.forward import RecurrentForward
from decoder.forward.static_forward import static_forward
from decoder.forward.static_hf import ModuleStatic
from decoder.forward.whole_paths import PathForward
from decoder.models.compatibility import check_architecture, probe
from decoder.run import decoding_path
from decoder.system.device import GROUPED, fuses_grouped_heads
from tests import tiny
from tests.decoder import any_family, path_families, recurrent_families
from tests.decoder.any_family import (
    CONTEXT,
    DISTINCT,
    PROMPT,
    SHAPED,
    WINDOWED,
    built,
    config_of,
    counted,
    decoded,
    engine_of,
    greedy,
    whole_and_layers,
)
from tests.decoder.fixed_tree import PATHS, VISIBLE, largest_difference, plain
from tests.decoder.makers import TinyModels, play
from tests.decoder.survey.tiny_models import tiny_config
from tests.decoder.tensor_parallel.started_ranks import require_spreadable


@dataclass(frozen=True)
class Kind:
    """Families whose models run in one form."""

    made: Callable[[str], Any]
    form: Callable[[Any], Forward]
    every_method: tuple[str, ...]
    """Families that every method decodes; the others have the same passes."""
    others: Iterable[str]
    methods: tuple[str, ...] = ("ar", "linear", "dynatree", "auto")
    count: int = 24
    noise: float = 0.005
    """By which the weights of the draft differ from the target's."""
    tolerance: float = 1e-3
    keeping: tuple[list[int], ...] = ([0, 2, 5], [0, 1, 4], [0, 2, 5, 6], [0])
    """Kept paths, one a tree: they end at an inner node, at a leaf of a short branch, and at a deepest leaf."""
    distinct: bool = True
    """Whether a text of `count` tokens has so many different ones that wrong decoding shows."""


BY_ROWS = "mistral", "gpt_oss", "llama4_text", "deepseek_v3", "gemma4_text", "qwen3_moe"
"""One of each kind of window, cache and experts."""
KINDS = {
    "rows": Kind(
        lambda family: any_family.built(any_family.config_of(family)),
        ModuleForward,
        BY_ROWS,
        any_family.FAMILIES.keys() - BY_ROWS,
        tolerance=1e-4,
        keeping=([0, 2, 5], [0, 1, 3, 7], [0, 2, 5, 6]),
    ),
    # Windows, states, an indexer, biases by distance and looped layers, combined.
    "several": Kind(
        lambda family: any_family.built(tiny_config(family)),
        lambda module: engine_of(module).pair.target.runs_by,
        (),
        ("dory", "inkling_text", "inkling2_text", "inkling2_loop_text", "qwen4_exp_text"),
        count=20,
        distinct=False,
    ),
    "states": Kind(
        recurrent_families.target_of,
        RecurrentForward,
        tuple(recurrent_families.USUAL),
        recurrent_families.FURTHER,
        count=30,
        noise=0.008,
    ),
    "paths": Kind(
        path_families.target_of,
        PathForward,
        path_families.USUAL,
        (*path_families.FURTHER, *path_families.BY_TRIAL),
        ("ar", "linear", "fixed", "dynatree", "auto"),
        count=32,
        distinct=False,
    ),
}
OF = {family: kind for kind in KINDS.values() for family in (*kind.every_method, *sorted(kind.others))}
"""The kind of each family."""
LONG, DULL = 48, ("starcoder2", "deepseek_v2")
"""Families whose texts have few different tokens at first, and how many are decoded."""
EACH = pytest.mark.parametrize("family", OF)


@functools.cache
def target(family: str) -> Any:
    return OF[family].made(family)


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=OF[family].noise)


def text(family: str, method: str, *, draft_it: bool = True) -> tuple[list[int], int]:
    """Text of a method after the prompt, and the number of rounds; without a draft, lookups draft."""
    engine = engine_of(target(family), draft(family) if draft_it else None)
    if family in path_families.BY_TRIAL:
        for model in engine.pair.models.values():
            probe(model)
    return decoded(engine, PROMPT, RunConfig((method,), LONG if family in DULL else OF[family].count))


@EACH
def test_nodes_of_trees_have_the_logits_of_plain_text(family: str) -> None:
    kind = OF[family]
    assert largest_difference(kind.form(target(family)), target(family), kind.keeping) < kind.tolerance


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "mamba2", "jamba", "bloom", "gpt_neo", "deepseek_v4", "rwkv"])
def test_trees_may_grow_level_by_level(family: str) -> None:
    levels = [range(1), range(1, 3), range(3, 6), range(6, 8)]
    form = OF[family].form(target(family))
    assert largest_difference(form, target(family), [[0, 1, 3], [0, 2, 5, 6], [0]], levels) < 1e-3


CHECKED_ROWS = ("gpt_oss", "gemma3n_text", "llama4_text", "deepseek_v32", "gemma4_text")
UNCHECKED = {*KINDS["rows"].every_method, *KINDS["rows"].others, "bailing_hybrid", "qwen3_5_moe_text"} - {*CHECKED_ROWS}


@pytest.mark.parametrize("family", [family for family in OF if family not in UNCHECKED])
def test_loading_chooses_the_form_of_a_family(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    model = engine_of(target(family)).pair.target
    probe(model)
    for form in (model.runs_by, model.inexact().runs_by):
        assert type(form) is type(OF[family].form(target(family)))


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
def test_loading_keeps_a_form_that_computes_trees(family: str) -> None:
    model = LanguageModel.of_module(tiny.build(tiny.FAMILIES[family](), seed=1), family)
    probe(model)
    assert not model.hf.by_paths


@pytest.mark.parametrize("family", [family for kind in KINDS.values() for family in kind.every_method])
def test_every_method_writes_the_text_of_greedy_search(family: str) -> None:
    right = greedy(target(family), PROMPT, OF[family].count)
    texts = {method: text(family, method)[0] for method in OF[family].methods}
    assert texts == dict.fromkeys(texts, right)
    assert len(set(right)) >= DISTINCT or not OF[family].distinct


@pytest.mark.parametrize("family", [family for kind in KINDS.values() for family in sorted(kind.others)])
def test_a_dynamic_tree_writes_the_text_of_greedy_search(family: str) -> None:
    found, rounds = text(family, "dynatree")
    assert found == greedy(target(family), PROMPT, len(found))
    assert len(set(found)) >= DISTINCT or not OF[family].distinct
    assert rounds < len(found)


@pytest.mark.parametrize("family", [*any_family.FAMILIES, *path_families.USUAL])
def test_lookups_write_the_text_of_greedy_search(family: str) -> None:
    found, _ = text(family, "auto", draft_it=False)
    assert found == greedy(target(family), PROMPT, len(found))


@pytest.mark.parametrize("family", ["qwen3_5_text", "mamba2"])
def test_a_lookup_that_pays_writes_the_text_of_greedy_search(family: str) -> None:
    prompt = [*PROMPT, *greedy(target(family), PROMPT, 60), *PROMPT]
    found, rounds = decoded(engine_of(target(family)), prompt, RunConfig(("auto",), 60))
    assert found == greedy(target(family), prompt, 60)
    assert rounds < 60


@pytest.mark.parametrize(
    "family", ["gpt_oss", "deepseek_v3", "llama4_text", "qwen3_5_text", "lfm2", "mamba2", "bloom", "rwkv"]
)
def test_every_method_writes_the_same_sampled_text(family: str) -> None:
    engine, methods = engine_of(target(family), draft(family)), OF[family].methods
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30, 3, temperature=0.7))[0] for name in methods]
    assert texts == [texts[0]] * len(methods)


@pytest.mark.parametrize(
    ("family", "other"),
    [
        *(("gemma3_text", "mistral"), ("deepseek_v2", "mistral"), ("lfm2", "granitemoe"), ("mamba2", "granitemoe")),
        *(("bloom", "granitemoe"), ("rwkv", "granitemoe")),
    ],
)
def test_a_family_drafts_for_another(family: str, other: str) -> None:
    """With windows, keys and values of several shapes, states or whole paths."""
    engine = engine_of(target(other), draft(family) if OF[family] is KINDS["rows"] else target(family))
    count = OF[family].count
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), count))[0] == greedy(target(other), PROMPT, count)


@pytest.mark.parametrize("family", ["mamba2", "bamba", "jamba", "gpt_neo", "xlstm"])
def test_near_ties_are_judged_in_one_pass_over_the_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.forward.near_tie.CHUNK", 6)
    scores = plain(target(family), PROMPT)[-1]
    model = engine_of(target(family)).pair.target
    probe(model)
    verdict = Judge(model)(PROMPT, (7, 8), by_module=True)
    assert verdict.gap == pytest.approx(float((scores[7] - scores[8]).abs()), rel=1e-3)


COUNT = 24


@pytest.mark.parametrize("family", ["mistral", "gemma4_text"])
def test_drafts_of_a_kin_are_accepted(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))[1] < COUNT / 2


@pytest.mark.parametrize("method", ["dynatree", "auto"])
@pytest.mark.parametrize("family", ["mistral", "deepseek_v3"])
def test_a_round_is_one_pass_of_every_layer(family: str, method: str) -> None:
    """With windows and with latent attention; the prompt takes one more pass."""
    with counted(whole_and_layers(target(family))) as calls:
        _, rounds = decoded(engine_of(target(family), draft(family)), PROMPT, RunConfig((method,), COUNT))
    assert set(calls.values()) == {1 + rounds}
    assert rounds < COUNT


@pytest.mark.parametrize("family", WINDOWED)
def test_the_windows_matter(family: str) -> None:
    wide = built(config_of(family, sliding_window=CONTEXT, attention_chunk_size=CONTEXT))
    assert not torch.allclose(plain(wide, PROMPT), plain(target(family), PROMPT), atol=0.01)


@pytest.mark.parametrize("family", SHAPED)
def test_keys_and_values_of_several_shapes_are_cached_by_part(family: str) -> None:
    form = ModuleForward(target(family))
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    assert len({tuple(rows.shape) for rows, _ in cache.parts.values()}) > 1


@pytest.mark.parametrize("family", ["mistral", "qwen3_moe"])
def test_heads_that_share_keys_in_torch_give_the_same_bits(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuses_grouped_heads()
    monkeypatch.delenv(GROUPED, raising=False)
    copied = after_a_tree(target(family))
    monkeypatch.setenv(GROUPED, "1")
    assert after_a_tree(target(family)).equal(copied)


@torch.inference_mode()
def after_a_tree(module: Any) -> Tensor:
    """Logits of a tree after the prompt."""
    form = ModuleForward(module)
    cache = form.new_cache(CONTEXT)
    form.read(cache, PROMPT)
    return form.forward(cache, range(5, 13), [len(PROMPT) + len(path) - 1 for path in PATHS], VISIBLE)


@pytest.mark.parametrize("family", ["mistral", "qwen2", "minicpm3"])
def test_exact_passes_take_windows_and_shapes(family: str) -> None:
    engine = engine_of(target(family), draft(family)).batch_invariant()
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30))[0] for name in ("ar", "dynatree")]
    assert texts == [greedy(target(family), PROMPT, 30)] * 2


@pytest.mark.parametrize(("family", "what"), [("gpt_oss", "s_aux"), ("gemma2", "softcap")])
def test_exact_passes_refuse_sinks_and_caps(family: str, what: str) -> None:
    with pytest.raises(PairError, match=f"asks for {what}, which exact attention does not support; leave out --exact"):
        engine_of(target(family)).batch_invariant()


@pytest.mark.parametrize("family", ["mistral", "qwen2", "starcoder2", "deepseek_v3"])
def test_streaming_refuses_windows_and_shapes(family: str) -> None:
    with pytest.raises(PairError, match="streaming does not support layers with attention windows, or with keys and"):
        engine_of(target(family), draft(family)).pair.target.streaming(4, 60)


@pytest.mark.parametrize(
    ("family", "what"),
    [*((family, "keeps states") for family in ("lfm2", "mamba2", "qwen3_5_text")), ("bloom", "caches of its own")],
)
def test_exact_passes_streaming_and_several_processes_refuse_states_and_whole_paths(family: str, what: str) -> None:
    model = engine_of(target(family)).pair.target
    probe(model)
    for refused, option in ((model.exact, "--exact"), (lambda: model.streaming(2, 8), "streaming")):
        with pytest.raises(PairError, match=f"{what}.*leave out {option}"):
            refused()
    with pytest.raises(ConfigError, match=r"keeps (states|a cache of its own).*start one process"):
        require_spreadable(target(family).config)


@pytest.mark.parametrize(
    ("family", "why"), [("deepseek_v3", "one tensor"), ("lfm2", "states need the host"), ("bloom", "whole paths")]
)
def test_graphs_refuse_several_shapes_states_and_whole_paths_whose_rounds_are_expected_to_be_the_host_s(
    family: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = engine_of(target(family)).pair.target
    probe(model)
    with pytest.raises(PairError, match=why):
        static_forward(model) if family == "bloom" else ModuleStatic(target(family))
    monkeypatch.setattr(decoding_path, "has_graphs", lambda _: True)
    configs = dict.fromkeys(("target", "draft"), target(family).config)
    path = decoding_path.expected_path(configs, torch.device("cuda"), exact=False)
    expected = {"lfm2": "layers with states", "bloom": UNCAPTURED}
    assert family not in expected or (path.name == decoding_path.HOST and expected[family] in path.reason)


SHORT = 24
WORDS = "The tree grows"
RACED = ("dynatree", "fixed", "ar", "hf")
BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=3, d_max=4, n_max=90)
"""Trees with more nodes than the context has positions."""
BARE: dict[str, Any] = {"vocab_size": tiny.VOCABULARY, "tie_word_embeddings": False}
BARE |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
SHAPE: dict[str, Any] = BARE | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA: dict[str, Any] = SHAPE | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": SHORT}
EXACT: dict[str, Callable[[], Any]] = {
    "learned positions with an offset": lambda: OPTConfig(
        **SHAPE | {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": SHORT, "pad_token_id": 1}
    ),
    "a table of rotations": lambda: GPTJConfig(
        **BARE, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=SHORT
    ),
    "one key for all heads": lambda: FalconConfig(**SHAPE, max_position_embeddings=SHORT),
    "experts": lambda: MixtralConfig(**LLAMA, num_local_experts=4),
    "one matrix for queries, keys and values": lambda: Phi3Config(**LLAMA),
    "a window as wide as the context in every other layer": lambda: Gemma2Config(
        **LLAMA, head_dim=8, query_pre_attn_scalar=8, sliding_window=SHORT
    ),
    "attention sinks": lambda: GptOssConfig(
        **LLAMA, head_dim=8, num_local_experts=4, sliding_window=8, layer_types=["full_attention"] * 2
    ),
    "a mask by values as wide as the context": lambda: DogeConfig(**LLAMA, keep_window_size=SHORT),
    "llama by another name": lambda: IQuestCoderConfig(**LLAMA, head_dim=8),
    "llama by another name, with biases": lambda: InternLM3Config(
        **LLAMA, head_dim=8, attention_bias=True, mlp_bias=True
    ),
    "another word for the context": lambda: WhisperConfig(
        **BARE, d_model=32, decoder_layers=2, encoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64,
        encoder_attention_heads=4, encoder_ffn_dim=64, max_target_positions=SHORT, is_encoder_decoder=False,
    ),
    "local windows": lambda: GPTNeoConfig(
        **BARE, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=8, max_position_embeddings=SHORT,
    ),
    "a mask as wide as the context": lambda: GPTNeoConfig(
        **BARE, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]],
        max_position_embeddings=SHORT,
    ),
    "no positions": lambda: MptConfig(**BARE, d_model=32, n_layers=2, n_heads=2, max_seq_len=SHORT),
}  # fmt: skip


@pytest.mark.parametrize("family", EXACT)
def test_a_family_writes_the_text_of_greedy_search_to_the_end_of_its_context(
    tiny_models: TinyModels, family: str, tmp_path: Path
) -> None:
    module = tiny.build(EXACT[family](), seed=1)
    files = tiny.save_pair(tmp_path, module, tiny.kin(module, seed=2))
    engine = tiny_models.engine(files)
    count = SHORT - len(tiny_models.prompt_tokens(files, WORDS))
    race = play(engine, RunConfig(RACED, count, dynatree=BUSHY, fixed=Fixed(tau=0.01, n_max=40)), WORDS)
    assert engine.pair.context == SHORT
    right = tiny_models.generate(files, "float32", WORDS, count)
    assert {method: race.tokens(method) for method in RACED} == dict.fromkeys(RACED, right)
