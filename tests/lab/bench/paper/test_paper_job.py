"""Whole measurements of tiny models: the log, early ends, and resuming."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder.errors import ConfigError, PromptError
from dynatui.lab.bench import baselines
from dynatui.lab.bench.data_sets.prompts import TextSet
from dynatui.lab.bench.paper import job as paper_job
from dynatui.lab.bench.paper import records as header
from dynatui.lab.bench.paper.experiments import ASSISTANT
from dynatui.lab.bench.paper.job import Prepared, measure, prepared
from dynatui.lab.bench.paper.records import PromptResult, blocks_of
from dynatui.lab.bench.paper.report import PaperReport, report
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.lab.bench.paper.tiny_measurements import BOOKS, EXTENT, KNOWN_COSTS, TEXTS, WIKITEXT, done, job, readied

ONE = replace(EXTENT, experiments=("main",), lanes=("linear K=4",), warm_up=0)


def places(blocks: list[PromptResult]) -> list[tuple[int, int, int]]:
    return [(block.experiment, block.prompt, block.repeat) for block in blocks]


def unheard(_line: str) -> None:
    """Ignores a progress line."""


@pytest.fixture(autouse=True)
def _known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes cost curves, since measuring one takes seconds; only the module-scoped `whole` measures its own."""
    monkeypatch.setattr(header, "cost_curve", lambda *_: KNOWN_COSTS)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log.jsonl"


@pytest.fixture(scope="module")
def whole(tiny_models: TinyModels, log: Path) -> Prepared:
    """After each step, the log's file has all finished blocks, so that a kill loses none of them."""
    with prepared(job(tiny_models.pair("neox"), replace(EXTENT, repeats=2), log=log), unheard) as ready:
        shares = list[float]()
        for step in measure(ready, unheard):
            shares.append(step.share)
            assert log.read_bytes().count(b"\n") == 1 + len(ready.log.records)
    assert len(shares) > len(blocks_of(ready.log))
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.1
    assert shares[-2] == pytest.approx(1.0)
    return ready


@pytest.fixture(scope="module")
def found(whole: Prepared) -> PaperReport:
    return report(whole.header, blocks_of(whole.log))


def test_every_lane_of_every_experiment_decodes_every_prompt(whole: Prepared) -> None:
    experiments, order = whole.header.request.experiments, [lane.name for lane in whole.header.request.lanes]
    request = [
        (number, prompt, repeat)
        for number, each in enumerate(experiments)
        for prompt in range(each.prompts)
        for repeat in range(2)
    ]
    assert sorted(places(blocks_of(whole.log))) == request
    for block in blocks_of(whole.log):
        each = experiments[block.experiment]
        assert [turn.lane for turn in block.turns] == sorted(each.lanes, key=order.index)
        assert all(len(turn.at) == len(each.lengths) for turn in block.turns)


def test_all_texts_are_those_of_plain_decoding_and_figures_are_of_so_many_tokens(found: PaperReport) -> None:
    assert found.complete
    assert all(row.same == row.prompts for row in found.rows)
    assert {row.length for row in found.rows if row.experiment.name == "main"} == {4, 9, 12}
    lengths = [each.lengths for each in found.header.request.experiments]
    for turn, wanted in ((turn, lengths[block.experiment]) for block in found.blocks for turn in block.turns):
        assert tuple(each.committed for each in turn.at) == wanted
        assert turn.at[-1].peak_bytes
        assert all(each.peak_bytes is None for each in turn.at[:-1])


def test_prompts_are_cut_to_the_length_of_the_experiment(whole: Prepared) -> None:
    tokens = {(block.experiment, block.prompt): block.prompt_tokens for block in blocks_of(whole.log)}
    names = [each.name for each in whole.header.request.experiments]
    short, long = (number for number, name in enumerate(names) if name == "prompt_length")
    assert tokens[short, 0] < tokens[long, 0] < tokens[0, 0]


def test_a_report_says_where_and_by_what_it_was_measured(found: PaperReport) -> None:
    header = found.header
    assert (header.context, header.request.device, header.request.dtype) == (tiny.CONTEXT, "cpu", "float32")
    assert header.costs.rows == (1, 2, 4, 8, 16, 32, 64)
    assert all(seconds > 0 for seconds in header.costs.verify_s + header.costs.draft_s)
    assert not header.commit or len(header.commit.removesuffix("-dirty")) == 40


def test_a_measurement_that_was_cut_off_goes_on_and_measures_nothing_twice(
    tiny_models: TinyModels, whole: Prepared, log: Path, tmp_path: Path
) -> None:
    assert blocks_of(whole.log)
    lines = log.read_bytes().splitlines(keepends=True)
    part, kept = tmp_path / "part.jsonl", len(lines) - 5
    part.write_bytes(b"".join(lines[:kept]) + lines[kept][:50])
    told: list[str] = []
    again = done(job(tiny_models.pair("neox"), replace(EXTENT, repeats=2), log=part), told.append)
    assert part.read_bytes().splitlines(keepends=True)[:kept] == lines[:kept]
    assert sorted(places(blocks_of(again.log))) == sorted(places(blocks_of(whole.log)))
    assert f"resuming: {kept - 1} blocks are measured already" in told


