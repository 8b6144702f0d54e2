"""Tests of the stages that decode texts: a text that is not the one of `ar`, or not the CPU's, is told."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from benchmarks.stages import texts
from benchmarks.stages.journal import JOURNAL, Journal
from benchmarks.stages.plan import DRY
from benchmarks.stages.worker import Work
from decoder import decode
from decoder.engine import Engine
from decoder.events import Event, Summary
from decoder.sampling.settings import Sampling
from dynatui.prompts import load as prompts
from tests.decoder.makers import TinyModels


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work("embedded", Journal(tmp_path / JOURNAL, 0.0, dry=True), replace(DRY, prompts=1), kernels=False)


@pytest.fixture
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair("long"), "float32")


def noted(
    run: Callable[[Work], None], work: Work, engines: Sequence[Engine], monkeypatch: pytest.MonkeyPatch
) -> list[dict[str, Any]]:
    """Lines with texts of a stage that loads these engines, first the GPU's, then the CPU's."""
    waiting = iter(engines)
    monkeypatch.setattr(texts, "load_pair", lambda *_, **__: next(waiting))
    monkeypatch.setattr(prompts, "embedded", lambda: ("abcabcabc",))
    run(work)
    lines = map(json.loads, work.journal.path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if "ar" in line]


def test_each_text_is_compared_greedy_and_sampled_and_measured_twice(
    work: Work, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = noted(texts.embedded, work, [engine, engine], monkeypatch)
    beginnings = [line["text"].partition(":")[0] for line in lines]
    greedy, sampled = (f"{setting}, prompt 1" for setting in ("greedy", "temperature 1, top-k 50, top-p 0.95"))
    assert beginnings == [f"{each}, {time} time" for each in (greedy, sampled) for time in ("first", "second")]
    assert all(line["text"].endswith("every text is that of ar, as on the CPU") for line in lines)
    assert all([*line["figures"]] == [*texts.METHODS] for line in lines)


def test_a_text_that_differs_from_the_cpu_s_is_told_with_the_place(
    work: Work, engine: Engine, tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tiny_models.loaded(tiny_models.pair("llama"), "float32")
    for line in noted(texts.bfloat16, work, [engine, other], monkeypatch):
        place = line["differs_from_cpu"]
        assert place is not None
        assert line["text"].endswith(f"as on the CPU up to token {place}")


def test_a_method_whose_text_differs_is_told_with_the_place_and_whether_it_is_a_near_tie(
    work: Work, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*given: Any) -> Iterator[Event]:
        for event in decode(*given):
            if isinstance(event, Summary) and "linear" in event.methods:
                other = structs.replace(
                    event.methods["linear"], identical_to_ar=False, first_difference=3, near_tie=True
                )
                yield structs.replace(event, methods={**event.methods, "linear": other})
            else:
                yield event

    monkeypatch.setattr(texts, "decode", damaged)
    lines = noted(texts.bfloat16, work, [engine, engine], monkeypatch)
    assert all("; linear differs at token 3 (near tie), as on the CPU" in line["text"] for line in lines)


def test_sampling_settings_are_told_in_words() -> None:
    settings = Sampling(), Sampling(temperature=0.5), texts.TRUNCATED
    assert [*map(texts.words, settings)] == ["greedy", "temperature 0.5", "temperature 1, top-k 50, top-p 0.95"]
