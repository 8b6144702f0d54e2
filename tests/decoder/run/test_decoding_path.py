"""Runs report the path by which rounds are decoded, and why a faster path is not taken."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from msgspec import structs
from transformers import DeepseekV3Config, Gemma3TextConfig, Llama4TextConfig, MistralConfig

from decoder import RunConfig, decode, load_pair, methods
from decoder.engine import Engine
from decoder.events import Run
from decoder.forward.families.registry import reading_bytes
from decoder.forward.hf import source_of
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import SHAPED
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import static_forward
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
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import CHUNKED, SHORT
from dynatui.lab.bench import table
from dynatui.lab.bench.job import OnTexts, measure_texts
from tests import eagle3_checkpoints
from tests.decoder.makers import TinyModels, graph_slots, with_pair

CPU = torch.device("cpu")
UNKNOWN = "Qwen3ForCausalLM has no native implementation"
GEMMA = "Gemma3ForCausalLM has no native implementation"

SMALL: dict[str, Any] = {
    "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "head_dim": 8,
    "vocab_size": 96, "intermediate_size": 48,
}  # fmt: skip


@pytest.fixture
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.has_graphs", lambda _: True)


def unlike(tiny_models: TinyModels) -> Engine:
    """An engine in which only the target's family is native."""
    neox: Engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    other: Engine = tiny_models.loaded(tiny_models.pair("gpt2"), "float32")
    return replace(with_pair(neox, draft=other.pair.draft_model), slots=GraphSlots())


# On a CPU


@pytest.mark.parametrize(
    ("family", "reason"), [("neox", NATIVE), ("llama", NATIVE), ("qwen3", NATIVE), ("gpt2", MODULE)]
)
def test_on_a_cpu_the_host_drives_rounds_by_native_kernels_or_by_modules(
    tiny_models: TinyModels, family: str, reason: str
) -> None:
    pair = tiny_models.pair(family)
    assert decoding_path(tiny_models.loaded(pair, "float32")) == DecodingPath("host", reason)
    configs = {"target": load_config(str(pair.target)), "draft": load_config(str(pair.draft))}
    assert expected_path(configs, CPU, exact=False) == DecodingPath("host", reason)


def test_models_that_are_unlike_are_told_one_by_one(tiny_models: TinyModels) -> None:
    expected = DecodingPath("host", f"target: {NATIVE}; draft: {MODULE}")
    assert decoding_path(unlike(tiny_models)) == expected
    configs = {
        "target": load_config(str(tiny_models.pair("neox").target)),
        "draft": load_config(str(tiny_models.pair("gpt2").draft)),
    }
    assert expected_path(configs, CPU, exact=False) == expected


# On a GPU


def settled(tiny_models: TinyModels, family: str, form: Callable[[LanguageModel], Any] = static_forward) -> Engine:
    loaded: Engine = tiny_models.loaded(tiny_models.pair(family), "float32")
    engine = replace(loaded, slots=GraphSlots())
    for model in (engine.pair.target, engine.pair.draft_model):
        graph_slots(engine).forms[model] = form(model)
    return engine


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
        (MistralConfig(**SMALL, sliding_window=33), DecodingPath("cuda graphs", "native model")),
        (
            Gemma3TextConfig(**SMALL, sliding_window=33),
            DecodingPath("static module", "; ".join(f"{role}: {GEMMA}" for role in ("target", "draft"))),
        ),
    ],
)
def test_windows_that_are_longer_than_trees_are_deep_are_captured_and_other_models_are_not(
    config: Any, path: DecodingPath
) -> None:
    assert expected_path({"target": config, "draft": config}, CPU, exact=False) == path


@pytest.mark.usefixtures("_graphs")
def test_graphs_of_native_models_are_the_fastest_way(tiny_models: TinyModels) -> None:
    assert decoding_path(settled(tiny_models, "neox")) == DecodingPath("cuda graphs", "native model")


@pytest.mark.usefixtures("_graphs")
@pytest.mark.parametrize(
    ("family", "layout", "expected"),
    [
        ("llama", "nested", DecodingPath("cuda graphs", "native model")),
        ("llama", "P-EAGLE", DecodingPath("host", UNCAPTURED_HEAD)),
        ("qwen3", "nested", DecodingPath("host", UNTAPPED)),
    ],
)
def test_heads_of_eagle_3_are_captured_with_native_targets(
    tiny_models: TinyModels, family: str, layout: str, expected: DecodingPath
) -> None:
    saved = tiny_models.pair(eagle3_checkpoints.name(family, layout))
    configs, shape = {"target": load_config(str(saved.target))}, head_shape(str(saved.draft))
    assert expected_path(configs, CPU, exact=False, head=shape) == expected
    engine = replace(tiny_models.loaded(saved, "float32"), slots=GraphSlots(refused=UNTAPPED))
    if family == "llama":
        graph_slots(engine).refused = None
        graph_slots(engine).forms[engine.pair.target] = static_forward(engine.pair.target)
    assert decoding_path(engine) == expected


