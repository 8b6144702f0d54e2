"""Rounds of given sizes after texts of given lengths: their cost, their arithmetic, and the growth of both."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs
from transformers import AutoModelForCausalLM

from decoder.analysis.metrics import Tally
from decoder.engine import Engine
from decoder.errors import ConfigError
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.session.host import HostSession
from dynatui.lab.bench import job, protocol, rounds, table
from dynatui.lab.bench.contenders import (
    Arithmetic,
    Contender,
    DecodedText,
    InstrumentedEngine,
    Seen,
    Shape,
    Work,
    decoded,
    kv_bytes,
    shape,
)
from dynatui.lab.bench.job import OnRounds, RoundsReport, measure_rounds
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.rounds import Size, growth
from dynatui.lab.bench.shapes import loaded_pair, random_pair, with_random_draft
from dynatui.lab.bench.summary import Samples
from dynatui.lab.frame import Median
from dynatui.lab.tables import short
from tests import tiny
from tests.decoder.makers import TinyModels, host_session, with_pair

CONFIG = RunConfig(max_new_tokens=6)
SIZES = (Size(1, 2), Size(2, 4), Size(4, 8), Size(8, 64))
CONTEXTS = (16, 60, 40)
NEOX = Shape(matrices=2 * (4 * 32 * 32 + 2 * 32 * 64), head=288 * 32, attention=2 * 2 * 32)
"""Shape of the tiny target below: two layers of width 32."""


Loader = Callable[..., Engine]


@pytest.fixture(scope="module")
def load(config_files: tuple[str, str]) -> Loader:
    return partial(random_pair, *config_files, device="cpu", dtype="float32")


def measured(load: Loader, sizes: Sequence[Size], contexts: Sequence[int], repeats: int = 1) -> RoundsReport:
    return measure_rounds(OnRounds(load, tuple(sizes), tuple(contexts), CONFIG, repeats), lambda _: None).report


@pytest.fixture(scope="module")
def report(load: Loader) -> RoundsReport:
    return measured(load, SIZES, CONTEXTS, repeats=2)


def of(report: RoundsReport, name: str, context: int) -> Any:
    return next(row for row in report.rounds if (row.name, row.context) == (name, context))


def test_rounds_have_the_levels_and_rows_that_were_asked_for_after_each_text(report: RoundsReport) -> None:
    expected = [("ar", 0, 1), ("1x2", 1, 2), ("2x4", 2, 4), ("4x8", 4, 8), ("8x64", 8, 64)]
    for context in CONTEXTS:
        rows = [row for row in report.rounds if row.context == context]
        assert [(row.name, row.levels, row.rows) for row in rows] == expected


def test_sampled_rounds_have_the_levels_and_rows_that_were_asked_for(
    load: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    truncated, engines, right = Sampling(1.0, top_k=50, top_p=0.95), list[Engine](), protocol.measured

    def noted(engine: Engine, *given: Any) -> Any:
        engines.append(engine)
        return right(engine, *given)

    monkeypatch.setattr(job, "measured", noted)
    config = CONFIG.with_rules(SAMPLING, truncated)
    found = measure_rounds(OnRounds(load, (Size(8, 64),), (16,), config, repeats=1), lambda _: None).report
    assert [engine.sampling.latest for engine in engines] == [truncated]
    assert [(row.levels, row.rows) for row in found.rounds] == [(0, 1), (8, 64)]
    assert "sampled at temperature 1" in table.on_rounds(found)


def test_a_row_has_tokens_a_second_for_what_its_tree_can_commit_and_growth_over_the_first_text(
    report: RoundsReport,
) -> None:
    deep = of(report, "8x64", 16)
    assert deep.tokens_per_second[7.08] == pytest.approx(7080 / deep.round_ms.value)
    assert list(of(report, "ar", 16).tokens_per_second) == [1.0]
    assert list(of(report, "2x4", 16).tokens_per_second) == [1.0, 2.0, 3.0]
    assert [(row.name, row.context, row.over) for row in report.growth] == [
        (name, context, 16) for name in ("ar", "1x2", "2x4", "4x8", "8x64") for context in (60, 40)
    ]


def test_multiply_adds_are_those_of_exactly_the_calls_that_the_rounds_made(report: RoundsReport) -> None:
    """Six rounds; before the first, the caches hold all tokens except the last."""
    record = next(record for record in report.samples if (record.contender, record.prompt) == ("ar", 0))
    assert record.target_work == Work(calls=6, rows=6, looks=sum(range(16, 22)), scored=6)
    assert record.draft_work == Work()
    tree: Any = next(record for record in report.samples if (record.contender, record.prompt) == ("1x2", 1))
    assert tree.target_work == Work(calls=6, rows=12, looks=sum(2 * (59 + done + 2) for done in range(6)), scored=12)
    assert tree.draft_work == Work(calls=6, rows=6, looks=sum(range(60, 66)), scored=6)
    assert report.arithmetic.target == NEOX
    expected = 6 * NEOX.matrices + 6 * NEOX.head + sum(range(16, 22)) * NEOX.attention
    assert of(report, "ar", 16).multiply_adds == pytest.approx(expected / 6)
    both = report.arithmetic.multiply_adds(tree.target_work, tree.draft_work)
    assert both == report.arithmetic.target.multiply_adds(tree.target_work) + (
        report.arithmetic.draft.multiply_adds(tree.draft_work)
    )
    assert of(report, "1x2", 60).multiply_adds == pytest.approx(both / 6, rel=0.02)


def test_keys_and_values_grow_by_the_rows_of_the_text(report: RoundsReport) -> None:
    """A row of the cache takes two numbers of four bytes for each dimension and layer, in the target and, except for
    ar, in the draft.

    The number of nodes that a draft tries for a tree of given size varies slightly between texts, and so does the
    cache.
    """
    target, draft = 2 * 4 * 2 * 32, 2 * 4 * 16
    for row in report.growth:
        a_row = target if row.name == "ar" else target + draft
        tried = 0 if row.name == "ar" else int(row.name.partition("x")[2]) * draft
        assert row.kv_bytes is not None
        assert abs(row.kv_bytes - (row.context - 16) * a_row) < max(1, tried)
    assert of(report, "ar", 16).kv_bytes == (16 + 6 + 1) * target
    assert all(row.peak_bytes > 10_000_000 for row in report.rounds)


def test_the_peak_begins_anew_between_the_prompt_and_the_rounds(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []

    def noted(name: str, function: Any) -> Any:
        def call(*given: Any) -> Any:
            happened.append(name)
            return function(*given)

        return call

    monkeypatch.setattr(rounds, "begin_peak", noted("peak", lambda _: None))
    monkeypatch.setattr(HostSession, "prefill", noted("prompt", HostSession.prefill))
    monkeypatch.setattr(HostSession, "step", noted("round", HostSession.step))
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    for contender in rounds.sized_contenders(RunConfig(max_new_tokens=1), [Size(2, 4)]):
        contender.run(pair, [1, 2, 3])
    assert happened == ["prompt", "peak", "round"] * 2


@pytest.mark.parametrize("family", ["neox", "gpt2"])
def test_what_a_cache_takes_is_read_from_its_tensor_unused_rows_included(tiny_models: TinyModels, family: str) -> None:
    engine: Engine = tiny_models.loaded(tiny_models.pair(family), "float32")
    session = host_session(engine, [1, 2, 3], 20, Linear(4))
    session.prefill()
    before: Any = kv_bytes(session)
    target = 2 * 4 * 2 * 32 * (3 + 20 + 1 + 4)
    assert before > target
    session.target_cache.reserve(1000)
    assert kv_bytes(session) == before - target + 2 * 4 * 2 * 32 * 1000
    teller: Any = SimpleNamespace(kv_bytes=7)
    assert kv_bytes(teller) == 7


def test_calls_after_the_prompt_are_counted_and_a_text_that_is_read_needs_one_row_of_logits(
    tiny_models: TinyModels,
) -> None:
    trial: Any = decoded(tiny_models.loaded(tiny_models.pair("gpt2"), "float32"), [1, 2, 3], "ar", CONFIG)
    assert trial.seen.target == Work(calls=6, rows=6, looks=sum(range(3, 9)), scored=6), "of a plain module"
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    trial = decoded(engine, list(range(150)), "ar", CONFIG)
    assert trial.seen.target.rows == 6
    watched = InstrumentedEngine(engine)
    watched.engine.pair.draft_model.read(watched.engine.pair.draft_model.new_cache(8), [1, 2, 3])
    seen: Any = watched.seen()
    assert (seen.target, seen.draft) == (Work(), Work(calls=1, rows=3, looks=9, scored=1))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("neox", NEOX),
        # Half as many key-value heads: fewer weights, but the attention of each query head costs the same.
        ("llama", Shape(2 * (2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64), 288 * 32, 2 * 2 * 32)),
        ("qwen3", Shape(2 * (2 * 32 * 64 + 2 * 32 * 32 + 3 * 32 * 64), 288 * 32, 2 * 2 * 64)),
        ("gpt2", Shape(2 * (4 * 32 * 32 + 2 * 32 * 128), 288 * 32, 2 * 2 * 32)),
    ],
)
def test_the_shape_of_a_family_is_counted(name: str, expected: Shape) -> None:
    assert shape(AutoModelForCausalLM.from_config(tiny.FAMILIES[name]())) == expected
    if name == "neox":  # a matrix for both ends is counted at the end alone
        tied = AutoModelForCausalLM.from_config(tiny.FAMILIES[name](tie_word_embeddings=True, num_attention_heads=2))
        assert shape(tied) == expected


ONE = [Contender("ar", "ar", lambda _pair, _ids: DecodedText(Tally()), {})]


def took(decode_s: float, work: Work, kv: int, *, prompt: int, repeat: int) -> Sample:
    """Ten rounds; half of the time is drafting, in two levels per round."""
    tally = Tally(
        rounds=10,
        timed_tokens=10,
        decode_s=decode_s,
        draft_s=decode_s / 2,
        verify_s=decode_s / 4,
        commit_s=0.0,
        target_forwards=10,
        draft_forwards=20,
        peak_bytes=1000 + kv,
    )
    return Sample("ar", "ar", prompt, repeat, tally, seen=Seen(0.0, work, Work()), kv_bytes=kv)


def test_growth_is_that_of_turns_side_by_side_over_that_of_their_arithmetic() -> None:
    """The machine slows down tenfold per repeat; the longer text takes three times as long for twice the arithmetic."""
    found = []
    for repeat, slow in enumerate((1.0, 10.0, 100.0)):
        found.append(took(1.0 * slow, Work(rows=100), 50, prompt=0, repeat=repeat))
        found.append(took(3.0 * slow, Work(rows=100, looks=50), 80, prompt=1, repeat=repeat))
    arithmetic = Arithmetic(Shape(matrices=1, head=0, attention=2), Shape(9, 9, 9))
    row: Any = growth(Samples(found, ONE), (256, 1024), 0, arithmetic)[0]
    assert (row.context, row.over) == (1024, 256)
    assert (row.round.low, row.round.value, row.round.high) == pytest.approx((3.0, 3.0, 3.0))
    assert row.multiply_adds == 2.0
    assert (row.beyond.low, row.beyond.value, row.beyond.high) == pytest.approx((1.5, 1.5, 1.5))
    assert row.level == pytest.approx(3.0)
    assert row.verify == pytest.approx(3.0)
    assert (row.kv_bytes, row.peak_bytes) == (30, 30)


def test_where_calls_and_caches_are_not_known_only_time_and_the_peak_are_told() -> None:
    found = [replace(took(1.0 + at, Work(), 5, prompt=at, repeat=0), seen=None, kv_bytes=None) for at in range(2)]
    row: Any = growth(Samples(found, ONE), (1, 2), 0, Arithmetic(Shape(1, 1, 1), Shape(1, 1, 1)))[0]
    assert row.round == Median(value=2.0, low=None, high=None)
    assert (row.multiply_adds, row.beyond, row.kv_bytes, row.peak_bytes) == (None, None, None, 0)


@pytest.mark.parametrize("family", ["neox", "gpt2"])
def test_loaded_models_are_measured_with_the_same_trees_and_exactly_where_asked(
    tiny_models: TinyModels, family: str
) -> None:
    saved, exact = tiny_models.pair(family), family == "gpt2"
    dtype = "bfloat16" if exact else "float32"
    load = partial(loaded_pair, str(saved.target), str(saved.draft), device="cpu", dtype=dtype, exact=exact)
    found = measured(load, [Size(2, 4), Size(4, 8)], [9])
    expected = [("ar", 0, 1), ("2x4", 2, 4), ("4x8", 4, 8)]
    assert [(row.name, row.levels, row.rows) for row in found.rounds] == expected
    assert {record.figures.committed for record in found.samples} == {6}
    assert (found.setup.exact, found.growth) == (exact, [])
    assert found.setup.draft.endswith("(random head)")
    assert "Growth" not in table.on_rounds(found), "there is one length"


def test_an_end_of_text_ends_no_rounds(tiny_models: TinyModels) -> None:
    def load(**_: Any) -> Engine:
        return with_pair(
            with_random_draft(tiny_models.loaded(tiny_models.pair("neox"), "float32")), eos=frozenset(range(288))
        )

    found = measured(load, [Size(1, 2)], [9])
    assert {record.figures.rounds for record in found.samples} == {6}


def test_a_text_whose_last_tree_would_not_fit_and_trees_that_cannot_be_are_refused(load: Loader) -> None:
    fits = OnRounds(load, (Size(8, 16), Size(2, 577)), (192 - 6 - 8,), CONFIG, repeats=1)
    found = measure_rounds(fits, lambda _: None).report
    assert (of(found, "8x16", 178).levels, of(found, "2x577", 178).rows) == (8, 577)
    with pytest.raises(ConfigError, match="179 random tokens and 14 new and drafted tokens exceed the context of 192"):
        measure_rounds(replace(fits, contexts=(16, 179)), lambda _: None)
    with pytest.raises(ConfigError, match="no tree has 578 rows on 2 levels with a vocabulary of 288 tokens"):
        measure_rounds(replace(fits, sizes=(Size(1, 2), Size(2, 578))), lambda _: None)
    for depth, rows in ((0, 4), (4, 4), (2, 1), (1, 1), (-1, 3)):
        with pytest.raises(ConfigError, match=f"no tree has {depth} levels in {rows} rows"):
            rounds.sized_contenders(CONFIG, [Size(depth, rows)])


def test_the_report_of_rounds_can_be_read_again_and_its_tables_fit_80_columns(report: RoundsReport) -> None:
    kept = msgspec.json.encode(report)
    assert msgspec.json.encode(msgspec.json.decode(kept, type=RoundsReport)) == kept
    assert "INTERRUPTED" not in table.on_rounds(report)
    wide = Median(value=1234.5, low=1200.1, high=1300.2)
    large = structs.replace(report.rounds[-1], round_ms=wide, draft_ms=1234.5, bandwidth_share=0.5, waits=1.0)
    grown = Median(value=12.34, low=11.22, high=13.44)
    much = structs.replace(report.growth[-1], round=grown, beyond=grown, level=12.3)
    huge = structs.replace(of(report, "ar", 60), kv_bytes=123_456_000_000, peak_bytes=123_456_000_000)
    whole = structs.replace(report, rounds=[*report.rounds, large, huge], growth=[*report.growth, much])
    for found in (report, whole):
        text = table.on_rounds(found)
        assert max(map(len, text.splitlines())) <= 80
        assert "target.json with draft.json on cpu in float32" in text
        assert ("limit  syncs" in text) == (found is not report)
        assert all(f"After {context} random tokens" in text for context in CONTEXTS)


def test_the_table_of_growth_has_a_line_a_size_and_longer_text(report: RoundsReport) -> None:
    text = table.on_rounds(report)
    lines = text.partition("Growth relative to 16 tokens:")[2].partition("sums:")[0].splitlines()[2:]
    assert [line.split()[:2] for line in lines] == [[row.name, str(row.context)] for row in report.growth]
    for row, line in zip(report.growth, lines, strict=True):
        assert row.beyond
        assert f" {short(row.round.value)} " in line
        assert f" {short(row.beyond.value)} " in line
