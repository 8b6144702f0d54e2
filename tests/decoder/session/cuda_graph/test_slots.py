"""Slots and their graphs, which are few, captured once, and ahead of a growing text; waits and clocks of rounds."""

import gc
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from decoder.methods import METHODS as OPENED
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.models.text import Pieces, TextStream
from decoder.run.lane import Lane, RaceClock
from decoder.run.race import Pace
from decoder.session.cuda_graph import session as session_module
from decoder.session.cuda_graph import slots, verify
from decoder.session.cuda_graph.device_state import DeviceState
from decoder.session.cuda_graph.pending_rounds import PendingRounds
from decoder.session.cuda_graph.slots import AHEAD, GraphSlot, captured
from decoder.session.cuda_graph.static_shapes import DEEPEST, MOST_NODES, MOST_ROWS, Shape, levels, padded, room
from decoder.session.host import HostSession
from decoder.session.protocol import Outcome
from decoder.session.steering import Steering, Turn
from decoder.system.device import Graphs, Mailbox, without_gradients
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from decoder.verify.verifier import GreedyVerifier
from tests.decoder.makers import graph_slots
from tests.decoder.session.cuda_graph.matching import (
    METHODS,
    WIDE,
    Devices,
    RandomSizes,
    begun,
    graph_session,
    match,
    records,
    rounds_of,
)

FEW = ("ar", "linear", "fixed", "dynatree")
ALL_ALIKE = Fixed(depth=2, branching=2, tau=0.0)


def noted(patch: pytest.MonkeyPatch, owner: Any, name: str, log: list[str]) -> list[str]:
    """The log, to which each later call of a function adds its name."""
    right = getattr(owner, name)
    patch.setattr(owner, name, lambda *given: log.append(name) or right(*given))  # type: ignore[func-returns-value]
    return log


# Seats


def test_what_an_earlier_text_left_behind_poisons_nothing(devices: Devices) -> None:
    loaded, prompt = devices.recorded("llama"), devices.prompt("llama")
    match(loaded, prompt, 30, DynaTree())
    (slot,) = graph_slots(loaded)._free
    for store in (slot.target.store, slot.draft.store):
        store.fill_(torch.nan)
    match(loaded, prompt, 30, DynaTree())


def test_a_longer_text_takes_a_larger_seat_in_place_of_the_small_one(devices: Devices) -> None:
    loaded = devices.plain("long", "float32")
    small = graph_session(loaded, [1, 2, 3], 8, DynaTree())
    small.close()
    large = graph_session(loaded, [1] * 900, 100, DynaTree())
    assert large._slot is not small._slot
    assert graph_slots(loaded)._free == []
    for _ in range(2):
        large.close()  # gives its seat back once
        assert len(graph_slots(loaded)._free) == 1
    again = graph_session(loaded, [1, 2, 3], 8, DynaTree())
    assert again._slot is large._slot


def test_a_seat_has_room_for_both_models_rows(devices: Devices) -> None:
    """Target and draft read ranges of different lengths, so each store must be long enough for its own range."""
    loaded = devices.plain("long", "float32")
    for longest in range(100, 1100, 37):
        session = graph_session(loaded, [1] * (longest - 50), 50, DynaTree())
        slot = session._slot
        assert slot.target.store.shape[3] >= room(longest) + padded(MOST_NODES)
        assert slot.draft.store.shape[3] >= room(longest) + padded(MOST_ROWS)
        session.close()
        larger = graph_session(loaded, [1] * (longest - 30), 50, DynaTree())
        assert larger._slot.draft.store.shape[3] >= longest + 20 + DEEPEST + 1 + padded(MOST_ROWS)
        larger.close()


def test_a_seat_that_is_dropped_is_gone_at_once_with_its_memory(devices: Devices) -> None:
    engine = devices.recorded("long", "float32")
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


# Graphs


def test_trees_of_one_size_share_one_verification_for_each_number_of_levels_of_their_rule(devices: Devices) -> None:
    pair = devices.recorded()
    for rules in (Linear(7), Fixed(depth=7, branching=1, tau=0.0), Linear(5), ALL_ALIKE):
        assert {len(outcome.tree) for outcome in match(pair, devices.prompt(), 30, rules)} <= {1, 6, 7, 8}
    (slot,) = graph_slots(pair)._free
    assert [key[2] for key in slot._captured if key[0] == 8] == [7, 5, 2]


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

    replay = captured(Logged(torch.device("cpu")), lambda: None, lambda: log.append("undo"))
    assert log == ["capture", "replay", "undo"]
    replay()
    assert log[3:] == ["replay"]


