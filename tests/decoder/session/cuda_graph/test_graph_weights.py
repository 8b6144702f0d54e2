"""Weights are in memory once: static forms replace the modules, or the modules stay and the reason is reported."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.forward.families import registry
from decoder.forward.families.native import NativeModel
from decoder.forward.hf import ModuleForward, source_of
from decoder.forward.hf_module import HfModule
from decoder.forward.language_model import LanguageModel
from decoder.forward.near_tie import Judge
from decoder.forward.static import static_forward as forward
from decoder.forward.static.hf import ModuleStatic
from decoder.forward.static.static_forward import static_forward, static_in_place
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run import loading
from decoder.sampling.settings import Sampling
from decoder.session.cuda_graph import self_test as trial
from decoder.session.cuda_graph.self_test import Reference, prepare_rounds
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.tree_rules import Rules
from dynatui.lab.bench import shapes
from dynatui.lab.bench.contenders import shape
from dynatui.lab.bench.machine import read_bytes
from tests import tiny
from tests.decoder.live_tensors import Live
from tests.decoder.makers import METHODS, PROMPT, TinyModels, graph_slots, play
from tests.decoder.session.cuda_graph import matching
from tests.decoder.session.cuda_graph.matching import match, prepared, recorded, refused

FEW = (None, Linear(2))
"""Rules of tests that are not about the rules."""


@pytest.fixture
def _as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run as Hugging Face modules, as on devices other than a CPU."""
    monkeypatch.setattr("decoder.models.checkpoints._on_device", lambda model: model)
    monkeypatch.setattr("decoder.forward.language_model.native_on_cpu", lambda *_: None)


@pytest.fixture
def engine(tiny_models: TinyModels, _as_on_cuda: None) -> Engine:
    return fresh(tiny_models, "neox", "float32")


def fresh(tiny_models: TinyModels, family: str, dtype: str) -> Engine:
    """A newly loaded pair, which the test may modify."""
    saved = tiny_models.pair(family)
    return replace(load_pair(str(saved.target), str(saved.draft), device="cpu", dtype=dtype), slots=GraphSlots())


def briefly_prepared(engine: Engine) -> str | None:
    """As `prepared`, but rounds are tested with few rules."""
    return prepare_rounds(engine.pair, graph_slots(engine), FEW)


def reading_bytes(module: Any) -> int:
    source = source_of(module)
    assert source is not None
    return registry.reading_bytes(source.architecture, module.dtype)


def models(engine: Engine) -> Iterator[LanguageModel]:
    return iter((engine.pair.target, engine.pair.draft_model))


def texts(engine: Engine, methods: tuple[str, ...] = METHODS) -> dict[str, list[int]]:
    played = play(engine, RunConfig(methods, 20, dynatree=DynaTree()))
    return {name: played.tokens(name) for name in methods}


# Device rounds


@pytest.mark.parametrize(("family", "dtype"), [("neox", "float32"), ("llama", "bfloat16"), ("neox-strange", "float16")])
@pytest.mark.usefixtures("_as_on_cuda")
def test_a_pair_that_decodes_on_the_device_holds_its_weights_once_and_knows_their_shapes_and_bytes(
    tiny_models: TinyModels, family: str, dtype: str
) -> None:
    pair = fresh(tiny_models, family, dtype)
    assert all(model.hf.loaded is not None for model in models(pair))
    before = [(read_bytes(model), shape(model.hf.skeleton)) for model in models(pair)]
    assert prepared(pair) is None
    assert [(read_bytes(model), shape(model.hf.skeleton)) for model in models(pair)] == before
    assert all(model.hf.loaded is None for model in models(pair))
    assert all(isinstance(graph_slots(pair).forward(model), NativeModel) for model in models(pair))
    assert all(isinstance(model.runs_by, NativeModel) for model in models(pair))


