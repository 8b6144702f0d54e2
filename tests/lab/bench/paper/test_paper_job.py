"""Measurements of tiny models, in a second or two: the log, blocks, early ends, and resuming."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec import structs

from decoder.engine import Engine
from decoder.errors import ConfigError, PromptError
from decoder.forward.near_tie import Verdict
from decoder.run.config import RunConfig
from dynatui.lab.bench import baselines, record_log
from dynatui.lab.bench.contenders import DecodedText, decoded, tallied
from dynatui.lab.bench.data_sets import TextSet
from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.paper import job as paper_job
from dynatui.lab.bench.paper import records
from dynatui.lab.bench.paper.experiments import ASSISTANT, Extent, fixed_grid, sensitivity
from dynatui.lab.bench.paper.job import OnPaper, Prepared, measure, prepared, turns
from dynatui.lab.bench.paper.records import (
    FORMAT,
    CostCurve,
    Header,
    LaneResult,
    PaperLane,
    PromptResult,
    Resumed,
    blocks_of,
)
from dynatui.lab.bench.paper.report import PaperReport, report
from dynatui.lab.bench.protocol import Sample, totals_at
from dynatui.lab.bench.record_log import RecordLog
from tests import tiny
from tests.decoder.makers import TinyModels
from tests.lab.bench.makers import MACHINE, on_cpu
from tests.lab.bench.paper.reports import block, header

TEXTS = ("The tree grows where the draft is sure", "A small model guesses", "Nothing is lost: the text")
WIKITEXT = TextSet(name="wikitext", title="Some texts", stands_for="WikiText-2", prompts=TEXTS)
BOOKS = TextSet(name="books", title="Some books", stands_for="PG-19", prompts=TEXTS[::-1])
EXTENT = Extent(
    lanes=("linear K=4", "phase 3"),
    prompts=2,
    length=12,
    lengths=(4, 9, 100),
    prompt_lengths=(8, 20),
    varied=sensitivity(thresholds=((0.8, 0.3),), breadths=((1, 2),), depths=((4, 6),)),
    grid=fixed_grid(depths=(3,), branchings=(2, 3), taus=(0.05,)),
    grid_prompts=1,
    warm_up=1,
    attempts=1,
)
ONE = replace(EXTENT, experiments=("main",), lanes=("linear K=4",), warm_up=0)
TWICE = replace(EXTENT, repeats=2)


def job(pair: tiny.TinyPair, extent: Extent = EXTENT, **changes: Any) -> OnPaper:
    return OnPaper(on_cpu(pair), extent=extent, **{"text_sets": (WIKITEXT, BOOKS)} | changes)


def readied(request: OnPaper, note: Callable[[str], None] = lambda _: None) -> Prepared:
    """A measurement before its first turn; its log is no longer locked."""
    with prepared(request, note) as ready:
        return ready


def done(request: OnPaper, note: Callable[[str], None] = lambda _: None) -> Prepared:
    """A measurement after its last turn."""
    with prepared(request, note) as ready:
        list(measure(ready, note))
        return ready


def places(blocks: Sequence[PromptResult]) -> list[tuple[int, int, int]]:
    return [(block.experiment, block.prompt, block.repeat) for block in blocks]


@pytest.fixture(autouse=True)
def _known_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes cost curves, since measuring one takes seconds; only the module-scoped `whole` measures its own."""
    costs = CostCurve(rows=(1,), verify_s=(1.0,), draft_s=(1.0,))
    monkeypatch.setattr(records, "cost_curve", lambda *_: costs)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log.jsonl"


@pytest.fixture(scope="module")
def whole(tiny_models: TinyModels, log: Path) -> Prepared:
    """After each step, the log's file has all finished blocks, so that a kill loses none of them."""
    with prepared(job(tiny_models.pair("neox"), TWICE, log=log), lambda _: None) as ready:
        shares = list[float]()
        for step in measure(ready, lambda _: None):
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


