"""NaN, infinite or excluded logits: a draft's cost drafts, never the text; a target's end the text before the round."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from benchmarks.gguf_files import write
from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import LogitsError
from decoder.events import LOST, Event, decode_line, encode
from decoder.methods.delayed import Delayed
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_tokenizer
from decoder.sampling.settings import Sampling
from dynatui.lab.bench.contenders import decoded
from dynatui.record.reader import read_events
from tests import dflash_checkpoints as dflash
from tests import eagle3_checkpoints as eagle3
from tests import tiny
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.broken_targets import Change, Changed, after, damaged, with_draft_logits, with_target_logits
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels, play, with_pair
from tests.decoder.session.cuda_graph.matching import with_slots
from tests.gguf_pair import needs_llama_cpp

LENGTH = 24
DRAFTING = ("ar", "linear", "dynatree", "auto", "fixed", "bestfirst", "alg1")
SAMPLINGS = {"greedy": Sampling(), "sampled": Sampling(0.8), "truncated": Sampling(0.8, 20, 0.9)}


def every_row(value: float) -> Change:
    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:] = value

    return change


def most_tokens(_tokens: Sequence[int], logits: Tensor) -> None:
    """Excludes all but one token, so that levels with several children have impossible ones."""
    logits[:, 1:] = -math.inf


def recorded_and_read(events: Sequence[Event], path: Path) -> list[Event]:
    path.write_bytes(b"".join(map(encode, events)))
    return read_events(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_logits_of_a_draft_that_are_not_finite_cost_drafts_only_and_are_told(
    tiny_models: TinyModels, tmp_path: Path, value: float, sampling: Sampling
) -> None:
    engine = with_draft_logits(tiny_models.engine("llama"), every_row(value))
    race = play(engine, RunConfig(DRAFTING, LENGTH, parameters={"sampling": sampling}))
    for method in DRAFTING:
        assert race.end(method).reason == "length"
        assert race.tokens(method) == race.tokens("ar")
    for method in ("linear", "dynatree", "fixed"):
        assert any(event.limited_by == LOST for event in race.rounds(method))
        assert LOST not in {event.limited_by for event in race.rounds("ar")}
    assert recorded_and_read(race.events, tmp_path / "run.jsonl") == race.events


@pytest.mark.parametrize("verifier", ["traversal", "nss", "block", "spectr", "specinfer", "khisti", "naive_tree"])
def test_sampled_trees_have_no_child_of_a_node_whose_row_is_not_finite(
    tiny_models: TinyModels, tmp_path: Path, verifier: str
) -> None:
    def change(tokens: Sequence[int], logits: Tensor) -> None:
        logits[[row for row, token in enumerate(tokens) if token % 3]] = math.nan

    paths = 1 if verifier == "block" else 2
    own = Delayed(k=paths, verifier=verifier, drafting="delayed")
    engine = with_draft_logits(tiny_models.engine("llama"), change)
    race = play(engine, RunConfig(("delayed",), LENGTH, temperature=1.0, delayed=own))
    assert race.end("delayed").reason == "length"
    assert any(event.limited_by == LOST for event in race.rounds("delayed"))
    assert recorded_and_read(race.events, tmp_path / "run.jsonl") == race.events


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_token_of_probability_0_is_no_child(tiny_models: TinyModels, tmp_path: Path, sampling: Sampling) -> None:
    engine = with_draft_logits(tiny_models.engine("llama"), most_tokens)
    race = play(engine, RunConfig(DRAFTING, LENGTH, parameters={"sampling": sampling}))
    for method in DRAFTING:
        assert race.tokens(method) == race.tokens("ar")
        assert all(math.isfinite(each) for event in race.rounds(method) for each in event.logprobs)
    assert recorded_and_read(race.events, tmp_path / "run.jsonl") == race.events
    assert all(decode_line(encode(event), 1) for event in race.events)


def test_drafts_on_the_device_are_lost_like_those_of_the_host(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    broken = tiny.TinyPair(pair.target, damaged(pair.draft, tiny_models.fresh(), last, math.nan))
    engine = with_slots(tiny_models.loaded(broken, "float32"))
    race = play(engine, RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH))
    assert all(race.tokens(method) == race.tokens("ar") for method in ("linear", "dynatree", "auto"))
    assert {event.limited_by for event in race.rounds("linear")} <= {LOST, "length"}
    assert LOST in {event.limited_by for event in race.rounds("dynatree")}


def test_a_translated_draft_that_is_not_finite_is_lost_too(tiny_models: TinyModels) -> None:
    pair = tiny_models._once(("strangers",), lambda: tiny.strangers_tongue(tiny_models.fresh()))
    engine = tiny_models.loaded(pair, "float32")
    assert engine.pair.translation
    assert engine.pair.draft
    form = Changed(engine.pair.draft.runs_by, every_row(math.nan))
    broken = with_pair(engine, draft=engine.pair.draft.with_forward(form))
    race = play(broken, RunConfig(("ar", "linear", "auto"), LENGTH))
    assert race.tokens("linear") == race.tokens("auto") == race.tokens("ar")
    assert any(event.limited_by == LOST for event in race.rounds("linear"))


PLACE = 6
"""Number of tokens that plain decoding writes before the token after which the target is broken, inclusive."""
GREEDY = tuple(method for method in METHODS if method != "delayed")
DRAWN = {
    "traversal": RunConfig(
        ("delayed",), LENGTH, temperature=1.0, delayed=Delayed(verifier="traversal", drafting="delayed")
    ),
    "nss": RunConfig(("delayed",), LENGTH, temperature=1.0, delayed=Delayed(verifier="nss", drafting="iid")),
}


@pytest.fixture(scope="module")
def plain(tiny_models: TinyModels) -> list[int]:
    return tiny_models.generate(tiny_models.pair("llama"), "float32", PROMPT, LENGTH)


@pytest.fixture(scope="module")
def broken(tiny_models: TinyModels, plain: list[int]) -> tiny.TinyPair:
    """A pair whose target's embedding of one token, the `PLACE`th of the text, is NaN."""
    pair = tiny_models.pair("llama")
    token = plain[PLACE - 1]
    assert token not in plain[: PLACE - 1]
    return tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), token, math.nan), pair.draft)


