"""Compiled passes are kept only if they are correct and faster, and no round waits for the compiler; the listed pass
sizes, which are compiled, include the rows of all passes of a session and few others.
"""

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from decoder import load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import StaticForward, static_forward
from decoder.forward.static_hf import ModuleStatic
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.models.pair import Pair
from decoder.run import loading
from decoder.run.config import RunConfig
from decoder.run.loading import passes_of
from decoder.session.cuda_graph import compiled as contest
from decoder.session.cuda_graph import pass_comparison, self_test
from decoder.session.cuda_graph.compiled import Compile, Compiled, Pass, by_torch
from decoder.session.cuda_graph.pass_comparison import compared, example
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import Passes, passes
from decoder.system.device import without_gradients
from decoder.tree_rules import tree_rule
from dynatui.lab.bench import job, rounds, shapes
from dynatui.lab.bench.job import OnRounds, measure_rounds
from dynatui.lab.bench.rounds import Size
from tests import tiny
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.session.cuda_graph import matching
from tests.decoder.session.cuda_graph.matching import (
    METHODS,
    WIDE,
    Devices,
    RandomSizes,
    compiled,
    match,
    recorded,
    rounds_of,
    with_slots,
)

RULES = DynaTree(selection="best", n_max=7)
PASSES = passes([None, RULES.rule()])
NOTHING_NEW: Compile = lambda function: function  # noqa: E731 - the variable has a type annotation


