"""Verdicts of kernel trials are kept on disk: the next start tries no kernel again, but tests rounds with them again.

The kernels of these tests are plain functions, so that triton is not needed.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder.engine import Engine
from decoder.forward.families.native import NativeModel
from decoder.methods.linear import Linear
from decoder.session.cuda_graph import operators, self_test, verify
from decoder.session.cuda_graph.operators import KeptVerdict, Operators, VerdictFile
from decoder.session.cuda_graph.slots import GraphSlots
from tests.decoder.makers import TinyModels, graph_slots
from tests.decoder.session.cuda_graph.stub_kernels import LAYERS, Stubs, by_rows

TRIED = None, Linear(2)


class Trials:
    """Starts of one pair with stand-ins for kernels."""

    def __init__(self, engine: Engine, folder: Path, stubs: Stubs) -> None:
        self.engine, self.folder, self.stubs = engine, folder, stubs
        self.told: list[str] = []
        """What the latest start reported."""

    @property
    def tried(self) -> list[str]:
        return self.stubs.tried

    def start(self) -> Operators:
        """Operators after one more start."""
        self.tried.clear()
        self.told.clear()
        self.engine = replace(self.engine, slots=GraphSlots(graphs=False, kernels=True))
        slots = graph_slots(self.engine)
        assert self_test.prepare_rounds(self.engine.pair, slots, TRIED, self.told.append, self.folder) is None
        return slots.operators

    @property
    def file(self) -> Path:
        (path,) = self.folder.iterdir()
        return path


@pytest.fixture
def trials(tiny_models: TinyModels, tmp_path: Path, stubs: Stubs) -> Trials:
    return Trials(tiny_models.engine("neox"), tmp_path / "kernels", stubs)


def test_the_next_start_uses_the_same_kernels_and_tries_none(trials: Trials) -> None:
    first = trials.start()
    assert trials.tried == ["pack_tree", "keep_level", *["layers"] * 8]
    assert first.kernels == ("pack_tree", *LAYERS)
    forms = [type(layer) for layer in _layers(trials.engine)]
    second = trials.start()
    assert trials.tried == []
    assert second.kernels == first.kernels
    assert second.verdicts == first.verdicts
    assert [type(layer) for layer in _layers(trials.engine)] == forms


def test_each_trial_is_reported_and_so_is_the_test_of_rounds_with_kernels(trials: Trials) -> None:
    trials.start()
    counted = [f"kernels: {number} of 4 tried" for number in range(1, 5)]
    assert trials.told == [*counted, "testing rounds with kernels"]
    trials.start()
    assert trials.told == ["testing rounds with kernels"]


def _layers(engine: Engine) -> Any:
    form = graph_slots(engine).forward(engine.pair.target)
    assert isinstance(form, NativeModel)
    return form.layers


def test_which_verdicts_are_those_of_an_earlier_start_is_told(trials: Trials) -> None:
    assert str(trials.start()).startswith("kernels: pack_tree, attention of the target, ")
    told = str(trials.start())
    assert told.startswith("kernels, tried at an earlier start: pack_tree, attention of the target, ")
    assert "; keep_level takes 1.50 x the time" in told


def test_the_next_start_tests_rounds_with_the_kernels_again(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    trials.start()
    right, tested = self_test.refusals, list[tuple[str, ...]]()

    def refusals(pair: Any, slots: GraphSlots, *given: Any) -> Any:
        tested.append(slots.operators.kernels)
        return right(pair, slots, *given)

    monkeypatch.setattr(self_test, "refusals", refusals)
    trials.start()
    assert tested == [("pack_tree", *LAYERS)]


def test_kernels_with_which_rounds_write_other_texts_are_forgotten(
    trials: Trials, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials.start()
    right = self_test.refusals

    def refusals(pair: Any, slots: GraphSlots, *given: Any) -> Iterable[str | None]:
        return ["rounds wrote other texts"] if slots.operators.kernels else right(pair, slots, *given)

    monkeypatch.setattr(self_test, "refusals", refusals)
    assert "pack_tree not kept, since " in str(trials.start())
    assert list(trials.folder.iterdir()) == []


def test_a_kernel_that_failed_is_tried_again_and_no_other_is(trials: Trials) -> None:
    right = trials.stubs.kernels["keep_level"]
    trials.stubs.fail("keep_level")
    assert "keep_level failed" in str(trials.start())
    trials.stubs.kernels["keep_level"] = right
    told = str(trials.start())
    assert trials.tried == ["keep_level"]
    assert told.startswith("kernels: pack_tree, ")
    trials.start()
    assert trials.tried == []


def test_rows_are_kept_too(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    by_rows(monkeypatch, lambda rows, _: 0.5 if rows == 8 else 1.5)
    assert trials.start().in_layers == dict.fromkeys(LAYERS, (8,))
    assert trials.start().in_layers == dict.fromkeys(LAYERS, (8,))
    kinds = {rows: form is _layers(trials.engine)[0].forms[8] for rows, form in _layers(trials.engine)[0].forms.items()}
    assert kinds == {1: False, 8: True, 32: False, 64: False}


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
    kept, file = {"pack_tree": KeptVerdict("takes 0.50 x the time", used=True)}, VerdictFile(tmp_path, ("x",))
    file.write(kept)
    (path,) = tmp_path.iterdir()
    assert file.read() == kept
    path.write_bytes(content)
    assert file.read() == {}
    file.write(kept)
    assert file.read() == kept


def test_a_name_that_is_no_kernel_is_ignored(trials: Trials) -> None:
    trials.start()
    stored = msgspec.json.decode(trials.file.read_bytes())
    stored["verdicts"] = {"truncating": {"words": "good", "used": True}}
    trials.file.write_bytes(msgspec.json.encode(stored))
    assert "truncating" not in trials.start().verdicts
    assert "truncating" not in trials.file.read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("device_name", lambda _: "another GPU"),
        ("releases", lambda: ("torch 3", "triton 4")),
        ("source_digest", lambda: "other sources"),
    ],
)
def test_verdicts_of_other_circumstances_do_not_hold(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    trials.start()
    monkeypatch.setattr(self_test, name, value)
    trials.start()
    assert "pack_tree" in trials.tried
    assert len(list(trials.folder.iterdir())) == 2


def test_verdicts_of_another_dtype_do_not_hold(trials: Trials, tiny_models: TinyModels) -> None:
    trials.start()
    trials.engine = tiny_models.engine("neox", "float64")
    trials.start()
    assert "pack_tree" in trials.tried


def test_a_folder_that_cannot_be_written_costs_nothing_but_another_trial(trials: Trials) -> None:
    trials.folder.write_text("a file")
    assert trials.start().kernels == trials.start().kernels != ()
    assert trials.tried


def test_the_sources_are_found() -> None:
    package = Path(operators.__file__).parents[2]
    assert all(any((package / folder).rglob("*.py")) for folder in operators.SOURCES)
    assert (package / "session/cuda_graph/verify.py") == Path(verify.__file__)