def test_every_lane_of_every_experiment_decodes_every_prompt_cut_to_its_length(whole: Prepared) -> None:
    experiments, order = whole.header.request.experiments, [lane.name for lane in whole.header.request.lanes]
    blocks = blocks_of(whole.log)
    assert sorted(places(blocks)) == [
        (number, prompt, repeat)
        for number, each in enumerate(experiments)
        for prompt in range(each.prompts)
        for repeat in range(2)
    ]
    for taken in blocks:
        each = experiments[taken.experiment]
        assert [turn.lane for turn in taken.turns] == sorted(each.lanes, key=order.index)
        assert all(len(turn.at) == len(each.lengths) for turn in taken.turns)
    tokens = {(taken.experiment, taken.prompt): taken.prompt_tokens for taken in blocks}
    short, long = (number for number, each in enumerate(experiments) if each.name == "prompt_length")
    assert tokens[short, 0] < tokens[long, 0] < tokens[0, 0]


def test_all_texts_are_those_of_plain_decoding_and_figures_are_of_so_many_tokens(found: PaperReport) -> None:
    assert found.complete
    assert all(row.same == row.prompts for row in found.rows)
    assert {row.length for row in found.rows if row.experiment.name == "main"} == {4, 9, 12}
    lengths = [each.lengths for each in found.request.experiments]
    for turn, wanted in ((turn, lengths[taken.experiment]) for taken in found.blocks for turn in taken.turns):
        assert tuple(each.committed for each in turn.at) == wanted
        assert turn.at[-1].peak_bytes
        assert all(each.peak_bytes is None for each in turn.at[:-1])
    header = found.header
    assert (header.context, header.request.device, header.request.dtype) == (tiny.CONTEXT, "cpu", "float32")
    assert header.costs.rows == (1, 2, 4, 8, 16, 32, 64)
    assert all(seconds > 0 for seconds in header.costs.verify_s + header.costs.draft_s)
    assert not header.commit or len(header.commit.removesuffix("-dirty")) == 40


def test_a_measurement_that_was_cut_off_goes_on_and_measures_nothing_twice(
    tiny_models: TinyModels, whole: Prepared, log: Path, tmp_path: Path
) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    part, kept = tmp_path / "part.jsonl", len(lines) - 5
    part.write_bytes(b"".join(lines[:kept]) + lines[kept][:50])
    told: list[str] = []
    again = done(job(tiny_models.pair("neox"), TWICE, log=part), told.append)
    assert part.read_bytes().splitlines(keepends=True)[:kept] == lines[:kept]
    assert sorted(places(blocks_of(again.log))) == sorted(places(blocks_of(whole.log)))
    assert f"resuming: {kept - 1} blocks are measured already" in told


@pytest.mark.usefixtures("whole")
def test_what_is_complete_is_not_measured_again_and_something_else_is_refused(
    tiny_models: TinyModels, log: Path
) -> None:
    before, pair = log.read_bytes(), tiny_models.pair("neox")
    again = readied(job(pair, TWICE, log=log))
    assert [each.share for each in measure(again, pytest.fail)] == [1.0]
    assert log.read_bytes() == before
    with pytest.raises(ConfigError, match="was started with other values of seed, experiments; give the same values, "):
        readied(job(pair, EXTENT, log=log, seed=1))


def test_texts_go_on_behind_the_end_of_text(tiny_models: TinyModels) -> None:
    ids = tiny_models.generate(tiny_models.pair("neox"), "float32", TEXTS[0], 12)
    pair = tiny_models.ending("neox", eos_token_id=ids[3])
    lanes = ("linear K=4", "alg1", "generate dynamic", ASSISTANT)
    extent = replace(ONE, lanes=lanes, prompts=1)
    for stops, length in ((False, 12), (True, ids.index(ids[3]) + 1)):
        (block,) = blocks_of(done(job(pair, extent, text_sets=(WIKITEXT,), stops_at_eos=stops)).log)
        assert [turn.at[-1].committed for turn in block.turns] == [length] * 5


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
    ready = readied(job(tiny_models.pair("neox"), ONE))
    for step in measure(ready, lambda _: None):
        if step.line == "main, wikitext: prompt 2 of 2":
            break
    assert places(blocks_of(ready.log)) == [(0, 0, 0)]
    assert not report(ready.header, blocks_of(ready.log)).complete


