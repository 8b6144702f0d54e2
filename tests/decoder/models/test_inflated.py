"""The embedded pair at the cost of larger models: same texts, same rounds, about the wanted number of parameters."""

from typing import Any

import pytest
import torch

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, DeviceError
from decoder.events import Round, Run
from decoder.models import inflated
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, embedded_traits, load_config, load_model
from decoder.models.inflated import DRAFT_SHARE, Inflated, inflated_pair, made
from decoder.run import loading
from tests.fake_cuda.driver import fake_cuda

PROMPT = "It was the best of times, it was"
TOKENS = [261, 801, 758, 511, 435, 856, 280]
NAMES = {"target": str(EMBEDDED_TARGET), "draft": str(EMBEDDED_DRAFT)}
ARCHITECTURE = load_config(str(EMBEDDED_DRAFT))
GREEDY = RunConfig(("dynatree", "linear", "ar"), 32)
SAMPLED = RunConfig(("dynatree", "ar"), 32, seed=7, temperature=0.6)


@pytest.fixture(scope="module")
def embedded() -> Engine:
    return load_pair(dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def larger() -> Engine:
    return load_pair(dtype="float32", device="cpu", inflate="60M")


def rounds(engine: Engine, config: RunConfig) -> dict[str, list[list[int]]]:
    """Tokens of each round of a race, by method."""
    events = [event for event in decode(engine, PROMPT, config) if isinstance(event, Round)]
    return {name: [list(event.committed) for event in events if event.method == name] for name in config.methods}


@pytest.mark.parametrize("config", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_inflated_pair_writes_the_text_of_the_embedded_pair_in_the_same_rounds(
    embedded: Engine, larger: Engine, config: RunConfig
) -> None:
    assert rounds(larger, config) == rounds(embedded, config)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_repeated_widths_and_further_layers_compute_the_logits_of_the_embedded_model(device: str) -> None:
    small = load_model(str(EMBEDDED_DRAFT), torch.device("cpu"), torch.float32)
    expected = small.read(small.new_cache(16), TOKENS)
    with fake_cuda():
        model = Inflated(str(EMBEDDED_DRAFT), ARCHITECTURE, copies=4, layers=5).load(
            torch.device(device), torch.float32
        )
        found = model.read(model.new_cache(16), TOKENS).cpu()
    assert model.layers == 5
    assert torch.allclose(found, expected, atol=1e-3)


def test_the_module_of_an_inflated_model_computes_its_logits() -> None:
    model = Inflated(str(EMBEDDED_DRAFT), ARCHITECTURE, copies=2, layers=4).load(torch.device("cpu"), torch.float32)
    with torch.no_grad():
        by_module = model.hf.load(model.device)(torch.tensor([TOKENS])).logits[0, -1]
    assert torch.allclose(model.read(model.new_cache(16), TOKENS), by_module, atol=1e-3)


def test_widths_are_divided_without_rounding_in_half_precision() -> None:
    embedded = embedded_traits(str(EMBEDDED_TARGET), torch.device("cpu"), torch.bfloat16, lambda _: None)
    larger = inflated_pair("2.8B", NAMES)["target"]
    assert embedded
    assert embedded.source
    small = embedded.source.weights["gpt_neox.layers.3.attention.dense.weight"]
    assert (small / larger.copies * larger.copies).equal(small)


@pytest.mark.parametrize("size", ["60M", "160M", "500M", "1.4B", "2.8b", "7B", "13B", "70B"])
def test_a_pair_of_any_size_has_about_the_wanted_parameters_and_a_draft_in_proportion(size: str) -> None:
    pair = inflated_pair(size, NAMES)
    wanted = float(size[:-1]) * (10**9 if size[-1] in "bB" else 10**6)
    least = Inflated(str(EMBEDDED_DRAFT), ARCHITECTURE, copies=1, layers=2).parameters
    assert pair["target"].parameters == pytest.approx(wanted, rel=0.06)
    assert pair["draft"].parameters == pytest.approx(max(least, wanted * DRAFT_SHARE), rel=0.15)


def test_a_large_pair_has_the_proportions_of_large_models() -> None:
    target = inflated_pair("2.8B", NAMES)["target"]
    assert (target.architecture.hidden_size, target.layers) == (3072, 25)


def test_what_is_made_is_said_in_one_line_and_in_the_names(larger: Engine) -> None:
    assert made(inflated_pair("2.8B", NAMES)) == (
        "target of 2.8 billion parameters, draft of 31 million: the embedded pair's texts at their cost"
    )
    assert made(inflated_pair("500M", {"target": NAMES["target"]})) == (
        "target of 490 million parameters: the embedded pair's texts at its cost"
    )
    first = next(iter(decode(larger, PROMPT, GREEDY)))
    assert isinstance(first, Run)
    assert (first.target, first.draft) == ("books-16m inflated to 60M", "books-1m inflated to 1.7M")


@pytest.mark.parametrize("size", ["5M", "10", "2.8", "1e9", "-2B", "infB", ""])
def test_what_is_no_size_or_too_small_is_refused_in_one_line(size: str) -> None:
    with pytest.raises(ConfigError, match="--inflate is") as refusal:
        load_pair(inflate=size)
    assert refusal.value.about == ("inflate",)


@pytest.mark.parametrize(
    "options", [{"target": "owner/model", "draft": "owner/other"}, {"target": "owner/model", "draft": "lookup"}]
)
def test_only_the_embedded_pair_is_inflated(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="leave out --inflate") as refusal:
        load_pair(inflate="2.8B", **options)
    assert refusal.value.exit_code == 2


def test_the_embedded_target_is_inflated_beside_suffix_lookup_too() -> None:
    alone = load_pair(draft="lookup", dtype="float32", device="cpu", inflate="60M")
    assert alone.pair.looks_up
    assert rounds(alone, RunConfig(("linear",), 8))["linear"]


def test_a_size_beyond_the_free_memory_is_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inflated, "free_bytes", lambda _: 128 << 20)
    with pytest.raises(DeviceError, match=r"inflated to 60M needs 0\.4 GiB of memory.* cpu has 0\.1 GiB free; give a"):
        load_pair(inflate="60M", device="cpu", dtype="float32")


def test_beside_a_gpu_an_inflated_pair_runs_on_it_in_the_dtype_of_its_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "try_rounds", lambda *_: None)
    said: list[str] = []
    with fake_cuda():
        pair = load_pair(inflate="60M", report=said.append).pair
    assert (pair.device, pair.dtype, pair.draft_model.device.type) == ("cuda", "bfloat16", "cuda")
    assert said[0].startswith("target of 60 million parameters, draft of 1.7 million: ")
