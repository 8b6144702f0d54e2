"""Whole measurements of tiny models: consistent figures, checked texts, and tables within their width."""

import os
import platform
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from decoder.engine import Engine
from decoder.forward.compiled.library import library
from decoder.methods.auto import Auto
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.methods.method import Method
from decoder.run.config import RunConfig
from decoder.session.protocol import Outcome
from decoder.session.steering import Turn
from decoder.system.device import device_name
from decoder.tree import TokenTree
from dynatui.lab.bench import Done, job, machine, table
from dynatui.lab.bench.baselines import ASSISTED, LOOKED_UP, baselines
from dynatui.lab.bench.contenders import PROMPT_LOOKUP, decoded, own, sweep
from dynatui.lab.bench.job import OnTexts, Report, measure_texts
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.summary import Difference, Samples, rows
from dynatui.lab.frame import Median
from dynatui.session import Models
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.lab.bench.makers import interrupted_after, on_cpu

CONFIG = RunConfig(max_new_tokens=12)
FOREIGN = ("generate", "assisted", PROMPT_LOOKUP)


def on_texts(pair: tiny.TinyPair, **changes: Any) -> OnTexts:
    given: dict[str, Any] = {
        "prompts": ("The tree grows", "A small model guesses"),
        "config": CONFIG,
        "methods": ("dynatree", "ar", "linear", "fixed", "alg1"),
        "settings": {
            "dynatree": {"": DynaTree()},
            "linear": {"2": Linear(2), "3": Linear(3)},
            "fixed": {"2x2": Fixed(2, 2)},
        },
        "repeats": 1,
    }
    named = {name: changes.pop(name) for name in vars(Models()).keys() & changes}
    return OnTexts(replace(on_cpu(pair), **named), **given | changes)


def measured(pair: tiny.TinyPair, **changes: Any) -> Report:
    return measure_texts(on_texts(pair, **changes), lambda _: None).report


@pytest.fixture(scope="module")
def done(tiny_models: TinyModels) -> Done[Report]:
    return measure_texts(on_texts(tiny_models.pair("neox")), lambda _: None)


def test_every_method_and_all_baselines_have_the_texts_of_plain_decoding_and_of_transformers(
    tiny_models: TinyModels, done: Done[Report]
) -> None:
    names = ["ar", "dynatree", "linear 2", "linear 3", "fixed 2x2", "alg1", "generate dynamic", "generate static"]
    names += [f"assisted {name}" for name in ASSISTED]
    names += [f"prompt lookup {count}" for count in LOOKED_UP]
    report = done.report
    assert [(row.name, row.same, row.prompts, row.waits) for row in report.rows] == [(n, 2, 2, None) for n in names]
    assert len(report.samples) == len(names) * 2
    assert not done.interrupted
    assert report.differences == []
    assert report.texts[0] == tiny_models.generate(tiny_models.pair("neox"), "float32", "The tree grows", 12)


def test_rates_count_every_token_but_those_that_came_with_the_prompt(done: Done[Report]) -> None:
    for record in done.report.samples:
        found = record.figures
        assert found.committed == 12
        assert found.tokens_per_second is not None
        timed = found.tokens_per_second * found.decode_s
        if record.group in ("assisted", PROMPT_LOOKUP):
            assert 0 < timed < 12
        else:
            assert timed == pytest.approx(11 if record.group == "generate" else 12)


def test_the_parts_of_a_round_add_up_to_its_time_and_the_rest_is_more_than_the_host(done: Done[Report]) -> None:
    for row in done.report.rows:
        if row.group in FOREIGN:
            assert (row.draft_ms, row.host_ms, row.host_share, row.rest_share) == (None, None, None, None)
            continue
        parts = (row.draft_ms, row.verify_ms, row.commit_ms, row.host_ms)
        assert all(part is not None and part >= 0 for part in parts)
        assert row.round_ms == pytest.approx(sum(part for part in parts if part is not None), rel=0.2)
        assert row.rest_share is not None
        assert row.host_share is not None
        assert row.rest_share < 1
        if row.name != "alg1":  # its commit has a forward pass
            assert row.host_share < row.rest_share