def test_as_many_tokens_as_fit_are_decoded_where_no_number_was_asked_for(tiny_models: TinyModels) -> None:
    told, pair, long = list[str](), tiny_models.pair("neox"), replace(ONE, length=1500)
    ready = readied(job(pair, long), told.append)
    room = tiny.CONTEXT - max(len(ids) for these in ready.prompts for ids in these)
    assert {each.lengths[-1] for each in ready.header.request.experiments} == {room}
    assert f"leaves room for {room} new tokens in the models' context; {room} tokens are decoded" in str(told)
    with pytest.raises(ConfigError, match=rf"--max-new-tokens is 1500, but .* room for {room} new .*; give {room} or"):
        readied(job(pair, long, must_fit=True))


@pytest.mark.parametrize(
    ("extent", "prompts", "why"),
    [
        (replace(ONE, most=10**6), ("word " * 300,), "prompt 1 of wikitext: the prompt has "),
        (replace(ONE, most=500, unit="tokens"), TEXTS, "--prompt-tokens is 500, but the models' context is 192"),
        (ONE, ("  ",), "prompt 1 of wikitext: the prompt is empty"),
    ],
)
def test_a_prompt_that_cannot_be_is_refused(
    extent: Extent, prompts: tuple[str, ...], why: str, tiny_models: TinyModels
) -> None:
    texts = TextSet(name="wikitext", title="", prompts=prompts)
    with pytest.raises(PromptError, match=why):
        readied(job(tiny_models.pair("neox"), extent, text_sets=(texts,)))


def test_a_prompt_is_cut_to_so_many_tokens_and_only_what_is_read_of_long_texts_is_kept(tiny_models: TinyModels) -> None:
    pair, books = tiny_models.pair("neox"), structs.replace(BOOKS, prompts=("a book " * 1000,) * 5)
    ready = readied(job(pair, replace(ONE, most=5, unit="tokens")))
    assert {len(ids) for these in ready.prompts for ids in these} == {5}
    ready = readied(job(pair, replace(ONE, most=30), text_sets=(books,)))
    (kept,) = ready.header.request.text_sets
    assert [len(prompt) for prompt in kept.prompts] == [30, 30]


def test_what_is_not_possible_is_refused_before_models_are_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper_job, "load_pair", lambda *_, **__: pytest.fail("loaded"))
    nobody = tiny.TinyPair(Path("none"), Path("none"))
    for changes in ({"extent": replace(ONE, lanes=("best",))}, {"temperature": -1.0}, {"top_p": 0.0}):
        with pytest.raises(ConfigError):
            readied(job(nobody, **{"extent": ONE} | changes))


def went_on(monkeypatch: pytest.MonkeyPatch, path: Path, commit: str | None, machine: Machine = MACHINE) -> Header:
    """The header with which a measurement on this machine, at this commit, starts."""
    pair: Any = SimpleNamespace(target=SimpleNamespace(device=torch.device("cpu")), context=64)
    monkeypatch.setattr(record_log, "examined", lambda _: machine)
    monkeypatch.setattr(records, "source_commit", lambda: commit)
    monkeypatch.setattr(records, "VERSION", machine.versions["dynatui"])
    return records.header(pair, header().request, RecordLog(path, FORMAT), 8, lambda _: None)


