"""Graphs are few, captured once, replayed once before they are timed, and captured ahead of a growing text."""

import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from decoder.methods import METHODS
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.models.text import Pieces, TextStream
from decoder.run.lane import Lane, RaceClock
from decoder.run.steered import Pace
from decoder.session.cuda_graph import capture_guard as capturable
from decoder.session.cuda_graph import slots as slots_module
from decoder.session.cuda_graph import verify
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.slots import AHEAD, captured
from decoder.session.cuda_graph.static_shapes import Shape, levels
from decoder.session.host import HostSession
from decoder.session.steering import Steering, Turn
from decoder.system.device import Graphs, without_gradients
from decoder.tree_rules import Rules
from decoder.verify.verifier import GreedyVerifier
from tests.decoder.makers import graph_slots, host_session
from tests.decoder.session.cuda_graph.matching import Devices, begun, check, graph_session, match, records, rounds_of
from tests.decoder.session.cuda_graph.scripted_models import WIDE, RandomSizes

CPU = torch.device("cpu")


def test_trees_of_one_size_share_one_verification_for_each_number_of_levels_of_their_rule(
    devices: Devices,
) -> None:
    pair = devices.recorded()
    prompt = devices.prompt()
    for rules in (Linear(7), Fixed(depth=7, branching=1, tau=0.0), Linear(5), Fixed(depth=2, branching=2, tau=0.0)):
        assert {len(outcome.tree) for outcome in match(pair, prompt, 30, rules)} <= {1, 6, 7, 8}
    (slot,) = graph_slots(pair)._free
    levels_of_8 = [key[2] for key in slot._captured if key[0] == 8]
    assert levels_of_8 == [7, 5, 2]


@pytest.mark.parametrize(("nodes", "most"), [(1, 0), (2, 1), (8, 7), (32, 12), (264, 12)])
def test_a_verification_allows_for_the_deepest_tree_of_its_size_and_rule(nodes: int, most: int) -> None:
    assert levels(nodes, 12) == most


def test_a_graph_is_replayed_once_and_undone_before_a_round_has_it() -> None:
    log: list[str] = []

    class Logged(Graphs):
        def capture(self, work: Callable[[], None], undo: Callable[[], None]) -> Callable[[], None]:
            del work, undo
            log.append("capture")
            return lambda: log.append("replay")

    replay = captured(Logged(CPU), lambda: None, lambda: log.append("undo"))
    assert log == ["capture", "replay", "undo"]
    replay()
    assert log[3:] == ["replay"]