@pytest.mark.usefixtures("_graphs")
def test_kernels_are_told_and_why_others_are_not_used(tiny_models: TinyModels) -> None:
    engine = settled(tiny_models, "neox")
    verdicts = {"pack_tree": "takes 0.50 x the time", "keep_level": "gives other results"}
    graph_slots(engine).operators = replace(PLAIN, pack_tree=lambda *_: None, verdicts=verdicts)
    reason = "native model; kernels: pack_tree; keep_level gives other results"
    assert decoding_path(engine) == DecodingPath("cuda graphs", reason)


@pytest.mark.usefixtures("_graphs")
def test_what_was_compiled_is_told(tiny_models: TinyModels) -> None:
    engine = settled(tiny_models, "neox")
    graph_slots(engine).forms[engine.pair.draft_model] = Compiled(
        static_forward(engine.pair.draft_model), lambda function: function
    )
    assert decoding_path(engine) == DecodingPath("cuda graphs", "target: native model; draft: compiled")


@pytest.mark.usefixtures("_graphs")
def test_graphs_of_modules_are_told_with_the_reason_of_each(tiny_models: TinyModels) -> None:
    assert decoding_path(
        settled(tiny_models, "qwen3", lambda model: ModuleStatic(model.hf.module, UNKNOWN))
    ) == DecodingPath("static module", f"target: {UNKNOWN}; draft: {UNKNOWN}")
    engine = settled(tiny_models, "neox")
    form = ModuleStatic(
        engine.pair.draft_model.hf.module, "44.0 GiB more memory would be needed to make the native model of draft"
    )
    graph_slots(engine).forms[engine.pair.draft_model] = Compiled(form, lambda function: function)
    assert decoding_path(engine) == DecodingPath("static module", f"draft: {form.reason}")


@pytest.mark.usefixtures("_graphs")
def test_a_refusal_is_told_as_the_reason_of_the_host_s_rounds(tiny_models: TinyModels) -> None:
    pair = settled(tiny_models, "neox")
    graph_slots(pair).refused = "rounds on the device wrote the tokens [1] instead of [2]"
    assert decoding_path(pair) == DecodingPath("host", "rounds on the device wrote the tokens [1] instead of [2]")
    assert decoding_path(replace(pair, exact=True)) == DecodingPath("host", EXACT)


@pytest.mark.usefixtures("_graphs")
def test_a_pair_that_was_not_tried_says_so(tiny_models: TinyModels) -> None:
    loaded: Engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    assert decoding_path(replace(loaded, slots=GraphSlots())) == DecodingPath("cuda graphs", "not tried yet")


@pytest.mark.usefixtures("_graphs")
@pytest.mark.parametrize(
    ("family", "exact", "expected"),
    [
        ("neox", False, DecodingPath("cuda graphs", "native model")),
        ("neox", True, DecodingPath("host", EXACT)),
        ("qwen3", False, DecodingPath("static module", f"target: {UNKNOWN}; draft: {UNKNOWN}")),
    ],
)
def test_what_configurations_tell_of_a_gpu(
    tiny_models: TinyModels, family: str, *, exact: bool, expected: DecodingPath
) -> None:
    pair = tiny_models.pair(family)
    configs = {"target": load_config(str(pair.target)), "draft": load_config(str(pair.draft))}
    assert expected_path(configs, CPU, exact=exact) == expected


@pytest.mark.usefixtures("_graphs")
def test_a_target_without_a_draft_model_goes_by_graphs_too(tiny_models: TinyModels) -> None:
    configs = {"target": load_config(str(tiny_models.pair("neox").target))}
    assert expected_path(configs, CPU, exact=False) == DecodingPath("cuda graphs", "native model")
    assert decoding_path(with_pair(settled(tiny_models, "neox"), draft=None)).name == "cuda graphs"


