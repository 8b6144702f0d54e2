"""Whole comparisons of tiny models: closed forms at real roots, real rounds, and resuming after a kill."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from decoder.errors import ConfigError, PromptError
from decoder.methods.delayed import SHIPPED
from decoder.selector.chooser import SHIPPED as FILES
from dynatui.lab.bench import Done, Note, Show, machine, record_log
from dynatui.lab.bench.record_log import RecordLog
from dynatui.lab.bench.sampling.job import expected, measure_samplings, seeded
from dynatui.lab.bench.sampling.records import FORMAT, Expected, TextKey, samplings
from dynatui.lab.bench.sampling.report import SamplingReport
from dynatui.lab.bench.sampling.table import on_samplings
from dynatui.session import Models
from tests.decoder.makers import TinyModels
from tests.lab.bench.makers import interrupted_after, on_cpu
from tests.lab.bench.sampling.records import request

PROMPT = "The tree grows where"
TEXT = [5, 9, 17, 40, 3, 8, 61, 22]


def measured(
    models: TinyModels, note: Note = lambda _: None, show: Show = iter, *, log: Path | None = None, **changes: Any
) -> Done[SamplingReport]:
    given: dict[str, Any] = {
        "tasks": {"writing": (PROMPT, "A small model guesses")},
        "samplings": samplings((0.8,), (0.9,)),
        "verifiers": ("nss", "specinfer", "block", "traversal"),
    }
    selector = changes.pop("selector", SHIPPED)
    pair = on_cpu(models.pair("neox"))
    return measure_samplings(pair, request(**given | changes), note, show, selector=selector, path=log)


@pytest.fixture(autouse=True)
def _costs_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs are measured once instead of several times; the module-scoped `done` measures them as users do."""
    monkeypatch.setattr(machine, "COST_SERIES", 1)


def test_what_is_expected_hangs_on_the_seed_and_the_place_alone(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32").pair
    one, again = (expected(pair, request(), TextKey(0, "one", 0), TEXT[:4], TEXT[4:]) for _ in range(2))
    other = expected(pair, request(), TextKey(0, "one", 1), TEXT[:4], TEXT[4:])
    assert one == again
    assert one.tokens != other.tokens
    assert one.roots == 1
    assert one.tokens["block"][0] == one.tokens["traversal"][0] == 1


def test_a_verifier_that_is_always_right_accepts_whole_trees(tiny_models: TinyModels) -> None:
    """The draft is the target itself, so naive verification rejects nothing."""
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    twins = type(engine.pair)(**{**vars(engine.pair), "draft": engine.pair.target})
    found = expected(twins, request(), TextKey(0, "one", 0), TEXT[:4], TEXT[4:])
    shapes = request().shapes("naive")
    assert found.tokens["naive"] == pytest.approx([shape.depth + 1 for shape in shapes], abs=1e-3)
    assert found.distance == pytest.approx([0, 0, 0], abs=1e-3)


def test_no_two_texts_are_sampled_with_the_same_noise(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    those = request(samplings=samplings((0.6, 1.0), ()), repeats=3)
    texts = [(place, repeat) for place in those.places() for repeat in range(3)]
    sampled = {text: seeded(engine, those, *text) for text in texts}
    assert len({each.seed for each in sampled.values()}) == len(texts)
    assert all(each.sampling.at(0) == those.samplings[place.sampling] for (place, _), each in sampled.items())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log.jsonl"


@pytest.fixture(scope="module")
def done(tiny_models: TinyModels, log: Path) -> SamplingReport:
    found = measured(tiny_models, log=log)
    assert not found.interrupted
    return found.report


def test_a_comparison_measures_every_verifier_and_coupled_trees(done: SamplingReport) -> None:
    assert done.complete
    assert done.roots == 8
    speeds = {(row.verifier, row.drafting) for row in done.tokens_per_second}
    assert speeds >= {("nss", "iid"), ("nss", "delayed"), ("block", "iid"), ("traversal", "delayed")}
    assert speeds >= {("coupled", "dynatree"), ("coupled", "fixed"), ("coupled", "linear"), ("coupled", "ar")}
    assert all(1 <= row.mean.value <= 5 for row in done.block_efficiency)
    assert "LitBench" in on_samplings(done)


def test_a_measurement_that_was_killed_goes_on_and_measures_nothing_twice(
    tiny_models: TinyModels, done: SamplingReport, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    half = tmp_path / "half.jsonl"
    half.write_bytes(b"".join(lines[:5]) + lines[5][:30])
    again = measured(tiny_models, log=half).report
    assert half.read_bytes().splitlines(keepends=True)[:5] == lines[:5]
    assert [len(each.of(Expected)) for each in (RecordLog(half, FORMAT), RecordLog(log, FORMAT))] == [4, 4]
    assert again.actions == done.actions
    whole, other = log.read_bytes(), structs.replace(done.header.machine, cores=done.header.machine.cores + 1)
    monkeypatch.setattr(record_log, "examined", lambda _: other)
    assert measured(tiny_models, log=log).report.actions == done.actions
    assert log.read_bytes() == whole, "what is whole is shown on any machine"
    assert RecordLog(half, FORMAT).of(Expected) == RecordLog(log, FORMAT).of(Expected)


def test_an_interruption_leaves_a_report_of_what_was_measured(tiny_models: TinyModels, tmp_path: Path) -> None:
    found = measured(tiny_models, show=interrupted_after(1), log=tmp_path / "log")
    report = found.report
    assert found.interrupted
    assert not report.complete
    assert report.tokens_per_second == []
    assert "INTERRUPTED" in on_samplings(report)
    assert msgspec.json.decode(msgspec.json.encode(report), type=SamplingReport) == report


def test_nothing_measured_is_nothing_reported_and_a_missing_selector_is_noted(tiny_models: TinyModels) -> None:
    said = list[str]()

    def note(line: str) -> None:
        said.append(line)
        if "measuring" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured(tiny_models, note)
    assert any(line.startswith("shapes are compared without a selector: dynatui comes without") for line in said)


def test_a_prompt_that_does_not_fit_is_named(tiny_models: TinyModels) -> None:
    with pytest.raises(PromptError, match="prompt 2 of writing: the prompt has"):
        measured(tiny_models, tasks={"writing": (PROMPT, "word " * 300)})


def test_the_selector_of_the_embedded_pair_takes_part(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    asked = request(
        tasks={"writing": ("The old man put down his lantern",)},
        verifiers=("specinfer", "naive"),
        k=4,
        length=8,
        max_new_tokens=5,
    )
    brief = Models(device="cpu", dtype="float32")
    report = measure_samplings(brief, asked, lambda _: None, path=log).report
    rows = [(row.verifier, row.drafting) for row in report.block_efficiency + report.tokens_per_second]
    assert rows.count(("specinfer", "selector")) == 2
    assert ("naive", "selector") not in rows
    (record,) = RecordLog(log, FORMAT).of(Expected)
    assert record.selected["specinfer"] <= max(record.tokens["specinfer"])
    assert [named.split()[0] for named in report.header.request.selectors] == ["specinfer", "traversal"]


def test_a_selector_that_does_not_fit_is_refused(tiny_models: TinyModels) -> None:
    with pytest.raises(ConfigError, match="was trained for books-16m with books-1m"):
        measured(tiny_models, selector=str(next(FILES.glob("*.safetensors"))))