@pytest.fixture
def half(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log made at commit "a" in which one of two blocks is missing."""
    went_on(monkeypatch, tmp_path / "log", "a")
    RecordLog(tmp_path / "log", FORMAT).add(block(0))
    return tmp_path / "log"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"processor": "another"}, "processor a processor there, another here"),
        ({"cores": 4}, "cores 2 there, 4 here"),
        ({"accelerator": "a GPU"}, "accelerator None there, a GPU here"),
        ({"versions": {"dynatui": "0", "torch": "3"}}, "torch 2 there, 3 here"),
    ],
)
def test_another_machine_is_refused_by_what_differs_unless_nothing_is_missing(
    changes: dict[str, Any], why: str, half: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, other = half.read_bytes(), structs.replace(MACHINE, **changes)
    line = f"log was started on another machine: {why}; remove this file, or set --output to another folder$"
    with pytest.raises(ConfigError, match=line):
        went_on(monkeypatch, half, "a", other)
    assert half.read_bytes() == before
    RecordLog(half, FORMAT).add(block(1))
    complete = half.read_bytes()
    found = went_on(monkeypatch, half, "b", other)
    assert (found.commit, found.machine) == ("a", MACHINE)
    assert half.read_bytes() == complete


def test_load_and_threads_are_no_other_machine(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = structs.replace(MACHINE, load_before=9.0, threads=2, system="Linux 7")
    assert went_on(monkeypatch, half, "a", changed).machine == MACHINE


def test_each_commit_and_version_that_went_on_is_kept_once(half: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for commit in ("a", "b", "b", None, "a"):
        went_on(monkeypatch, half, commit)
    went_on(monkeypatch, half, "a", structs.replace(MACHINE, versions={"dynatui": "1", "torch": "2"}))
    found = [(each.commit, each.version) for each in RecordLog(half, FORMAT).of(Resumed)]
    assert found == [("b", "0"), (None, "0"), ("a", "0"), ("a", "1")]
    assert blocks_of(RecordLog(half, FORMAT)) == [block(0)]


PROMPT = [5, 9, 17, 40]
AR = PaperLane(name="ar", method="ar", family="ar", parameters={})
FOREIGN = PaperLane(name="generate dynamic", method="generate", family="hf", parameters={})


@pytest.fixture(scope="module")
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair("neox"), "float32")


@pytest.fixture(scope="module")
def plain(engine: Engine) -> DecodedText:
    return decoded(engine, PROMPT, "ar", RunConfig(max_new_tokens=8))


def compared(engine: Engine, plain: DecodedText, lane: PaperLane, fifth: int = 0) -> tuple[LaneResult, ...]:
    """Results of ar and of a lane with the same rounds; `fifth` changes bits of the fifth token of the lane's text."""
    rounds = list(plain.rounds)
    rounds[4] = structs.replace(rounds[4], committed=[rounds[4].committed[0] ^ fifth])
    other = replace(plain, tally=tallied(None, rounds), rounds=rounds)
    samples = [
        Sample(name, name, 0, 0, text.tally, at=totals_at(text, (2, 6, 8)), kv_bytes=text.kv_bytes, waited=0.0)
        for name, text in (("ar", plain), (lane.name, other))
    ]
    return turns(engine, structs.replace(header().request, lanes=(AR, lane)), PROMPT, samples)


def test_the_same_text_is_told_as_such_and_a_difference_is_judged_where_it_is_seen(
    engine: Engine, plain: DecodedText
) -> None:
    ar, other = compared(engine, plain, FOREIGN)
    assert [each.identical_to_ar for each in other.at] == [True] * 3
    assert [each.speedup for each in (*ar.at, *other.at)] == [1.0] * 6
    assert {each.near_tie for each in other.at} == {None}
    _, other = compared(engine, plain, FOREIGN, fifth=1)
    assert [each.first_difference for each in other.at] == [None, 4, 4]
    assert [each.near_tie for each in other.at] == [None, False, False]
    assert (other.at[-1].first_difference_gap or 0) > 0
    _, other = compared(engine, plain, structs.replace(FOREIGN, own_text=True), fifth=1)
    assert {(each.identical_to_ar, each.first_difference, each.near_tie) for each in other.at} == {(None, None, None)}
    assert other.at[-1].speedup == 1.0


@pytest.mark.parametrize(("method", "by_module"), [("generate", True), ("linear", False)])
def test_what_transformers_wrote_is_judged_by_the_module_too(
    method: str,
    by_module: bool,  # noqa: FBT001 - a parameter of the test
    engine: Engine,
    plain: DecodedText,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[list[int], bool]] = []

    def judge(prefix: list[int], _rivals: tuple[int, int], *, by_module: bool) -> Verdict:
        asked.append((prefix, by_module))
        return Verdict(near_tie=True, gap=0.0)

    monkeypatch.setattr(paper_job, "Judge", lambda *_: judge)
    _, other = compared(engine, plain, structs.replace(FOREIGN, method=method), fifth=1)
    assert asked == [([*PROMPT, *plain.tally.tokens[:4]], by_module)]
    assert other.at[-1].near_tie
