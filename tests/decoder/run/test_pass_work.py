"""Work of a pass, counted from architectures, modules and GGUF files, and the expected times of a pair on a device."""

from dataclasses import replace
from typing import Any, TypeVar

import pytest
import torch

from decoder import load_pair
from decoder.analysis.roofline import DeviceSpeed, PassWork, step_s
from decoder.engine import Engine
from decoder.forward.families.architecture import Architecture
from decoder.forward.hf import skeleton
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.models.quantisation import Quantisation
from decoder.run import expected
from decoder.run.expected import (
    expectation,
    speed_of,
    work_of_architecture,
    work_of_config,
    work_of_gguf,
    work_of_model,
    work_of_module,
)
from tests import tiny
from tests.decoder.run.sparse_models import gguf, mixture

CPU, GPU = torch.device("cpu"), torch.device("cuda")
T = TypeVar("T")


def known(found: T | None) -> T:
    assert found is not None
    return found


def module_of(config: Any) -> Any:
    return skeleton(config, torch.float32)


def count(module: Any) -> int:
    numbers: int = sum(weight.numel() for weight in module.parameters())
    return numbers


# Work


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", ["llama", "neox"])
def test_an_architecture_and_its_module_have_the_same_work(family: str, *, tied: bool) -> None:
    module = module_of(tiny.FAMILIES[family](tie_word_embeddings=tied))
    one, other = (
        work_of_architecture(Architecture.of(module.config), torch.float32),
        known(work_of_module(module, torch.float32)),
    )
    assert (one.weights, one.weights_bytes) == (other.weights, other.weights_bytes)
    assert one.cached_bytes(7) == other.cached_bytes(7) > 0
    assert one.weights == count(module) - (0 if tied else module.get_input_embeddings().weight.numel())


def test_the_embedded_target_s_weights_are_halved_and_its_cache_has_keys_and_values() -> None:
    work = work_of_architecture(load_config(str(EMBEDDED_TARGET)), torch.float16)
    assert work.weights_bytes == 2 * work.weights
    assert (work.cached_bytes(10), work.sparse) == (10 * 8 * 2 * 384 * 2, False)


def test_a_table_of_positions_is_not_read_either() -> None:
    module = module_of(tiny.FAMILIES["gpt2"]())
    tables = module.transformer.wte, module.transformer.wpe
    work = known(work_of_module(module, torch.float32))
    assert work.weights == count(module) - sum(table.weight.numel() for table in tables)


