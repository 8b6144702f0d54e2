"""GraphSlots, and waits and clocks of device rounds."""

import random
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.session.cuda_graph import session as session_module
from decoder.session.cuda_graph.pending_rounds import PendingRounds
from decoder.session.cuda_graph.slots import GraphSlot
from decoder.session.cuda_graph.static_shapes import DEEPEST, MOST_NODES, MOST_ROWS, padded, room
from decoder.session.protocol import Outcome
from decoder.session.steering import Turn
from decoder.system.device import Mailbox, without_gradients
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests.decoder.makers import graph_slots, host_session, with_pair
from tests.decoder.session.cuda_graph.matching import Devices, begun, check, graph_session, match, rounds_of

METHODS: dict[str, Rules | None] = {"ar": None, "linear": Linear(), "fixed": Fixed(), "dynatree": DynaTree()}
ASKS_THE_DEVICE = {"aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::_unique2"}


class Watch(TorchDispatchMode):
    """Records the operations that run."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self.names: list[str] = []
        self.made: list[int] = []
        """Bytes of each new tensor, without views."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._schema.name)
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and not func.is_view and not func._schema.is_mutable:
            self.made.append(result.nbytes)
        return result


def counted(patch: pytest.MonkeyPatch, owner: type, name: str) -> list[str]:
    """A list to which each later call of a method adds an entry."""
    calls, right = list[str](), getattr(owner, name)

    def call(*given: Any) -> Any:
        calls.append(name)
        return right(*given)

    patch.setattr(owner, name, call)
    return calls