def test_the_host_s_waits_are_looked_for_once_a_kind_and_not_once_a_graph(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[str]()
    noted(monkeypatch, slots, "refuse_waits", asked)
    pair = devices.recorded()
    for controller in [RandomSizes(3)] * 2:
        rounds_of(devices.begun(pair, WIDE, 40, controller))
    assert records(pair) > 6
    assert len(asked) == 3  # a draft, a verification, a plain round


def test_other_models_do_not_take_each_other_s_seats_and_their_forwards_are_looked_at_anew(devices: Devices) -> None:
    neox = devices.recorded()
    llama = replace(devices.recorded("llama"), slots=graph_slots(neox))
    for pair, name in ((neox, "neox"), (llama, "llama"), (neox, "neox")):
        match(pair, devices.prompt(name), 12, Linear(2))
    (slot,) = graph_slots(neox)._free
    assert len(slot._capturable) == 2


def test_captures_wait_for_the_device_so_that_a_round_pays_for_its_own_work_alone(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    slot = begun(devices.recorded(), [1, 2, 3], 20, None)._slot
    monkeypatch.setattr(slot, "mark", lambda: SimpleNamespace(wait=lambda: log.append("wait")))
    monkeypatch.setattr(slots, "tried", lambda *_: log.append("try"))
    monkeypatch.setattr(slots, "captured", lambda *_: log.append("capture"))
    slot.work((1, 0), 3)
    slot.work((1, 0), 3)
    assert log == ["wait", "try", "capture", "wait"]


@pytest.mark.parametrize("rules", [None, ALL_ALIKE, WIDE], ids=str)
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
    session = begun(devices.recorded(), [1, 2, 3], 20, WIDE, RandomSizes(3, plain=0))
    first, *_ = session._slot._captured
    told = list(iter(session.prepare, ""))
    keys: list[Any] = [key for key in session._slot._captured if key is not first]
    rows = [key[0].rows if isinstance(key[0], Shape) else key[0] for key in keys]
    assert rows == sorted(rows, reverse=True)
    assert {64, 8, 1} <= set(rows)
    assert told == [f"CUDA graphs: {done} of {len(keys) + 1} captured" for done in range(2, len(keys) + 2)]


def test_no_capture_counts_as_decode_time_not_even_of_a_turned_knob_s_shape(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, passed, captures = slots.captured, time.perf_counter, list[float]()

    def slowly(*given: Any) -> Any:
        captures.append(1000.0)
        return right(*given)

    monkeypatch.setattr(time, "perf_counter", lambda: passed() + sum(captures))
    monkeypatch.setattr(slots, "captured", slowly)
    session = graph_session(devices.recorded(), [1, 2, 3], 30, DynaTree(n_max=6, d_max=3, d0=2))
    assert session.prefill() < 500
    outcomes = [session.step(()), session.step(()), session.step((Turn("n_max", 40),))]
    assert len(captures) == 3
    assert outcomes[-1].turned_before
    assert all(outcome.round_s < 500 for outcome in outcomes)


# Captures in idle time


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


def test_only_lanes_that_run_and_can_prepare_are_asked_to(devices: Devices) -> None:
    pair, asked = devices.models.engine("neox").pair, list[str]()

    class Preparing(HostSession):
        def prepare(self) -> str:
            asked.append("asked")
            return "half of it"

    def lane(kind: type[HostSession], *, ended: bool) -> Lane:
        session = kind(pair, [1, 2], 3, None, None, GreedyVerifier())
        stream, pieces = TextStream(pair.tokenizer, [1, 2]), Pieces(pair.tokenizer)
        return Lane(OPENED["ar"], session, pair, stream, pieces, RaceClock(0.0, threads=False), 3, ended=ended)

    steering = Steering()
    assert not Pace(steering, [lane(HostSession, ended=False), lane(Preparing, ended=True)]).prepare()
    assert not asked
    assert Pace(steering, [lane(HostSession, ended=False), lane(Preparing, ended=False)]).prepare()
    assert asked == ["asked"]
    assert steering.preparing == "half of it"
    assert not Pace(steering, []).prepare()
    assert not steering.preparing


def test_rounds_make_no_inference_tensors_whoever_asks_for_them(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, modes, right = devices.recorded(), set[tuple[bool, bool]](), verify.verify

    def verified(*given: Any) -> Any:
        modes.add((torch.is_inference_mode_enabled(), torch.is_grad_enabled()))
        return right(*given)

    monkeypatch.setattr(slots, "verify", verified)
    with torch.inference_mode():
        match(pair, devices.prompt(), 12, Linear(2))
    assert modes == {(False, False)}
    (slot,) = graph_slots(pair)._free
    made = [slot.target.store, slot.draft.store, *DeviceState._tensors(slot.state), slot.mailbox._host]
    assert not any(tensor.is_inference() for tensor in made)


# Waits and clocks


@pytest.mark.parametrize("method", FEW)
def test_stages_are_told_in_their_order_with_what_is_known_by_then_and_time_that_they_hold_a_round_is_no_part_of_it(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    passed, held = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: passed() + held[0])
    session = devices.begun(devices.plain(), METHODS[method], 20)
    told: list[tuple[str, int, int]] = []

    def at_stage(name: str, outcome: Outcome) -> float:
        told.append((name, len(outcome.tree), len(outcome.committed)))
        assert (outcome.verify_s is None) == (name == "drafted")
        held[0] += 1000.0
        return 1000.0

    for _ in range(2):
        outcome = session.step((), at_stage)
        nodes = len(outcome.tree)
        assert told[-2:] == [("drafted", nodes, 0), ("verified", nodes, len(outcome.committed))]
        assert 0 < outcome.round_s < 500


def test_a_tree_that_was_drafted_for_nothing_is_paid_for(devices: Devices) -> None:
    """Draft passes: the first tree, a tree ahead in each round except perhaps the last, and a new tree at the turn."""
    session = devices.begun(devices.plain(dtype="float32"), Linear(3), 40)
    rounds = [session.step(()), session.step(())]
    while not rounds[-1].finished:
        rounds.append(session.step((Turn("k", 2.0),)))
    forwards = [outcome.draft_forwards for outcome in rounds]
    assert forwards[:3] == [3, 3, 3 + 2]
    assert set(forwards[3:-1]) == {2}
    assert forwards[-1] in (2, 4)


def test_the_next_verification_is_queued_before_the_host_builds_the_tree(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    session = devices.begun(devices.plain(dtype="float32"), Linear(), 60)
    session.step(())
    for owner, name in (
        (PendingRounds, "draft"),
        (PendingRounds, "verification"),
        (Mailbox, "receive"),
        (session_module, "learnt"),
        (TokenTree, "of"),
    ):
        noted(monkeypatch, owner, name, log)
    session.step(())
    assert log == ["draft", "receive", "verification", "of", "learnt"]


def test_a_verification_whose_tree_is_drafted_again_leaves_no_trace(devices: Devices) -> None:
    session = devices.begun(devices.recorded(), DynaTree(window=2))
    for _ in range(3):
        session.step(())
    state = session._slot.state
    assert int(state.length) > len(session.text)
    rounds = int(state.rounds)
    with without_gradients():
        session._turn()
    assert int(state.length) == len(session.text)
    assert int(state.rounds) == rounds - 1
    assert session._verification is None


def test_device_work_between_rounds_counts_as_decode_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device verifies for 5 s, of which 3 s are between two rounds."""
    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    slot = SimpleNamespace(
        capturing_s=0.0,
        mark=lambda: SimpleNamespace(at_s=now[0], seconds_since=lambda _: 5.0),
        mailbox=SimpleNamespace(send=lambda _: None, receive=lambda _: now.__setitem__(0, now[0] + 1.0)),
        state=SimpleNamespace(report=None),
        work=lambda *_: lambda: None,
    )
    pending = PendingRounds(cast("GraphSlot", slot))
    begun_s = pending.clock.resume()
    pending.verification(1, 3)
    now[0] += 1.0
    pending.clock.stop()
    now[0] += 3.0
    assert pending.clock.resume() - begun_s == pytest.approx(1.0)
    pending.wait(pending.report())
    assert pending.clock.seconds() - begun_s == pytest.approx(5.0)