def test_what_is_complete_is_not_measured_again_and_something_else_is_refused(
    tiny_models: TinyModels, whole: Prepared, log: Path
) -> None:
    assert blocks_of(whole.log)
    before, pair = log.read_bytes(), tiny_models.pair("neox")
    again = readied(job(pair, replace(EXTENT, repeats=2), log=log), unheard)
    assert [each.share for each in measure(again, pytest.fail)] == [1.0]
    assert log.read_bytes() == before
    with pytest.raises(ConfigError, match="was started with other values of seed, experiments; give the same values, "):
        readied(job(pair, EXTENT, log=log, seed=1), unheard)


def test_texts_go_on_behind_the_end_of_text(tiny_models: TinyModels) -> None:
    ids = tiny_models.generate(tiny_models.pair("neox"), "float32", TEXTS[0], 12)
    end = ids[3]
    pair = tiny_models.ending("neox", eos_token_id=end)
    lanes = ("linear K=4", "alg1", "generate dynamic", ASSISTANT)
    extent = replace(ONE, lanes=lanes, prompts=1)
    (on,) = blocks_of(done(job(pair, extent, text_sets=(WIKITEXT,))).log)
    assert {turn.at[-1].committed for turn in on.turns} == {12}
    assert len(on.turns) == 5
    (off,) = blocks_of(done(job(pair, extent, text_sets=(WIKITEXT,), stops_at_eos=True)).log)
    assert {turn.at[-1].committed for turn in off.turns} == {ids.index(end) + 1}


def test_sampled_texts_are_ar_s_or_transformers_own(tiny_models: TinyModels) -> None:
    extent = replace(ONE, lanes=("phase 2", "generate dynamic"), prompts=1)
    (block,) = blocks_of(done(job(tiny_models.pair("neox"), extent, text_sets=(WIKITEXT,), temperature=1.0)).log)
    same = {turn.lane: turn.at[-1].identical_to_ar for turn in block.turns}
    assert same == {"ar": True, "phase 2": True, "generate dynamic": None}


def test_a_foreign_lane_that_fails_is_left_out_with_a_note(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: Any, **__: Any) -> None:
        raise ValueError("no such cache")

    monkeypatch.setattr(baselines, "_generated", refusing)
    told: list[str] = []
    extent = replace(ONE, lanes=("linear K=4", ASSISTANT), warm_up=1)
    ready = done(job(tiny_models.pair("neox"), extent, text_sets=(WIKITEXT,)), told.append)
    assert f"{ASSISTANT} is left out: no such cache" in told
    assert {turn.lane for block in blocks_of(ready.log) for turn in block.turns} == {"ar", "linear K=4"}
    assert report(ready.header, blocks_of(ready.log)).complete


def test_an_interruption_leaves_the_blocks_that_are_complete(tiny_models: TinyModels) -> None:
    ready = readied(job(tiny_models.pair("neox"), ONE), unheard)
    for step in measure(ready, unheard):
        if step.line == "main, wikitext: prompt 2 of 2":
            break
    assert places(blocks_of(ready.log)) == [(0, 0, 0)]
    assert not report(ready.header, blocks_of(ready.log)).complete


def test_as_many_tokens_as_fit_are_decoded_where_no_number_was_asked_for(tiny_models: TinyModels) -> None:
    told, pair, long = list[str](), tiny_models.pair("neox"), replace(ONE, length=1500)
    ready = readied(job(pair, long), told.append)
    longest = max(len(ids) for these in ready.prompts for ids in these)
    room = tiny.CONTEXT - longest
    assert {each.lengths[-1] for each in ready.header.request.experiments} == {room}
    assert (
        f"the longest prompt leaves room for {room} new tokens in the models' context; {room} tokens are decoded"
        in str(told)
    )
    with pytest.raises(ConfigError, match=rf"--max-new-tokens is 1500, but .* room for {room} new .*; give {room} or"):
        readied(job(pair, long, must_fit=True), unheard)


@pytest.mark.parametrize(
    ("extent", "prompts", "why"),
    [
        (replace(ONE, most=10**6), ("word " * 300,), "prompt 1 of wikitext: the prompt has "),
        (
            replace(ONE, most=500, unit="tokens"),
            TEXTS,
            "--prompt-tokens is 500, but the models' context is 192; give 191",
        ),
        (ONE, ("  ",), "prompt 1 of wikitext: the prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(
    extent: Any, prompts: tuple[str, ...], why: str, tiny_models: TinyModels
) -> None:
    texts = TextSet(name="wikitext", title="", prompts=prompts)
    with pytest.raises(PromptError, match=why):
        readied(job(tiny_models.pair("neox"), extent, text_sets=(texts,)), unheard)


def test_a_prompt_is_cut_to_so_many_tokens_and_only_what_is_read_of_long_texts_is_kept(tiny_models: TinyModels) -> None:
    pair, books = tiny_models.pair("neox"), msgspec.structs.replace(BOOKS, prompts=("a book " * 1000,) * 5)
    ready = readied(job(pair, replace(ONE, most=5, unit="tokens")), unheard)
    assert {len(ids) for these in ready.prompts for ids in these} == {5}
    ready = readied(job(pair, replace(ONE, most=30), text_sets=(books,)), unheard)
    (kept,) = ready.header.request.text_sets
    assert [len(prompt) for prompt in kept.prompts] == [30, 30]


def test_what_is_not_possible_is_refused_before_models_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_job, "load_pair", lambda *_, **__: pytest.fail("loaded"))
    nobody = tiny.TinyPair(Path("none"), Path("none"))
    for changes in ({"extent": replace(ONE, lanes=("best",))}, {"temperature": -1.0}, {"top_p": 0.0}):
        with pytest.raises(ConfigError):
            readied(job(nobody, **{"extent": ONE} | changes), unheard)
