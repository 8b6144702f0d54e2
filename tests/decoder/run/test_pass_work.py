"""What a pass of a model reads and computes, counted from architectures, modules and GGUF files."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from decoder.forward.families.architecture import Architecture
from decoder.forward.hf import skeleton
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.run.expected import work_of_architecture, work_of_gguf, work_of_module
from tests import tiny
from tests.decoder.run.sparse_models import gguf, mixture


def module_of(config: Any) -> Any:
    return skeleton(config, torch.float32)


def count(module: Any) -> int:
    numbers: int = sum(weight.numel() for weight in module.parameters())
    return numbers


def test_an_embedding_of_its_own_is_not_read() -> None:
    arch = load_config(str(EMBEDDED_TARGET))
    work = work_of_architecture(arch, torch.float16)
    table = arch.vocab_size * arch.hidden_size
    module = AutoModelForCausalLM.from_pretrained(EMBEDDED_TARGET)
    assert work.weights == count(module) - (0 if arch.tie_word_embeddings else table)
    assert work.weights_bytes == 2 * work.weights
    assert (work.cached_bytes(10), work.sparse) == (10 * 8 * 2 * 384 * 2, False)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "neox"])
def test_an_architecture_and_its_module_have_the_same_work(family: str, *, tied: bool) -> None:
    module = module_of(tiny.FAMILIES[family](tie_word_embeddings=tied))
    arch = Architecture.of(module.config)
    one, other = work_of_architecture(arch, torch.float32), work_of_module(module, torch.float32)
    assert other is not None
    assert (one.weights, one.weights_bytes) == (other.weights, other.weights_bytes)
    assert one.cached_bytes(7) == other.cached_bytes(7) > 0
    table = module.get_input_embeddings().weight.numel()
    assert one.weights == count(module) - (0 if tied else table)


def test_a_table_of_positions_is_not_read_either() -> None:
    module = module_of(tiny.FAMILIES["gpt2"]())
    work = work_of_module(module, torch.float32)
    assert work is not None
    tables = module.transformer.wte, module.transformer.wpe
    assert work.weights == count(module) - sum(table.weight.numel() for table in tables)


def test_of_a_mixture_of_experts_one_token_reads_only_its_own_experts() -> None:
    module = module_of(mixture())
    work = work_of_module(module, torch.float32)
    experts = sum(weight.numel() for name, weight in module.named_parameters() if ".experts." in name)
    table = module.get_input_embeddings().weight.numel()
    assert work is not None
    assert work.sparse
    assert work.weights == count(module) - table - experts * 3 // 4
    all_used = work_of_module(module_of(mixture(num_experts_per_tok=4)), torch.float32)
    assert all_used is not None
    assert (all_used.sparse, all_used.weights) == (False, count(module) - table)


def test_where_a_token_uses_an_impossible_number_of_experts_the_work_is_unknown() -> None:
    module = module_of(mixture())
    module.config.num_experts_per_tok = 5
    assert work_of_module(module, torch.float32) is None


def test_where_the_weights_of_experts_have_unknown_names_the_work_is_unknown() -> None:
    module = module_of(tiny.FAMILIES["llama"]())
    module.config.num_local_experts = 4
    assert work_of_module(module, torch.float32) is None


def test_quantised_matrices_are_read_with_their_bits_but_the_head_is_not_quantised() -> None:
    module = module_of(tiny.FAMILIES["llama"](tie_word_embeddings=False))
    work = work_of_module(module, torch.float16, bits=4)
    parts = dict(module.named_parameters())
    head, table = parts.pop("lm_head.weight").numel(), parts.pop("model.embed_tokens.weight").numel()
    inner = sum(weight.numel() for weight in parts.values() if weight.dim() > 1)
    norms = sum(weight.numel() for weight in parts.values() if weight.dim() == 1)
    assert work is not None
    assert work.weights_bytes == inner // 2 + 2 * (head + norms)
    assert work.weights == count(module) - table


def test_a_gguf_file_is_read_as_it_is_stored() -> None:
    work = work_of_gguf(gguf({"token_embd.weight": 100, "output.weight": 30, "blk.0.ffn_up.weight": 7}))
    tied = work_of_gguf(gguf({"token_embd.weight": 100, "blk.0.ffn_up.weight": 7}))
    assert work is not None
    assert tied is not None
    assert (work.weights_bytes, work.weights, tied.weights_bytes) == (37, 0, 107)
    # Two layers of keys and values with 2 heads of 16 numbers of 2 bytes.
    assert work.cached_bytes(10) == 10 * 2 * 2 * 2 * 16 * 2


def test_the_experts_of_a_gguf_file_are_read_by_share() -> None:
    tensors = {"token_embd.weight": 100, "blk.0.ffn_up_exps.weight": 80}
    work = work_of_gguf(gguf(tensors, expert_count=8, expert_used_count=2))
    assert work is not None
    assert (work.weights_bytes, work.sparse) == (120, True)
    assert work_of_gguf(gguf(tensors)) is None
