"""Kernels that no earlier start has tried are tried between texts, in small parts; until then rounds use the plain
functions, and afterwards the same texts are written with kernels.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoder import RunConfig
from decoder.engine import Engine
from decoder.errors import LostDeviceError
from decoder.events import Run
from decoder.methods.linear import Linear
from decoder.run import loading
from decoder.session.cuda_graph import operators, self_test
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.slots import GraphSlots
from tests.decoder.makers import Played, graph_slots, play
from tests.decoder.session.cuda_graph.matching import Devices, opened_on_device
from tests.decoder.session.cuda_graph.stub_kernels import LAYERS, Stubs
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.tensors import Device

RUN = RunConfig(("linear", "ar"), 12, linear=Linear(2))
TRIED = None, Linear(2)
CHOSEN = ("pack_tree", *LAYERS)
COUNTED = [f"kernels: {number} of 4 tried" for number in (1, 2, 3, 4)]


class Pending:
    """A pair whose kernels are not tried yet."""

    def __init__(self, engine: Engine, folder: Path, stubs: Stubs) -> None:
        self.engine, self.folder, self.tried = engine, folder, stubs.tried

    @property
    def slots(self) -> GraphSlots:
        return graph_slots(self.engine)

    def start(self, *, later: bool = True) -> list[str]:
        """Starts anew; returns what is told meanwhile."""
        self.tried.clear()
        old, told = self.slots, list[str]()
        self.engine = replace(self.engine, slots=old.anew(self.engine.pair.target))
        self.slots.graphs, self.slots.kernels, self.slots.kernels_later = old.graphs, True, later
        self.slots.operators = PLAIN
        loading.try_rounds(self.engine, told.append)
        return told

    def played(self) -> Played:
        return play(self.engine, RUN)

    def steps(self) -> list[str]:
        """Does all that is left for later; returns what each step tells."""
        return list(iter(self.engine.prepare, ""))


def path(played: Played) -> str:
    (run,) = [event for event in played.events if isinstance(event, Run)]
    return run.path_reason


@pytest.fixture
def loaded(devices: Devices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubs: Stubs) -> Pending:
    """A pair that is loaded and not started."""
    monkeypatch.setattr(loading, "TRIED", TRIED)
    monkeypatch.setattr(operators, "verdicts_folder", lambda: tmp_path / "kernels")
    return Pending(devices.plain(dtype="float32"), tmp_path / "kernels", stubs)


@pytest.fixture
def pending(loaded: Pending, monkeypatch: pytest.MonkeyPatch) -> Pending:
    """A started pair, whose sessions are opened as on CUDA, but on the CPU."""
    monkeypatch.setattr(Engine, "session", opened_on_device)
    loaded.start()
    return loaded


@pytest.fixture
def device(loaded: Pending) -> Iterator[Device]:
    """The fake device, on which the pair is started."""
    with fake_cuda() as device:
        loaded.engine = on_fake_device(loaded.engine)
        loaded.start()
        yield device


def test_decoding_starts_before_any_kernel_is_tried(pending: Pending) -> None:
    assert pending.played().rounds("linear")
    assert pending.tried == []
    assert pending.slots.operators.kernels == ()


def test_each_step_tries_one_kernel_and_counts(pending: Pending) -> None:
    assert pending.engine.prepare() == COUNTED[0]
    assert pending.tried == ["pack_tree"]
    assert pending.engine.prepare() == COUNTED[1]
    assert pending.tried == ["pack_tree", "keep_level"]
    assert pending.steps()[:2] == COUNTED[2:]


def test_rounds_with_kernels_are_tested_in_small_steps_too(pending: Pending) -> None:
    told = pending.steps()
    assert told[:4] == COUNTED
    assert set(told[4:]) == {"testing rounds with kernels"}
    assert len(told[4:]) == 1 + 2 * len(TRIED)


@pytest.mark.usefixtures("device")
def test_afterwards_the_same_texts_are_written_with_kernels(loaded: Pending) -> None:
    before = loaded.played()
    assert path(before) == (
        "native model; kernels: none; all parts are plain functions until kernels have been tried, between prompts"
    )
    loaded.steps()
    after = loaded.played()
    assert loaded.slots.operators.kernels == CHOSEN
    assert path(after).startswith("native model; kernels: pack_tree, attention of the target, ")
    for method in RUN.methods:
        assert after.tokens(method) == before.tokens(method) == before.tokens("ar")


def test_until_the_test_of_rounds_has_ended_texts_have_plain_functions_alone(pending: Pending) -> None:
    slots = pending.slots
    forms = {model: slots.forward(model) for model in pending.engine.pair.models.values()}
    operators, told = slots.operators, pending.engine.prepare()
    while told:
        assert slots.operators is operators
        assert {model: slots.forward(model) for model in forms} == forms
        assert not pending.folder.exists()
        told = pending.engine.prepare()
    assert slots.operators.kernels == CHOSEN
    assert all(slots.forward(model) is not form for model, form in forms.items())


def test_texts_between_the_steps_change_nothing(pending: Pending) -> None:
    texts = [pending.played().tokens("linear")]
    while pending.engine.prepare():
        texts.append(pending.played().tokens("linear"))
    texts.append(pending.played().tokens("linear"))
    assert len(texts) > 6
    assert all(text == texts[0] for text in texts)
    assert pending.slots.operators.kernels == CHOSEN


def test_slots_with_old_graphs_are_dropped(pending: Pending) -> None:
    pending.played()
    assert pending.slots._free
    pending.steps()
    assert not pending.slots._free


def test_the_next_start_uses_the_kernels_at_once(pending: Pending) -> None:
    pending.steps()
    assert pending.start() == ["testing rounds on the device", "testing rounds with kernels"]
    assert pending.slots.operators.kernels == CHOSEN
    assert pending.engine.prepare() == ""
    assert pending.tried == []


def test_a_kernel_that_failed_does_not_keep_the_next_start_from_using_the_others_at_once(
    pending: Pending, stubs: Stubs
) -> None:
    stubs.fail("keep_level")
    pending.steps()
    assert COUNTED[0].replace("4", "1") in pending.start()
    assert pending.slots.operators.kernels == CHOSEN
    assert pending.tried == ["keep_level"]


def test_a_trial_that_was_broken_off_is_made_anew_at_the_next_start(pending: Pending) -> None:
    pending.engine.prepare()
    pending.start()
    assert pending.slots.operators.kernels == ()
    assert pending.engine.prepare() == COUNTED[0]


def test_if_rounds_with_kernels_are_wrong_plain_functions_stay(
    pending: Pending, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pending.played()
    monkeypatch.setattr(self_test, "refusals", lambda *_: [None, "rounds wrote other texts", None])
    pending.steps()
    assert pending.slots.operators.kernels == ()
    assert "pack_tree not kept, since rounds wrote other texts" in str(pending.slots.operators)
    assert pending.played().tokens("linear") == before.tokens("linear")
    assert not list(pending.folder.glob("*"))


def test_a_device_that_fails_in_a_trial_ends_it_in_one_sentence_and_no_verdict_is_kept(
    loaded: Pending, device: Device, stubs: Stubs
) -> None:
    def fails(*_: Any) -> None:
        device.fault = "CUDA error: an illegal memory access was encountered"
        raise RuntimeError(device.fault)

    stubs.kernels["pack_tree"] = fails
    with pytest.raises(LostDeviceError, match=r"^cuda:0 has failed"):
        loaded.steps()
    assert not loaded.folder.exists()


def test_without_idle_time_kernels_are_tried_before_the_first_round(pending: Pending) -> None:
    assert pending.start(later=False) == ["testing rounds on the device", *COUNTED, "testing rounds with kernels"]
    assert pending.slots.operators.kernels == CHOSEN
    assert pending.engine.prepare() == ""