class Compiler:
    """Traces passes as `torch.compile` does, without generating kernels; counts traced graphs and their runs."""

    def __init__(self) -> None:
        self.made: list[torch.fx.GraphModule] = []
        self.runs = 0

    def __call__(self, function: Pass) -> Pass:
        return torch.compile(function, fullgraph=True, dynamic=False, backend=self._made)

    def _made(self, graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        self.made.append(graph)

        def run(*given: Tensor) -> Any:
            self.runs += 1
            return graph(*given)

        return run


def told(engine: Engine, compile_pass: Compile) -> list[str]:
    lines: list[str] = []
    compiled(engine, lines.append, PASSES, compile_pass)
    return [line for line in lines if "compiling" not in line]


def forms(engine: Engine) -> list[type]:
    return [type(graph_slots(engine).forward(model)) for model in (engine.pair.draft_model, engine.pair.target)]


@pytest.fixture
def _pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled passes are kept at any speed, and tested with few rules."""
    monkeypatch.setattr(pass_comparison, "PAYS", float("inf"))
    monkeypatch.setattr(matching, "TRIED", (None, RULES))


# Compiled passes


def by_module(model: LanguageModel) -> StaticForward:
    return ModuleStatic(model.hf.module)


@pytest.mark.parametrize(
    ("family", "form_of"),
    [("neox", static_forward), ("half-windows", static_forward), ("half-windows", by_module)],
)
def test_a_compiled_pass_is_that_of_plain_calls_with_the_keys_and_values_that_it_leaves(
    tiny_models: TinyModels, family: str, form_of: Callable[[LanguageModel], StaticForward]
) -> None:
    plain = form_of(tiny_models.engine(family, "float64").pair.target)
    form = Compiled(plain, lambda function: torch.compile(function, fullgraph=True, dynamic=False, backend="aot_eager"))
    form.compile([3])
    for length in (0, 7, 250, 600):
        given, same = example(form, 3, length), example(plain, 3, length)
        with without_gradients():
            assert torch.allclose(form.computed(*given), plain.computed(*same), atol=1e-12)
        assert torch.allclose(given[0], same[0], atol=1e-12)
        assert bool(given[0].any())


def test_a_compiler_does_not_see_how_a_store_is_written(tiny_models: TinyModels) -> None:
    """A compiler that saw the write would make and copy a whole new store in every layer."""
    model = tiny_models.engine("neox", "float64").pair.target
    for plain in (ModuleStatic(model.hf.module), static_forward(model)):
        compiler = Compiler()
        Compiled(plain, compiler).compile([2])
        called = [str(node.target) for node in compiler.made[0].graph.nodes]
        assert called.count("decoder.write.default") + called.count("decoder.write") == model.layers
        assert not [name for name in called if "index_copy" in name or "index_put" in name]


@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "sequential"])
@pytest.mark.parametrize(("dtype", "far"), [("float64", 1e-13), ("float32", 1e-5), ("bfloat16", 0.3), ("float16", 0.1)])
def test_layers_for_a_compiler_compute_what_the_native_ones_do(dtype: str, far: float, parallel: bool) -> None:  # noqa: FBT001 - a test parameter
    module = tiny.build(tiny.FAMILIES["neox"](use_parallel_residual=parallel), seed=4).to(getattr(torch, dtype))
    native = static_forward(LanguageModel.of_module(module, "neox"))
    assert isinstance(native, NativeModel)
    given, same = example(native, 5, 20), example(native, 5, 20)
    with without_gradients():
        right, found = native.computed(*given), native.for_a_compiler().computed(*same)
    assert float((right - found).abs().max()) < far
    assert float((given[0] - same[0]).abs().max()) < far
    assert float(right.abs().max()) > 10 * far


@pytest.mark.usefixtures("_pays")
def test_rounds_in_any_thread_run_through_what_was_compiled_and_never_wait_for_more(tiny_models: TinyModels) -> None:
    pair, compiler = with_slots(tiny_models.engine("neox-strange", "float64")), Compiler()
    told(pair, compiler)
    assert forms(pair) == [Compiled, Compiled]
    made, runs, asked = len(compiler.made), compiler.runs, [0]
    right = Compiled.computed

    def counted(form: Compiled, *given: Tensor) -> Tensor:
        asked[0] += len(given[1]) in form._sizes
        return right(form, *given)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor() as others:
        patch.setattr(Compiled, "computed", counted)
        others.submit(match, pair, [1, 2, 3, 4], 40, RULES).result()
    assert asked[0] > 40  # a round has several passes
    assert (len(compiler.made), compiler.runs - runs) == (made, asked[0])


@pytest.mark.usefixtures("_pays")
def test_rounds_of_compiled_forms_are_repeated_from_records(tiny_models: TinyModels) -> None:
    pair = recorded(tiny_models.engine("neox", "float64"))
    told(pair, NOTHING_NEW)
    assert forms(pair) == [Compiled, Compiled]
    match(pair, [1, 2, 3, 4], 40, RULES)


@pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler, which torch compiles for a CPU with")
@pytest.mark.filterwarnings("ignore")
def test_torch_s_own_compiler_computes_the_same(tiny_models: TinyModels) -> None:
    plain = static_forward(tiny_models.engine("neox-strange", "bfloat16").pair.draft_model)
    form = Compiled(plain, by_torch)
    form.compile([2])
    assert compared(plain, form, [2], GraphSlots())


# Kept forms


class Slow:
    """A form whose passes sleep, unless they are compiled by `quick`."""

    def __init__(self, plain: Any) -> None:
        self.new_store, self.rotation, self.quick = plain.new_store, plain.rotation, plain.computed
        self.windows = plain.windows

    def computed(self, *given: Tensor) -> Tensor:
        time.sleep(0.002)
        return self.quick(*given)  # type: ignore[no-any-return]


def quick(function: Any) -> Pass:
    found: Pass = function.__self__.quick
    return found


def slower(function: Any) -> Pass:
    return lambda *given: time.sleep(0.002) or function(*given)  # type: ignore[func-returns-value]


def off(function: Any) -> Pass:
    right = quick(function)
    return lambda *given: right(*given) * 1.001


def broken(_: Any) -> Pass:
    raise ImportError("there is no triton\nand more about it")


@pytest.fixture
def slow(tiny_models: TinyModels) -> Engine:
    engine = with_slots(tiny_models.engine("neox", "float64"))
    for model in (engine.pair.draft_model, engine.pair.target):
        graph_slots(engine).forms[model] = Slow(static_forward(model))
    return engine


@pytest.mark.parametrize(
    ("compile_pass", "line", "form"),
    [
        (quick, "compiled {role}: takes {share} x the time of uncompiled passes, so it is kept", Compiled),
        (slower, "compiled {role}: takes {share} x the time of uncompiled passes, so it is not kept", Slow),
        (off, "compiled {role}: not used, since its logits differ from those of uncompiled passes", Slow),
        (broken, "the {role} was not compiled: there is no triton", Slow),
    ],
)
def test_a_compiled_form_is_kept_if_it_is_faster_and_right(
    slow: Engine, compile_pass: Compile, line: str, form: type
) -> None:
    lines = told(slow, compile_pass)
    shares = [found.partition(" x ")[0].rpartition(" ")[2] for found in lines]
    assert lines == [
        line.format(role=role, share=share) for role, share in zip(("draft", "target"), shares, strict=True)
    ]
    assert forms(slow) == [form, form]


def test_where_texts_come_out_otherwise_all_is_as_before(slow: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "rounds on the device wrote the tokens [1] instead of [2]"
    monkeypatch.setattr(contest, "refusal", lambda *_: wrong)
    assert told(slow, quick)[-1] == f"compiled passes are not used: {wrong}"
    assert forms(slow) == [Slow, Slow]


def test_the_smallest_and_the_largest_are_tried_and_all_are_compiled_where_that_pays(
    slow: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[tuple[int, ...]] = []
    right = pass_comparison.compared

    def noted(plain: Any, form: Compiled, sizes: Any, graph_slots: GraphSlots) -> Any:
        tried.append(tuple(sorted(form._sizes)))
        return right(plain, form, sizes, graph_slots)

    monkeypatch.setattr(contest, "compared", noted)
    compiled(slow, lambda _: None, Passes((2, 3, 5), (1, 4, 8, 16)), quick)
    assert tried == [(2, 5), (1, 16)]
    kept: list[Any] = [graph_slots(slow).forward(model) for model in (slow.pair.draft_model, slow.pair.target)]
    assert [form._sizes for form in kept] == [{2, 3, 5}, {1, 4, 8, 16}]


def test_a_draft_that_no_round_runs_is_not_compiled(slow: Engine) -> None:
    lines: list[str] = []
    compiled(slow, lines.append, passes([None]), quick)
    assert [line.split(":")[0] for line in lines] == ["compiling the target", "compiled target"]


# Sizes


EVERY = METHODS | {"automatic": WIDE}


@pytest.mark.parametrize("name", EVERY)
def test_all_passes_of_a_text_s_rounds_are_listed(devices: Devices, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = devices.plain(dtype="float32")
    session = devices.begun(engine, EVERY[name], 60, RandomSizes(3, plain=0.0) if EVERY[name] is WIDE else None)
    forms: dict[Any, set[int]] = {
        graph_slots(engine).forward(model): set() for model in (engine.pair.draft_model, engine.pair.target)
    }
    draft, target = forms.values()
    right = NativeModel.computed

    def noted(form: NativeModel, *given: Tensor) -> Tensor:
        forms[form].add(len(given[1]))
        return right(form, *given)

    monkeypatch.setattr(NativeModel, "computed", noted)
    rounds_of(session)
    listed = passes([tree_rule(EVERY[name])])
    assert draft <= set(listed.draft)
    assert target <= set(listed.target)
    assert bool(draft) == bool(listed.draft)


@pytest.mark.parametrize(
    ("sizes", "draft", "target"),
    [
        ([Size(8, 64)], (2, 8, 64), (1, 64)),
        ([Size(1, 2), Size(2, 4), Size(4, 16), Size(8, 64)], (2, 4, 8, 16, 64), (1, 8, 32, 64)),
        ([Size(2, 600)], (), (1,)),  # a tree that the device does not hold
        ([replace(WIDE, window=64)], (), (1,)),
        ([DynaTree()], (2, 3, 9, 16), (1, 8, 32, 64)),
        ([Linear(5)], (1, 2), (1, 8)),
    ],
    ids=str,
)
def test_the_sizes_of_a_measurement_or_of_rules_are_few_and_listed_once(
    sizes: Any, draft: tuple[int, ...], target: tuple[int, ...]
) -> None:
    of_sizes = isinstance(sizes[0], Size)
    found = rounds.sized_passes(RunConfig(), sizes) if of_sizes else passes(rules.rule() for rules in sizes)
    assert found == Passes(draft, target)


def test_a_run_compiles_for_its_own_methods_alone() -> None:
    config = RunConfig(("ar", "linear", "hf"), linear=Linear(2), fixed=Fixed(depth=5, branching=9))
    assert passes_of(config) == passes([None, Linear(2).rule()])
    assert passes_of(replace(config, methods=("ar",))) == Passes((), (1,))


# Requests for compilation


class LoadedError(Exception):
    """Ends a measurement once the pair is loaded."""


Asked = tuple[Pair, Passes]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Asked]:
    """Pairs and passes requested for compilation; checks for graphs and compilers are patched so that they succeed.
    Nothing is measured.
    """

    def stop(*_: object) -> None:
        raise LoadedError

    found: list[Asked] = []
    monkeypatch.setattr(contest, "compile_pair", lambda pair, *given: found.append((pair, given[-1])))
    monkeypatch.setattr(self_test, "prepare_rounds", lambda *_: None)
    monkeypatch.setattr(loading, "has_graphs", lambda _: True)
    for module in (loading, shapes):
        monkeypatch.setattr(module, "require_compilable", lambda *_, **__: None)
    monkeypatch.setattr(job, "_measured", stop)
    return found


@pytest.fixture
def makers(tiny_models: TinyModels, tmp_path: Path) -> dict[str, Callable[..., Engine]]:
    """Three ways to load a pair: as saved, with a random draft, and of random weights."""
    pair, shape = tiny_models.pair("neox"), tmp_path / "config.json"
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"vocab_size": 288, "max_position_embeddings": 64}
    shape.write_text(json.dumps({"model_type": "gpt_neox"} | sizes), encoding="utf-8")
    usual: dict[str, Any] = {"device": "cpu", "dtype": "float32", "compiled": True, "exact": False}

    def made(load: Callable[..., Engine], *names: Path) -> Callable[..., Engine]:
        return lambda **given: load(*map(str, names), **usual | given)

    return {
        "saved": made(load_pair, pair.target, pair.draft),
        "random draft": made(shapes.loaded_pair, pair.target, pair.draft),
        "random weights": made(shapes.random_pair, shape, shape),
    }


KINDS = pytest.mark.parametrize("kind", ["saved", "random draft", "random weights"])


@KINDS
def test_the_passes_of_the_pair_that_decodes_are_compiled_and_nothing_unasked(
    makers: dict[str, Callable[..., Engine]], asked: list[Asked], kind: str
) -> None:
    makers[kind](compiled=False)
    assert not asked
    engine = makers[kind](passes=Passes((2,), (1, 8)))
    ((pair, wanted),) = asked
    assert pair is engine.pair
    assert wanted == Passes((2,), (1, 8))
    assert engine.pair.draft_model.name.endswith("(random head)") is (kind == "random draft")
    assert makers["random weights"](compiled=False, exact=True).exact


@KINDS
@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"device": "cpu"}, "--compile is for CUDA, but the device is cpu; leave --compile out"),
        pytest.param(
            {"device": "auto"}, "--compile is for CUDA, but the device is cpu; leave --compile out",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        ({"exact": True}, "--compile has no effect beside --exact"),
    ],
)  # fmt: skip
def test_a_cpu_and_exact_passes_are_refused_before_anything_is_read(
    makers: dict[str, Callable[..., Engine]],
    kind: str,
    given: dict[str, Any],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loading, "load_config", lambda _: pytest.fail("this may be a download"))
    monkeypatch.setattr(shapes, "_random_module", lambda *_: pytest.fail("this takes minutes"))
    with pytest.raises(ConfigError, match=line):
        makers[kind](**given)


@pytest.mark.parametrize("kind", ["random draft", "random weights"])
def test_a_measurement_of_rounds_compiles_for_its_sizes(
    makers: dict[str, Callable[..., Engine]], asked: list[Asked], kind: str
) -> None:
    wanted, run = (Size(1, 2), Size(3, 12)), RunConfig(max_new_tokens=4)
    with pytest.raises(LoadedError):
        measure_rounds(OnRounds(makers[kind], wanted, (16,), run), lambda _: None)
    assert [listed for _, listed in asked] == [rounds.sized_passes(run, wanted)]
