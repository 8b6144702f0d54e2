"""The text of `streaming` equals plain decoding with its cache, and the text of `ar` while the cache holds all."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from decoder import RunConfig, decode
from decoder.draft.model_drafter import ModelDrafter
from decoder.engine import Engine
from decoder.errors import ConfigError, PairError
from decoder.methods import METHODS, same_until
from decoder.methods.streaming import Streaming
from decoder.session.host import HostSession
from tests import tiny
from tests.decoder.forward import streaming_reference
from tests.decoder.makers import Played, TinyModels, play
from tests.decoder.session.all_methods import Turns, turned
from tests.sampled_reference import noise

SHORT, LONG = "The tree", tiny.SENTENCES[0]
"""Prompts that are shorter and longer than the cache of these tests."""
SMALL = Streaming(sinks=4, window=33)
TEXT = 80
"""Number of new tokens; enough for rows to leave the window several times."""
TIE = 1e-3
"""Difference of scores below which float32 may choose either token."""


def streamed(tiny_models: TinyModels, name: str, prompt: str, rules: Streaming, temperature: float = 0.0) -> Played:
    room = tiny.CONTEXT - len(tiny_models.prompt_tokens(tiny_models.pair(name), prompt))
    config = RunConfig(("streaming",), min(TEXT, room), 7, temperature=temperature, streaming=rules)
    return tiny_models.play(tiny_models.pair(name), "float32", prompt, config)


def must_be_ars(rules: Streaming, prompt_tokens: int) -> int:
    """Number of first tokens of the text that must equal the text of ar."""
    found = same_until("streaming", asdict(rules), prompt_tokens)
    assert found is not None
    return found


def one_by_one(engine: Engine, prompt: Sequence[int], count: int, rules: Streaming) -> list[int]:
    """Plain decoding with the same cache, one token per round."""
    plain = replace(engine, pair=engine.pair.streaming(rules.sinks, rules.window))
    session, text = plain.session(prompt, count, None), list[int]()
    session.prefill()
    while len(text) < count:
        text += session.step(()).committed
    return text


@pytest.mark.parametrize("name", ["neox", "llama", "qwen3"])
@pytest.mark.parametrize("prompt_tokens", [1, 9, 37, 38])
@torch.inference_mode()
def test_the_first_token_that_may_be_another_is_that_of_the_first_row_that_has_lost_one(
    tiny_models: TinyModels, name: str, prompt_tokens: int
) -> None:
    pair = tiny_models.loaded(tiny_models.pair(name), "float32").pair
    text = [(7 * place * place + 3) % tiny.VOCABULARY for place in range(60)]
    plain, own = pair.target, pair.streaming(SMALL.sinks, SMALL.window).target
    caches = plain.new_cache(len(text)), own.new_cache(len(text))
    apart = [float((plain.read(caches[0], [token]) - own.read(caches[1], [token])).abs().max()) for token in text]
    first = next(row for row, distance in enumerate(apart) if distance > TIE)
    assert max(apart[:first]) < TIE / 100
    assert must_be_ars(SMALL, prompt_tokens) == first - prompt_tokens + 1


def test_a_difference_is_by_design_once_tokens_were_lost_and_a_fault_before(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "float32")
    config = RunConfig(("streaming", "ar"), TEXT, streaming=SMALL)
    found = Played(list(decode(engine, SHORT, config))).figures("streaming")
    first = found.first_difference
    assert first is not None
    assert first >= must_be_ars(SMALL, len(tiny_models.prompt_tokens(tiny_models.pair("neox"), SHORT)))
    assert (found.identical_to_ar, found.near_tie) == (None, None)
    later = replace(METHODS["streaming"], same_until=lambda *_: first + 1)
    monkeypatch.setitem(METHODS, "streaming", later)
    early = Played(list(decode(engine, SHORT, config))).figures("streaming")
    assert (early.identical_to_ar, early.first_difference, early.near_tie) == (False, first, False)


def test_its_memory_does_not_grow_with_the_text(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("long"), "float32")
    session = METHODS["streaming"].open(engine, [5, 6, 7], RunConfig(("streaming",), 600, streaming=SMALL))
    assert isinstance(session, HostSession)
    assert isinstance(session.proposer, ModelDrafter)
    caches = session.target_cache, session.proposer.passes.cache
    session.prefill()
    sizes = set()
    while len(session.text) < 600:
        session.step(())
        sizes |= {cache.store.shape[3] for cache in caches}
    assert max(sizes) <= 192


def test_a_model_whose_positions_are_not_rotary_is_refused_by_name(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("gpt2"), "float32")
    with pytest.raises(PairError, match=r"the positions of .*target are not rotary.*leave out streaming"):
        list(decode(engine, SHORT, RunConfig(("streaming",), 8)))


def test_its_option_reads_what_it_writes_and_names_an_example() -> None:
    (option,) = METHODS["streaming"].options
    assert option.changes(option.value(Streaming(2, 500, 7))) == {"sinks": 2, "window": 500, "k": 7}
    with pytest.raises(ConfigError, match="--streaming is '4'; give 3 whole numbers, for example 4,1020,5"):
        option.changes("4")


@pytest.mark.parametrize(
    ("name", "prompt", "sinks", "temperature"),
    [
        *(("neox", SHORT, 4, 0.0), ("neox", LONG, 0, 0.0), ("llama", SHORT, 0, 0.0), ("llama", LONG, 4, 0.0)),
        *(("qwen3", LONG, 4, 0.0), ("neox-strange", SHORT, 4, 0.0), ("neox", SHORT, 4, 0.8), ("llama", SHORT, 4, 0.8)),
    ],
)
def test_every_token_is_the_choice_of_sinks_and_window_from_scratch_under_the_noise_of_its_position(
    tiny_models: TinyModels, name: str, prompt: str, sinks: int, temperature: float
) -> None:
    played = streamed(tiny_models, name, prompt, replace(SMALL, sinks=sinks), temperature)
    text, pair = played.tokens("streaming"), tiny_models.pair(name)
    given, plain = tiny_models.prompt_tokens(pair, prompt), tiny_models.plain(pair.target, "float64")
    scores = streaming_reference.logits(plain, [*given, *text], sinks, SMALL.window)[len(given) - 1 : -1]
    assert len(scores) == len(text) > 50
    for position, (row, token) in enumerate(zip(scores, text, strict=True), len(given)):
        noisy = row + temperature * noise(7, position, len(row))
        assert noisy.max() - noisy[token] < TIE


@pytest.mark.parametrize(("name", "prompt"), [("llama", LONG), ("neox-strange", SHORT), ("neox", SHORT)])
def test_its_text_is_that_of_one_token_a_round_for_any_chain(tiny_models: TinyModels, name: str, prompt: str) -> None:
    texts = {k: streamed(tiny_models, name, prompt, replace(SMALL, k=k)).tokens("streaming") for k in (5, 32)}
    given = tiny_models.prompt_tokens(tiny_models.pair(name), prompt)
    assert texts == dict.fromkeys(texts, one_by_one(tiny_models.engine(name), given, len(texts[5]), SMALL))
    count = len(texts[5])
    asked = RunConfig(("streaming",), count, 7, streaming=SMALL)
    turns: Turns = {3: [("k", 32)], 10: [("k", 2)]}
    played = turned(tiny_models.engine(name), asked, turns, prompt)
    assert played.tokens("streaming") == texts[5]
    assert {len(event.tokens) - 1 for event in played.rounds("streaming")} >= {5, 32}


def test_exact_rounds_write_the_text_of_exact_single_tokens(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox", "bfloat16").batch_invariant()
    given = tiny_models.prompt_tokens(tiny_models.pair("neox"), SHORT)
    played = play(engine, RunConfig(("streaming",), TEXT, streaming=SMALL), SHORT)
    assert played.tokens("streaming") == one_by_one(engine, given, TEXT, SMALL)


def test_chains_are_accepted_after_the_window_moved_on_and_the_text_left_plain_decoding(
    tiny_models: TinyModels,
) -> None:
    pair, played = tiny_models.pair("neox"), streamed(tiny_models, "neox", SHORT, SMALL)
    late = [event for event in played.rounds("streaming") if event.position > 60]
    assert sum(len(event.accepted) for event in late) > len(late)
    common = must_be_ars(SMALL, len(tiny_models.prompt_tokens(pair, SHORT)))
    plain, text = tiny_models.generate(pair, "float32", SHORT, TEXT), played.tokens("streaming")
    assert text[:common] == plain[:common]
    assert text != plain


def test_of_a_prompt_that_outgrows_the_cache_no_token_must_be_ars_and_of_unknown_parameters_nothing_is_known() -> None:
    assert [must_be_ars(SMALL, tokens) for tokens in (36, 37, 38, 39, 500)] == [2, 1, 0, 0, 0]
    unknown: list[dict[str, Any]] = [{}, {"sinks": 4}, {"sinks": 4, "window": "x"}, {"sinks": None, "window": 33}]
    assert [same_until("streaming", parameters, 9) for parameters in unknown] == [None] * 4
