"""Tests of what the doctor tells of models from configurations alone: memory, cached drafts, expected times."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET
from decoder.models.quantisation import memory_of
from decoder.run import expected
from dynatui.cli import doctor_models
from dynatui.cli.finding import Finding
from dynatui.gpu import Gpu
from dynatui.number_format import size
from dynatui.session import Models
from tests import heads, tiny
from tests.decoder.run.sparse_models import gguf, mixture
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
    return list(doctor_models.models(models, forbidden=forbidden))


def told(target: str | None = "owner/big", draft: str | None = None, **options: Any) -> str:
    return doctor_case.said(found(target, draft, **options))


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


def test_a_family_without_native_passes_has_its_memory_and_one_that_cannot_be_decoded_is_refused(hub: Path) -> None:
    folder = cached(hub, "owner/other")
    tiny.FAMILIES["gpt2"]().save_pretrained(folder)
    tiny.train_tokenizer().save_pretrained(folder)
    module = tiny.build(tiny.FAMILIES["gpt2"](), seed=1)
    kib = round(4 * sum(weight.numel() for weight in module.parameters()) / 1024)
    # Per token, the KV cache has two vectors of 32 numbers of 4 bytes in each of 2 layers.
    expected = f"{kib} KiB of weights; KV cache: 512 bytes per token, 96 KiB for a full context of 192 tokens"
    assert expected in told("owner/other")
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
    assert finding.text.startswith("target: owner/packed is quantised by 'gptq', which transformers cannot load here: ")
    assert doctor_case.found("rounds", Models("owner/packed", "lookup", device="cpu")) == []


def test_weights_that_are_converted_take_the_memory_of_the_dtype(hub: Path) -> None:
    quantised(hub, SETTINGS["fp8"])
    plain = memory_of(tiny.FAMILIES["llama"](), torch.float32).weights_bytes
    assert f"ok: target in float32 (from fp8): {size(plain)} of weights" in told("owner/packed")


def test_weights_that_stay_quantised_take_the_memory_of_their_files(hub: Path) -> None:
    folder = quantised(hub, SETTINGS["gemma"])
    module = tiny.build(tiny.FAMILIES["llama"](), seed=1)
    ends = 2 * tiny.VOCABULARY * 32
    matrices = sum(weight.numel() for weight in module.parameters() if weight.dim() > 1) - ends
    vectors = sum(weight.numel() for weight in module.parameters() if weight.dim() == 1)
    estimate = matrices // 2 + 4 * (ends + vectors)
    assert f"ok: target in gemma 4 bit (float32): {size(estimate)} of weights" in told("owner/packed")
    (folder / "model.safetensors").write_bytes(bytes(40_000))
    assert f"(float32): {size(40_000)} of weights" in told("owner/packed")


LLAMA_8B = {
    "model_type": "llama", "hidden_act": "silu", "vocab_size": 128256, "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 1000, "rms_norm_eps": 1e-5,
}  # fmt: skip


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that reads 10 GB/s and computes 1 TFLOP/s."""
    monkeypatch.setattr(expected, "read_bytes_per_s", lambda _size, _clock: 1e10)
    monkeypatch.setattr(expected, "flops_per_s", lambda _dtype, _clock: 1e12)


