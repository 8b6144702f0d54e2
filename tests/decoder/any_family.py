"""Tiny random models of families that run through their Hugging Face modules, with caches of all shapes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING, AutoConfig, GenerationConfig

from decoder import RunConfig
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.methods import chosen
from decoder.models.pair import Pair
from decoder.sampling.settings import Schedule
from decoder.session.protocol import Outcome
from tests import tiny
from tests.decoder.session.made_costs import PAYING

WINDOW, VOCABULARY, CONTEXT = 8, 96, 160
LAYERS = ["sliding_attention", "full_attention", "sliding_attention"]
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": CONTEXT,
    "tie_word_embeddings": False, "attention_dropout": 0.0,
    "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "moe_intermediate_size": 16, "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6,
    "num_key_value_heads": 4, "head_dim": 4,
}  # fmt: skip
TYPES: dict[str, Any] = {"layer_types": LAYERS}
ON: dict[str, Any] = {"use_sliding_window": True, "max_window_layers": 1}
ROTARY: dict[str, Any] = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
GEMMA: dict[str, Any] = {"query_pre_attn_scalar": 8, "vocab_size_per_layer_input": VOCABULARY}
PER_LAYER: dict[str, Any] = {
    "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
    "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": VOCABULARY,
}  # fmt: skip

WINDOWED: Mapping[str, dict[str, Any]] = {
    "mistral": {},
    "ministral": {"layer_types": ["sliding_attention"] * 3},
    "starcoder2": {},
    "phi3": {"original_max_position_embeddings": CONTEXT},
    "qwen2": ON | TYPES,
    "gemma2": GEMMA | TYPES,
    "gemma3_text": GEMMA | TYPES,
    "gemma3n_text": PER_LAYER | {"intermediate_size": [48] * 4, "activation_sparsity_pattern": [0.5, 0.0] * 2,
                                 "laurel_rank": 4, "altup_num_inputs": 2},
    "gpt_oss": EXPERTS | TYPES | ROTARY,
    "cohere2": TYPES,
    "exaone4": TYPES,
    "olmo3": TYPES,
    "llama4_text": EXPERTS | {"attention_chunk_size": WINDOW, "no_rope_layers": [1, 0, 1], "floor_scale": 8,
                              "layer_types": ["chunked_attention", "full_attention", "chunked_attention"],
                              "moe_layers": [1], "num_experts_per_tok": 1, "intermediate_size_mlp": 48},
}  # fmt: skip
"""Families whose layers attend within windows or chunks."""
SHAPED: Mapping[str, dict[str, Any]] = {
    "deepseek_v2": EXPERTS | LATENT,
    "deepseek_v3": EXPERTS | LATENT,
    "minicpm3": LATENT | {"dim_model_base": 32},
    "glm4_moe_lite": EXPERTS | LATENT,
    "longcat_flash": LATENT | {"num_layers": 2, "ffn_hidden_size": 48, "expert_ffn_hidden_size": 16, "moe_topk": 2,
                               "n_routed_experts": 4, "zero_expert_num": 2},
    "youtu": LATENT,
    "deepseek_v32": EXPERTS | LATENT | {"index_topk": 6, "index_head_dim": 16, "index_n_heads": 16},
    "gemma4_text": PER_LAYER | {"per_layer_config": {1: {"head_dim": 16}, 3: {"head_dim": 16}}, "num_experts": None,
                                "top_k_experts": None, "moe_intermediate_size": None},
}  # fmt: skip
"""Families whose keys and values differ in shape, or whose layers differ in these shapes."""
EXPERT: Mapping[str, dict[str, Any]] = {
    "qwen3_moe": EXPERTS | ON,
    "mixtral": EXPERTS,
    "granitemoe": EXPERTS,
    "dots1": EXPERTS | TYPES,
}
"""Mixture-of-experts families."""
UNLIMITED = {*SHAPED, "granitemoe"} - {"gemma4_text"}
"""Families without attention windows."""
FAMILIES = {**WINDOWED, **SHAPED, **EXPERT}
DISTINCT = 8
"""Least number of different tokens in a text that can distinguish wrong decoding from right decoding."""
PROMPT = torch.randint(5, VOCABULARY, (20,), generator=torch.Generator().manual_seed(11)).tolist()
"""Token ids; longer than an attention window."""


def config_of(family: str, **changes: Any) -> Any:
    """A configuration of the family; skips the test if the installed transformers lacks the family."""
    if family not in CONFIG_MAPPING:
        pytest.skip(f"transformers {transformers.__version__} has no {family}")
    window = {} if family in UNLIMITED else {"sliding_window": WINDOW}
    return AutoConfig.for_model(family, **SHAPE | window | FAMILIES[family] | changes)


def built(config: Any, seed: int = 1) -> Any:
    """A tiny module with random norms, biases and sinks, so that they change the logits."""
    module = tiny.build(config, seed=seed, spread=0.25)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)
    module.generation_config = GenerationConfig(pad_token_id=0)
    return module


@torch.inference_mode()
def greedy(module: Any, prompt: Sequence[int], count: int, eos: Sequence[int] = ()) -> list[int]:
    """Continuation of a prompt by transformers' plain greedy search."""
    ids, ends = torch.tensor([prompt]), list(eos) or None
    settings = GenerationConfig(do_sample=False, max_new_tokens=count, eos_token_id=ends, pad_token_id=0)
    text = module.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    found: list[int] = text[0, len(prompt) :].tolist()
    return found


def engine_of(target: Any, draft: Any = None) -> Engine:
    """An engine of these modules with made-up costs; without a draft model, lookups draft."""
    models = [
        LanguageModel.of_module(module, name) for module, name in ((target, "target"), (draft, "draft")) if module
    ]
    pair: Any = Pair(models[0], models[1] if draft else None, Any, frozenset(), CONTEXT)  # type: ignore[arg-type]
    return Engine(pair, costs={1 << bits: PAYING for bits in range(12)})


@torch.inference_mode()
def rounds_of(engine: Engine, prompt: Sequence[int], run: RunConfig) -> Iterator[Outcome]:
    """Rounds of the run's only method after a prompt; the prompt is read before the first round."""
    (method,) = chosen(run.methods)
    session = method.open(engine.sampled(run.seed, Schedule(run.sampling)), prompt, run)
    session.prefill()
    finished = None
    while not finished:
        outcome = session.step(())
        finished = outcome.finished
        yield outcome


def decoded(engine: Engine, prompt: Sequence[int], run: RunConfig) -> tuple[list[int], int]:
    """Text of the run's only method after a prompt, and the number of rounds."""
    rounds = list(rounds_of(engine, prompt, run))
    return [token for outcome in rounds for token in outcome.committed], len(rounds)


@contextmanager
def counted(modules: Mapping[str, torch.nn.Module]) -> Iterator[Counter[str]]:
    counts = Counter[str]()
    handles = [
        each.register_forward_pre_hook(lambda *_, name=name: counts.update([name])) for name, each in modules.items()
    ]
    try:
        yield counts
    finally:
        for handle in handles:
            handle.remove()


def whole_and_layers(module: Any) -> dict[str, torch.nn.Module]:
    return {"whole": module} | {f"layer {number}": layer for number, layer in enumerate(module.base_model.layers)}
