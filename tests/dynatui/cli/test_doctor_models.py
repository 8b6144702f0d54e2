"""Tests of the doctor's findings on models, from configurations alone in a temporary Hugging Face cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from decoder.models.quantisation import memory_of
from dynatui.cli import doctor_models
from dynatui.cli.doctor_machine import CheckResult
from dynatui.number_format import size
from dynatui.session import Models
from tests import tiny
from tests.dynatui.cli import doctor_case
from tests.dynatui.cli.doctor_case import said
from tests.quantised import SETTINGS, describe

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder of an empty Hugging Face cache."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def _uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.library", lambda: None)


def cached(hub: Path, name: str) -> Path:
    """Makes the folder of a model in the cache."""
    model = hub / f"models--{name.replace('/', '--')}"
    (model / "refs").mkdir(parents=True)
    (model / "refs" / "main").write_text("abc")
    folder = model / "snapshots" / "abc"
    folder.mkdir(parents=True)
    return folder


def configured(folder: Path, source: Path = EMBEDDED_TARGET, **changes: Any) -> None:
    """Writes a configuration and a tokenizer, without weights."""
    config = json.loads((source / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    for name in TOKENIZER:
        (folder / name).write_bytes((source / name).read_bytes())


def found(
    target: str | None, draft: str | None = None, *, forbidden: bool = False, **options: Any
) -> list[CheckResult]:
    models = Models(target, draft, device="cpu", **{"dtype": "float32", **options})
    return doctor_case.found("models", models=models, forbidden=forbidden)


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
        assert (words in said(found("owner/chat"))) == noted
    tokenizer.chat_template = None
    configured(folder, eos_token_id=5)
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    assert "does not name" not in said(found("owner/chat"))


def test_a_name_that_is_not_cached_is_one_line_with_the_remedy(hub: Path) -> None:
    (finding,) = found("owner/big")
    assert finding.verdict == "note"
    assert finding.text == "target owner/big is not on this machine yet; it is downloaded when dynatui starts"
    assert (
        finding.remedy
        == "hf download owner/big --include '*.json' gets the files that doctor examines, without weights"
    )
    assert not hub.exists()


def test_where_downloads_are_forbidden_that_is_a_problem(hub: Path) -> None:
    (finding,) = found("owner/big", forbidden=True)
    assert (finding.verdict, finding.remedy) == ("problem", "unset HF_HUB_OFFLINE to download it")
    configured(cached(hub, "owner/big"))
    assert "problem: target owner/big: gpt_neox, weights are not on this machine; unset" in said(
        found("owner/big", forbidden=True)
    )


def test_compiled_passes_store_weights_in_half_precision_and_keys_in_float32(
    hub: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.library", object)
    configured(cached(hub, "owner/big"))
    for dtype in ("float32", "bfloat16"):
        told = said(found("owner/big", dtype=dtype))
        assert f"target in {dtype}: 30 MiB of weights" in told
        assert "KV cache: 24 KiB per token, 48 MiB for a full context" in told
    assert "target in float64: 120 MiB of weights; KV cache: 48 KiB per token" in said(
        found("owner/big", dtype="float64")
    )


@pytest.mark.usefixtures("_uncompiled")
def test_a_configuration_alone_tells_the_memory(hub: Path) -> None:
    configured(cached(hub, "owner/big"))
    text = said(found("owner/big"))
    assert (
        "note: target owner/big: gpt_neox, weights are not on this machine; they are downloaded when dynatui starts"
        in text
    )
    # Per token, the KV cache has two vectors of 384 numbers of 4 bytes in each of 8 layers.
    assert (
        "ok: target in float32: 60 MiB of weights; KV cache: 24 KiB per token, 48 MiB for a full context of 2048 tokens"
        in text
    )
    in_half = said(found("owner/big", dtype="bfloat16"))
    assert "target in bfloat16: 60 MiB of weights in float32; KV cache: 24 KiB per token" in in_half


def test_a_family_without_native_passes_has_its_memory_too(hub: Path) -> None:
    folder = cached(hub, "owner/other")
    tiny.FAMILIES["gpt2"]().save_pretrained(folder)
    tiny.train_tokenizer().save_pretrained(folder)
    module = tiny.build(tiny.FAMILIES["gpt2"](), seed=1)
    kib = round(4 * sum(weight.numel() for weight in module.parameters()) / 1024)
    # Per token, the KV cache has two vectors of 32 numbers of 4 bytes in each of 2 layers.
    expected = f"{kib} KiB of weights; KV cache: 512 bytes per token, 96 KiB for a full context of 192 tokens"
    assert expected in said(found("owner/other"))


def test_a_model_that_cannot_be_decoded_is_refused_before_any_weights_are_there(hub: Path) -> None:
    folder = cached(hub, "owner/t5")
    (folder / "config.json").write_text(json.dumps({"model_type": "t5", "is_encoder_decoder": True}))
    (finding,) = found("owner/t5")
    assert finding.verdict == "problem"
    assert "owner/t5 is an encoder-decoder" in finding.text


def test_more_weights_than_free_memory_are_a_note(hub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configured(cached(hub, "owner/big"))
    monkeypatch.setattr(doctor_models, "host_memory", lambda: (2**24, 2**30))
    text = said(found("owner/big"))
    assert "of 2048 tokens; only 16 MiB are free on cpu; choose a smaller model" in text


@pytest.mark.usefixtures("_uncompiled")
def test_an_inflated_pair_is_examined_at_its_own_size() -> None:
    text = said(found(None, inflate="2.8B"))
    assert "ok: target of 2.8 billion parameters, draft of 31 million: " in text
    assert "target in float32: 10.6 GiB of weights" in text
    (target, *_) = doctor_models.inflated(Models(inflate="2.8B")).values()
    assert size(4 * target.parameters) == "10.6 GiB"


def test_a_target_alone_is_told_its_drafts_in_the_cache(hub: Path) -> None:
    configured(cached(hub, "owner/big"))
    for name, source in (("owner/small", EMBEDDED_DRAFT), ("owner/without-weights", EMBEDDED_DRAFT)):
        configured(cached(hub, name), source)
    weights = hub / "models--owner--small" / "snapshots" / "abc" / "model.safetensors"
    weights.write_bytes((EMBEDDED_DRAFT / "model.safetensors").read_bytes())
    for name, config in (("owner/as-big", {}), ("owner/broken", {"vocab_size": -1})):
        folder = cached(hub, name)
        configured(folder, EMBEDDED_TARGET, **config)
        (folder / "model.safetensors").write_bytes(b"weights")
    other = cached(hub, "owner/other-tokenizer")
    tiny.save(other, tiny.build(tiny.FAMILIES["neox"](), seed=1), tiny.train_tokenizer())
    finding = found("owner/big")[-1]
    assert finding.verdict == "ok"
    assert finding.text == "drafts in the Hugging Face cache with the target's tokenizer: owner/small (2509 KiB)"


@pytest.mark.parametrize(
    ("width", "words"), [(2176, "; 128 of the target's 2176 token ids are never drafted"), (2048, "")]
)
def test_the_ids_that_a_draft_lacks_are_counted(hub: Path, width: int, words: str) -> None:
    configured(cached(hub, "owner/big"), vocab_size=width)
    configured(cached(hub, "owner/small"), EMBEDDED_DRAFT)
    assert f"target and draft share a tokenizer{words};" in said(found("owner/big", "owner/small"))


def test_a_cache_without_drafts_is_a_note_with_the_other_ways(hub: Path) -> None:
    configured(cached(hub, "owner/big"))
    finding = found("owner/big")[-1]
    assert finding.verdict == "note"
    assert finding.text == "no smaller model with the target's tokenizer is in the Hugging Face cache"
    assert (
        "guesses of models with other tokenizers are translated through text; --draft lookup needs no model"
        in finding.remedy
    )


def test_a_draft_without_its_target_is_a_problem() -> None:
    (finding,) = found(None, "owner/small")
    assert (finding.verdict, finding.text) == ("problem", "a draft was named without its target")


def quantised(hub: Path, settings: dict[str, Any]) -> Path:
    """Writes configuration and tokenizer of a quantised model, without weights; returns the folder."""
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
    assert f"ok: target in float32 (from FP8): {size(plain)} of weights" in said(found("owner/packed"))


def test_weights_that_stay_quantised_take_the_memory_of_their_files(hub: Path) -> None:
    folder = quantised(hub, SETTINGS["gemma"])
    module = tiny.build(tiny.FAMILIES["llama"](), seed=1)
    ends = 2 * tiny.VOCABULARY * 32
    matrices = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1) - ends
    vectors = sum(weight.numel() for weight in module.parameters() if weight.dim() == 1)
    estimate = size(matrices // 2 + 4 * (ends + vectors))
    assert f"ok: target in Gemma 4 bit (float32): {estimate} of weights" in said(found("owner/packed"))
    (folder / "model.safetensors.index.json").write_text('{"metadata": {"total_size": 50000}, "weight_map": {}}')
    assert f"(float32): {size(50_000)} of weights" in said(found("owner/packed"))
    (folder / "model.safetensors.index.json").write_text("{}")
    assert f"(float32): {estimate} of weights" in said(found("owner/packed"))
    (folder / "model.safetensors").write_bytes(bytes(40_000))
    assert f"(float32): {size(40_000)} of weights" in said(found("owner/packed"))


def test_a_draft_in_the_cache_that_cannot_be_loaded_is_left_out(hub: Path) -> None:
    configured(cached(hub, "owner/big"))
    folder = cached(hub, "owner/small")
    configured(folder, EMBEDDED_DRAFT)
    (folder / "model.safetensors").write_bytes(b"weights")
    assert "owner/small" in said(found("owner/big"))
    describe(folder, {"quant_method": "awq", "bits": 4})
    assert "owner/small" not in said(found("owner/big"))
