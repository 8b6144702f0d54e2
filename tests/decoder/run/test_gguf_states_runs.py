"""GGUF models with recurrent states, as target and as draft: every method writes the text of plain llama_decode."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import PairError
from decoder.forward.llama_cpp.forward import LlamaStateCache
from decoder.models.checkpoints import EMBEDDED_TARGET, load_config
from decoder.models.gguf.words import gguf_words
from decoder.run.decoding_path import decoding_path
from dynatui.main import main
from tests.decoder.makers import texts_of
from tests.decoder.session.made_costs import PAYING
from tests.gguf_pair import GgufPair, GgufStates, needs_llama_cpp, plain_text

pytestmark = needs_llama_cpp
PROMPT = "It was a dark and stormy night; the rain fell in torrents"
LENGTH, SHORT = 120, 40
METHODS = ("ar", "linear", "dynatree", "auto")
texts = partial(texts_of, prompt=PROMPT)
USUAL = ("mamba", "mamba2", "lfm2", "qwen3next")
FURTHER = ("falcon-h1", "qwen35", "rwkv7")
DISTINCT = 8
"""Least number of different tokens that makes a text a useful test."""
ACCEPTED = 1.2
"""Least number of tokens per round; with fewer, hardly any drafted state would be kept."""


WITHIN = 2
"""Number of rows of a tree that the trial keeps, although a longer path was drafted."""


@pytest.fixture
def cheap_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixes costs at which `auto` drafts trees; measured costs would not, since drafts are as large as targets here."""
    monkeypatch.setattr(Engine, "costs_of", lambda *_: PAYING)


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("architecture", [*USUAL, *FURTHER])
def test_every_method_writes_the_text_of_plain_llama_decode(gguf_states: GgufStates, architecture: str) -> None:
    engine = load_pair(str(gguf_states.target(architecture)), str(gguf_states.draft(architecture)))
    length = LENGTH if architecture == "mamba2" else SHORT
    _, summary, written = texts(engine, RunConfig(methods=(*METHODS, "fixed", "alg1"), max_new_tokens=length))
    expected = plain_text(engine, PROMPT, length)
    assert len(set(expected)) >= DISTINCT
    assert all(tokens == expected for tokens in written.values())
    assert all((summary.methods[name].tokens_per_round or 0) > ACCEPTED for name in METHODS[1:])


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("architecture", USUAL)
def test_sampled_texts_are_those_of_plain_decoding_with_the_same_noise(
    gguf_states: GgufStates, architecture: str
) -> None:
    engine = load_pair(str(gguf_states.target(architecture)), str(gguf_states.draft(architecture)))
    config = RunConfig(methods=METHODS, max_new_tokens=SHORT, temperature=0.7, seed=3)
    _, summary, written = texts(engine, config)
    assert len(set(written["ar"])) >= DISTINCT
    assert all(summary.methods[name].identical_to_ar for name in METHODS[1:])


@pytest.mark.usefixtures("cheap_drafts")
@pytest.mark.parametrize("architecture", ["mamba2", "qwen3next"])
def test_forms_mix(gguf_states: GgufStates, gguf_pair: GgufPair, architecture: str) -> None:
    model = str(gguf_states.target(architecture))
    for names, methods in (
        ((model, "lookup"), ("ar", "linear", "auto")),
        ((str(EMBEDDED_TARGET), model), METHODS),
        ((model, str(gguf_pair.draft())), ("ar", "dynatree")),
    ):
        mixed = load_pair(*names, run=RunConfig(methods=methods), dtype="auto" if names[0] == model else "float32")
        _, summary, written = texts(mixed, RunConfig(methods=methods, max_new_tokens=30))
        assert len(set(written["ar"])) >= DISTINCT
        assert all(each.identical_to_ar for name, each in summary.methods.items() if name != "ar")


def test_the_header_and_the_doctor_tell_the_form(gguf_states: GgufStates) -> None:
    path = str(gguf_states.target("lfm2"))
    engine = load_pair(path, "lookup", run=RunConfig(methods=("ar",)))
    assert decoding_path(engine).reason == "llama.cpp, GGUF F32, a sequence for each draft path"
    assert gguf_words(path).endswith("computed by llama.cpp, with a sequence for each draft path")
    assert load_config(path).keeps_states


def test_a_race_is_recorded_and_replayed(
    gguf_states: GgufStates, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "race.jsonl")
    models = ["--target", str(gguf_states.target("mamba2")), "--draft", str(gguf_states.draft("mamba2"))]
    asked = ["--headless", "--json", "--methods", ",".join(METHODS), "--max-new-tokens", "20", "--prompt", PROMPT]
    assert main([*models, *asked, "--record", path]) == 0
    live = capsys.readouterr().out
    assert main(["replay", path, "--json"]) == 0
    assert capsys.readouterr().out == live


def test_a_model_whose_state_is_wrong_after_a_draft_is_refused(
    gguf_states: GgufStates, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = LlamaStateCache.keep

    def wrong(cache: LlamaStateCache, rows: Sequence[int]) -> None:
        keep(cache, rows)
        if len(rows) == WITHIN:
            cache._text[-1] += 1

    monkeypatch.setattr(LlamaStateCache, "keep", wrong)
    with pytest.raises(PairError, match="computes different logits for a draft tree"):
        load_pair(str(gguf_states.target("mamba2")), "lookup", run=RunConfig(methods=("ar",)))
