"""The listed pass sizes, which are compiled, include the rows of all passes of a session and few others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from decoder import load_pair
from decoder.engine import Engine
from decoder.forward.families.native import NativeModel
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run import loading
from decoder.run.config import RunConfig
from decoder.run.loading import passes_of
from decoder.session.cuda_graph import compiled, self_test
from decoder.session.cuda_graph.static_shapes import Passes, passes
from decoder.tree_rules import Rules, tree_rule
from dynatui.lab.bench import job, shapes
from dynatui.lab.bench.job import OnRounds, OnTexts, measure_rounds, measure_texts
from dynatui.lab.bench.shapes import Size
from tests.decoder.makers import PROMPT, TinyModels, graph_slots
from tests.decoder.session.cuda_graph.matching import Devices, rounds_of
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes

EVERY: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "fixed": Fixed(depth=3, branching=2),
    "paper": DynaTree(),
    "best": DynaTree(selection="best", n_max=9),
    "automatic": WIDE,
}


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


def test_a_tree_of_sixty_four_rows_has_its_own_widths() -> None:
    found = shapes.passes(RunConfig(), [Size(8, 64)])
    assert found == Passes(draft=(2, 8, 64), target=(1, 64))


def test_all_sizes_of_a_measurement_are_listed_once() -> None:
    found = shapes.passes(RunConfig(), [Size(1, 2), Size(2, 4), Size(4, 16), Size(8, 64)])
    assert found.target == (1, 8, 32, 64)
    assert found.draft == (2, 4, 8, 16, 64)


def test_a_tree_that_the_device_does_not_hold_is_not_listed() -> None:
    assert shapes.passes(RunConfig(), [Size(2, 600)]) == Passes((), (1,))
    assert passes([replace(WIDE, window=64).rule()]) == Passes((), (1,))


def test_the_paper_s_rules_ask_for_few_sizes() -> None:
    assert passes([DynaTree().rule()]) == Passes((2, 3, 9, 16), (1, 8, 32, 64))


def test_a_chain_is_verified_in_one_size() -> None:
    assert passes([Linear(5).rule()]) == Passes((1, 2), (1, 8))


def test_a_run_compiles_for_its_own_methods_alone() -> None:
    config = RunConfig(("ar", "linear", "hf"), linear=Linear(2), fixed=Fixed(depth=5, branching=9))
    assert passes_of(config) == passes([None, Linear(2).rule()])
    assert passes_of(replace(config, methods=("ar",))) == Passes((), (1,))


# Requests for compilation


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Passes]:
    """Passes requested for compilation; checks for graphs and compilers are patched so that they succeed."""
    found: list[Passes] = []
    monkeypatch.setattr(compiled, "compile_pair", lambda *given: found.append(given[-1]))
    monkeypatch.setattr(self_test, "prepare_rounds", lambda *_: None)
    monkeypatch.setattr(loading, "has_graphs", lambda _: True)
    for module in (loading, shapes):
        monkeypatch.setattr(module, "require_compilable", lambda *_, **__: None)
    return found


class LoadedError(Exception):
    """Ends a measurement once the pair is loaded."""


@pytest.fixture
def _not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise LoadedError

    monkeypatch.setattr(job, "_measured", stop)


def test_a_pair_is_compiled_for_what_it_is_loaded_for(tiny_models: TinyModels, asked: list[Passes]) -> None:
    pair, wanted = tiny_models.pair("neox"), Passes((2,), (1, 8))
    for given in (wanted, None):
        load_pair(str(pair.target), str(pair.draft), device="cpu", dtype="float32", compiled=True, passes=given)
    assert asked == [wanted, passes_of(RunConfig())]


@pytest.mark.usefixtures("_not_measured")
def test_a_measurement_of_texts_compiles_for_its_contenders(tiny_models: TinyModels, asked: list[Passes]) -> None:
    pair = tiny_models.pair("neox")
    rules: tuple[Rules, ...] = (DynaTree(), Linear(2), Linear(9), Fixed(2, 2))
    with pytest.raises(LoadedError):
        measure_texts(
            OnTexts(
                prompts=(PROMPT,),
                config=RunConfig(max_new_tokens=4),
                methods=("dynatree", "linear", "fixed"),
                settings={
                    "dynatree": {"": DynaTree()},
                    "linear": {"2": Linear(2), "9": Linear(9)},
                    "fixed": {"2x2": Fixed(2, 2)},
                },
                target=str(pair.target),
                draft=str(pair.draft),
                device="cpu",
                dtype="float32",
                compiled=True,
            ),
            lambda _: None,
        )
    assert asked == [passes((None, *(each.rule() for each in rules)))]


@pytest.mark.usefixtures("_not_measured")
@pytest.mark.parametrize("random", [True, False], ids=["shapes", "loaded"])
def test_a_measurement_of_rounds_compiles_for_its_sizes(
    tiny_models: TinyModels, asked: list[Passes], tmp_path: Path, *, random: bool
) -> None:
    pair, config = tiny_models.pair("neox"), tmp_path / "config.json"
    config.write_text((pair.target / "config.json").read_text(encoding="utf-8"), encoding="utf-8")

    def load(**given: Any) -> Engine:
        make = shapes.random_pair if random else shapes.loaded_pair
        names = (str(config),) * 2 if random else (str(pair.target), str(pair.draft))
        return make(*names, device="cpu", dtype="float32", compiled=True, **given)

    wanted, run = (Size(1, 2), Size(3, 12)), RunConfig(max_new_tokens=4)
    with pytest.raises(LoadedError):
        measure_rounds(OnRounds(load, wanted, (16,), run), lambda _: None)
    assert asked == [shapes.passes(run, wanted)]
