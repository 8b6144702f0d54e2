"""Tests of stages: texts are compared with those of `ar` and of the CPU, kernels are those of a round, and missing
packages are named with what they need.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs

from benchmarks.stages import texts
from benchmarks.stages.journal import JOURNAL, Journal
from benchmarks.stages.packages import lacking, remedy, requirements
from benchmarks.stages.plan import DRY, STAGES
from benchmarks.stages.rounds import Profile, Share, shares
from benchmarks.stages.worker import Work
from decoder import decode
from decoder.engine import Engine
from decoder.events import Event, Summary
from decoder.sampling.settings import Sampling
from dynatui import prompts
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


CUDA, CPU = "DeviceType.CUDA", "DeviceType.CPU"


def average(name: str, count: int, us: float, device: str = CUDA) -> SimpleNamespace:
    return SimpleNamespace(key=name, count=count, self_device_time_total=us, device_type=device)


def test_figures_are_those_of_one_round_on_the_device_and_the_longest_kernel_comes_first() -> None:
    averages = [average("topk", 4, 6.0), average("gemm", 2, 36.0), average("cudaGraphLaunch", 2, 0.0, CPU)]
    assert shares(averages, 2) == [Share("gemm", 1, 18.0), Share("topk", 2, 3.0)]


@pytest.mark.filterwarnings("ignore:Warning. Profiler clears events")  # torch 2.11
def test_averages_of_torch_s_own_profiler_have_what_is_asked_of_them() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(2).sum()
    averages = profiler.key_averages()
    assert {str(each.device_type) for each in averages} == {CPU}
    assert all(each.count > 0 and each.self_device_time_total == 0 for each in averages)
    assert shares(averages, 1) == []


def test_the_page_fits_a_terminal_and_names_the_kernels() -> None:
    kernels = [Share("void at::native::elementwise_kernel<" + "x" * 300, 3, 200.0), Share("gemm", 1, 18.0)]
    summary, *lines = str(Profile(250.0, kernels)).splitlines()
    assert summary == "250 us a round, 218 us of them in 4 kernels"
    assert max(map(len, lines)) <= 90
    assert lines[-1].endswith("gemm")


def test_nothing_is_lacking_where_all_is_installed() -> None:
    assert lacking(name for stage in STAGES for name in stage.packages) == []


def test_absent_packages_and_older_releases_than_pyproject_allows_are_lacking_and_two_commands_bring_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed = {"click": "8.1.0", "rich": "15.0.0", "torch": "2.11.0+cu130"}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    found = lacking(["click", "torch", "pyte"])
    assert found == [str(requirements()["click"]), "pyte"]
    assert "pip download -d wheels 'click<9,>=8.5' pyte;" in remedy(found)
    assert remedy(found).endswith("pip install --no-index --find-links wheels 'click<9,>=8.5' pyte")
    installed["click"] = "8.5.1"
    assert lacking(["click"]) == []
