"""Tests of the doctor's findings on models, from configurations alone in a temporary Hugging Face cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from decoder.models.quantisation import memory_of
from dynatui.cli import doctor_models
from dynatui.cli.doctor_machine import Finding
from dynatui.number_format import size
from dynatui.session import Models
from tests import tiny
from tests.dynatui.cli import doctor_case
from tests.quantised import SETTINGS, describe

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.library", lambda: None)


def cached(hub: Path, name: str) -> Path:
    model = hub / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    folder = model / "snapshots" / "abc"
    folder.mkdir(parents=True)
    return folder


def configured(folder: Path, source: Path = EMBEDDED_TARGET, **changes: Any) -> None:
    config = json.loads((source / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    for name in TOKENIZER:
        (folder / name).write_bytes((source / name).read_bytes())


def found(target: str | None, draft: str | None = None, *, forbidden: bool = False, **options: Any) -> list[Finding]:
    models = Models(target, draft, device="cpu", **{"dtype": "float32", **options})
    return doctor_case.found("models", models=models, forbidden=forbidden)


def told(target: str | None = "owner/big", draft: str | None = None, **options: Any) -> str:
    return "\n".join(f"{each.verdict}: {each.text}; {each.remedy}" for each in found(target, draft, **options))


def big(hub: Path, **changes: Any) -> None:
    """Makes `owner/big` in the cache, a target without weights."""
    configured(cached(hub, "owner/big"), **changes)


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_a_chat_model_whose_end_of_turn_does_not_end_decoding_is_a_note(hub: Path, file: str) -> None:
    folder = cached(hub, "owner/chat")
    tokenizer = tiny.train_tokenizer(begin=True)
    tokenizer.chat_template, tokenizer.eos_token = tiny.TEMPLATE, "<|begin|>"
    for ends, noted in ((5, True), ([5, 0], False), (0, False)):
        configured(folder, eos_token_id=5 if file == "generation_config.json" else ends)
        (folder / file).write_text(
            json.dumps(json.loads((folder / "config.json").read_text()) | {"eos_token_id": ends})
        )
        tokenizer.save_pretrained(folder)
        words = "its tokenizer ends texts with <|begin|> (token 0), but " + file + " does not name this token"
        assert (words in told("owner/chat")) == noted
    tokenizer.chat_template = None
    configured(folder, eos_token_id=5)
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    assert "does not name" not in told("owner/chat")


def test_a_name_that_is_not_cached_is_one_line_or_a_problem_where_downloads_are_forbidden(hub: Path) -> None:
    (finding,) = found("owner/big")
    assert (finding.verdict, finding.text) == (
        "note",
        "target owner/big is not on this machine yet; it is downloaded when dynatui starts",
    )
    assert finding.remedy == (
        "hf download owner/big --include '*.json' gets the files that doctor examines, without weights"
    )
    assert not hub.exists()
    (finding,) = found("owner/big", forbidden=True)
    assert (finding.verdict, finding.remedy) == ("problem", "unset HF_HUB_OFFLINE to download it")
    big(hub)
    missing = "problem: target owner/big: gpt_neox, weights are not on this machine; unset"
    assert missing in told(forbidden=True)


@pytest.mark.parametrize(
    ("dtype", "weights"), [("float32", "30 MiB of weights"), ("bfloat16", "30 MiB of weights"), ("float64", "120 MiB")]
)
def test_compiled_passes_store_weights_in_half_precision_and_keys_in_float32(
    hub: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, weights: str
) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.library", object)
    big(hub)
    text = told(dtype=dtype)
    assert f"target in {dtype}: {weights}" in text
    assert f"KV cache: {48 if dtype == 'float64' else 24} KiB per token" in text


@pytest.mark.usefixtures("_uncompiled")
def test_a_configuration_alone_tells_the_memory(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    big(hub)
    text = told()
    assert "note: target owner/big: gpt_neox, weights are not on this machine; they are downloaded when dyn" in text
    # Per token, the KV cache has two vectors of 384 numbers of 4 bytes in each of 8 layers.
    cache = "KV cache: 24 KiB per token, 48 MiB for a full context of 2048 tokens"
    assert f"ok: target in float32: 60 MiB of weights; {cache}" in text
    assert f"target in bfloat16: 60 MiB of weights in float32; {cache[:30]}" in told(dtype="bfloat16")
    monkeypatch.setattr(doctor_models, "host_memory", lambda: (2**24, 2**30))
    assert "of 2048 tokens; only 16 MiB are free on cpu; choose a smaller model" in told()


def test_a_family_without_native_passes_has_its_memory_too(hub: Path) -> None:
    folder = cached(hub, "owner/other")
    tiny.FAMILIES["gpt2"]().save_pretrained(folder)
    tiny.train_tokenizer().save_pretrained(folder)
    module = tiny.build(tiny.FAMILIES["gpt2"](), seed=1)
    kib = round(4 * sum(weight.numel() for weight in module.parameters()) / 1024)
    # Per token, the KV cache has two vectors of 32 numbers of 4 bytes in each of 2 layers.
    expected = f"{kib} KiB of weights; KV cache: 512 bytes per token, 96 KiB for a full context of 192 tokens"
    assert expected in told("owner/other")


def test_a_model_that_cannot_be_decoded_is_refused_before_any_weights_are_there(hub: Path) -> None:
    folder = cached(hub, "owner/t5")
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    (finding,) = found("owner/t5")
    assert finding.verdict == "problem"
    assert "owner/t5 is an encoder-decoder" in finding.text


@pytest.mark.usefixtures("_uncompiled")
def test_an_inflated_pair_is_examined_at_its_own_size() -> None:
    text = told(None, inflate="2.8B")
    assert "ok: target of 2.8 billion parameters, draft of 31 million: " in text
    assert "target in float32: 10.6 GiB of weights" in text
    (target, *_) = doctor_models.inflated(Models(inflate="2.8B")).values()
    assert size(4 * target.parameters) == "10.6 GiB"


def test_a_target_alone_is_told_its_drafts_in_the_cache_that_can_be_loaded(hub: Path) -> None:
    big(hub)
    finding = found("owner/big")[-1]
    assert (finding.verdict, finding.text) == (
        "note",
        "no smaller model with the target's tokenizer is in the Hugging Face cache",
    )
    assert "guesses of models with other tokenizers are translated through text; --draft lookup" in finding.remedy
    for name, source in (("owner/small", EMBEDDED_DRAFT), ("owner/without-weights", EMBEDDED_DRAFT)):
        configured(cached(hub, name), source)
    weights = hub / "models--owner--small" / "snapshots" / "abc" / "model.safetensors"
    weights.write_bytes((EMBEDDED_DRAFT / "model.safetensors").read_bytes())
    for name, config in (("owner/as-big", {}), ("owner/broken", {"vocab_size": -1})):
        folder = cached(hub, name)
        configured(folder, EMBEDDED_TARGET, **config)
        (folder / "model.safetensors").write_bytes(b"weights")
    tiny.save(cached(hub, "owner/other-tokenizer"), tiny.build(tiny.FAMILIES["neox"](), seed=1), tiny.train_tokenizer())
    finding = found("owner/big")[-1]
    assert finding.verdict == "ok"
    assert finding.text == "drafts in the Hugging Face cache with the target's tokenizer: owner/small (2509 KiB)"
    describe(weights.parent, {"quant_method": "awq", "bits": 4})
    assert "owner/small" not in told()


@pytest.mark.parametrize(
    ("width", "words"), [(2176, "; 128 of the target's 2176 token ids are never drafted"), (2048, "")]
)
def test_the_ids_that_a_draft_lacks_are_counted(hub: Path, width: int, words: str) -> None:
    big(hub, vocab_size=width)
    configured(cached(hub, "owner/small"), EMBEDDED_DRAFT)
    assert f"target and draft share a tokenizer{words};" in told(draft="owner/small")


def quantised(hub: Path, settings: dict[str, Any]) -> Path:
    folder = cached(hub, "owner/packed")
    tiny.FAMILIES["llama"](dtype="bfloat16").save_pretrained(folder)
    tiny.train_tokenizer().save_pretrained(folder)
    describe(folder, settings)
    return folder


def test_quantised_weights_that_cannot_be_loaded_are_a_problem(hub: Path) -> None:
    quantised(hub, {"quant_method": "gptq", "bits": 4})
    (finding,) = found("owner/packed")
    assert finding.verdict == "problem"
    assert finding.text == (
        "target: owner/packed is quantised by GPTQ, which needs the packages optimum and gptqmodel: "
        "pip install optimum gptqmodel; or name the unquantised model"
    )
    assert doctor_case.found("rounds", models=Models("owner/packed", "lookup", device="cpu")) == []


def test_weights_that_are_converted_take_the_memory_of_the_dtype(hub: Path) -> None:
    quantised(hub, SETTINGS["fp8"])
    plain = memory_of(tiny.FAMILIES["llama"](), torch.float32).weights_bytes
    assert f"ok: target in float32 (from FP8): {size(plain)} of weights" in told("owner/packed")


def test_weights_that_stay_quantised_take_the_memory_of_their_files(hub: Path) -> None:
    folder = quantised(hub, SETTINGS["gemma"])
    module = tiny.build(tiny.FAMILIES["llama"](), seed=1)
    ends = 2 * tiny.VOCABULARY * 32
    matrices = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1) - ends
    vectors = sum(weight.numel() for weight in module.parameters() if weight.dim() == 1)
    estimate = matrices // 2 + 4 * (ends + vectors)
    assert f"ok: target in Gemma 4 bit (float32): {size(estimate)} of weights" in told("owner/packed")
    for index, taken in (('{"metadata": {"total_size": 50000}, "weight_map": {}}', 50_000), ("{}", estimate)):
        (folder / "model.safetensors.index.json").write_text(index)
        assert f"(float32): {size(taken)} of weights" in told("owner/packed")
    (folder / "model.safetensors").write_bytes(bytes(40_000))
    assert f"(float32): {size(40_000)} of weights" in told("owner/packed")