def without_weights(folder: Path, config: dict[str, Any]) -> str:
    """Writes a configuration without weights, and returns the folder's name."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def times(target: str | None = None, draft: str | None = None, **options: Any) -> list[Finding]:
    models = Models(target, draft, **{"device": "cpu", "dtype": "float32", **options})
    return doctor_case.found("times", models)


def said(findings: list[Finding]) -> list[str]:
    return [f"{finding.verdict}: {finding.text}" for finding in findings]


def test_a_configuration_alone_tells_how_fast_a_pair_can_be(tmp_path: Path) -> None:
    target = without_weights(tmp_path / "big", LLAMA_8B)
    draft = without_weights(tmp_path / "small", LLAMA_8B | {"num_hidden_layers": 1})
    lines = said(times(target, draft, dtype="bfloat16"))
    # Without the embedding, 7.505e9 weights of 2 bytes: 1.501 s at 10 GB/s. Each token of the text has 32 x 2 x 1024
    # numbers of 2 bytes. The draft has one layer and the head: 0.743e9 weights, 0.149 s. 64 rows compute for 0.961 s.
    assert lines == [
        "ok: the CPU reads 10.0 GB/s of weights and computes 1000 GFLOP/s in bfloat16, measured with 1 thread",
        "ok: estimate of plain decoding: 0.67 tokens/s, 0.66 with a full context of 1000 tokens",
        "ok: estimate of a round of 1 level and 2 rows: 1650 ms; it is faster from 1.10 tokens per round on",
        "ok: estimate of a round of 4 levels and 16 rows: 2096 ms; it is faster from 1.40 tokens per round on",
        "ok: estimate of a round of 8 levels and 64 rows: 2691 ms; it is faster from 1.79 tokens per round on",
    ]


def test_lookups_take_no_pass_and_of_a_pair_that_other_probes_refuse_nothing_is_said(tmp_path: Path) -> None:
    target = without_weights(tmp_path / "big", LLAMA_8B)
    (line,) = [line for line in said(times(target, "lookup", dtype="bfloat16")) if "4 levels" in line]
    assert "rows: 1501 ms; it is faster from 1.00 tokens" in line
    assert times(None, "some/draft") == []
    assert times(str(tmp_path), "lookup") == []


def test_on_a_gpu_the_bandwidth_is_that_of_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = without_weights(tmp_path / "big", LLAMA_8B)
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda"))
    monkeypatch.setattr(doctor_models, "memory_bytes_per_s", lambda device: 4.8e12 if device == "cuda" else None)
    first, plain, *_ = said(times(target, "lookup", device="cuda", dtype="bfloat16"))
    assert first == "ok: the memory of cuda gives at most 4800 GB/s, by its clock and bus width; caches give more"
    assert ": 320 tokens/s" in plain
    monkeypatch.setattr(doctor_models, "memory_bytes_per_s", lambda _: None)
    (unknown,) = said(times(target, "lookup", device="cuda"))
    assert unknown == (
        "note: the times of the models cannot be estimated: the driver does not report clock and bus width of the "
        "memory of cuda"
    )


def test_a_mixture_names_no_point_from_which_rounds_pay_and_an_impossible_one_is_unknown(tmp_path: Path) -> None:
    mixture().save_pretrained(tmp_path / "mixture")
    lines = said(times(str(tmp_path / "mixture"), "lookup"))
    assert "; of the experts, only those of one token are counted" in lines[1]
    assert (len(lines), any("pays" in line for line in lines)) == (5, False)
    mixture(num_experts_per_tok=5).save_pretrained(tmp_path / "impossible")
    (line,) = said(times(str(tmp_path / "impossible"), "lookup"))
    assert line.startswith("note: the times of the models cannot be estimated: it is unknown how many experts")


def test_a_head_is_left_out_and_that_is_told(tmp_path: Path) -> None:
    pair = heads.pair("llama", "flat", tmp_path)
    lines = said(times(str(pair.target), str(pair.draft)))
    assert lines[-1] == "note: passes of the draft are not counted: a drafting head reads states of the target"


def test_a_gguf_file_beside_a_gpu_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_models, "gpus", lambda: [Gpu("H200", None, None, None)])
    monkeypatch.setattr(
        "decoder.models.checkpoints.load_config", lambda _: gguf({"token_embd.weight": 1000}, context_length=128)
    )
    (tmp_path / "a.gguf").touch()
    named = str(tmp_path / "a.gguf")
    (line,) = said(times(named, "lookup"))
    assert "llama.cpp would spread a GGUF file over CPU and GPU" in line
    first, plain, *_ = said(times(named, "lookup", gpu_layers=0))
    assert first == "ok: the CPU reads 10.0 GB/s of weights, measured with 1 thread"
    assert ": 10000000 tokens/s" in plain or ": 1e+07 tokens/s" in plain
