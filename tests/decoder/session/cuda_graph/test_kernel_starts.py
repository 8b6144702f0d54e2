"""Verdicts of kernel trials are kept on disk: the next start tries no kernel again, but tests rounds with them again.

Kernels that no earlier start has tried are tried between texts, in small parts; until then rounds use the plain
functions, and afterwards the same texts are written with kernels. The kernels of these tests are plain functions, so
that triton is not needed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder import RunConfig
from decoder.engine import Engine
from decoder.errors import LostDeviceError
from decoder.events import Run
from decoder.forward.families.native import NativeModel
from decoder.methods.linear import Linear
from decoder.run import loading
from decoder.session.cuda_graph import operators, self_test, verify
from decoder.session.cuda_graph.operators import PLAIN, Operators, Verdict, VerdictFile
from decoder.session.cuda_graph.slots import GraphSlots
from tests.decoder.makers import Played, graph_slots, play
from tests.decoder.session.cuda_graph.matching import Devices
from tests.decoder.session.cuda_graph.stub_kernels import LAYERS, Stubs, by_rows
from tests.fake_cuda.driver import fake_cuda
from tests.fake_cuda.pairs import on_fake_device
from tests.fake_cuda.tensors import Device

RUN = RunConfig(("linear", "ar"), 12, linear=Linear(2))
TRIED = None, Linear(2)
CHOSEN = ("pack_tree", *LAYERS)
COUNTED = [f"kernels: {number} of 4 tried" for number in (1, 2, 3, 4)]
TESTING = ["testing rounds on the device", "testing rounds with kernels"]


class Starts:
    """Starts of one pair with stand-ins for kernels."""

    def __init__(self, engine: Engine, folder: Path, stubs: Stubs) -> None:
        self.engine, self.folder, self.stubs = engine, folder, stubs

    @property
    def tried(self) -> list[str]:
        return self.stubs.tried

    @property
    def slots(self) -> GraphSlots:
        return graph_slots(self.engine)

    @property
    def operators(self) -> Operators:
        return self.slots.operators

    @property
    def layers(self) -> Any:
        form = self.slots.forward(self.engine.pair.target)
        assert isinstance(form, NativeModel)
        return form.layers

    def start(self, *, later: bool = False) -> list[str]:
        """Starts anew; returns what is told meanwhile. `later`: kernels without verdicts are tried between texts."""
        self.tried.clear()
        old, told = self.slots, list[str]()
        self.engine = replace(self.engine, slots=old.anew(self.engine.pair.target))
        self.slots.graphs, self.slots.kernels, self.slots.kernels_later = old.graphs, True, later
        self.slots.operators = PLAIN
        loading.try_rounds(self.engine, told.append)
        assert self.slots.refused is None
        return told

    def steps(self) -> list[str]:
        """Does all that is left for later; returns what each step tells."""
        return list(iter(self.engine.prepare, ""))

    def played(self) -> Played:
        return play(self.engine, RUN)


@pytest.fixture
def starts(devices: Devices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubs: Stubs) -> Starts:
    """A pair that is loaded and not started."""
    monkeypatch.setattr(loading, "TRIED", TRIED)
    monkeypatch.setattr(operators, "verdicts_folder", lambda: tmp_path / "kernels")
    return Starts(devices.plain(dtype="float32"), tmp_path / "kernels", stubs)


@pytest.fixture
def pending(starts: Starts) -> Starts:
    """A started pair whose kernels are not tried yet."""
    starts.start(later=True)
    return starts


@pytest.fixture
def device(starts: Starts) -> Iterator[Device]:
    """The fake device, on which the pair is started."""
    with fake_cuda() as device:
        starts.engine = on_fake_device(starts.engine)
        starts.start(later=True)
        yield device


# Verdicts on disk


@pytest.mark.parametrize("later", [False, True])
def test_the_next_start_uses_the_same_kernels_and_tries_none_but_tests_rounds_with_them_again(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, *, later: bool
) -> None:
    right, tested = self_test.refusals, list[tuple[str, ...]]()

    def refusals(pair: Any, slots: GraphSlots, *given: Any) -> Any:
        tested.append(slots.operators.kernels)
        return right(pair, slots, *given)

    told = [*starts.start(later=later), *(starts.steps() if later else ())]
    assert list(dict.fromkeys(told)) == [TESTING[0], *COUNTED, TESTING[1]]
    assert starts.tried == ["pack_tree", "keep_level", *["layers"] * 8]
    first, forms = starts.operators, [type(layer) for layer in starts.layers]
    assert first.kernels == CHOSEN
    assert str(first).startswith("kernels: pack_tree, attention of the target, ")
    monkeypatch.setattr(self_test, "refusals", refusals)
    assert starts.start(later=later) == TESTING
    assert starts.tried == []
    assert tested[-1:] == [CHOSEN]
    assert (starts.operators.kernels, starts.operators.verdicts) == (first.kernels, first.verdicts)
    assert [type(layer) for layer in starts.layers] == forms
    assert str(starts.operators).startswith("kernels: pack_tree, attention of the target, attention of the draft; ")
    assert "; keep_level takes 1.50 x the time" in str(starts.operators)
    assert starts.engine.prepare() == ""


def test_kernels_with_which_rounds_write_other_texts_are_forgotten(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts.start()
    right = self_test.refusals

    def refusals(pair: Any, slots: GraphSlots, *given: Any) -> Iterable[str | None]:
        return ["rounds wrote other texts"] if slots.operators.kernels else right(pair, slots, *given)

    monkeypatch.setattr(self_test, "refusals", refusals)
    starts.start()
    assert "pack_tree not kept, since " in str(starts.operators)
    assert list(starts.folder.iterdir()) == []


def test_a_kernel_that_failed_is_tried_again_and_no_other_is(starts: Starts) -> None:
    right = starts.stubs.kernels["keep_level"]
    starts.stubs.fail("keep_level")
    starts.start(later=True)
    starts.steps()
    assert "keep_level failed" in str(starts.operators)
    for tried in (["keep_level"], ["keep_level"], []):
        told = starts.start(later=True)
        assert (starts.operators.kernels, starts.tried) == (CHOSEN, tried)
        assert (COUNTED[0].replace("4", "1") in told) == bool(tried)
        starts.stubs.kernels["keep_level"] = right


def test_rows_are_kept_too(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if rows == 8 else 1.5)
    for _ in range(2):
        starts.start()
        assert [starts.operators.verdicts[name].rows for name in LAYERS] == [(8,)] * 2
    forms = starts.layers[0].forms
    assert {rows: form is forms[8] for rows, form in forms.items()} == {1: False, 8: True, 32: False, 64: False}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[1, 2]",
        b'{"circumstances": [], "verdicts": {}}',
        b'{"circumstances": ["x"], "verdicts": {"pack_tree": {"words": "\\u001b[2J", "used": true}}}',
        b'{"circumstances": ["x"], "verdicts": {"pack_tree": {"words": "good", "used": true, "more": 1}}}',
        b'{"circumstances": ["other"], "verdicts": {"pack_tree": {"words": "good", "used": true}}}',
    ],
)
def test_a_damaged_or_foreign_file_counts_as_absent_and_is_replaced(tmp_path: Path, content: bytes) -> None:
    kept, file = {"pack_tree": Verdict("takes 0.50 x the time", used=True)}, VerdictFile(tmp_path, ("x",))
    file.write(kept)
    (path,) = tmp_path.iterdir()
    assert file.read() == kept
    path.write_bytes(content)
    assert file.read() == {}
    file.write(kept)
    assert file.read() == kept


def test_a_name_that_is_no_kernel_is_ignored(starts: Starts) -> None:
    starts.start()
    (file,) = starts.folder.iterdir()
    stored = msgspec.json.decode(file.read_bytes())
    stored["verdicts"] = {"truncating": {"words": "good", "used": True}}
    file.write_bytes(msgspec.json.encode(stored))
    starts.start()
    assert "truncating" not in starts.operators.verdicts
    assert "truncating" not in file.read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device_name", lambda _: "another GPU"),
        ("releases", lambda: ("torch 3", "triton 4")),
        ("source_digest", lambda: "other sources"),
    ],
)
def test_verdicts_of_other_circumstances_do_not_hold(
    starts: Starts, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    starts.start()
    monkeypatch.setattr(self_test, name, value)
    starts.start()
    assert "pack_tree" in starts.tried
    assert len(list(starts.folder.iterdir())) == 2


def test_verdicts_of_another_dtype_do_not_hold(starts: Starts, devices: Devices) -> None:
    starts.start()
    starts.engine = devices.plain()
    starts.start()
    assert "pack_tree" in starts.tried


def test_a_folder_that_cannot_be_written_costs_nothing_but_another_trial(starts: Starts) -> None:
    starts.folder.write_text("a file")
    for _ in range(2):
        starts.start()
        assert starts.operators.kernels == CHOSEN
        assert starts.tried


def test_the_sources_are_found() -> None:
    package = Path(operators.__file__).parents[2]
    assert all(any((package / folder).rglob("*.py")) for folder in operators.SOURCES)
    assert (package / "session/cuda_graph/verify.py") == Path(verify.__file__)


# Trials between texts


def test_decoding_starts_before_any_kernel_is_tried_and_slots_with_old_graphs_are_dropped(pending: Starts) -> None:
    assert pending.played().rounds("linear")
    assert pending.tried == []
    assert pending.operators.kernels == ()
    assert pending.slots._free
    pending.steps()
    assert not pending.slots._free


def test_each_step_tries_one_kernel_and_counts_and_rounds_are_tested_in_small_steps_too(pending: Starts) -> None:
    for number, kernel in enumerate(("pack_tree", "keep_level")):
        assert pending.engine.prepare() == COUNTED[number]
        assert pending.tried[number:] == [kernel]
    assert pending.steps() == [*COUNTED[2:], *["testing rounds with kernels"] * (1 + 2 * len(TRIED))]


@pytest.mark.usefixtures("device")
def test_afterwards_the_same_texts_are_written_with_kernels(starts: Starts) -> None:
    def path(played: Played) -> str:
        (run,) = [event for event in played.events if isinstance(event, Run)]
        return run.path_reason

    before = starts.played()
    assert path(before) == (
        "native model; kernels: none; all parts are plain functions; kernels are tried between prompts"
    )
    starts.steps()
    after = starts.played()
    assert starts.operators.kernels == CHOSEN
    assert path(after).startswith("native model; kernels: pack_tree, attention of the target, ")
    for method in RUN.methods:
        assert after.tokens(method) == before.tokens(method) == before.tokens("ar")


def test_until_the_test_of_rounds_has_ended_texts_have_plain_functions_alone(pending: Starts) -> None:
    slots, before = pending.slots, pending.operators
    forms = {model: slots.forward(model) for model in pending.engine.pair.models.values()}
    texts = [pending.played().tokens("linear")]
    while pending.engine.prepare():
        assert slots.operators is before
        assert {model: slots.forward(model) for model in forms} == forms
        assert not pending.folder.exists()
        texts.append(pending.played().tokens("linear"))
    assert pending.operators.kernels == CHOSEN
    assert all(slots.forward(model) is not form for model, form in forms.items())
    texts.append(pending.played().tokens("linear"))
    assert len(texts) > 6
    assert all(text == texts[0] for text in texts)


def test_a_trial_that_was_broken_off_is_made_anew_at_the_next_start(pending: Starts) -> None:
    pending.engine.prepare()
    pending.start(later=True)
    assert pending.operators.kernels == ()
    assert pending.engine.prepare() == COUNTED[0]


def test_if_rounds_with_kernels_are_wrong_plain_functions_stay(
    pending: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = pending.played()
    monkeypatch.setattr(self_test, "refusals", lambda *_: [None, "rounds wrote other texts", None])
    pending.steps()
    assert pending.operators.kernels == ()
    assert "pack_tree not kept, since rounds wrote other texts" in str(pending.operators)
    assert pending.played().tokens("linear") == before.tokens("linear")
    assert not list(pending.folder.glob("*"))


def test_a_device_that_fails_in_a_trial_ends_it_in_one_sentence_and_no_verdict_is_kept(
    starts: Starts, device: Device
) -> None:
    def fails(*_: Any) -> None:
        device.fault = "CUDA error: an illegal memory access was encountered"
        raise RuntimeError(device.fault)

    starts.stubs.kernels["pack_tree"] = fails
    with pytest.raises(LostDeviceError, match=r"^cuda:0 has failed"):
        starts.steps()
    assert not starts.folder.exists()
