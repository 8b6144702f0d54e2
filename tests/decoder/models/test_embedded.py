"""The embedded pair: small, exact and useful, also with its trained EAGLE-3 head and at the cost of larger models.
Texts that are not shipped are read from DYNATUI_DATA.
"""

import os
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from transformers import AutoConfig, GenerationConfig

from decoder import Linear, RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, DeviceError
from decoder.events import Run
from decoder.heads.eagle3 import HeadShape
from decoder.methods.dynatree import PRESETS
from decoder.models import inflated
from decoder.models.checkpoints import (
    EMBEDDED,
    EMBEDDED_DRAFT,
    EMBEDDED_TARGET,
    embedded_traits,
    load_config,
    load_model,
)
from decoder.models.heads import head_shape
from decoder.models.inflated import DRAFT_SHARE, Inflated, inflated_pair, made
from decoder.run import loading
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.lab.training.card import measure
from tests.decoder.makers import play
from tests.fake_cuda.driver import fake_cuda

PROMPT = "The old man put down his lantern and looked at the boy for a long time without speaking. At last he said,"


@pytest.fixture(scope="module")
def engine() -> Engine:
    return load_pair(dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def held_out() -> list[Path]:
    """Ten books that were not used to train the pair."""
    folder = Path(os.environ.get("DYNATUI_DATA", "no folder was named")) / "books_test"
    texts = sorted(folder.glob("*.txt"))
    if not texts:
        pytest.skip("DYNATUI_DATA names no folder with books_test/")
    return texts


@pytest.fixture
def excerpts(held_out: list[Path], tmp_path: Path) -> list[Path]:
    """Excerpts of five books for a context of 1,024 tokens, of the first for 2,048; whole books would take minutes.

    In 5,000 tokens, an agreement of 0.62 has a standard error below 0.01, so a bound of 0.57 is not missed by chance.
    """
    found = [tmp_path / text.name for text in held_out[:5]]
    for excerpt, text in zip(found, held_out[:5], strict=True):
        length = 10_000 if text is held_out[0] else 5_000
        excerpt.write_text(text.read_text(encoding="utf-8")[50_000:][:length], encoding="utf-8")
    return found


def test_all_models_together_are_small_enough_to_ship() -> None:
    assert sum(file.stat().st_size for file in EMBEDDED.rglob("*") if file.is_file()) <= 40_000_000


def test_the_card_tells_how_the_pair_was_made_and_what_it_is_worth() -> None:
    card = (EMBEDDED / "README.md").read_text(encoding="utf-8")
    for fact in ("bits per byte", "agreement", "seed", "steps", "minutes", "Loss by position", "A sample"):
        assert fact in card


def test_every_method_writes_the_same_text_in_float32(engine: Engine) -> None:
    methods = ("ar", "dynatree", "linear", "fixed", "alg1", "hf")
    played = play(engine, RunConfig(methods, max_new_tokens=40, dynatree=PRESETS["paper"]), PROMPT)
    assert all(played.figures(name).identical_to_ar for name in methods)
    assert (played.figures("dynatree").tokens_per_round or 0) > 1.5


@pytest.mark.shared
def test_the_target_predicts_and_the_draft_agrees_on_unseen_books(excerpts: list[Path]) -> None:
    quality = measure(EMBEDDED_TARGET, EMBEDDED_DRAFT, excerpts, torch.device("cpu"), stride=3)
    assert quality.windows >= 5
    assert quality.bits_per_byte[0] <= 1.50
    assert quality.agreement >= 0.57


@pytest.mark.shared
def test_dynatree_commits_several_tokens_a_round_on_unseen_books(engine: Engine, held_out: list[Path]) -> None:
    config = RunConfig(("dynatree",), max_new_tokens=64, dynatree=PRESETS["paper"])
    opened = [text.read_text(encoding="utf-8")[:1000] for text in held_out[:3]]
    rates = [play(engine, config, prompt).figures("dynatree").tokens_per_round for prompt in opened]
    assert fmean(rate or 0 for rate in rates) >= 2.7


@pytest.mark.parametrize("folder", [EMBEDDED_TARGET, EMBEDDED_DRAFT], ids=["target", "draft"])
def test_whoever_loads_the_embedded_pair_with_transformers_decodes_with_a_cache(folder: Path) -> None:
    assert GenerationConfig.from_pretrained(folder).use_cache
    assert AutoConfig.from_pretrained(folder).use_cache


HEAD = EMBEDDED / "books-eagle3"
OWN = ("ar", "linear", "fixed", "bestfirst", "dynatree", "auto")


@pytest.fixture(scope="module")
def headed() -> Engine:
    return load_pair(str(EMBEDDED_TARGET), str(HEAD), device="cpu", dtype="float32")


def test_the_head_is_in_the_published_layout() -> None:
    assert {file.name for file in HEAD.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    shape = head_shape(str(HEAD))
    assert isinstance(shape, HeadShape)
    assert shape.target_layers == (3, 5, 7)


@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_with_the_head_every_method_writes_the_text_of_plain_decoding(headed: Engine, temperature: float) -> None:
    config = RunConfig(OWN, 40, 1, parameters={SAMPLING: Sampling(temperature)})
    played = play(headed, config, PROMPT)
    assert {method for method in OWN if played.tokens(method) != played.tokens("ar")} == set()


def test_most_first_guesses_of_the_head_are_accepted(headed: Engine) -> None:
    rounds = play(headed, RunConfig(("linear",), 60, linear=Linear(1)), PROMPT).rounds("linear")
    assert sum(len(event.accepted) for event in rounds) > 0.6 * len(rounds)


BOOK = "It was the best of times, it was"
TOKENS = [261, 801, 758, 511, 435, 856, 280]
NAMES = {"target": str(EMBEDDED_TARGET), "draft": str(EMBEDDED_DRAFT)}
ARCHITECTURE = load_config(str(EMBEDDED_DRAFT))
GREEDY = RunConfig(("dynatree", "linear", "ar"), 32)
SAMPLED = RunConfig(("dynatree", "ar"), 32, seed=7, temperature=0.6)


@pytest.fixture(scope="module")
def larger() -> Engine:
    return load_pair(dtype="float32", device="cpu", inflate="60M")


def rounds(engine: Engine, config: RunConfig) -> dict[str, list[list[int]]]:
    """Tokens of each round of a race, by method."""
    played = play(engine, config, BOOK)
    return {name: [list(event.committed) for event in played.rounds(name)] for name in config.methods}


@pytest.mark.parametrize("config", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_an_inflated_pair_writes_the_text_of_the_embedded_pair_in_the_same_rounds(
    engine: Engine, larger: Engine, config: RunConfig
) -> None:
    assert rounds(larger, config) == rounds(engine, config)


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
    first = next(iter(decode(larger, BOOK, GREEDY)))
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
