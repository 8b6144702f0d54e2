"""Further families by architectural feature, loaded as by users: lossless to the last token, or refused in one line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DogeConfig,
    FalconConfig,
    Gemma2Config,
    GenerationConfig,
    GPTJConfig,
    GPTNeoConfig,
    GptOssConfig,
    InternLM3Config,
    IQuestCoderConfig,
    MixtralConfig,
    MptConfig,
    OpenAIGPTConfig,
    OPTConfig,
    Phi3Config,
    WhisperConfig,
)

from decoder import DynaTree, Fixed, RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import PairError
from decoder.events import Round
from decoder.models.compatibility import REMEDY
from tests import tiny

CONTEXT = 24
PROMPT = "The tree grows"
METHODS = ("dynatree", "fixed", "ar", "hf")
BUSHY = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=3, d_max=4, n_max=90)
"""Trees with more nodes than the context has positions."""
BARE: dict[str, Any] = {"vocab_size": tiny.VOCABULARY, "tie_word_embeddings": False}
BARE |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
SHAPE: dict[str, Any] = BARE | {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
LLAMA: dict[str, Any] = SHAPE | {"intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": CONTEXT}
EXACT: dict[str, Callable[[], Any]] = {
    "learned positions with an offset": lambda: OPTConfig(
        **SHAPE | {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": CONTEXT, "pad_token_id": 1}
    ),
    "a table of rotations": lambda: GPTJConfig(
        **BARE, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=CONTEXT
    ),
    "one key for all heads": lambda: FalconConfig(**SHAPE, max_position_embeddings=CONTEXT),
    "experts": lambda: MixtralConfig(**LLAMA, num_local_experts=4),
    "one matrix for queries, keys and values": lambda: Phi3Config(**LLAMA),
    "a window as wide as the context in every other layer": lambda: Gemma2Config(
        **LLAMA, head_dim=8, query_pre_attn_scalar=8, sliding_window=CONTEXT
    ),
    "attention sinks": lambda: GptOssConfig(
        **LLAMA, head_dim=8, num_local_experts=4, sliding_window=8, layer_types=["full_attention"] * 2
    ),
    "a mask by values as wide as the context": lambda: DogeConfig(**LLAMA, keep_window_size=CONTEXT),
    "llama by another name": lambda: IQuestCoderConfig(**LLAMA, head_dim=8),
    "llama by another name, with biases": lambda: InternLM3Config(
        **LLAMA, head_dim=8, attention_bias=True, mlp_bias=True
    ),
    "another word for the context": lambda: WhisperConfig(
        **BARE, d_model=32, decoder_layers=2, encoder_layers=2, decoder_attention_heads=4, decoder_ffn_dim=64,
        encoder_attention_heads=4, encoder_ffn_dim=64, max_target_positions=CONTEXT, is_encoder_decoder=False,
    ),
    "local windows": lambda: GPTNeoConfig(
        **BARE, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]],
        window_size=8, max_position_embeddings=CONTEXT,
    ),
    "a mask as wide as the context": lambda: GPTNeoConfig(
        **BARE, hidden_size=32, num_layers=2, num_heads=4, attention_types=[[["global"], 2]],
        max_position_embeddings=CONTEXT,
    ),
    "no positions": lambda: MptConfig(**BARE, d_model=32, n_layers=2, n_heads=2, max_seq_len=CONTEXT),
}  # fmt: skip
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a mask by values": (
        lambda: DogeConfig(**LLAMA, keep_window_size=8),
        "target attends to a choice of 8 tokens, not to the whole text",
    ),
    "no cache": (
        lambda: OpenAIGPTConfig(vocab_size=tiny.VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=CONTEXT),
        "target cannot run a draft tree: it keeps no cache of a text",
    ),
}


def saved(home: Path, config: Any) -> tiny.TinyPair:
    target = tiny.build(config, seed=1)
    return tiny.save_pair(home, target, tiny.kin(target, seed=2))


def load(pair: tiny.TinyPair) -> Engine:
    return load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32")


def greedy(path: Path, prompt: list[int], count: int) -> list[int]:
    """Continuation of the prompt by transformers' greedy search."""
    module: Any = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    ids = torch.tensor([prompt])
    module.generation_config = GenerationConfig()
    settings = GenerationConfig(do_sample=False, max_new_tokens=count, pad_token_id=0)
    out = module.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    found: list[int] = out[0, len(prompt) :].tolist()
    return found


@pytest.mark.parametrize("family", EXACT)
def test_a_family_writes_the_text_of_greedy_search_to_the_end_of_its_context(family: str, tmp_path: Path) -> None:
    files = saved(tmp_path, EXACT[family]())
    engine = load(files)
    prompt = engine.pair.tokenizer(PROMPT).input_ids
    count = CONTEXT - len(prompt)
    texts: dict[str, list[int]] = {method: [] for method in METHODS}
    for event in decode(engine, PROMPT, RunConfig(METHODS, count, dynatree=BUSHY, fixed=Fixed(tau=0.01, n_max=40))):
        if isinstance(event, Round):
            texts[event.method] += event.committed
    assert engine.pair.context == CONTEXT
    assert texts == dict.fromkeys(METHODS, greedy(files.target, prompt, count))


@pytest.mark.parametrize("family", REFUSED)
def test_a_family_that_does_not_fit_is_refused_with_name_reason_and_remedy(family: str, tmp_path: Path) -> None:
    config, reason = REFUSED[family]
    files = saved(tmp_path, config())
    with pytest.raises(PairError) as refusal:
        load(files)
    told = str(refusal.value)
    assert told.startswith(reason)
    assert told.endswith(f"; {REMEDY}")
    assert "\n" not in told
