"""Device sessions in a whole run: methods racing, events, figures, stops and turned knobs."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from decoder import RunConfig, Steering, decode, methods
from decoder.analysis.metrics import fold
from decoder.draft.tree_size.cost_model import Costs
from decoder.engine import Engine
from decoder.events import Event, Knob, Round
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.host import HostSession
from decoder.session.steering import KnobState
from decoder.tree_rules import Rules
from tests.decoder.makers import METHODS, PROMPT, TinyModels, graph_slots, play
from tests.decoder.session.cuda_graph.matching import Devices, opened_on_device, records


@pytest.mark.usefixtures("_on_the_device")
def test_all_methods_race_and_write_the_same_text(devices: Devices) -> None:
    loaded = devices.recorded()
    played, expected = play(loaded, RunConfig(METHODS, 24)), devices.generated(24)
    for method in METHODS:
        assert played.tokens(method) == expected
        assert played.figures(method).identical_to_ar
    assert len(graph_slots(loaded)._free) == 6


@pytest.mark.usefixtures("_on_the_device")
def test_the_graphs_of_a_method_are_captured_before_its_first_round(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, steering, told = devices.recorded(), Steering(), list[str]()
    prepare = GraphSession.prepare
    monkeypatch.setattr(GraphSession, "prepare", lambda session: told.append(prepare(session)) or told[-1])  # type: ignore[func-returns-value]
    captured = dict[str, int]()
    for event in decode(loaded, PROMPT, RunConfig(("dynatree", "ar"), 24, dynatree=DynaTree()), steering):
        if isinstance(event, Round):
            captured.setdefault(event.method, records(loaded))
            assert not steering.preparing
    assert captured["dynatree"] < captured["ar"] == records(loaded)
    assert [words for words in told if words][-1] == "CUDA graphs: 1 of 1 captured"
    assert "CUDA graphs: 3 of 5 captured" in told


@pytest.mark.usefixtures("_on_the_device")
def test_figures_know_all_parts_of_a_round(devices: Devices) -> None:
    pair = devices.plain(dtype="float32")
    found = fold(decode(pair, PROMPT, RunConfig(("dynatree", "ar"), 40, dynatree=DynaTree()))).figures()
    for figures in found.values():
        assert figures.draft_s is not None
        assert figures.verify_s
        assert figures.commit_s == 0
        assert figures.host_s is not None
        assert figures.host_s >= 0
        assert figures.target_forwards == figures.rounds


@pytest.mark.usefixtures("_on_the_device")
def test_a_run_that_is_stopped_gives_all_seats_back(devices: Devices) -> None:
    pair = devices.plain(dtype="float32")
    steering, events = Steering(), list[Event]()
    for event in decode(pair, PROMPT, RunConfig(("dynatree", "ar", "linear"), 60, dynatree=DynaTree()), steering):
        events.append(event)
        steering.stopped = sum(isinstance(each, Round) for each in events) >= 4
    assert len(graph_slots(pair)._free) == 3


@pytest.mark.usefixtures("_on_the_device")
def test_a_run_that_nobody_reads_to_its_end_gives_all_seats_back(devices: Devices) -> None:
    pair = devices.plain(dtype="float32")
    run: Any = decode(pair, PROMPT, RunConfig(("dynatree", "ar"), 60, dynatree=DynaTree()))
    started = set()
    for event in run:
        if isinstance(event, Round):
            started.add(event.method)
            if len(started) == 2:
                break
    run.close()
    assert len(graph_slots(pair)._free) == 2


@pytest.mark.parametrize(
    ("device", "exact", "rules", "kind"),
    [
        ("cuda", False, None, "resident"),
        ("cuda", False, DynaTree(), "resident"),
        ("cuda", False, Auto(), "resident"),
        ("cuda", True, DynaTree(), "tree"),
        ("cuda", False, DynaTree(d_max=40), "tree"),
        ("cpu", False, DynaTree(), "tree"),
        ("cpu", False, None, "tree"),
    ],
)
def test_cuda_pairs_are_decoded_on_the_device_unless_they_must_be_exact_or_trees_are_too_large(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    exact: bool,  # noqa: FBT001 - a test parameter
    rules: Rules | None,
    kind: str,
) -> None:
    monkeypatch.setattr("decoder.session.cuda_graph.lookup_session.GraphSession", lambda *_: "resident")
    monkeypatch.setattr("decoder.engine.with_drafter", lambda *_: (None, None))
    monkeypatch.setattr("decoder.engine.HostSession", lambda *_: "tree")
    target = SimpleNamespace(device=torch.device(device))
    pair: Any = SimpleNamespace(target=target, draft=target, vocabulary=7, head=None, looks_up=False, translation=None)
    engine = Engine(pair, exact=exact, slots=GraphSlots() if device == "cuda" else None, costs={2: cast("Costs", None)})
    opened: object = engine.session([1], 8, KnobState(rules) if rules else None)
    assert opened == kind


def test_on_a_cpu_the_registry_opens_the_host_s_session(tiny_models: TinyModels) -> None:
    session = methods.METHODS["dynatree"].open(tiny_models.engine("neox"), [1, 2], RunConfig())
    assert isinstance(session, HostSession)


def test_knobs_that_are_turned_on_the_way_are_told_as_by_the_host(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = RunConfig(("dynatree",), 40, dynatree=DynaTree(window=2, eta_d=2, target_acceptance=0.4))
    told: list[list[Event]] = []
    for _ in range(2):
        steering, events = Steering(), list[Event]()
        for event in decode(devices.plain(), PROMPT, config, steering):
            events.append(event)
            if isinstance(event, Round) and event.round == 3:
                steering.turn("tau_h", 0.6)
        told.append([event for event in events if isinstance(event, Knob)])
        monkeypatch.setattr(Engine, "session", opened_on_device)
    assert told[0] == told[1]
    assert len(told[0]) > 2