@pytest.fixture(scope="module")
def race(tiny_models: TinyModels, broken: tiny.TinyPair) -> Played:
    return tiny_models.play(broken, "float32", PROMPT, RunConfig(GREEDY, LENGTH))


def assert_broke_off(race: Played, method: str, dtype: str = "float32") -> None:
    rounds = len(race.rounds(method))
    end = race.end(method)
    assert end.reason == "error"
    assert end.error == str(LogitsError(f"round {rounds + 1}", dtype))


@pytest.mark.parametrize("method", GREEDY)
def test_every_method_ends_with_a_sentence_where_the_target_has_no_choice(
    race: Played, plain: list[int], method: str
) -> None:
    assert_broke_off(race, method)
    tokens = race.tokens(method)
    assert tokens == plain[: len(tokens)]
    assert len(tokens) <= PLACE


@pytest.mark.parametrize(
    "name", [eagle3.name("neox", "nested"), dflash.name("qwen3", "z-lab"), mtp.name("deepseek_v3")]
)
def test_so_it_is_where_a_head_drafts(tiny_models: TinyModels, name: str) -> None:
    pair = tiny_models.pair(name)
    text = tiny_models.generate(pair, "float32", PROMPT, LENGTH)
    token = next(token for place, token in enumerate(text[3:], 3) if token not in text[:place])
    target = tiny_models._once(("broken", name), lambda: damaged(pair.target, tiny_models.fresh(), token, math.nan))
    broken = tiny.TinyPair(target, pair.draft)
    race = tiny_models.play(broken, "float32", PROMPT, RunConfig(("ar", "linear", "fixed", "dynatree", "auto"), LENGTH))
    for method in ("ar", "linear", "fixed", "dynatree", "auto"):
        assert_broke_off(race, method)
        assert race.tokens(method) == text[: len(race.tokens(method))]
    assert text[len(race.tokens("ar")) - 1] == token


@needs_llama_cpp
def test_so_it_is_where_llama_cpp_computes_the_passes(tmp_path: Path) -> None:
    prompt = "Once upon a time"
    folder = damaged(
        EMBEDDED_TARGET, tmp_path / "target", load_tokenizer(str(EMBEDDED_TARGET))(prompt).input_ids[-1], math.nan
    )
    file = write(folder, tmp_path / "broken.gguf", "F32")
    engine = load_pair(str(file), str(EMBEDDED_DRAFT), device="cpu", report=lambda *_: None)
    race = play(engine, RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH), prompt)
    for method in ("ar", "linear", "dynatree", "auto"):
        assert "logits in round 1 are NaN or infinite" in (race.end(method).error or "")
        assert race.tokens(method) == []


def test_plain_decoding_writes_all_tokens_before_the_broken_one(race: Played) -> None:
    assert len(race.tokens("ar")) == PLACE