def test_the_host_s_waits_are_looked_for_once_a_kind_and_not_once_a_graph(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    right = capturable.refuse_waits
    monkeypatch.setattr(slots_module, "refuse_waits", lambda *given: asked.append(given) or right(*given))  # type: ignore[func-returns-value]
    pair = devices.recorded()
    for session in [devices.begun(pair, WIDE, 40, controller) for controller in [RandomSizes(3)] * 2]:
        rounds_of(session)
    assert records(pair) > 10
    assert len(asked) == 3  # a draft, a verification, a plain round


def test_other_forwards_are_looked_at_anew(devices: Devices) -> None:
    pair = devices.recorded()
    llama = replace(devices.recorded("llama"), slots=graph_slots(pair))
    match(pair, devices.prompt(), 12, Linear(2))
    match(llama, devices.prompt("llama"), 12, Linear(2))
    assert [len(kinds) for kinds in graph_slots(pair)._capturable.values()] == [2, 2]


def test_captures_wait_for_the_device_so_that_a_round_pays_for_its_own_work_alone(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    class Passed:
        def wait(self) -> None:
            log.append("wait")

    pair = devices.recorded()
    session = begun(pair, [1, 2, 3], 20, None)
    slot = session._slot
    monkeypatch.setattr(slot, "mark", Passed)
    monkeypatch.setattr(slots_module, "tried", lambda *_: log.append("try"))
    monkeypatch.setattr(slots_module, "captured", lambda *_: log.append("capture"))
    slot.verification(1, 3, 0)
    slot.verification(1, 3, 0)
    assert log == ["wait", "try", "capture", "wait"]


def test_work_runs_by_a_graph_from_its_first_use(devices: Devices) -> None:
    pair = devices.recorded()
    session = begun(pair, [1, 2, 3], 20, Linear(3))
    slot = session._slot
    assert records(pair) == 1
    with without_gradients():
        for count, nodes in enumerate((8, 64, 64, 32), 2):
            work = slot.verification(nodes, 3, 7)
            assert work in slot._captured.values()
            assert records(pair) == min(count, 3) + (nodes == 32)


@pytest.mark.parametrize("rules", [None, Linear(3), Fixed(depth=2, branching=2, tau=0.0), DynaTree(), WIDE], ids=str)
def test_before_the_first_round_all_graphs_are_captured_that_rounds_of_a_short_text_need(
    devices: Devices, rules: Rules | None
) -> None:
    pair = devices.recorded()
    session = devices.begun(pair, rules, 40, RandomSizes(3, depths=(2, 5, 6)) if rules is WIDE else None)
    while session.prepare():
        pass
    before = records(pair)
    rounds_of(session)
    assert records(pair) == before


def test_graphs_of_many_rows_are_captured_before_those_of_few(devices: Devices) -> None:
    pair = devices.recorded()
    session = begun(pair, [1, 2, 3], 20, WIDE, RandomSizes(3, plain=0))
    first, *_ = session._slot._captured
    told = []
    while progress := session.prepare():
        told.append(progress)
    keys: list[Any] = [key for key in session._slot._captured if key is not first]
    rows = [key[0].rows if isinstance(key[0], Shape) else key[0] for key in keys]
    assert rows == sorted(rows, reverse=True)
    assert {64, 8, 1} <= set(rows)
    assert told == [f"CUDA graphs: {done} of {len(keys) + 1} captured" for done in range(2, len(keys) + 2)]


def test_no_capture_counts_as_decode_time_not_even_of_a_turned_knob_s_shape(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, captures = slots_module.captured, list[float]()

    def slowly(*given: Any) -> Any:
        time.sleep(0.3)
        captures.append(0.3)
        return right(*given)

    monkeypatch.setattr(slots_module, "captured", slowly)
    pair = devices.recorded()
    session = graph_session(pair, [1, 2, 3], 30, DynaTree(n_max=6, d_max=3, d0=2))
    assert session.prefill() < 0.3
    outcomes = [session.step(()), session.step(()), session.step((Turn("n_max", 40),))]
    assert len(captures) == 3
    assert outcomes[-1].turned_before
    assert all(outcome.round_s < 0.3 for outcome in outcomes)


def test_with_idle_time_no_round_waits_for_a_capture_of_a_known_kind(devices: Devices) -> None:
    pair = devices.recorded()
    prompt = devices.prompt()
    for rules in (None, DynaTree(n_max=2)):
        match(pair, prompt, 12, rules)
    graph_slots(pair)._free.clear()
    session = begun(pair, prompt, 40, DynaTree())
    captured_while_idle = bool(session.prepare())
    session.step(())  # queues two verifications, which may have the same size
    captured_in_rounds, finished = 0, None
    while not finished:
        while session.prepare():
            pass
        before = records(pair)
        finished = session.step(()).finished
        captured_in_rounds += records(pair) - before
    assert captured_in_rounds == 0
    assert captured_while_idle


# Captures in idle time


@pytest.mark.parametrize("rules", [None, Linear(3), Fixed(depth=2, branching=2, tau=0.0)])
def test_a_text_finds_what_it_grows_into_captured_where_there_was_time_for_that(
    devices: Devices, rules: Rules | None
) -> None:
    pair = devices.recorded("long")
    session = begun(pair, [7 * place % 260 for place in range(150)], 140, rules)
    fresh: list[int] = []
    while True:
        before = records(pair)
        finished = session.step(()).finished
        if len(session.text) > 180:  # every size of a round has been used by then
            fresh.append(records(pair) - before)
        while session.prepare():
            pass
        if finished:
            break
    grown_into = [key for key in session._slot._captured if key[1] not in (256, 256 + 64)]
    assert grown_into
    assert len(fresh) > 20
    assert sum(fresh) == 0


def test_to_capture_ahead_changes_no_round_even_while_one_is_under_way(devices: Devices) -> None:
    pair = devices.recorded("long")
    prompt = [7 * place % 260 for place in range(230)]
    for rules in (None, DynaTree(selection="best", n_max=9)):
        host, device = host_session(pair, prompt, 40, rules), begun(pair, prompt, 40, rules)
        host.prefill()
        ahead = 0
        while True:
            expected = host.step(())
            check(device.step(()), expected)
            ahead += bool(device.prepare())
            if expected.finished:
                break
        assert ahead > 0


def test_one_graph_a_call_is_captured_ahead_and_none_beyond_the_end_of_the_text(devices: Devices) -> None:
    pair = devices.recorded("long")
    session = begun(pair, [1] * (256 - AHEAD), AHEAD - 20, Linear(2))
    while session.prepare():
        pass
    session.step(())
    assert records(pair) == 2
    session.close()
    session = begun(pair, [1] * (256 - AHEAD), 3 * AHEAD, Linear(2))
    for _ in range(2):
        session.step(())
    before = records(pair)
    assert session.prepare()
    assert records(pair) == before + 1
    assert session.prepare()
    assert not session.prepare()
    session.close()
    assert not session.prepare()


def test_a_seat_that_is_dropped_is_gone_at_once_with_its_memory(devices: Devices) -> None:
    engine = devices.recorded("long", "float32")
    graph_slots(engine).graphs = False
    session = begun(engine, [1, 2, 3], 20, WIDE)
    session.step(())
    session.close()
    slot = weakref.ref(session._slot)
    del session
    gc.disable()
    try:
        graph_slots(engine).take(engine.pair, 500)
        assert slot() is None
    finally:
        gc.enable()


def test_only_lanes_that_run_and_can_prepare_are_asked_to(devices: Devices) -> None:
    engine = devices.models.engine("neox")
    asked: list[str] = []

    class Preparing(HostSession):
        def prepare(self) -> str:
            asked.append("asked")
            return "half of it"

    def lane(kind: type[HostSession], *, ended: bool) -> Lane:
        session = kind(engine.pair, [1, 2], 3, None, None, GreedyVerifier())
        pair = engine.pair
        stream, pieces = TextStream(pair.tokenizer, [1, 2]), Pieces(pair.tokenizer)
        return Lane(METHODS["ar"], session, pair, stream, pieces, RaceClock(0.0, threads=False), 3, ended=ended)

    steering = Steering()
    assert not Pace(steering, [lane(HostSession, ended=False), lane(Preparing, ended=True)]).prepare()
    assert not asked
    assert Pace(steering, [lane(HostSession, ended=False), lane(Preparing, ended=False)]).prepare()
    assert asked == ["asked"]
    assert steering.preparing == "half of it"
    assert not Pace(steering, []).prepare()
    assert not steering.preparing


# Modes of torch


def test_rounds_make_no_inference_tensors_whoever_asks_for_them(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, modes = devices.recorded(), set[tuple[bool, bool]]()
    right = verify.verify
    monkeypatch.setattr(
        slots_module,
        "verify",
        lambda *given: modes.add((torch.is_inference_mode_enabled(), torch.is_grad_enabled())) or right(*given),  # type: ignore[func-returns-value]
    )
    with torch.inference_mode():
        match(pair, devices.prompt(), 12, Linear(2))
    assert modes == {(False, False)}
    (slot,) = graph_slots(pair)._free
    made = [slot.target.store, slot.draft.store, *DeviceState._tensors(slot.state), slot.mailbox._host]
    assert not any(tensor.is_inference() for tensor in made)
