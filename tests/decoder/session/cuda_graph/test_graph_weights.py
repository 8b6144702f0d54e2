"""Weights are in memory once: static forms replace the modules, or the modules stay and the reason is reported."""

import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.forward import static_forward as forward
from decoder.forward.families import registry
from decoder.forward.families.native import NativeModel
from decoder.forward.hf import ModuleForward, source_of
from decoder.forward.hf_module import HfModule
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import static_forward, static_in_place
from decoder.forward.static_hf import ModuleStatic
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run import loading
from decoder.session.cuda_graph import self_test
from decoder.session.cuda_graph.self_test import prepare_rounds
from decoder.session.cuda_graph.slots import GraphSlots
from dynatui.lab.bench import shapes
from dynatui.lab.bench.contenders import shape
from dynatui.lab.bench.machine import read_bytes
from tests import tiny
from tests.decoder.live_tensors import Live
from tests.decoder.makers import METHODS, PROMPT, TinyModels, graph_slots, play
from tests.decoder.session.cuda_graph.matching import match, prepared, recorded

FEW = (None, Linear(2))
"""Rules of tests that are not about the rules."""
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _as_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models run as Hugging Face modules, as on devices other than a CPU."""
    monkeypatch.setattr("decoder.models.checkpoints._on_device", lambda model: model)
    monkeypatch.setattr("decoder.forward.language_model.native_on_cpu", lambda *_: None)


Fresh = Callable[..., Engine]


@pytest.fixture
def fresh(tiny_models: TinyModels) -> Fresh:
    """Loads a new pair, which the test may modify."""

    def load(family: str = "neox", dtype: str = "float32") -> Engine:
        saved = tiny_models.pair(family)
        return replace(load_pair(str(saved.target), str(saved.draft), device="cpu", dtype=dtype), slots=GraphSlots())

    return load


@pytest.fixture
def engine(fresh: Fresh) -> Engine:
    return fresh()


@pytest.fixture
def greedy(tiny_models: TinyModels) -> Callable[..., list[int]]:
    """The text of transformers' plain greedy search."""
    return lambda family="neox": tiny_models.generate(tiny_models.pair(family), "float32", PROMPT, 20)


def briefly_prepared(engine: Engine) -> str | None:
    """As `prepared`, but rounds are tested with few rules."""
    return prepare_rounds(engine.pair, graph_slots(engine), FEW)


def reading_bytes(module: Any) -> int:
    source = source_of(module)
    assert source is not None
    return registry.reading_bytes(source.architecture, module.dtype)


def models(engine: Engine) -> list[LanguageModel]:
    return [engine.pair.target, engine.pair.draft_model]


def loaded(engine: Engine) -> list[bool]:
    """Whether the modules of target and draft are in memory."""
    return [model.hf.loaded is not None for model in models(engine)]


def texts(engine: Engine, methods: tuple[str, ...] = METHODS) -> dict[str, list[int]]:
    played = play(engine, RunConfig(methods, 20, dynatree=DynaTree()))
    return {name: played.tokens(name) for name in methods}


# Device rounds


@pytest.mark.parametrize(("family", "dtype"), [("neox", "float32"), ("llama", "bfloat16"), ("neox-strange", "float16")])
def test_a_pair_that_decodes_on_the_device_holds_its_weights_once_and_knows_their_shapes_and_bytes(
    fresh: Fresh, family: str, dtype: str
) -> None:
    pair = fresh(family, dtype)
    assert loaded(pair) == [True, True]
    before = [(read_bytes(model), shape(model.hf.skeleton)) for model in models(pair)]
    assert prepared(pair) is None
    assert [(read_bytes(model), shape(model.hf.skeleton)) for model in models(pair)] == before
    assert loaded(pair) == [False, False]
    assert all(isinstance(graph_slots(pair).forward(model), NativeModel) for model in models(pair))
    assert all(isinstance(model.runs_by, NativeModel) for model in models(pair))


def test_everything_that_the_host_drives_runs_by_the_same_weights_and_what_needs_a_module_loads_it(
    engine: Engine, tiny_models: TinyModels, greedy: Callable[..., list[int]]
) -> None:
    assert briefly_prepared(engine) is None
    without_modules = tuple(name for name in METHODS if name != "hf")
    assert texts(engine, without_modules) == dict.fromkeys(without_modules, greedy())
    assert loaded(engine) == [False, False]
    match(recorded(engine), tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), 30, DynaTree())
    assert texts(engine, ("ar", "hf"))["hf"] == greedy()
    assert loaded(engine)[0]
    for model in models(engine):
        model.slim()
    assert loaded(engine) == [False, False]


