"""Least times of a pair on a device, from its configurations and from the loaded models."""

from dataclasses import replace

import pytest
import torch

from decoder import load_pair
from decoder.analysis.roofline import DeviceSpeed, PassWork, step_s
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.models.quantisation import Quantisation
from decoder.run import expected
from decoder.run.expected import expectation, speed_of, work_of_config, work_of_model
from tests import tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def engine() -> Engine:
    """The embedded pair."""
    return load_pair(device="cpu", dtype="float32")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that reads a byte in a nanosecond, and computes so fast that arithmetic takes no time."""
    monkeypatch.setattr(expected, "read_bytes_per_s", lambda _size, _clock: 1e9)
    monkeypatch.setattr(expected, "flops_per_s", lambda _dtype, _clock: 1e18)


def test_a_loaded_pair_takes_at_least_what_its_bytes_take(engine: Engine, measured: None) -> None:
    del measured
    times = expectation(engine.pair, None)
    target, draft = work_of_model(engine.pair.target), work_of_model(engine.pair.draft_model)
    assert times is not None
    assert target is not None
    assert draft is not None
    assert times(0).target_read_s == pytest.approx(target.weights_bytes / 1e9)
    assert times(0).draft_pass_s == pytest.approx(draft.weights_bytes / 1e9)
    assert step_s(times(100)) == pytest.approx((target.weights_bytes + target.cached_bytes(100)) / 1e9)


def test_without_a_draft_model_draft_passes_take_no_time(engine: Engine, measured: None) -> None:
    del measured
    times = expectation(replace(engine.pair, draft=None), None)
    assert times is not None
    assert times(0).draft_pass_s == 0
    assert times(0).target_read_s > 0


def test_a_loaded_model_has_the_work_of_its_configuration() -> None:
    for family in ("neox", "gpt2"):
        config = tiny.FAMILIES[family]()
        loaded = LanguageModel.of_module(tiny.build(config, seed=1), family)
        work, known = work_of_model(loaded), work_of_config(config, torch.float32)
        assert work is not None
        assert known is not None
        assert (work.weights_bytes, work.weights) == (known.weights_bytes, known.weights)


def test_compiled_passes_read_weights_of_a_bfloat16_checkpoint_as_they_are() -> None:
    config = tiny.FAMILIES["neox"]()
    work = work_of_model(LanguageModel.of_module(tiny.build(config, seed=1).bfloat16().float(), "neox"))
    whole, halves = work_of_config(config, torch.float32), work_of_config(config, torch.bfloat16)
    assert work is not None
    assert whole is not None
    assert halves is not None
    # Norms and biases are read in float32.
    assert halves.weights_bytes < work.weights_bytes < 0.55 * whole.weights_bytes


def test_a_model_of_another_library_has_unknown_work() -> None:
    loaded = LanguageModel.of_module(tiny.build(tiny.FAMILIES["gpt2"](), seed=1), "a", lambda _: None)
    loaded.hf.drop()
    assert work_of_model(loaded) is None


def test_quantised_weights_of_unknown_width_have_unknown_work() -> None:
    config = tiny.FAMILIES["llama"](tie_word_embeddings=False)
    work = {
        bits: work_of_config(config, torch.float16, Quantisation("x", bits, converted=False, packed=True))
        for bits in (None, 4)
    }
    plain = work_of_config(config, torch.float16, Quantisation("x", None, converted=True, packed=False))
    assert work[None] is None
    assert work[4] is not None
    assert plain is not None
    assert work[4].weights_bytes < plain.weights_bytes


def test_a_gpu_has_the_bandwidth_that_the_driver_reports_and_an_unknown_rate_of_arithmetic() -> None:
    gpu = torch.device("cuda")
    assert speed_of(gpu, torch.float16, PassWork(1), 4.8e12) == DeviceSpeed(4.8e12)
    assert speed_of(gpu, torch.float16, PassWork(1), None) is None


def test_a_cpu_is_measured_and_without_a_dtype_its_arithmetic_is_not() -> None:
    work = work_of_config(load_config(str(EMBEDDED_TARGET)), torch.float32)
    assert work is not None
    speed = speed_of(CPU, torch.float32, work, None)
    assert speed is not None
    assert speed.bytes_per_s > 1e6
    assert speed.flops_per_s is not None
    assert speed.flops_per_s > 1e6
    bare = speed_of(CPU, None, PassWork(1000), None)
    assert bare is not None
    assert bare.flops_per_s is None
