"""A method ends where the target's logits leave no choice: it writes no token that the target has not chosen."""

import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from benchmarks.gguf_files import write
from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.errors import LogitsError
from decoder.methods.delayed import Delayed
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_tokenizer
from decoder.sampling.settings import Sampling
from dynatui.lab.bench.contenders import decoded
from tests import dflash_checkpoints as dflash
from tests import eagle3_checkpoints as eagle3
from tests import tiny
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.broken_targets import after, damaged, with_target_logits
from tests.decoder.makers import METHODS, Played, TinyModels
from tests.gguf_pair import needs_llama_cpp

PROMPT = "The tree grows"
LENGTH = 24
PLACE = 6
"""Number of tokens that plain decoding writes before the token after which the target is broken, inclusive."""
GREEDY = tuple(method for method in METHODS if method != "delayed")
DRAWN = {
    "traversal": RunConfig(
        ("delayed",), LENGTH, temperature=1.0, delayed=Delayed(verifier="traversal", drafting="delayed")
    ),
    "nss": RunConfig(("delayed",), LENGTH, temperature=1.0, delayed=Delayed(verifier="nss", drafting="iid")),
}
SAMPLINGS = {"greedy": Sampling(), "sampled": Sampling(0.8), "truncated": Sampling(0.8, 20, 0.9)}


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
    race = Played(list(decode(engine, prompt, RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH))))
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
    engine = with_target_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), after(last, math.nan))
    assert_broke_off(Played(list(decode(engine, PROMPT, DRAWN[name]))), "delayed")


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
    race = Played(list(decode(engine, PROMPT, config)))
    for method in config.methods:
        assert_broke_off(race, method, dtype)


def test_one_infinite_logit_leaves_no_choice(tiny_models: TinyModels) -> None:
    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:, 7] = math.inf

    engine = with_target_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), change)
    assert_broke_off(Played(list(decode(engine, PROMPT, RunConfig(("ar",), LENGTH)))), "ar")


def only_trees(tokens: Sequence[int], logits: Tensor) -> None:
    """Breaks passes of several rows."""
    if len(tokens) > 1:
        logits[-1] = math.nan


def test_methods_that_do_not_meet_the_broken_logits_go_on(tiny_models: TinyModels, plain: list[int]) -> None:
    engine = with_target_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), only_trees)
    race = Played(list(decode(engine, PROMPT, RunConfig(("dynatree", "ar", "linear"), LENGTH))))
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

    engine = with_target_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), change)
    config = RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH, parameters={"sampling": sampling})
    race = Played(list(decode(engine, PROMPT, config)))
    assert len(race.tokens("ar")) == LENGTH
    assert not set(excluded) & set(race.tokens("ar"))
    for method in config.methods:
        assert race.tokens(method) == race.tokens("ar")


def test_a_method_without_text_is_not_called_the_same_as_ar(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    engine = with_target_logits(tiny_models.loaded(pair, "float32"), after(last, math.nan))
    race = Played(list(decode(engine, PROMPT, RunConfig(("ar", "linear"), LENGTH))))
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