def test_forward_passes_and_tokens_a_round_are_told(done: Done[Report]) -> None:
    found = {row.name: row for row in done.report.rows}
    assert (found["ar"].target_forwards, found["ar"].draft_forwards, found["ar"].tokens_per_round) == (1, 0, 1)
    assert found["linear 3"].target_forwards == 1
    assert found["alg1"].target_forwards == 2
    assert found["generate static"].tokens_per_round == 1
    assert (found["dynatree"].tokens_per_round or 0) > 1.2
    assert (found["assisted 3/0"].tokens_per_round or 0) > 1.2


def test_the_report_can_be_read_again_and_its_tables_fit_80_columns_and_name_everyone(done: Done[Report]) -> None:
    kept = msgspec.json.encode(done.report)
    again = msgspec.json.decode(kept, type=Report)
    assert msgspec.json.encode(again) == kept
    assert again.setup.contenders["linear 3"] == {"k": 3, "p_min": 0.0}
    assert again.setup.contenders["assisted 5/.4"]["num_assistant_tokens"] == 5
    assert again.setup.machine.versions["torch"] == str(torch.__version__)
    assert again.setup.dtype == "float32"
    assert again.setup.passes == dict.fromkeys(("target", "draft"), "torch" if library() is None else "compiled")
    text = table.on_texts(again)
    assert max(map(len, text.splitlines())) <= 80
    assert all(text.count(f"\n{row.name} ") >= 2 for row in done.report.rows)
    for label in ("tokens/s", "L-bar", "same as ar", "dynatree over linear (linear ", "best of 3"):
        assert label in text


def test_the_tables_fit_when_everything_is_large_and_on_a_gpu(done: Done[Report]) -> None:
    wide, ratio = Median(value=12345.67, low=123.45, high=234.56), Median(value=12.34, low=11.22, high=13.44)
    large = {"round_ms": 1234.5678, "draft_ms": 1234.5678, "peak_bytes": 123_456_000_000}
    large |= {"bandwidth_share": 0.987, "waits": 1.25}
    rates = {"tokens_per_second": wide, "over_ar": ratio, "over_generate": ratio}
    row = msgspec.structs.replace(done.report.rows[0], name="generate dynamic", **rates, **large)
    missing = Difference(name="generate dynamic", prompt=9, index=255, near_tie=False, gap=0.123)
    gpu = msgspec.structs.replace(done.report.setup.machine, accelerator="NVIDIA H200", copy_bytes_per_s=4.1e12)
    setup = msgspec.structs.replace(done.report.setup, machine=gpu)
    text = table.on_texts(msgspec.structs.replace(done.report, setup=setup, rows=[row], differences=[missing]))
    assert max(map(len, text.splitlines())) <= 80
    difference = "generate dynamic, prompt 10, first at token 255: NO TIE, gap 0.12"
    for part in ("NVIDIA H200, copies 4.10 TB/s", " 98.7", "  syncs", "  1.25", difference):
        assert part in text
    speeds = next(line for line in text.splitlines() if line.startswith("generate dynamic"))
    assert " ".join(speeds.split()[2:]) == "12345.7 1.00 12.3 11.2-13.4 12.3 11.2-13.4 2 of 2 98.7"


def test_what_was_not_measured_has_no_rate_and_is_a_dash(tiny_models: TinyModels) -> None:
    pair, short = tiny_models.pair("neox"), RunConfig(max_new_tokens=1)
    found = measured(pair, methods=("linear",), with_baselines=False, config=short)
    assert [row.name for row in found.rows] == ["ar", "linear 2", "linear 3"]
    assert found.best_generate is None
    line = next(line for line in table.on_texts(found).splitlines() if line.startswith("linear 2"))
    assert line.split()[-4:] == ["-", "2", "of", "2"]
    rows_of = {row.name: row for row in measured(pair, methods=("ar",), config=short).rows}
    assert rows_of["ar"].tokens_per_second is not None
    assert rows_of["generate static"].tokens_per_second is None
    assert rows_of["generate static"].same == 2