@pytest.mark.usefixtures("_graphs")
def test_memory_that_does_not_suffice_is_foreseen(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr("decoder.run.decoding_path.has_room", lambda _, needed: asked.append(needed))
    pair, loaded = tiny_models.pair("neox"), tiny_models.loaded(tiny_models.pair("neox"), "bfloat16")
    configs = {"target": load_config(str(pair.target)), "draft": load_config(str(pair.draft))}
    found = expected_path(configs, CPU, exact=False, dtype=torch.bfloat16)
    assert found == DecodingPath("static module", "native models would need 0.0 GiB of memory, more than is free")
    modules = [loaded.pair.target.hf.module, loaded.pair.draft_model.hf.module]
    held = sum(weight.nbytes for module in modules for weight in module.parameters())
    sources = [source_of(module) for module in modules]
    assert asked == [held + max(reading_bytes(source.architecture, torch.bfloat16) for source in sources if source)]


@pytest.mark.parametrize("refused", [None, "it does not run"])
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.6])
def test_sessions_go_the_way_that_is_told(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, refused: str | None, temperature: float, *, exact: bool
) -> None:
    engine = replace(settled(tiny_models, "neox"), exact=exact).sampled(1, Schedule(Sampling(temperature)))
    graph_slots(engine).refused = refused
    monkeypatch.setattr(engine.pair.target, "device", torch.device("cuda"))
    monkeypatch.setattr("decoder.session.cuda_graph.lookup_session.GraphSession", lambda *_: "the device's")
    monkeypatch.setattr("decoder.engine.HostSession", lambda *_: "the host's")
    opened: Any = methods.METHODS["ar"].open(engine, [1, 2], RunConfig())
    assert opened == ("the host's" if decoding_path(engine).name == "host" else "the device's")
    assert (opened == "the host's") is bool(exact or refused)


# Reports of the path


def test_a_run_says_which_way_it_is_decoded_and_why(tiny_models: TinyModels) -> None:
    run = next(decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), "The tree", RunConfig(("ar",), 1)))
    assert isinstance(run, Run)
    assert (run.path, run.path_reason) == ("host", NATIVE)


def test_a_benchmark_says_it_in_its_json_and_above_its_tables(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair("neox")
    job = OnTexts(
        prompts=("The tree",),
        config=RunConfig(max_new_tokens=3),
        methods=(),
        settings={},
        target=str(saved.target),
        draft=str(saved.draft),
        device="cpu",
        dtype="float32",
        with_baselines=False,
        repeats=1,
    )
    report = measure_texts(job, lambda _: None).report
    assert (report.setup.path, report.setup.path_reason) == ("host", NATIVE)
    page = table.on_texts(replace_path(report, "static module", "target: " + "x" * 90))
    assert f"\nrounds: host, {NATIVE}\n" in table.on_texts(report)
    assert "\nrounds: static module, target: xxx" in page
    assert max(map(len, page.splitlines())) <= 80


def replace_path(report: Any, name: str, reason: str) -> Any:
    return structs.replace(report, setup=structs.replace(report.setup, path=name, path_reason=reason))


def test_an_exact_pair_on_a_cpu_has_native_kernels_too(tiny_models: TinyModels) -> None:
    saved = tiny_models.pair("neox")
    pair = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32", exact=True)
    assert decoding_path(pair) == DecodingPath("host", NATIVE)


def test_bfloat16_never_pays_where_a_native_model_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.products_pay_in_bfloat16", lambda: True)
    assert not bfloat16_pays(load_config(str(EMBEDDED_TARGET)))
    assert bfloat16_pays(Gemma3TextConfig(**SMALL))


def test_without_compiled_passes_a_native_model_stores_half_precision_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("decoder.run.decoding_path.library", lambda: None)
    config = load_config(str(EMBEDDED_TARGET))
    assert stored_dtype(config, CPU, torch.bfloat16) is torch.float32
    assert stored_dtype(Gemma3TextConfig(**SMALL), CPU, torch.bfloat16) is torch.bfloat16


def test_weights_are_stored_in_the_checkpoint_s_dtype_where_passes_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = load_config(str(EMBEDDED_TARGET))
    monkeypatch.setattr("decoder.run.decoding_path.library", object)
    assert stored_dtype(config, CPU, torch.float32) is torch.bfloat16
    assert stored_dtype(config, CPU, torch.float64) is torch.float64
    assert stored_dtype(config, torch.device("cuda"), torch.float32) is torch.float32
    assert stored_dtype(Gemma3TextConfig(**SMALL, dtype=torch.bfloat16), CPU, torch.float32) is torch.float32
