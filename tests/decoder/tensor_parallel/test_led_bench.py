"""Measurements of a tensor-parallel target: same texts, memory of every rank, no result of the whole model."""

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from decoder.errors import ConfigError
from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from dynatui.lab.bench import job, table
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.job import OnRounds, OnTexts, measure_rounds, measure_texts
from dynatui.lab.bench.rounds import Size
from dynatui.lab.bench.shapes import loaded_pair, with_random_draft
from dynatui.lab.tables import WIDTH
from dynatui.session import Models
from tests.decoder.makers import TinyModels
from tests.decoder.tensor_parallel.led_engine import Led, led
from tests.decoder.tensor_parallel.started_ranks import FIRST_OF_TWO, start_as

TEXTS = OnTexts(
    Models(),
    prompts=("The tree grows",),
    config=RunConfig(max_new_tokens=12),
    methods=("dynatree", "linear"),
    settings={"dynatree": {"": DynaTree()}, "linear": {"2": Linear(2)}},
    repeats=1,
)


@pytest.fixture
def found(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> Led:
    """A tensor-parallel engine, returned by the patched `load_pair` of the measurement."""
    made = led(tiny_models, "llama")

    start_as(FIRST_OF_TWO, monkeypatch)
    monkeypatch.setattr(job, "load_pair", lambda *_, **__: made.engine)
    return made


@pytest.mark.usefixtures("found")
def test_texts_are_measured_by_the_leader_without_transformers_own_generation(tiny_models: TinyModels) -> None:
    notes: list[str] = []
    done = measure_texts(TEXTS, notes.append)
    assert [row.name for row in done.report.rows] == ["ar", "dynatree", "linear 2"]
    assert [row.same for row in done.report.rows] == [1, 1, 1]
    pair = tiny_models.pair("llama")
    assert done.report.texts[0] == tiny_models.generate(pair, "float32", "The tree grows", 12)
    assert "transformers' own generation is left out: it needs the whole target in one process" in notes


@pytest.mark.usefixtures("found")
def test_the_report_tells_processes_and_the_memory_of_each() -> None:
    report = measure_texts(TEXTS, lambda _: None).report
    assert (report.setup.ranks, report.setup.place) == (["cpu", "cpu"], "2 processes on cpu")
    assert len(report.peak_bytes_by_rank) == 2
    assert report.peak_bytes_by_rank[0] == max(record.figures.peak_bytes or 0 for record in report.samples)
    told = table.on_texts(report)
    assert "on 2 processes on cpu in float32" in told
    assert "measured in 2 processes, turn by turn" in told
    assert "peak memory by process: " in told
    assert max(map(len, told.splitlines())) <= WIDTH


def test_a_text_that_differs_is_told_and_not_judged(found: Led, monkeypatch: pytest.MonkeyPatch) -> None:
    usual: Callable[..., Tensor] = found.leader.forward
    passes = 0

    def astray(*given: Any) -> Tensor:
        nonlocal passes
        passes += 1
        logits = usual(*given)
        return -logits if len(given[1]) > 2 else logits  # the rows of a tree, not of a plain step

    monkeypatch.setattr(found.leader, "forward", astray)
    report = measure_texts(TEXTS, lambda _: None).report
    assert passes
    (first, *_) = report.differences
    assert (first.near_tie, first.gap, first.judged) == (None, None, False)
    assert "first at token" in table.on_texts(report)
    assert "not judged" in table.on_texts(report)


@pytest.mark.usefixtures("found")
def test_methods_that_need_the_whole_target_are_refused_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "load_pair", lambda *_, **__: pytest.fail("it was loaded"))
    with pytest.raises(ConfigError, match=r"^streaming needs the whole target"):
        measure_texts(OnTexts(**{**vars(TEXTS), "methods": ("streaming",)}), lambda _: None)


def test_rounds_are_measured_with_a_draft_that_guesses(found: Led) -> None:
    asked = OnRounds(
        load=lambda **_: with_random_draft(found.engine),
        sizes=(Size(1, 2),),
        contexts=(8, 24),
        config=RunConfig(max_new_tokens=4),
        repeats=1,
    )
    report = measure_rounds(asked, lambda _: None).report
    assert [(row.name, row.context) for row in report.rounds] == [
        (name, length) for length in (8, 24) for name in (BASELINE, "1x2")
    ]
    assert len(report.peak_bytes_by_rank) == 2
    assert "2 processes" in table.on_rounds(report)


@pytest.mark.parametrize("given", [{"exact": True}, {"compiled": True}])
def test_passes_made_of_the_whole_target_are_refused_with_a_random_draft_too(
    given: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_as(FIRST_OF_TWO, monkeypatch)
    with pytest.raises(ConfigError, match=r"the whole target, which torchrun spreads"):
        loaded_pair(None, None, device="cpu", dtype="float32", **given)  # type: ignore[arg-type]