def test_everything_that_the_host_drives_runs_by_the_same_weights(engine: Engine, tiny_models: TinyModels) -> None:
    assert briefly_prepared(engine) is None
    without_modules = tuple(name for name in METHODS if name != "hf")
    expected = tiny_models.generate(tiny_models.pair("neox"), "float32", PROMPT, 20)
    assert texts(engine, without_modules) == dict.fromkeys(without_modules, expected)
    assert all(model.hf.loaded is None for model in models(engine))
    match(recorded(engine), tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), 30, DynaTree())


def test_what_needs_a_module_loads_it_and_it_can_be_let_go_of_again(engine: Engine, tiny_models: TinyModels) -> None:
    assert briefly_prepared(engine) is None
    assert texts(engine, ("ar", "hf"))["hf"] == tiny_models.generate(tiny_models.pair("neox"), "float32", PROMPT, 20)
    assert engine.pair.target.hf.loaded is not None
    for model in models(engine):
        model.slim()
    assert all(model.hf.loaded is None for model in models(engine))


@pytest.mark.usefixtures("_as_on_cuda")
def test_near_ties_are_judged_as_by_modules(tiny_models: TinyModels) -> None:
    native, prefix = fresh(tiny_models, "neox", "bfloat16"), tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    before = Judge(native.pair.target)(prefix, (7, 9))
    assert briefly_prepared(native) is None
    after = Judge(native.pair.target)(prefix, (7, 9))
    assert after.near_tie is before.near_tie
    assert after.gap == pytest.approx(before.gap, abs=1e-5)
    assert native.pair.target.hf.loaded is None


@pytest.mark.usefixtures("_as_on_cuda")
def test_a_family_without_a_native_model_runs_by_its_module_and_holds_it(tiny_models: TinyModels) -> None:
    pair = fresh(tiny_models, "qwen3", "float32")
    held = [model.hf.loaded for model in models(pair)]
    assert briefly_prepared(pair) is None
    forms = [graph_slots(pair).forward(model) for model in models(pair)]
    assert [getattr(form, "reason", None) for form in forms] == ["Qwen3ForCausalLM has no native implementation"] * 2
    for model in models(pair):
        model.slim()
    assert [model.hf.loaded for model in models(pair)] == held
    assert texts(pair, ("ar", "alg1"))["alg1"] == tiny_models.generate(tiny_models.pair("qwen3"), "float32", PROMPT, 20)


@pytest.mark.usefixtures("_as_on_cuda")
def test_a_module_that_cannot_be_loaded_again_stays_as_it_is() -> None:
    module = tiny.build(tiny.FAMILIES["neox"](), seed=1)
    model = LanguageModel.of_module(module, "tiny")
    before = {name: weight.clone() for name, weight in module.named_parameters()}
    form = static_in_place(model)
    assert isinstance(form, NativeModel)
    model.slim()
    assert model.hf.module is module
    assert isinstance(model.runs_by, ModuleForward)
    assert all(torch.equal(weight, before[name]) for name, weight in module.named_parameters())


# Memory


@pytest.mark.usefixtures("_as_on_cuda")
@pytest.mark.parametrize(("family", "dtype"), [("neox", "bfloat16"), ("llama", "float32")])
def test_a_form_is_made_layer_by_layer_and_never_twice(family: str, dtype: str, tmp_path: Path) -> None:
    config = tiny.FAMILIES[family](hidden_size=64, num_hidden_layers=14, intermediate_size=256)
    saved = tiny.save_pair(tmp_path, tiny.build(config, seed=1), tiny.build(tiny.FAMILIES[family](), seed=1))
    most: dict[str, float] = {}
    held: dict[str, float] = {}
    model = load_pair(str(saved.target), str(saved.draft), device="cpu", dtype=dtype).pair.target
    room = reading_bytes(model.hf.module)
    for name, make in (("beside", static_forward), ("in place", static_in_place)):
        with Live(model.hf.module.parameters()) as live:
            form = make(model)
        assert isinstance(form, NativeModel)
        assert live.most <= live.before + room + (name == "beside") * live.before
        assert room < live.before / 2
        most[name], held[name] = live.most / live.before, live.bytes / live.before
        del form
    assert most["beside"] > held["beside"] > 1.6
    assert held["in place"] < 1.1
    assert most["in place"] < 1.5