@pytest.mark.parametrize("method", METHODS)
def test_a_round_waits_once_and_copies_its_numbers_once(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    session = devices.begun(devices.plain(dtype="float32"), METHODS[method])
    copies, rounds, finished = counted(monkeypatch, Mailbox, "send"), 0, None
    while not finished:
        finished = session.step(()).finished
        rounds += 1
        assert session.waits == len(copies) == rounds


@pytest.mark.parametrize("by_module", [False, True], ids=["native", "module"])
@pytest.mark.parametrize("method", METHODS)
def test_no_operation_of_a_round_asks_the_device_for_a_number(
    devices: Devices, method: str, *, by_module: bool
) -> None:
    session = devices.begun(devices.plain("llama", "float32", by_module=by_module), METHODS[method], 20)
    with Watch() as watch:
        session.step(())
        session.step(())
    assert "aten::index_copy_" in watch.names
    assert not ASKS_THE_DEVICE & set(watch.names)


def test_that_an_operation_asks_for_a_number_would_be_noticed() -> None:
    with Watch() as watch:
        torch.ones(3).sum().item()
        torch.ones(3).nonzero()
    assert set(watch.names) >= {"aten::_local_scalar_dense", "aten::nonzero"}


@pytest.mark.parametrize("method", METHODS)
def test_no_round_makes_room_for_keys_and_values(devices: Devices, method: str) -> None:
    prompt = [7 * place % 260 for place in range(1000)]
    session = begun(devices.plain("long", "float32"), prompt, 20, METHODS[method])
    with Watch() as watch:
        session.step(())
    assert max(watch.made) < session._slot.target.store.nbytes / 2


def test_a_text_leaves_its_seat_to_the_next(devices: Devices) -> None:
    loaded, seen = devices.recorded(), set()
    for method in ("dynatree", "ar", "fixed", "linear", "dynatree"):
        match(loaded, devices.prompt(), 30, METHODS[method])
        (slot,) = graph_slots(loaded)._free
        seen.add((slot.target.store.data_ptr(), slot.draft.store.data_ptr(), slot.state.report.data_ptr()))
    assert len(seen) == 1


def test_what_an_earlier_text_left_behind_poisons_nothing(devices: Devices) -> None:
    loaded, prompt = devices.recorded("llama"), devices.prompt("llama")
    match(loaded, prompt, 30, DynaTree())
    (slot,) = graph_slots(loaded)._free
    for store in (slot.target.store, slot.draft.store):
        store.fill_(torch.nan)
    match(loaded, prompt, 30, DynaTree())


def test_several_sessions_at_once_do_not_disturb_each_other(devices: Devices) -> None:
    loaded = devices.recorded()
    lanes = {
        method: (host_session(loaded, devices.prompt(), 40, rules), devices.begun(loaded, rules, 40))
        for method, rules in METHODS.items()
    }
    for host, _ in lanes.values():
        host.prefill()
    luck = random.Random(1)
    while lanes:
        method = luck.choice(sorted(lanes))
        host, device = lanes[method]
        expected = host.step(())
        check(device.step(()), expected)
        if expected.finished:
            del lanes[method]
    assert len(graph_slots(loaded)._free) == len(METHODS)


def test_a_longer_text_takes_a_larger_seat_in_place_of_the_small_one(devices: Devices) -> None:
    loaded = devices.plain("long", "float32")
    small = graph_session(loaded, [1, 2, 3], 8, DynaTree())
    small.close()
    large = graph_session(loaded, [1] * 900, 100, DynaTree())
    assert large._slot is not small._slot
    assert graph_slots(loaded)._free == []
    large.close()
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


def test_a_session_gives_its_seat_back_once(devices: Devices) -> None:
    loaded = devices.plain(dtype="float32")
    for rules in METHODS.values():
        session = devices.begun(loaded, rules, 3)
        rounds_of(session)
        session.close()
        session.close()
        assert len(graph_slots(loaded)._free) == 1


def test_other_models_do_not_take_each_other_s_seats(devices: Devices) -> None:
    neox, llama = (devices.recorded(name) for name in ("neox", "llama"))
    llama = replace(llama, slots=graph_slots(neox))
    for pair, name in ((neox, "neox"), (llama, "llama"), (neox, "neox")):
        match(pair, devices.prompt(name), 20, DynaTree())


@pytest.mark.parametrize("method", METHODS)
def test_stages_are_told_in_their_order_with_what_is_known_by_then(devices: Devices, method: str) -> None:
    session = devices.begun(devices.plain(dtype="float64"), METHODS[method], 20)
    told: list[tuple[str, int, int]] = []

    def at_stage(name: str, outcome: Outcome) -> float:
        told.append((name, len(outcome.tree), len(outcome.committed)))
        assert (outcome.verify_s is None) == (name == "drafted")
        return 0.0

    outcome = session.step((), at_stage)
    assert told == [("drafted", len(outcome.tree), 0), ("verified", len(outcome.tree), len(outcome.committed))]


@pytest.mark.parametrize("method", METHODS)
def test_time_that_a_round_is_held_is_no_part_of_it(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    passed, held = time.perf_counter, [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: passed() + held[0])
    session = devices.begun(devices.plain(dtype="float32"), METHODS[method], 20)

    def at_stage(*_: object) -> float:
        held[0] += 1000.0
        return 1000.0

    assert 0 < session.step((), at_stage).round_s < 500
    assert 0 < session.step((), at_stage).round_s < 500


@pytest.mark.parametrize("method", METHODS)
def test_parts_add_up_to_no_more_than_rounds_and_rounds_to_no_more_than_passed(devices: Devices, method: str) -> None:
    since = time.perf_counter()
    session = devices.begun(devices.plain(dtype="float32"), METHODS[method], 60)
    rounds = rounds_of(session)
    passed_s = time.perf_counter() - since
    assert all(outcome.round_s > 0 for outcome in rounds)
    parts = sum((outcome.draft_s or 0) + (outcome.verify_s or 0) + (outcome.commit_s or 0) for outcome in rounds)
    assert 0 < parts <= sum(outcome.round_s for outcome in rounds) <= passed_s


@pytest.mark.parametrize("limit", [1, 5, 12])
def test_plain_decoding_asks_for_as_many_passes_as_there_are_tokens(
    devices: Devices, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    asked = counted(monkeypatch, PendingRounds, "verification")
    session = devices.begun(devices.plain(dtype="float32"), None, limit)
    for _ in range(limit):
        session.step(())
    assert len(asked) == limit


def test_every_draft_is_paid_for_when_a_text_ends_by_surprise(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = counted(monkeypatch, PendingRounds, "draft")
    ending = with_pair(devices.plain(), eos=frozenset({devices.generated(12)[-1]}))
    rounds = rounds_of(devices.begun(ending, Linear(3), 100))
    assert rounds[-1].finished == "eos"
    assert len(drafts) == len(rounds) + 1
    assert sum(outcome.draft_forwards or 0 for outcome in rounds) == 3 * len(drafts)


def test_a_tree_that_was_drafted_for_nothing_is_paid_for(devices: Devices) -> None:
    """Draft passes: the first tree, a tree ahead in each round except perhaps the last, and a new tree at the turn."""
    session = devices.begun(devices.plain(dtype="float32"), Linear(3), 40)
    turns = (Turn("k", 2.0),)
    rounds = [session.step(()), session.step(())]
    while not rounds[-1].finished:
        rounds.append(session.step(turns))
    forwards = [outcome.draft_forwards for outcome in rounds]
    assert forwards[:3] == [3, 3, 3 + 2]
    assert set(forwards[3:-1]) == {2}
    assert forwards[-1] in (2, 4)


def test_the_next_verification_is_queued_before_the_host_builds_the_tree(
    devices: Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    def logged(owner: Any, name: str) -> None:
        right = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *given: log.append(name) or right(*given))  # type: ignore[func-returns-value]

    session = devices.begun(devices.plain(dtype="float32"), Linear(), 60)
    session.step(())
    for owner, name in (
        (GraphSlot, "drafting"),
        (GraphSlot, "verification"),
        (Mailbox, "receive"),
        (session_module, "learnt"),
        (TokenTree, "of"),
    ):
        logged(owner, name)
    session.step(())
    assert log == ["drafting", "receive", "verification", "of", "learnt"]


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

    class DeviceMark:
        def __init__(self) -> None:
            self.at_s = now[0]

        def seconds_since(self, _: "DeviceMark") -> float:
            return 5.0

    class Slot:
        capturing_s, mark = 0.0, DeviceMark
        mailbox = SimpleNamespace(send=lambda _: None, receive=lambda _: now.__setitem__(0, now[0] + 1.0))
        state = SimpleNamespace(report=None)

        def verification(self, *_: int) -> Any:
            return lambda: None

    pending = PendingRounds(cast("GraphSlot", Slot()))
    begun_s = pending.clock.resume()
    pending.verification(1, 3)
    now[0] += 1.0
    pending.clock.stop()
    now[0] += 3.0
    assert pending.clock.resume() - begun_s == pytest.approx(1.0)
    pending.wait(pending.report())
    assert pending.clock.seconds() - begun_s == pytest.approx(5.0)
