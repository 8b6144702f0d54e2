"""Runs report the path by which rounds are decoded, and why a faster path is not taken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from msgspec import structs
from transformers import DeepseekV3Config, Gemma3TextConfig, Llama4TextConfig, MistralConfig

from decoder import RunConfig, decode, load_pair, methods
from decoder.engine import Engine
from decoder.events import Run
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import SHAPED
from decoder.forward.static_forward import static_forward
from decoder.forward.static_hf import ModuleStatic
from decoder.heads.eagle3 import UNTAPPED
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.models.heads import head_shape
from decoder.run.decoding_path import (
    EXACT,
    MODULE,
    NATIVE,
    UNCAPTURED_HEAD,
    DecodingPath,
    bfloat16_pays,
    decoding_path,
    expected_path,
    stored_dtype,
)
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.compiled import Compiled
from decoder.session.cuda_graph.operators import PLAIN, Verdict
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import CHUNKED, SHORT
from dynatui.lab.bench import table
from dynatui.lab.bench.job import OnTexts, measure_texts
from dynatui.session import Models
from tests import heads
from tests.decoder import mtp_checkpoints
from tests.decoder.makers import TinyModels, graph_slots, with_pair

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
UNKNOWN = "Qwen3ForCausalLM has no native implementation"
GEMMA = "Gemma3ForCausalLM has no native implementation"
GRAPHS = DecodingPath("cuda graphs", "native model")
SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "head_dim": 8,
    "vocab_size": 96, "intermediate_size": 48,
}  # fmt: skip


def of_both(reason: str) -> str:
    return f"target: {reason}; draft: {reason}"


@pytest.fixture
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.has_graphs", lambda _: True)


def configs(models: TinyModels, target: str, draft: str | None = None) -> dict[str, Any]:
    """Configurations of a target and, if named, a draft."""
    names = {"target": models.pair(target).target} | ({"draft": models.pair(draft).draft} if draft else {})
    return {role: load_config(str(name)) for role, name in names.items()}


def untried(engine: Engine, refused: str | None = None) -> Engine:
    return replace(engine, slots=GraphSlots(refused=refused))


def settled(tiny_models: TinyModels, family: str, form: Callable[[LanguageModel], Any] = static_forward) -> Engine:
    engine = untried(tiny_models.engine(family))
    for model in (engine.pair.target, engine.pair.draft_model):
        graph_slots(engine).forms[model] = form(model)
    return engine


# On a CPU


@pytest.mark.parametrize(
    ("target", "draft", "reason"),
    [
        *((family, family, NATIVE) for family in ("neox", "llama", "qwen3")),
        ("gpt2", "gpt2", MODULE),
        ("neox", "gpt2", f"target: {NATIVE}; draft: {MODULE}"),
    ],
)
def test_on_a_cpu_the_host_drives_rounds_by_native_kernels_or_by_modules(
    tiny_models: TinyModels, target: str, draft: str, reason: str
) -> None:
    engine = with_pair(tiny_models.engine(target), draft=tiny_models.engine(draft).pair.draft_model)
    assert decoding_path(engine) == DecodingPath("host", reason)
    assert expected_path(configs(tiny_models, target, draft), CPU, exact=False) == DecodingPath("host", reason)


def test_an_exact_pair_on_a_cpu_has_native_kernels_too(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair("neox")
    pair = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32", exact=True)
    assert decoding_path(pair) == DecodingPath("host", NATIVE)


# On a GPU


@pytest.mark.usefixtures("_graphs")
@pytest.mark.parametrize(
    ("config", "path"),
    [
        (MistralConfig(**SMALL, sliding_window=32), DecodingPath("host", SHORT)),
        (Gemma3TextConfig(**SMALL, sliding_window=8), DecodingPath("host", SHORT)),
        (Llama4TextConfig(**SMALL, num_local_experts=2), DecodingPath("host", CHUNKED)),
        (
            DeepseekV3Config(hidden_size=32, n_routed_experts=8, n_group=1, num_hidden_layers=1),
            DecodingPath("host", SHAPED),
        ),
        (MistralConfig(**SMALL, sliding_window=33), GRAPHS),
        (Gemma3TextConfig(**SMALL, sliding_window=33), DecodingPath("static module", of_both(GEMMA))),
    ],
)
def test_windows_longer_than_trees_are_captured_and_other_models_are_not(config: Any, path: DecodingPath) -> None:
    assert expected_path({"target": config, "draft": config}, CPU, exact=False) == path


@pytest.mark.usefixtures("_graphs")
@pytest.mark.parametrize(
    ("family", "layout", "expected"),
    [
        ("llama", "nested", GRAPHS),
        ("llama", "P-EAGLE", DecodingPath("host", UNCAPTURED_HEAD)),
        ("qwen3", "nested", DecodingPath("host", UNTAPPED)),
    ],
)
def test_heads_of_eagle_3_are_captured_with_native_targets(
    tiny_models: TinyModels, family: str, layout: str, expected: DecodingPath
) -> None:
    name = heads.name(family, layout)
    shape = head_shape(str(tiny_models.pair(name).draft))
    assert expected_path(configs(tiny_models, name), CPU, exact=False, head=shape) == expected
    engine = untried(tiny_models.engine(name), None if family == "llama" else UNTAPPED)
    if family == "llama":
        graph_slots(engine).forms[engine.pair.target] = static_forward(engine.pair.target)
    assert decoding_path(engine) == expected


@pytest.mark.usefixtures("_graphs")
def test_on_a_gpu_the_way_of_rounds_is_told_with_what_was_found(tiny_models: TinyModels) -> None:
    engine = settled(tiny_models, "neox")
    draft, slots = engine.pair.draft_model, graph_slots(engine)
    assert decoding_path(engine) == GRAPHS
    assert decoding_path(with_pair(engine, draft=None)).name == "cuda graphs"
    assert decoding_path(untried(engine)) == DecodingPath("cuda graphs", "not tried yet")
    verdicts = {
        "pack_tree": Verdict("takes 0.50 x the time", used=True),
        "keep_level": Verdict("gives results that differ from the plain function's"),
    }
    slots.operators = replace(PLAIN, pack_tree=lambda *_: None, verdicts=verdicts)
    reason = "native model; kernels: pack_tree; keep_level gives results that differ from the plain function's"
    assert decoding_path(engine) == DecodingPath("cuda graphs", reason)
    slots.operators = PLAIN
    slots.forms[draft] = Compiled(static_forward(draft), lambda function: function)
    assert decoding_path(engine) == DecodingPath("cuda graphs", "target: native model; draft: compiled")
    why = "44.0 GiB more memory would be needed to make the native model of draft"
    slots.forms[draft] = Compiled(ModuleStatic(draft.hf.module, why), lambda function: function)
    assert decoding_path(engine) == DecodingPath("static module", f"draft: {why}")
    slots.refused = "rounds on the device wrote the tokens [1] instead of [2]"
    assert decoding_path(engine) == DecodingPath("host", slots.refused)
    assert decoding_path(replace(engine, exact=True)) == DecodingPath("host", EXACT)
    of_modules = settled(tiny_models, "qwen3", lambda model: ModuleStatic(model.hf.module, UNKNOWN))
    assert decoding_path(of_modules) == DecodingPath("static module", of_both(UNKNOWN))


@pytest.mark.usefixtures("_graphs")
@pytest.mark.parametrize(
    ("family", "draft", "exact", "expected"),
    [
        ("neox", "neox", False, GRAPHS),
        ("neox", None, False, GRAPHS),
        ("neox", "neox", True, DecodingPath("host", EXACT)),
        ("qwen3", "qwen3", False, DecodingPath("static module", of_both(UNKNOWN))),
    ],
)
def test_what_configurations_tell_of_a_gpu(
    tiny_models: TinyModels, family: str, draft: str | None, *, exact: bool, expected: DecodingPath
) -> None:
    assert expected_path(configs(tiny_models, family, draft), CPU, exact=exact) == expected


@pytest.mark.parametrize("refused", [None, "it does not run"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_sessions_go_the_way_that_is_told(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, refused: str | None, temperature: float, *, exact: bool
) -> None:
    engine = replace(settled(tiny_models, "neox"), exact=exact).sampled(1, Schedule(Sampling(temperature)))
    graph_slots(engine).refused = refused
    monkeypatch.setattr(engine.pair.target, "device", CUDA)
    monkeypatch.setattr("decoder.session.cuda_graph.session.GraphSession", lambda *_: "the device's")
    monkeypatch.setattr("decoder.engine.HostSession", lambda *_: "the host's")
    opened: Any = methods.METHODS["ar"].open(engine, [1, 2], RunConfig())
    assert opened == ("the host's" if decoding_path(engine).name == "host" else "the device's")
    assert (opened == "the host's") is bool(exact or refused)


# Reports of the path, and dtypes of weights


@pytest.mark.parametrize(
    ("pair", "kind"),
    [
        ("neox", msgspec.UNSET),
        (heads.name("neox", "flat"), "eagle3"),
        (heads.name("neox", "z-lab"), "dflash"),
        (next(iter(mtp_checkpoints.PAIRS)), "mtp"),
    ],
)
def test_a_run_says_which_way_it_is_decoded_and_what_kind_of_head_drafts(
    tiny_models: TinyModels, pair: str, kind: object
) -> None:
    run = next(decode(tiny_models.engine(pair, "float32"), "The tree", RunConfig(("ar",), 1)))
    assert isinstance(run, Run)
    assert run.draft_head == kind
    assert run.path == "host"
    assert run.path_reason == NATIVE or kind is not msgspec.UNSET


def test_a_benchmark_says_it_in_its_json_and_above_its_tables(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair("neox")
    job = OnTexts(
        Models(str(saved.target), str(saved.draft), "cpu", "float32"), prompts=("The tree",),
        config=RunConfig(max_new_tokens=3), methods=(), settings={}, with_baselines=False, repeats=1,
    )  # fmt: skip
    report = measure_texts(job, lambda _: None).report
    assert (report.setup.path, report.setup.path_reason) == ("host", NATIVE)
    assert f"\nrounds: host, {NATIVE}\n" in table.on_texts(report)
    long = structs.replace(report.setup, path="static module", path_reason="target: " + "x" * 90)
    page = table.on_texts(structs.replace(report, setup=long))
    assert "\nrounds: static module, target: xxx" in page
    assert max(map(len, page.splitlines())) <= 80


def test_bfloat16_never_pays_where_a_native_model_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.products_pay_in_bfloat16", lambda: True)
    assert not bfloat16_pays(load_config(str(EMBEDDED_TARGET)))
    assert bfloat16_pays(Gemma3TextConfig(**SMALL))


NATIVE_CONFIG, OTHER_CONFIG = load_config(str(EMBEDDED_TARGET)), Gemma3TextConfig(**SMALL, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("compiled", "config", "device", "asked", "stored"),
    [
        (False, NATIVE_CONFIG, CPU, torch.bfloat16, torch.float32),
        (False, OTHER_CONFIG, CPU, torch.bfloat16, torch.bfloat16),
        (True, NATIVE_CONFIG, CPU, torch.float32, torch.bfloat16),
        (True, NATIVE_CONFIG, CPU, torch.float64, torch.float64),
        (True, NATIVE_CONFIG, CUDA, torch.float32, torch.float32),
        (True, OTHER_CONFIG, CPU, torch.float32, torch.float32),
    ],
)
def test_weights_of_compiled_passes_are_stored_in_the_checkpoint_s_dtype_and_others_in_float32(
    monkeypatch: pytest.MonkeyPatch,
    config: Any,
    device: torch.device,
    asked: torch.dtype,
    stored: torch.dtype,
    *,
    compiled: bool,
) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.library", lambda: object() if compiled else None)
    assert stored_dtype(config, device, asked) is stored