def test_a_module_that_cannot_be_loaded_again_stays_as_it_is() -> None:
    module = tiny.build(tiny.FAMILIES["neox"](), seed=1)
    model = LanguageModel.of_module(module, "tiny")
    before = {name: weight.clone() for name, weight in module.named_parameters()}
    assert isinstance(static_in_place(model), NativeModel)
    model.slim()
    assert model.hf.module is module
    assert isinstance(model.runs_by, ModuleForward)
    assert all(torch.equal(weight, before[name]) for name, weight in module.named_parameters())


# Memory


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


def test_where_there_is_no_room_the_module_stays_and_the_reason_is_reported(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, said = list[tuple[torch.device, int]](), list[str]()
    monkeypatch.setattr("decoder.run.decoding_path.has_graphs", lambda _: True)
    monkeypatch.setattr(loading, "TRIED", FEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "has_room", lambda *given: asked.append(given))
        loading.try_rounds(engine, said.append)
        module = engine.pair.target.hf.module
        assert asked == [(CPU, reading_bytes(model.hf.module)) for model in models(engine)]
        asked.clear()
        patch.setattr(engine.pair.target.hf, "_load", None)  # the module cannot be loaded again
        static_in_place(engine.pair.target)
        assert asked == [(CPU, sum(weight.nbytes for weight in module.parameters()) + reading_bytes(module))]
    reason = "0.0 GiB more memory would be needed to make the native model of"
    assert said[1:] == [
        f"CUDA graphs run a Hugging Face module, which is slower: target: {reason} target; draft: {reason} draft"
    ]
    assert isinstance(graph_slots(engine).forward(engine.pair.target), ModuleStatic)
    assert loaded(engine) == [True, True]
    loading.try_rounds(replace(engine, slots=GraphSlots()), said.append)
    assert said[2:] == ["testing rounds on the device"]


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
    engine: Engine, monkeypatch: pytest.MonkeyPatch, greedy: Callable[..., list[int]], layers: int
) -> None:
    monkeypatch.setattr(forward, "empty", broken_after(layers))
    assert briefly_prepared(engine) == "CUDA out of memory. Tried to allocate 2.00 GiB"
    assert all(isinstance(model.runs_by, ModuleForward) for model in models(engine))
    assert not any(graph_slots(engine).forms.get(model) for model in models(engine))
    assert texts(engine, ("ar", "hf", "alg1")) == dict.fromkeys(("ar", "hf", "alg1"), greedy())


def test_rounds_that_fail_leave_no_seats_and_what_was_made_is_gone_before_modules_come_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, greedy: Callable[..., list[int]]
) -> None:
    forms, released = list[weakref.ref[Any]](), list[torch.device]()
    right = HfModule.load

    def refuse(_: object, slots: GraphSlots, *__: object) -> str:
        forms.extend(weakref.ref(slots.forward(model)) for model in models(engine))
        slots.take(engine.pair, 20)
        return "they do not run"

    def load(module: HfModule, device: torch.device) -> Any:
        assert [form() for form in forms] == [None, None]
        assert released
        return right(module, device)

    monkeypatch.setattr(self_test, "release_memory", released.append)
    monkeypatch.setattr(self_test, "refusal", refuse)
    monkeypatch.setattr(HfModule, "load", load)
    assert briefly_prepared(engine) == "they do not run"
    assert len(forms) == 2
    assert (graph_slots(engine)._free, graph_slots(engine).forms) == ([], {})
    assert texts(engine, ("ar",))["ar"] == greedy()


# Benchmark pairs with random weights


@pytest.fixture
def _as_if_it_had_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "has_graphs", lambda _: True)
    monkeypatch.setattr(loading, "TRIED", FEW)


GRAPHS = pytest.mark.usefixtures("_as_if_it_had_graphs")


@GRAPHS
def test_a_random_draft_takes_the_place_of_its_module_and_the_target_keeps_its_form(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved, forms = tiny_models.pair("neox"), list[str]()
    monkeypatch.setattr(
        self_test,
        "static_in_place",
        lambda model: forms.append(model.name) or static_in_place(model),  # type: ignore[func-returns-value]
    )
    pair = shapes.loaded_pair(str(saved.target), str(saved.draft), device="cpu", dtype="float32")
    assert forms == ["target", "draft", "draft (random head)"]
    assert loaded(pair) == [False, False]
    assert all(graph_slots(pair).forms.get(model) for model in models(pair))
    assert play(pair, RunConfig(("linear", "ar"), 30)).figures("linear").identical_to_ar