def test_sampled_texts_of_own_methods_are_ar_s_and_the_baselines_are_their_own(tiny_models: TinyModels) -> None:
    config = RunConfig(max_new_tokens=6, temperature=1.2)
    report = measured(tiny_models.pair("neox"), config=config)
    assert {(row.group in FOREIGN, row.same) for row in report.rows} == {(True, None), (False, 2)}
    assert all(row.tokens_per_second for row in report.rows)
    assert (report.setup.temperature, report.differences) == (1.2, [])
    assert "sampled at temperature 1.2" in table.on_texts(report)


def test_the_prompts_time_is_no_decode_time_and_the_assistant_s_settings_stay(tiny_models: TinyModels) -> None:
    engine: Engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    before = engine.pair.draft_model.hf.module.generation_config
    for contender in [*sweep((), CONFIG, {}), *baselines(engine.pair, RunConfig(max_new_tokens=4))]:
        start = time.perf_counter()
        tally = contender.run(engine, list(range(100))).tally
        assert 0 < (tally.prefill_s or 0) + tally.decode_s <= time.perf_counter() - start
    assert engine.pair.draft_model.hf.module.generation_config is before
    assert before.num_assistant_tokens is None


def test_the_clock_stands_outside_of_the_session(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that a session does not report is host time."""
    from decoder.session.host import HostSession  # noqa: PLC0415 - only this test patches it

    engine: Engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    honest = HostSession.step

    def dawdling(self: HostSession, *arguments: Any) -> Any:
        outcome = honest(self, *arguments)
        torch._standard_gamma(torch.ones(300_000))  # a few milliseconds that no reported part includes
        return outcome

    quick = decoded(engine, [1, 2, 3], "ar", CONFIG).tally
    monkeypatch.setattr(HostSession, "step", dawdling)
    slow = decoded(engine, [1, 2, 3], "ar", CONFIG).tally
    assert slow.tokens == quick.tokens
    assert slow.decode_s - (slow.verify_s or 0) > 2 * (quick.decode_s - (quick.verify_s or 0))


class Ahead:
    """A session that reports 50 s per round, most of it drafting before the clock started, and counts its waits."""

    kv_bytes = 1234

    def __init__(self) -> None:
        self.waits = 0

    def prefill(self) -> float:
        return 0.0

    def step(self, _turns: tuple[Turn, ...]) -> Outcome:
        self.waits += 2
        return Outcome(
            TokenTree([1]),
            committed=[7],
            round_s=50.0,
            draft_s=49.0,
            verify_s=1.0,
            commit_s=0.0,
            target_forwards=1,
            draft_forwards=1,
            finished="length" if self.waits == 6 else None,
        )

    def close(self) -> None:
        pass


def test_a_session_s_waits_and_memory_and_work_before_the_clock_started_count(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    session: Any = Ahead()
    method = Method("ar", "", opened=lambda *_: session)
    monkeypatch.setattr("dynatui.lab.bench.contenders.METHODS", {"ar": method})
    ahead = decoded(tiny_models.loaded(tiny_models.pair("neox"), "float32"), [1, 2, 3], "ar", CONFIG)
    assert (ahead.tally.decode_s, ahead.waits, ahead.kv_bytes) == (150.0, 6, 1234)
    sample = Sample("ar", "ar", 0, 0, ahead.tally, waits=ahead.waits)
    (row,) = rows(Samples([sample], [own("ar", "ar", "ar", CONFIG)]), 0, None)
    assert row.waits == 2.0


@pytest.mark.parametrize(("kind", "lengths"), [("cpu", [2]), ("cuda", [9, 5, 2])])
def test_an_accelerator_is_warmed_up_on_every_prompt_and_the_longest_first(kind: str, lengths: list[int]) -> None:
    pair: Any = SimpleNamespace(target=SimpleNamespace(device=torch.device(kind)))
    prompts = [[1] * 2, [1] * 9, [1] * 5]
    assert [len(prompt) for prompt in job._warm_up(pair, prompts)] == lengths


def test_an_interruption_reports_what_is_complete(tiny_models: TinyModels) -> None:
    texts = on_texts(tiny_models.pair("neox"), methods=("ar",), with_baselines=False, repeats=2)
    with pytest.raises(KeyboardInterrupt):
        measure_texts(texts, lambda _: None, interrupted_after(0))
    found = measure_texts(texts, lambda _: None, interrupted_after(3))
    assert found.interrupted
    assert [(record.repeat, record.prompt) for record in found.report.samples] == [(0, 0), (0, 1), (1, 0)]
    assert "INTERRUPTED: the results below are from 3 of 4 turns" in table.on_texts(found.report)


def test_an_embedding_that_is_the_head_too_is_read_and_another_is_not(tiny_models: TinyModels) -> None:
    engine: Engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    weights = sum(weight.numel() for weight in engine.pair.target.hf.module.parameters())
    assert machine.read_bytes(engine.pair.target) == 4 * (weights - 288 * 32)
    tied: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(
            "gpt_neox", vocab_size=288, hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=64, tie_word_embeddings=True,
        )
    )  # fmt: skip
    from decoder.forward.language_model import LanguageModel  # noqa: PLC0415 - only this test needs it

    assert machine.read_bytes(LanguageModel.of_module(tied, "tied")) == 4 * sum(
        weight.numel() for weight in tied.parameters()
    )


def test_an_accelerator_has_a_name_and_copies_that_are_timed_by_bytes_read_and_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = iter(float(tick) for tick in range(1000))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"accelerator {device.index}")
    assert device_name(torch.device("cuda:3")) == "accelerator 3"
    assert machine.examined(torch.device("cpu")).accelerator is None
    monkeypatch.setattr("dynatui.lab.bench.machine.Stopwatch.now", lambda _: next(ticks))
    assert machine.copy_bandwidth(torch.device("cpu"), size=1000) == 2000.0 * machine.COPIES


@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK) or platform.libc_ver()[0] != "glibc",
    reason="this system restarts no peak, or its allocator gives nothing back",
)
@pytest.mark.parametrize("blocks", [1, 2000])
def test_a_new_peak_knows_nothing_of_what_was_given_back(blocks: int) -> None:
    """The allocator keeps a group of small blocks while one of them is still in use."""
    device = torch.device("cpu")
    much = [torch.ones(200_000_000 // blocks, dtype=torch.uint8) for _ in range(blocks)]
    used = much[1000:1001]
    with machine.peak_during(device) as peak:
        high = peak()
        del much
        machine.begin_peak(device)
        assert peak() < high - 150_000_000
    del used


def test_exactness_is_measured_beside_the_same_without_it(tiny_models: TinyModels) -> None:
    report = measured(
        tiny_models.pair("gpt2"), methods=("dynatree",), dtype="bfloat16", exact=True, with_baselines=False
    )
    assert report.setup.exact
    assert [row.name for row in report.rows] == ["ar", "dynatree", "ar ~", "dynatree ~"]
    assert [row.group for row in report.rows] == ["ar", "dynatree", "not exact", "not exact"]
    assert report.rows[1].same == 2
    assert [line.than for line in report.comparisons] == ["ar", "ar ~", "dynatree ~"]
    assert report.setup.contenders["dynatree ~"]["exact"] is False
    page = table.on_texts(report)
    assert "on cpu in bfloat16 exact, greedy" in page
    assert "passes: target torch, draft torch" in page
    assert "~: method without exactness" in page
    assert max(map(len, page.splitlines())) <= 80


def test_lookups_are_measured_beside_those_of_transformers(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("neox")
    settings = {"linear": {"3": Linear(3)}, "auto": {"": Auto(), "no lookup": Auto(lookup=False)}}
    report = measured(pair, draft="lookup", methods=("linear",), settings=settings)
    found = {row.name: row for row in report.rows}
    assert list(found)[:4] == ["ar", "linear 3", "generate dynamic", "generate static"]
    assert list(found)[4:] == ["prompt lookup 5", "prompt lookup 10"]
    assert {row.same for row in report.rows} == {2}
    assert (found["linear 3"].draft_forwards, report.setup.draft) == (0, "lookup")
    assert max(map(len, table.on_texts(report).splitlines())) <= 80
    report = measured(pair, methods=("auto",), settings=settings, with_baselines=False)
    assert [row.name for row in report.rows] == ["ar", "auto", "auto no lookup"]
    assert ("auto", "auto no lookup") in [(each.name, each.than) for each in report.comparisons]
    assert "auto over auto no lookup" in table.on_texts(report)
