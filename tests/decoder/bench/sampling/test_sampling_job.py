"""Whole comparisons on tiny models: closed forms at real roots, real rounds, and going on after a kill."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from decoder.bench.sampling.asked import Place, samplings
from decoder.bench.sampling.expected import Roots, expected
from decoder.bench.sampling.job import OnSamplings, measure_samplings
from decoder.bench.sampling.log import Log
from decoder.bench.sampling.realised import seeded
from decoder.bench.sampling.report import SamplingReport
from decoder.bench.sampling.table import on_samplings
from decoder.bench.sampling.tasks import Task
from decoder.draft.delayed_shape import DelayedTree
from decoder.errors import ConfigError, PromptError
from decoder.sampling.settings import Sampling
from decoder.verify.lossless.coins import PhiloxCoins
from decoder.verify.lossless.verifiers import VERIFIERS
from decoder.verify.names import VERIFIER_NAMES
from tests.decoder.bench.sampling.records import asked
from tests.decoder.makers import TinyModels

PROMPT = "The tree grows where"
TEXT = [5, 9, 17, 40, 3, 8, 61, 22]


def job(models: TinyModels, **changes: Any) -> OnSamplings:
    pair = models.pair("neox")
    given: dict[str, Any] = {
        "tasks": (Task("writing", (PROMPT, "A small model guesses")),),
        "samplings": samplings((0.8,), (0.9,)),
        "verifiers": ("nss", "specinfer", "block", "traversal"),
        "k": 2,
        "length": 2,
        "max_new_tokens": 8,
        "roots_every": 4,
        "target": str(pair.target),
        "draft": str(pair.draft),
        "device": "cpu",
        "dtype": "float32",
    }
    return OnSamplings(**given | changes)


@pytest.mark.parametrize("verifier", VERIFIER_NAMES)
def test_one_tree_tells_the_block_efficiency_of_all_that_are_cut_from_it(
    verifier: str, tiny_models: TinyModels
) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32").pair
    roots = Roots(pair, Sampling(0.8), 40, PhiloxCoins(0))
    (drawn,) = roots.trees(TEXT, [DelayedTree(3, 1, 3)])
    k = 1 if verifier in ("naive", "block") else 2
    found = drawn.by_depth(verifier, k, 1)
    for depth, tokens in enumerate(found):
        cut = drawn.cut(k, 1, depth)
        alone = VERIFIERS[verifier].expected_tokens(cut.tree, cut.target_probs, cut.draft_probs)
        assert tokens == pytest.approx(alone, abs=1e-12)
    assert found[0] == 1
    assert len(found) == 5


def test_trees_along_a_text_have_the_rows_of_plain_passes(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32").pair
    roots = Roots(pair, Sampling(0.8), 40, PhiloxCoins(0))
    shapes = [DelayedTree(2, 1, 1), DelayedTree(2, 0, 2)]
    for end in (3, 6):
        for drawn in roots.trees(TEXT[:end], shapes):
            for node in range(len(drawn.tree)):
                path = [drawn.tree.tokens[each] for each in drawn.tree.path(node)]
                logits = pair.target.read(pair.target.new_cache(40), [*TEXT[:end], *path])
                probs = (pair.known(logits[None])[0].double() / 0.8).softmax(-1)
                assert drawn.target_probs[node] == pytest.approx(probs.numpy(), abs=1e-4)


def test_what_is_expected_hangs_on_the_seed_and_the_place_alone(tiny_models: TinyModels) -> None:
    pair = tiny_models.loaded(tiny_models.pair("neox"), "float32").pair
    one, again = (expected(pair, asked(), Place(0, "one", 0), TEXT[:4], TEXT[4:]) for _ in range(2))
    other = expected(pair, asked(), Place(0, "one", 1), TEXT[:4], TEXT[4:])
    assert one == again
    assert one.tokens != other.tokens
    assert one.roots == 1
    assert one.tokens["block"][0] == one.tokens["traversal"][0] == 1


def test_a_verifier_that_is_always_right_accepts_whole_trees(tiny_models: TinyModels) -> None:
    """A draft that is the target itself: naive refuses nothing."""
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    twins = type(engine.pair)(**{**vars(engine.pair), "draft": engine.pair.target})
    found = expected(twins, asked(), Place(0, "one", 0), TEXT[:4], TEXT[4:])
    shapes = asked().shapes("naive")
    assert found.tokens["naive"] == pytest.approx([shape.depth + 1 for shape in shapes], abs=1e-3)
    assert found.distance == pytest.approx([0, 0, 0], abs=1e-3)


def test_no_two_texts_are_sampled_with_the_same_noise(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    those = asked(samplings=samplings((0.6, 1.0), ()), repeats=3)
    texts = [(place, repeat) for place in those.places() for repeat in range(3)]
    sampled = {text: seeded(engine, those, *text) for text in texts}
    assert len({each.seed for each in sampled.values()}) == len(texts)
    assert all(each.sampling.at(0) == those.samplings[place.sampling] for (place, _), each in sampled.items())


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "log.jsonl"


@pytest.fixture(scope="module")
def done(tiny_models: TinyModels, log: Path) -> SamplingReport:
    report, interrupted = measure_samplings(job(tiny_models, log=log), lambda _: None)
    assert not interrupted
    return report


@pytest.mark.slow
def test_a_comparison_measures_every_verifier_and_coupled_trees(done: SamplingReport) -> None:
    assert done.complete
    assert done.roots == 8
    speeds = {(row.verifier, row.drafting) for row in done.tokens_per_second}
    assert speeds >= {("nss", "iid"), ("nss", "delayed"), ("block", "iid"), ("traversal", "delayed")}
    assert speeds >= {("coupled", "dynatree"), ("coupled", "fixed"), ("coupled", "linear"), ("coupled", "ar")}
    assert all(1 <= row.mean.mean <= 5 for row in done.block_efficiency)
    assert "LitBench" in on_samplings(done)


@pytest.mark.slow
def test_a_measurement_that_was_killed_goes_on_and_measures_nothing_twice(
    tiny_models: TinyModels, done: SamplingReport, log: Path, tmp_path: Path
) -> None:
    lines = log.read_bytes().splitlines(keepends=True)
    half = tmp_path / "half.jsonl"
    half.write_bytes(b"".join(lines[:5]) + lines[5][:30])
    again, _ = measure_samplings(job(tiny_models, log=half), lambda _: None)
    assert half.read_bytes().splitlines(keepends=True)[:5] == lines[:5]
    assert [len(each.expected) for each in (Log(half), Log(log))] == [4, 4]
    assert again.actions == done.actions
    assert Log(half).expected == Log(log).expected


@pytest.mark.slow
def test_an_interruption_leaves_a_report_of_what_was_measured(tiny_models: TinyModels, tmp_path: Path) -> None:
    def note(line: str) -> None:
        if "roots of 1" in line:
            raise KeyboardInterrupt

    report, interrupted = measure_samplings(job(tiny_models, log=tmp_path / "log"), note)
    assert interrupted
    assert not report.complete
    assert report.tokens_per_second == []
    assert "INTERRUPTED" in on_samplings(report)
    assert msgspec.json.decode(msgspec.json.encode(report), type=SamplingReport) == report


def test_nothing_measured_is_nothing_reported(tiny_models: TinyModels) -> None:
    def note(line: str) -> None:
        if "measuring" in line:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_samplings(job(tiny_models), note)


@pytest.mark.parametrize(
    ("changes", "fault", "why"),
    [
        ({"verifiers": ("best",)}, ConfigError, "--verifiers names best"),
        ({"tasks": (Task("writing", (PROMPT, "word " * 300)),)}, PromptError, "prompt 2 of writing: the prompt has"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    changes: dict[str, Any], fault: type[Exception], why: str, tiny_models: TinyModels
) -> None:
    with pytest.raises(fault, match=why):
        measure_samplings(job(tiny_models, **changes), lambda _: None)
