"""Rounds on a device are tried before a text depends on them; where they fail, the host drives the rounds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from decoder import RunConfig, loading, methods
from decoder.engine import Engine
from decoder.forward.static.layers import NativeStatic
from decoder.models.pair import Pair
from decoder.session.cuda_graph import device_state as state
from decoder.session.cuda_graph import self_test as trial
from decoder.session.cuda_graph import session
from decoder.session.cuda_graph.slots import GraphSlot, GraphSlots
from decoder.session.host import model_session
from decoder.session.knob_state import KnobState
from tests.decoder.makers import TinyModels
from tests.decoder.session.cuda_graph.matching import refused


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    loaded: Engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    return replace(loaded, slots=GraphSlots(graphs=False))


def test_rounds_that_write_the_host_s_texts_are_trusted(engine: Engine) -> None:
    assert refused(engine) is None


def test_every_kind_of_round_is_tried(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []

    def open_session(
        engine: Pair, __: GraphSlots, prompt: Sequence[int], limit: int, knobs: KnobState | None, *_: object
    ) -> Any:
        tried.append(knobs.rules if knobs else None)
        return model_session(engine, prompt, limit, knobs)

    monkeypatch.setattr(trial, "GraphSession", open_session)
    assert refused(engine) is None
    assert tried == list(loading.TRIED)


def test_what_cannot_be_captured_is_told_in_one_line(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nmore about it")

    monkeypatch.setattr(GraphSlot, "verification", fail)
    assert refused(engine) == "operation not permitted when stream is capturing"


def test_another_text_than_the_host_s_is_noticed(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    right = state.verified

    def wrong(report: Any) -> Any:
        accepted, bonus = right(report)
        return accepted, bonus + 1

    monkeypatch.setattr(session, "verified", wrong)
    assert "instead of" in (refused(engine) or "")


def test_a_refused_device_leaves_the_rounds_to_the_host(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "prepare_rounds", lambda *_: "it does not")
    told: list[str] = []
    loading.try_rounds(engine, told.append)
    assert "the host" in told[-1]
    assert "it does not" in told[-1]
    monkeypatch.setattr(engine.pair.target, "device", torch.device("cuda"))
    monkeypatch.setattr("decoder.engine.model_session", lambda *_: "the host's")
    opened = methods.METHODS["ar"].open(engine, [1], RunConfig())
    assert cast("object", opened) == "the host's"


def test_a_model_that_reads_numbers_back_leaves_the_rounds_to_the_host(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = NativeStatic.rotation

    def read_back(form: NativeStatic, store: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return right(form, store, positions.clamp(max=int(positions.max())))

    assert refused(replace(engine, slots=GraphSlots())) is None
    monkeypatch.setattr(NativeStatic, "rotation", read_back)
    assert "reads numbers back" in (refused(replace(engine, slots=GraphSlots())) or "")
