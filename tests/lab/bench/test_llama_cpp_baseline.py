"""llama.cpp's own decoding runs as a contender beside the methods, on a GGUF target or on a GGUF file of a target in
torch.
"""

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gguf_files import write
from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import ConfigError, DecoderError, PromptError
from decoder.models.checkpoints import EMBEDDED_TARGET
from dynatui.lab.bench.baselines import DRAFTED, NAME, llama_cpp_baselines
from dynatui.lab.bench.contenders import own
from dynatui.lab.bench.job import OnTexts, measure_texts
from dynatui.lab.bench.shapes import loaded_pair
from dynatui.session import Models
from tests.gguf_pair import GgufPair, needs_llama_cpp

pytestmark = needs_llama_cpp
CONFIG = RunConfig(methods=("ar",), max_new_tokens=20)


@pytest.fixture(scope="module")
def engine(gguf_pair: GgufPair) -> Engine:
    return load_pair(str(gguf_pair.draft()), "lookup", run=CONFIG)


def test_each_writes_the_text_of_ar_and_errors_of_llama_cpp_are_still_reported(
    engine: Engine, gguf_pair: GgufPair, tmp_path: Path
) -> None:
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
    (tmp_path / "short.gguf").write_bytes(gguf_pair.draft().read_bytes()[:-1000])
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
    asked = OnTexts(Models(name, "lookup"), prompts=("Once",), config=CONFIG, methods=("ar",), settings={}, repeats=1)
    done = measure_texts(asked, notes.append)
    assert [row.name for row in done.report.rows] == ["ar", NAME]
    assert any("transformers' own generation is left out" in note for note in notes)


def beside_torch(file: Path, **changes: Any) -> OnTexts:
    """A measurement of the embedded pair in torch, beside llama.cpp's decoding of a file."""
    given: dict[str, Any] = {"methods": ("ar",), "settings": {}, "with_baselines": False, "repeats": 1}
    given |= {"prompts": ("Once upon a time",), "config": CONFIG, "models": Models(device="cpu", dtype="float32")}
    return OnTexts(llama_cpp=str(file), **given | changes)


def test_a_file_of_the_weights_in_torch_is_measured_and_has_the_text_of_ar(gguf_pair: GgufPair) -> None:
    report = measure_texts(beside_torch(gguf_pair.target()), lambda _: None).report
    plain, other = report.rows
    assert (plain.name, other.name) == ("ar", NAME)
    assert (other.same, other.prompts) == (1, 1)
    assert other.tokens_per_second
    assert other.tokens_per_second.value > 0
    assert report.setup.target == EMBEDDED_TARGET.name
    assert report.setup.contenders[NAME] == {"file": "books-16m-F32.gguf", "precision": "GGUF F32", "n_max": 0}


def test_baselines_of_transformers_stay_beside_a_file_for_llama_cpp(gguf_pair: GgufPair) -> None:
    asked = beside_torch(gguf_pair.target(), with_baselines=True, config=RunConfig(methods=("ar",), max_new_tokens=4))
    groups = {row.group for row in measure_texts(asked, lambda _: None).report.rows}
    assert groups == {"ar", "generate", "assisted", "prompt lookup", NAME}


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"max_position_embeddings": 16}, PromptError, "context of 16 tokens"),
        ({"vocab_size": 2049}, ConfigError, "has 2049 tokens, but books-16m has 2048; give a GGUF file of"),
    ],
)
def test_a_file_with_another_vocabulary_or_too_short_a_context_is_refused(
    changes: dict[str, Any], error: type[DecoderError], why: str, tmp_path: Path
) -> None:
    file = write(EMBEDDED_TARGET, tmp_path / "other.gguf", **changes)
    with pytest.raises(error, match=why):
        measure_texts(beside_torch(file), lambda _: None)


def refused_before_loading(asked: OnTexts) -> str:
    notes = list[str]()
    with pytest.raises(ConfigError) as refusal:
        measure_texts(asked, notes.append)
    assert notes == []
    assert refusal.value.about == ("llama_cpp",)
    return str(refusal.value)


def test_a_file_that_cannot_be_measured_is_refused_before_models_are_loaded(
    gguf_pair: GgufPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, unnamed, file = tmp_path / "text.gguf", tmp_path / "weights", gguf_pair.draft()
    text.write_text("text")
    unnamed.write_bytes(file.read_bytes())
    drawn = RunConfig(methods=("ar",), temperature=0.5)
    for asked, why in (
        (beside_torch(Path("none.gguf")), "there is no file none.gguf; give"),
        (beside_torch(text), "text.gguf is not a GGUF file"),
        (beside_torch(unnamed), "names of GGUF files end with .gguf"),
        (beside_torch(file, models=Models(str(file), "lookup")), "has no effect beside the target"),
        (beside_torch(file, config=drawn), "greedy decoding, but --temperature is 0.5; leave"),
    ):
        assert why in refused_before_loading(asked)

    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    refusal = refused_before_loading(beside_torch(gguf_pair.target()))
    assert "which is not installed; pip install 'dynatui[gguf]'" in refusal


def test_a_random_draft_needs_models_in_torch() -> None:
    with pytest.raises(ConfigError, match="guesses at random needs models in torch"):
        loaded_pair("a.gguf", "b.gguf", device="auto", dtype="auto")
