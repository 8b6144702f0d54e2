"""llama.cpp's plain decoding is a contender beside the methods on a GGUF target, with the same text as ar."""

import pytest

from decoder import RunConfig, load_pair
from decoder.bench.contenders import own
from decoder.bench.job import OnTexts, measure_texts
from decoder.bench.llama_cpp_baseline import NAME, llama_cpp_baselines
from decoder.bench.shapes import loaded_pair
from decoder.engine import Engine
from decoder.errors import ConfigError
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
CONFIG = RunConfig(methods=("ar",), max_new_tokens=20)


@pytest.fixture(scope="module")
def engine(gguf_pair: GgufPair) -> Engine:
    return load_pair(str(gguf_pair.draft()), "lookup", run=CONFIG)


def test_it_writes_the_text_of_ar(engine: Engine) -> None:
    (contender,) = llama_cpp_baselines(engine.pair, CONFIG)
    ids = engine.pair.tokenizer("Once upon a time").input_ids
    plain = contender.run(engine, ids)
    assert plain.tally.tokens == own("ar", "ar", "ar", CONFIG).run(engine, ids).tally.tokens
    assert plain.tally.rounds == CONFIG.max_new_tokens


def test_it_draws_no_samples_and_needs_a_gguf_target(engine: Engine) -> None:
    assert not llama_cpp_baselines(engine.pair, RunConfig(methods=("ar",), temperature=0.5))
    assert not llama_cpp_baselines(load_pair(dtype="float32").pair, CONFIG)


def test_a_benchmark_has_it_in_place_of_the_baselines_in_torch(gguf_pair: GgufPair) -> None:
    notes = list[str]()
    name = str(gguf_pair.draft())
    asked = OnTexts(target=name, draft=name, prompts=("Once",), config=CONFIG, methods=("ar",), settings={}, repeats=1)
    done = measure_texts(asked, notes.append)
    assert [row.name for row in done.report.rows] == ["ar", NAME]
    assert any("transformers' own generation is left out" in note for note in notes)


def test_a_random_draft_needs_models_in_torch() -> None:
    with pytest.raises(ConfigError, match="guesses at random is for models in torch"):
        loaded_pair("a.gguf", "b.gguf", device="auto", dtype="auto")