def test_where_there_is_no_room_the_module_stays_and_the_reason_is_kept(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[torch.device, int]] = []
    monkeypatch.setattr(forward, "has_room", lambda *given: asked.append(given))
    assert briefly_prepared(engine) is None
    form = graph_slots(engine).forward(engine.pair.target)
    assert isinstance(form, ModuleStatic)
    assert form.reason == "0.0 GiB more memory would be needed to make the native model of target"
    assert asked == [(torch.device("cpu"), reading_bytes(model.hf.module)) for model in models(engine)]
    assert engine.pair.target.hf.loaded is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine.pair.target.hf, "_load", None)
        asked.clear()
        static_in_place(engine.pair.target)
        whole = sum(weight.nbytes for weight in engine.pair.target.hf.module.parameters())
        assert asked == [(torch.device("cpu"), whole + reading_bytes(engine.pair.target.hf.module))]


def test_why_the_slower_way_is_taken_is_reported_when_a_pair_is_loaded(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("decoder.run.decoding_path.has_graphs", lambda _: True)
    monkeypatch.setattr(loading, "TRIED", FEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "has_room", lambda *_: False)
        loading.try_rounds(engine, said.append)
    reason = "0.0 GiB more memory would be needed to make the native model of"
    assert said[1:] == [
        f"graphs run through a Hugging Face module, which is slower: target: {reason} target; draft: {reason} draft"
    ]
    said.clear()
    fresh = replace(engine, slots=GraphSlots())
    loading.try_rounds(fresh, said.append)
    assert said == ["testing rounds on the device"]


# Refused device rounds


def broken_after(count: int) -> Any:
    """A replacement for `forward.empty` that runs out of memory at the layer with number `count`."""
    right, seen = forward.empty, list[object]()

    def empty(layer: Any) -> None:
        right(layer)
        seen.append(layer)
        if len(seen) == count:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    return empty


@pytest.mark.parametrize("layers", [1, 2, 3], ids=["target's first", "target's last", "draft's first"])
def test_a_form_that_cannot_be_made_leaves_the_modules(
    engine: Engine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, layers: int
) -> None:
    monkeypatch.setattr(forward, "empty", broken_after(layers))
    assert briefly_prepared(engine) == "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert all(isinstance(model.runs_by, ModuleForward) for model in models(engine))
    assert not any(graph_slots(engine).forms.get(model) for model in models(engine))
    expected = tiny_models.generate(tiny_models.pair("neox"), "float32", PROMPT, 20)
    assert texts(engine, ("ar", "hf", "alg1")) == dict.fromkeys(("ar", "hf", "alg1"), expected)


def test_rounds_that_fail_leave_the_modules_and_no_seats(
    engine: Engine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "refusal", lambda *_: graph_slots(engine).take(engine.pair, 20) and "they do not run")
    assert briefly_prepared(engine) == "they do not run"
    assert graph_slots(engine)._free == []
    assert graph_slots(engine).forms == {}
    assert texts(engine, ("ar",))["ar"] == tiny_models.generate(tiny_models.pair("neox"), "float32", PROMPT, 20)


def test_what_was_made_is_gone_before_modules_come_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    forms: list[weakref.ref[Any]] = []
    right = HfModule.load

    def refuse(_: object, slots: GraphSlots, *__: object) -> str:
        forms.extend(weakref.ref(slots.forward(model)) for model in models(engine))
        return "they do not run"

    def loaded(module: HfModule, device: torch.device) -> Any:
        assert [form() for form in forms] == [None, None]
        assert released
        return right(module, device)

    released: list[torch.device] = []
    monkeypatch.setattr(trial, "release_memory", released.append)
    monkeypatch.setattr(trial, "refusal", refuse)
    monkeypatch.setattr(HfModule, "load", loaded)
    assert briefly_prepared(engine) == "they do not run"
    assert len(forms) == 2


# Accepted and refused forms


@pytest.fixture
def half(tiny_models: TinyModels, _as_on_cuda: None) -> Engine:
    return replace(fresh(tiny_models, "neox", "bfloat16"), slots=GraphSlots(graphs=False))


def scored(*rows: tuple[float, ...]) -> Reference:
    return Reference((1,), (0,) * len(rows), torch.tensor(rows), torch.zeros(0), Sampling())


@pytest.mark.parametrize(
    ("found", "tie"),
    [((1, 5, 5), True), ((2, 0, 0), False), ((0, 1, 0), False), ((0, 0, 1), True), ((0, 0), False)],
)
def test_only_the_first_token_that_differs_is_judged_by_its_score(found: tuple[int, ...], *, tie: bool) -> None:
    right = scored((4.0, 3.9, 3.0), (4.0, 3.0, 3.9), (4.0, 3.9, 3.0))
    assert right.tie(found, 0.06) is tie


def altered(patch: pytest.MonkeyPatch, change: Any, rules: list[Rules | None] | None = None) -> list[object]:
    """Patches the trial so that `change` alters the device's texts; returns the list of their prompts."""
    right, prompts = trial._text, list[object]()

    def text(session: Any) -> Any:
        found = list(right(session))
        if type(session).__name__ != "GraphSession":
            return found
        prompts.append(tuple(session.text[:6]))
        return change(found, prompts[-1])

    patch.setattr(trial, "_text", text)
    if rules:
        patch.setattr(matching, "TRIED", tuple(rules))
    return prompts


def test_a_near_tie_is_no_fault_and_another_prompt_is_tried(half: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = {each.prompt: each for each in trial.references(half.pair) if each.sampling.greedy}

    def second(found: list[int], prompt: Any) -> list[int]:
        """Replaces the third token of the text after the first prompt."""
        return [*found[:2], found[2] + 1, *found[3:]] if prompt == trial.PROMPTS[0] else found

    monkeypatch.setattr(trial, "_error", lambda *_: (0.01, 20.0))
    prompts = altered(monkeypatch, second, [None])
    token = right[trial.PROMPTS[0]].text[2]
    near = right[trial.PROMPTS[0]].target.clone()
    near[7, token + 1] = near[7, token] - 1e-3
    references = [replace(right[trial.PROMPTS[0]], target=near), *list(right.values())[1:]]
    assert refused(half, references) is None
    assert prompts == list(trial.PROMPTS[:2])
    far = near.clone()
    far[7, token + 1] = far[7, token] - 5.0
    assert "instead of" in (refused(half, [replace(references[0], target=far), *references[1:]]) or "")


def test_a_tie_is_as_near_as_the_logits_are_off(half: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[float] = []

    def never(_: object, __: object, error: float) -> bool:
        errors.append(error)
        return False

    monkeypatch.setattr(Reference, "tie", never)
    altered(monkeypatch, lambda found, _: [found[0] + 1, *found[1:]], [None])
    right = trial.references(half.pair)
    assert "instead of" in (refused(half, right) or "")
    off, largest = trial._error(half.pair, graph_slots(half), half.pair.target, right, [each.target for each in right])
    assert errors == [max(off, largest * torch.finfo(torch.bfloat16).eps)]
    assert errors[0] < 0.05 * largest


@pytest.mark.parametrize("role", ["target", "draft"])
def test_forms_whose_logits_are_far_off_are_refused_whatever_they_write(
    half: Engine, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    right, form = (
        NativeModel.computed,
        graph_slots(half).forward(half.pair.target if role == "target" else half.pair.draft_model),
    )

    def off(self: NativeModel, *given: Any) -> Tensor:
        logits = right(self, *given)
        return logits * 1.3 if self is form else logits

    monkeypatch.setattr(NativeModel, "computed", off)
    assert (refused(half) or "").startswith(f"the {role}'s logits differ by ")
    monkeypatch.setattr(NativeModel, "computed", lambda self, *given: right(self, *given) * torch.nan)
    assert (refused(half) or "").startswith("the target's logits differ by nan")


# Benchmark pairs with random weights


@pytest.fixture
def _as_if_it_had_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "has_graphs", lambda _: True)
    monkeypatch.setattr(loading, "TRIED", FEW)


@pytest.fixture
def config(tiny_models: TinyModels, tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text((tiny_models.pair("neox").target / "config.json").read_text(encoding="utf-8"), encoding="utf-8")
    return str(path)


@pytest.mark.usefixtures("_as_on_cuda", "_as_if_it_had_graphs")
def test_random_weights_are_tried_and_held_once(config: str) -> None:
    said: list[str] = []
    pair = shapes.random_pair(config, config, device="cpu", dtype="bfloat16", report=said.append)
    assert "testing rounds on the device" in said
    assert graph_slots(pair).refused is None
    assert all(graph_slots(pair).forms.get(model) and model.hf.loaded is None for model in models(pair))


@pytest.mark.usefixtures("_as_on_cuda", "_as_if_it_had_graphs")
def test_random_weights_come_back_as_they_were(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "prepare_rounds", lambda *_: None)
    pair = shapes.random_pair(config, config, device="cpu", dtype="bfloat16")
    for model in models(pair):
        again = dict(model.hf.load(torch.device("cpu")).named_parameters())
        assert all(torch.equal(weight, again[name]) for name, weight in model.hf.loaded.named_parameters())


def test_random_weights_are_made_on_one_device_wherever_they_are_wanted() -> None:
    asked: list[torch.device] = []

    def make(device: torch.device) -> Any:
        asked.append(device)
        return torch.nn.Linear(1, 1)

    made = shapes._made_on(torch.device("cpu"), make)(torch.device("meta"))
    assert asked == [torch.device("cpu")]
    assert made.weight.is_meta


@pytest.mark.usefixtures("_as_on_cuda", "_as_if_it_had_graphs")
def test_a_capture_that_fails_leaves_a_benchmark_of_random_weights_to_the_host(
    config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    said: list[str] = []
    monkeypatch.setattr("decoder.session.cuda_graph.slots.captured", fail)
    pair = shapes.random_pair(config, config, device="cpu", dtype="float32", report=said.append)
    assert graph_slots(pair).refused == "operation not permitted when stream is capturing"
    assert str(graph_slots(pair).refused) in said[-1]
    assert all(isinstance(model.runs_by, ModuleForward) for model in models(pair))


@pytest.mark.usefixtures("_as_on_cuda", "_as_if_it_had_graphs")
def test_a_random_draft_takes_the_place_of_its_module_and_the_target_keeps_its_form(tiny_models: TinyModels) -> None:
    saved, forms = tiny_models.pair("neox"), list[Any]()
    right = static_in_place

    def noted(model: LanguageModel) -> Any:
        forms.append(model.name)
        return right(model)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial, "static_in_place", noted)
        pair = shapes.loaded_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32")
    assert forms == ["target", "draft", "draft (random head)"]
    assert all(graph_slots(pair).forms.get(model) and model.hf.loaded is None for model in models(pair))
    assert play(pair, RunConfig(("linear", "ar"), 30)).figures("linear").identical_to_ar


@pytest.mark.usefixtures("_as_on_cuda", "_as_if_it_had_graphs")
def test_a_random_draft_of_a_refused_pair_is_not_tried(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Engine] = []
    monkeypatch.setattr(trial, "prepare_rounds", lambda pair, *_: asked.append(pair) or "it does not")  # type: ignore[func-returns-value]
    saved = tiny_models.pair("neox")
    pair = shapes.loaded_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32")
    assert (len(asked), graph_slots(pair).refused) == (1, "it does not")
