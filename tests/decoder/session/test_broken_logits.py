"""NaN, infinite or excluded logits: a draft's cost drafts, never the text; a target's end the text before the round."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from benchmarks.gguf_files import write
from decoder import RunConfig, load_pair
from decoder.engine import Engine
from decoder.errors import LogitsError
from decoder.events import LOST, encode
from decoder.methods.delayed import Delayed
from decoder.models.checkpoints import EMBEDDED_DRAFT, EMBEDDED_TARGET, load_tokenizer
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.lab.bench.contenders import decoded
from dynatui.record.reader import read_events
from tests import heads, tiny
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.broken_targets import Change, Changed, after, damaged, with_draft_logits, with_target_logits
from tests.decoder.laws.races import OF_TREES
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels, play, with_pair
from tests.decoder.session.cuda_graph.matching import with_slots
from tests.gguf_pair import needs_llama_cpp

LENGTH = 24
USUAL = ("ar", "linear", "dynatree", "auto")
BROKEN = math.nan, math.inf, -math.inf
ALL_SAMPLINGS = pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(0.8), Sampling(0.8, 20, 0.9)], ids=["greedy", "sampled", "truncated"]
)


def every_row(value: float) -> Change:
    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:] = value

    return change


def most_tokens(_tokens: Sequence[int], logits: Tensor) -> None:
    """Excludes all but one token, so that levels with several children have impossible ones."""
    logits[:, 1:] = -math.inf


def many_rows(tokens: Sequence[int], logits: Tensor) -> None:
    logits[[row for row, token in enumerate(tokens) if token % 3]] = math.nan


def only_trees(tokens: Sequence[int], logits: Tensor) -> None:
    """Breaks passes of several rows."""
    if len(tokens) > 1:
        logits[-1] = math.nan


def assert_drafts_alone_are_lost(race: Played, methods: Sequence[str], path: Path) -> None:
    """Asserts that the text is that of `ar`, and that the events survive a file."""
    for method in methods:
        assert race.end(method).reason == "length"
        assert race.tokens(method) == race.tokens(methods[0])
        assert all(math.isfinite(each) for event in race.rounds(method) for each in event.logprobs)
    path.write_bytes(b"".join(map(encode, race.events)))
    assert read_events(path) == race.events


def lost(race: Played, method: str) -> bool:
    return LOST in {event.limited_by for event in race.rounds(method)}


# A draft's logits


@pytest.mark.parametrize(
    "change",
    [*map(every_row, BROKEN), most_tokens],
    ids=["NaN", "infinite", "all excluded", "one token left"],
)
@ALL_SAMPLINGS
def test_a_draft_s_logits_cost_drafts_only_and_a_token_of_probability_0_is_no_child(
    tiny_models: TinyModels, tmp_path: Path, change: Change, sampling: Sampling
) -> None:
    engine, methods = with_draft_logits(tiny_models.engine("llama"), change), (*OF_TREES, "alg1")
    race = play(engine, RunConfig(methods, LENGTH, parameters={SAMPLING: sampling}))
    assert_drafts_alone_are_lost(race, methods, tmp_path / "run.jsonl")
    assert [lost(race, method) for method in ("ar", "linear", "dynatree", "fixed")] == [
        False,
        *[change is not most_tokens] * 3,
    ]


@pytest.mark.parametrize("verifier", ["traversal", "nss", "block", "spectr", "specinfer", "khisti", "naive_tree"])
def test_sampled_trees_have_no_child_of_a_node_whose_row_is_not_finite(
    tiny_models: TinyModels, tmp_path: Path, verifier: str
) -> None:
    own = Delayed(k=1 if verifier == "block" else 2, verifier=verifier, drafting="delayed")
    engine = with_draft_logits(tiny_models.engine("llama"), many_rows)
    race = play(engine, RunConfig(("delayed",), LENGTH, temperature=1.0, delayed=own))
    assert_drafts_alone_are_lost(race, ("delayed",), tmp_path / "run.jsonl")
    assert lost(race, "delayed")


def test_drafts_on_the_device_are_lost_like_those_of_the_host(tiny_models: TinyModels, tmp_path: Path) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    broken = tiny.TinyPair(pair.target, damaged(pair.draft, tiny_models.fresh(), last, math.nan))
    race = play(with_slots(tiny_models.loaded(broken, "float32")), RunConfig(USUAL, LENGTH))
    assert_drafts_alone_are_lost(race, USUAL, tmp_path / "run.jsonl")
    assert {event.limited_by for event in race.rounds("linear")} <= {LOST, "length"}
    assert lost(race, "dynatree")


def test_a_translated_draft_that_is_not_finite_is_lost_too(tiny_models: TinyModels, tmp_path: Path) -> None:
    pair = tiny_models._once(("strangers",), lambda: tiny.strangers_tongue(tiny_models.fresh()))
    engine = tiny_models.loaded(pair, "float32")
    assert engine.pair.translation
    assert engine.pair.draft
    form = Changed(engine.pair.draft.runs_by, every_row(math.nan))
    broken = with_pair(engine, draft=engine.pair.draft.with_forward(form))
    race = play(broken, RunConfig(("ar", "linear", "auto"), LENGTH))
    assert_drafts_alone_are_lost(race, ("ar", "linear", "auto"), tmp_path / "run.jsonl")
    assert lost(race, "linear")


# A target's logits


PLACE = 6
"""Number of tokens that plain decoding writes before the token after which the target is broken, inclusive."""
GREEDY = tuple(method for method in METHODS if method != "delayed")


@pytest.fixture(scope="module")
def plain(tiny_models: TinyModels) -> list[int]:
    return tiny_models.generate(tiny_models.pair("llama"), "float32", PROMPT, LENGTH)


@pytest.fixture(scope="module")
def last(tiny_models: TinyModels) -> int:
    """The last token of the prompt."""
    return tiny_models.prompt_tokens(tiny_models.pair("llama"), PROMPT)[-1]


@pytest.fixture(scope="module")
def broken(tiny_models: TinyModels, plain: list[int]) -> tiny.TinyPair:
    """A pair whose target's embedding of one token, the `PLACE`th of the text, is NaN."""
    pair, token = tiny_models.pair("llama"), plain[PLACE - 1]
    assert token not in plain[: PLACE - 1]
    return tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), token, math.nan), pair.draft)