@pytest.mark.parametrize("method", GREEDY)
def test_a_prompt_that_breaks_the_target_ends_every_method_in_its_first_round(
    tiny_models: TinyModels, method: str
) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    broken = tiny_models._once(
        ("broken prompt",), lambda: tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), last, math.inf), pair.draft)
    )
    race = tiny_models.play(broken, "float32", PROMPT, RunConfig(GREEDY, LENGTH))
    assert_broke_off(race, method)
    assert race.tokens(method) == []


@pytest.mark.parametrize("name", DRAWN)
def test_sampled_trees_end_where_the_target_has_no_choice(
    tiny_models: TinyModels, broken: tiny.TinyPair, name: str
) -> None:
    last = tiny_models.prompt_tokens(broken, PROMPT)[-1]
    engine = with_target_logits(tiny_models.engine("llama"), after(last, math.nan))
    assert_broke_off(play(engine, DRAWN[name]), "delayed")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_nan_plus_infinity_and_a_row_without_finite_logits_leave_no_choice(
    tiny_models: TinyModels, value: float, sampling: Sampling, dtype: str
) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    engine = with_target_logits(tiny_models.loaded(pair, dtype), after(last, value))
    config = RunConfig(("ar", "linear"), LENGTH, parameters={"sampling": sampling})
    race = play(engine, config)
    for method in config.methods:
        assert_broke_off(race, method, dtype)


def test_one_infinite_logit_leaves_no_choice(tiny_models: TinyModels) -> None:
    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:, 7] = math.inf

    engine = with_target_logits(tiny_models.engine("llama"), change)
    assert_broke_off(play(engine, RunConfig(("ar",), LENGTH)), "ar")


def only_trees(tokens: Sequence[int], logits: Tensor) -> None:
    """Breaks passes of several rows."""
    if len(tokens) > 1:
        logits[-1] = math.nan


def test_methods_that_do_not_meet_the_broken_logits_go_on(tiny_models: TinyModels, plain: list[int]) -> None:
    engine = with_target_logits(tiny_models.engine("llama"), only_trees)
    race = play(engine, RunConfig(("dynatree", "ar", "linear"), LENGTH))
    assert {method: race.end(method).reason for method in ("dynatree", "ar", "linear")} == {
        "dynatree": "error",
        "ar": "length",
        "linear": "error",
    }
    assert race.tokens("ar") == plain


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_token_that_the_target_excludes_is_never_written_and_ends_nothing(
    tiny_models: TinyModels, plain: list[int], sampling: Sampling
) -> None:
    excluded = sorted(set(plain))[:3]

    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:, excluded] = -math.inf

    engine = with_target_logits(tiny_models.engine("llama"), change)
    config = RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH, parameters={"sampling": sampling})
    race = play(engine, config)
    assert len(race.tokens("ar")) == LENGTH
    assert not set(excluded) & set(race.tokens("ar"))
    for method in config.methods:
        assert race.tokens(method) == race.tokens("ar")


def test_a_method_without_text_is_not_called_the_same_as_ar(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    engine = with_target_logits(tiny_models.loaded(pair, "float32"), after(last, math.nan))
    race = play(engine, RunConfig(("ar", "linear"), LENGTH))
    assert [race.figures(method).identical_to_ar for method in ("ar", "linear")] == [None, None]


@pytest.mark.parametrize("method", ["ar", "dynatree", "hf"])
def test_no_benchmark_gives_a_time_of_a_text_without_choices(
    tiny_models: TinyModels, broken: tiny.TinyPair, method: str
) -> None:
    engine: Engine = tiny_models.loaded(broken, "float32")
    with pytest.raises(LogitsError, match=rf"logits in round \d+ of {method} are NaN or infinite, computed in float32"):
        decoded(engine, tiny_models.prompt_tokens(broken, PROMPT), method, RunConfig((method,), LENGTH))


def test_half_precision_that_overflows_names_a_dtype_of_larger_range(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    large = tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), last, 7e4), pair.draft)
    race = tiny_models.play(large, "float16", PROMPT, RunConfig(("ar", "dynatree", "hf"), LENGTH))
    assert all(race.end(method).reason == "error" for method in ("ar", "dynatree", "hf"))
    assert re.search(r"computed in float16; choose --dtype bfloat16 or float32", race.end("ar").error or "")
    sound = tiny_models.play(large, "float32", PROMPT, RunConfig(("ar",), LENGTH))
    assert len(sound.tokens("ar")) == LENGTH
