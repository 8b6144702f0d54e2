"""llama.cpp's own decoding, plain and speculative, runs as a contender beside the methods on a GGUF target."""

from pathlib import Path

import pytest

from decoder import RunConfig, load_pair
from decoder.bench.contenders import own
from decoder.bench.job import OnTexts, measure_texts
from decoder.bench.llama_cpp_baseline import DRAFTED, NAME, llama_cpp_baselines
from decoder.bench.shapes import loaded_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
CONFIG = RunConfig(methods=("ar",), max_new_tokens=20)


@pytest.fixture(scope="module")
def engine(gguf_pair: GgufPair) -> Engine:
    return load_pair(str(gguf_pair.draft()), "lookup", run=CONFIG)


def test_each_writes_the_text_of_ar(engine: Engine, gguf_pair: GgufPair) -> None:
    file = str(gguf_pair.draft())
    ids = engine.pair.tokenizer("Once upon a time").input_ids
    contenders = llama_cpp_baselines(engine.pair, CONFIG, file, file)
    trials = {contender.name: contender.run(engine, ids).tally for contender in contenders}
    text = own("ar", "ar", "ar", CONFIG).run(engine, ids).tally.tokens
    assert list(trials) == [NAME, *(f"{NAME} {count}" for count in DRAFTED)]
    assert all(tally.tokens == text for tally in trials.values())
    assert trials[NAME].rounds == CONFIG.max_new_tokens
    # The model drafts for itself, so all drafted tokens are accepted; the first token takes a round without drafts.
    assert all(tally.accepted == tally.drafted > 0 for tally in [*trials.values()][1:])
    assert trials[f"{NAME} 5"].rounds == 1 + -(-(CONFIG.max_new_tokens - 1) // 6)


def test_errors_of_llama_cpp_are_reported_after_a_server_has_started(gguf_pair: GgufPair, tmp_path: Path) -> None:
    file = gguf_pair.draft()
    engine = load_pair(str(file), "lookup", run=CONFIG)
    llama_cpp_baselines(engine.pair, CONFIG, str(file), None)[0].run(engine, engine.pair.tokenizer("Once").input_ids)
    (tmp_path / "short.gguf").write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ConfigError, match="corrupted or incomplete"):
        load_pair(str(tmp_path / "short.gguf"), "lookup", run=CONFIG)


def test_they_draw_no_samples_and_need_gguf_files(engine: Engine, gguf_pair: GgufPair) -> None:
    file = str(gguf_pair.draft())
    assert not llama_cpp_baselines(engine.pair, RunConfig(methods=("ar",), temperature=0.5), file, file)
    assert not llama_cpp_baselines(load_pair(dtype="float32").pair, CONFIG, None, None)
    assert len(llama_cpp_baselines(engine.pair, CONFIG, file, "lookup")) == 1


def test_a_benchmark_has_them_in_place_of_the_baselines_in_torch(gguf_pair: GgufPair) -> None:
    notes = list[str]()
    name = str(gguf_pair.draft())
    asked = OnTexts(
        target=name, draft="lookup", prompts=("Once",), config=CONFIG, methods=("ar",), settings={}, repeats=1
    )
    done = measure_texts(asked, notes.append)
    assert [row.name for row in done.report.rows] == ["ar", NAME]
    assert any("transformers' own generation is left out" in note for note in notes)


def test_a_random_draft_needs_models_in_torch() -> None:
    with pytest.raises(ConfigError, match="guesses at random needs models in torch"):
        loaded_pair("a.gguf", "b.gguf", device="auto", dtype="auto")