def assert_broke_off(race: Played, methods: Sequence[str], text: Sequence[int] = (), dtype: str = "float32") -> None:
    """Asserts that methods end with a sentence, after the beginning of a text."""
    for method in methods:
        end, tokens = race.end(method), race.tokens(method)
        assert (end.reason, end.error) == ("error", str(LogitsError(f"round {len(race.rounds(method)) + 1}", dtype)))
        assert tokens == list(text[: len(tokens)])


def test_every_method_ends_with_a_sentence_where_the_target_has_no_choice(
    tiny_models: TinyModels, broken: tiny.TinyPair, plain: list[int]
) -> None:
    race = tiny_models.play(broken, "float32", PROMPT, RunConfig(GREEDY, LENGTH))
    assert_broke_off(race, GREEDY, plain)
    assert max(len(race.tokens(method)) for method in GREEDY) == len(race.tokens("ar")) == PLACE


@pytest.mark.parametrize("name", [heads.name("neox", "nested"), heads.name("qwen3", "z-lab"), mtp.name("deepseek_v3")])
def test_so_it_is_where_a_head_drafts(tiny_models: TinyModels, name: str) -> None:
    pair, methods = tiny_models.pair(name), ("ar", "linear", "fixed", "dynatree", "auto")
    text = tiny_models.generate(pair, "float32", PROMPT, LENGTH)
    token = next(token for place, token in enumerate(text[3:], 3) if token not in text[:place])
    target = tiny_models._once(("broken", name), lambda: damaged(pair.target, tiny_models.fresh(), token, math.nan))
    race = tiny_models.play(tiny.TinyPair(target, pair.draft), "float32", PROMPT, RunConfig(methods, LENGTH))
    assert_broke_off(race, methods, text)
    assert text[len(race.tokens("ar")) - 1] == token


@needs_llama_cpp
def test_so_it_is_where_llama_cpp_computes_the_passes(tmp_path: Path) -> None:
    prompt = "Once upon a time"
    token = load_tokenizer(str(EMBEDDED_TARGET))(prompt).input_ids[-1]
    file = write(damaged(EMBEDDED_TARGET, tmp_path / "target", token, math.nan), tmp_path / "broken.gguf", "F32")
    engine = load_pair(str(file), str(EMBEDDED_DRAFT), device="cpu", report=lambda *_: None)
    race = play(engine, RunConfig(USUAL, LENGTH), prompt)
    for method in USUAL:
        assert "logits in round 1 are NaN or infinite" in (race.end(method).error or "")
        assert race.tokens(method) == []