def test_of_a_mixture_of_experts_one_token_reads_only_its_own_experts() -> None:
    module = module_of(mixture())
    work, all_used = (
        known(work_of_module(each, torch.float32)) for each in (module, module_of(mixture(num_experts_per_tok=4)))
    )
    experts = sum(weight.numel() for name, weight in module.named_parameters() if ".experts." in name)
    read = count(module) - module.get_input_embeddings().weight.numel()
    assert (work.sparse, work.weights) == (True, read - experts * 3 // 4)
    assert (all_used.sparse, all_used.weights) == (False, read)


@pytest.mark.parametrize(
    ("config", "changed"),
    [
        pytest.param(mixture(), {"num_experts_per_tok": 5}, id="an impossible number of experts"),
        pytest.param(tiny.FAMILIES["llama"](), {"num_local_experts": 4}, id="weights of experts with unknown names"),
    ],
)
def test_experts_that_cannot_be_counted_have_unknown_work(config: Any, changed: dict[str, int]) -> None:
    module = module_of(config)
    vars(module.config).update(changed)
    assert work_of_module(module, torch.float32) is None


def test_quantised_matrices_are_read_with_their_bits_but_the_head_is_not_quantised() -> None:
    module = module_of(tiny.FAMILIES["llama"](tie_word_embeddings=False))
    parts = dict(module.named_parameters())
    head, table = parts.pop("lm_head.weight").numel(), parts.pop("model.embed_tokens.weight").numel()
    inner, norms = (
        sum(weight.numel() for weight in parts.values() if (weight.dim() > 1) == matrix) for matrix in (True, False)
    )
    work = known(work_of_module(module, torch.float16, bits=4))
    assert (work.weights_bytes, work.weights) == (inner // 2 + 2 * (head + norms), count(module) - table)


def test_quantised_weights_of_unknown_width_have_unknown_work() -> None:
    config = tiny.FAMILIES["llama"](tie_word_embeddings=False)
    unknown, four, plain = (
        work_of_config(config, torch.float16, Quantisation("x", bits, converted=not packed, packed=packed))
        for bits, packed in ((None, True), (4, True), (None, False))
    )
    assert unknown is None
    assert known(four).weights_bytes < known(plain).weights_bytes


def test_a_gguf_file_is_read_as_it_is_stored_and_its_experts_by_share() -> None:
    work = known(work_of_gguf(gguf({"token_embd.weight": 100, "output.weight": 30, "blk.0.ffn_up.weight": 7})))
    tied = known(work_of_gguf(gguf({"token_embd.weight": 100, "blk.0.ffn_up.weight": 7})))
    assert (work.weights_bytes, work.weights, tied.weights_bytes) == (37, 0, 107)
    # Two layers of keys and values with 2 heads of 16 numbers of 2 bytes.
    assert work.cached_bytes(10) == 10 * 2 * 2 * 2 * 16 * 2
    experts = {"token_embd.weight": 100, "blk.0.ffn_up_exps.weight": 80}
    sparse = known(work_of_gguf(gguf(experts, expert_count=8, expert_used_count=2)))
    assert (sparse.weights_bytes, sparse.sparse) == (120, True)
    assert work_of_gguf(gguf(experts)) is None


@pytest.mark.parametrize("family", ["neox", "gpt2"])
def test_a_loaded_model_has_the_work_of_its_configuration(family: str) -> None:
    config = tiny.FAMILIES[family]()
    loaded = LanguageModel.of_module(tiny.build(config, seed=1), family)
    work, told = known(work_of_model(loaded)), known(work_of_config(config, torch.float32))
    assert (work.weights_bytes, work.weights) == (told.weights_bytes, told.weights)


def test_compiled_passes_read_weights_of_a_bfloat16_checkpoint_as_they_are() -> None:
    config = tiny.FAMILIES["neox"]()
    work = known(work_of_model(LanguageModel.of_module(tiny.build(config, seed=1).bfloat16().float(), "neox")))
    whole, halves = (known(work_of_config(config, dtype)) for dtype in (torch.float32, torch.bfloat16))
    # Norms and biases are read in float32.
    assert halves.weights_bytes < work.weights_bytes < 0.55 * whole.weights_bytes


def test_a_model_of_another_library_has_unknown_work() -> None:
    loaded = LanguageModel.of_module(tiny.build(tiny.FAMILIES["gpt2"](), seed=1), "a", lambda _: None)
    loaded.hf.drop()
    assert work_of_model(loaded) is None


# Times


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The embedded pair."""
    return load_pair(device="cpu", dtype="float32")


def test_a_loaded_pair_takes_at_least_what_its_bytes_take(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU reads a byte in a nanosecond, and computes so fast that arithmetic takes no time."""
    monkeypatch.setattr(expected, "read_bytes_per_s", lambda _size, _clock: 1e9)
    monkeypatch.setattr(expected, "flops_per_s", lambda _dtype, _clock: 1e18)
    times, alone = known(expectation(engine.pair, None)), known(expectation(replace(engine.pair, draft=None), None))
    target, draft = known(work_of_model(engine.pair.target)), known(work_of_model(engine.pair.draft_model))
    assert times(0).target_read_s == alone(0).target_read_s == pytest.approx(target.weights_bytes / 1e9)
    assert times(0).draft_pass_s == pytest.approx(draft.weights_bytes / 1e9)
    assert step_s(times(100)) == pytest.approx((target.weights_bytes + target.cached_bytes(100)) / 1e9)
    assert alone(0).draft_pass_s == 0


def test_a_gpu_has_the_bandwidth_that_the_driver_reports_and_an_unknown_rate_of_arithmetic() -> None:
    assert speed_of(GPU, torch.float16, PassWork(1), 4.8e12) == DeviceSpeed(4.8e12)
    assert speed_of(GPU, torch.float16, PassWork(1), None) is None


def test_a_cpu_is_measured_and_without_a_dtype_its_arithmetic_is_not() -> None:
    work = known(work_of_config(load_config(str(EMBEDDED_TARGET)), torch.float32))
    speed = known(speed_of(CPU, torch.float32, work, None))
    assert speed.bytes_per_s > 1e6
    assert known(speed.flops_per_s) > 1e6
    assert known(speed_of(CPU, None, PassWork(1000), None)).flops_per_s is None