def test_a_prompt_that_breaks_the_target_ends_every_method_in_round_one(tiny_models: TinyModels, last: int) -> None:
    pair = tiny_models.pair("llama")
    target = damaged(pair.target, tiny_models.fresh(), last, math.inf)
    race = tiny_models.play(tiny.TinyPair(target, pair.draft), "float32", PROMPT, RunConfig(GREEDY, LENGTH))
    assert_broke_off(race, GREEDY)


@pytest.mark.parametrize(("verifier", "drafting"), [("traversal", "delayed"), ("nss", "iid")])
def test_sampled_trees_end_without_a_choice(tiny_models: TinyModels, last: int, verifier: str, drafting: str) -> None:
    engine = with_target_logits(tiny_models.engine("llama"), after(last, math.nan))
    own = Delayed(verifier=verifier, drafting=drafting)
    assert_broke_off(play(engine, RunConfig(("delayed",), LENGTH, temperature=1.0, delayed=own)), ("delayed",))


@pytest.mark.parametrize(("value", "dtype"), zip(BROKEN, ("float32", "bfloat16", "float32"), strict=True))
@ALL_SAMPLINGS
def test_nan_plus_infinity_and_a_row_without_finite_logits_leave_no_choice_and_no_text_to_compare(
    tiny_models: TinyModels, last: int, value: float, sampling: Sampling, dtype: str
) -> None:
    engine = with_target_logits(tiny_models.engine("llama", dtype), after(last, value))
    race = play(engine, RunConfig(("ar", "linear"), LENGTH, parameters={SAMPLING: sampling}))
    assert_broke_off(race, ("ar", "linear"), dtype=dtype)
    assert [race.figures(method).identical_to_ar for method in ("ar", "linear")] == [None, None]


def test_methods_that_do_not_meet_the_broken_logits_go_on(tiny_models: TinyModels, plain: list[int]) -> None:
    engine, methods = with_target_logits(tiny_models.engine("llama"), only_trees), ("dynatree", "ar", "linear")
    race = play(engine, RunConfig(methods, LENGTH))
    assert [race.end(method).reason for method in methods] == ["error", "length", "error"]
    assert race.tokens("ar") == plain


@ALL_SAMPLINGS
def test_a_token_that_the_target_excludes_is_never_written_and_ends_nothing(
    tiny_models: TinyModels, plain: list[int], sampling: Sampling
) -> None:
    excluded = sorted(set(plain))[:3]

    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:, excluded] = -math.inf

    engine = with_target_logits(tiny_models.engine("llama"), change)
    race = play(engine, RunConfig(USUAL, LENGTH, parameters={SAMPLING: sampling}))
    assert len(race.tokens("ar")) == LENGTH
    assert not set(excluded) & set(race.tokens("ar"))
    assert all(race.tokens(method) == race.tokens("ar") for method in USUAL)


@pytest.mark.parametrize("method", ["ar", "dynatree", "hf"])
def test_no_benchmark_times_a_text_without_choices(tiny_models: TinyModels, broken: tiny.TinyPair, method: str) -> None:
    engine: Engine = tiny_models.loaded(broken, "float32")
    with pytest.raises(LogitsError, match=rf"logits in round \d+ of {method} are NaN or infinite, computed in float32"):
        decoded(engine, tiny_models.prompt_tokens(broken, PROMPT), method, RunConfig((method,), LENGTH))


def test_half_precision_that_overflows_names_a_dtype_of_larger_range(tiny_models: TinyModels, last: int) -> None:
    pair, methods = tiny_models.pair("llama"), ("ar", "dynatree", "hf")
    large = tiny.TinyPair(damaged(pair.target, tiny_models.fresh(), last, 7e4), pair.draft)
    race = tiny_models.play(large, "float16", PROMPT, RunConfig(methods, LENGTH))
    assert all(race.end(method).reason == "error" for method in methods)
    assert "computed in float16; choose --dtype bfloat16 or float32" in (race.end("ar").error or "")
    sound = tiny_models.play(large, "float32", PROMPT, RunConfig(("ar",), LENGTH))
    assert len(sound.tokens("ar")) == LENGTH
