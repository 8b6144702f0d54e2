"""The text of `streaming` equals plain decoding with its cache, and the text of `ar` while the cache holds all."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch

from decoder import RunConfig, Steering, decode
from decoder.draft.model_drafter import ModelDrafter
from decoder.engine import Engine
from decoder.errors import ConfigError, PairError
from decoder.events import Event, Round
from decoder.methods import METHODS, same_until
from decoder.methods.streaming import Streaming
from decoder.session.host import HostSession
from tests import tiny
from tests.decoder.forward import streaming_reference
from tests.decoder.makers import Played, TinyModels
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


def assert_chosen(
    tiny_models: TinyModels, name: str, prompt: str, rules: Streaming, text: Sequence[int], temperature: float = 0.0
) -> None:
    """Asserts that each token is the reference's choice after the tokens before it."""
    pair = tiny_models.pair(name)
    given = tiny_models.prompt_tokens(pair, prompt)
    scores = streaming_reference.logits(
        tiny_models.plain(pair.target, "float64"), [*given, *text], rules.sinks, rules.window
    )[len(given) - 1 : -1]
    assert len(scores) == len(text) > 50
    for position, (row, token) in enumerate(zip(scores, text, strict=True), len(given)):
        if temperature:
            row = row + temperature * noise(7, position, len(row))  # noqa: PLW2901 - the scores under the noise
        assert row.max() - row[token] < TIE


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


@pytest.mark.parametrize(
    ("name", "prompt", "sinks"),
    [
        *(("neox", SHORT, 4), ("neox", LONG, 0), ("llama", SHORT, 0)),
        *(("llama", LONG, 4), ("qwen3", LONG, 4), ("neox-strange", SHORT, 4)),
    ],
)
def test_every_token_is_the_choice_of_sinks_and_window_from_scratch(
    tiny_models: TinyModels, name: str, prompt: str, sinks: int
) -> None:
    rules = replace(SMALL, sinks=sinks)
    played = streamed(tiny_models, name, prompt, rules)
    assert_chosen(tiny_models, name, prompt, rules, played.tokens("streaming"))


@pytest.mark.parametrize("name", ["neox", "llama"])
def test_every_sampled_token_is_that_choice_under_the_noise_of_its_position(tiny_models: TinyModels, name: str) -> None:
    played = streamed(tiny_models, name, SHORT, SMALL, temperature=0.8)
    assert_chosen(tiny_models, name, SHORT, SMALL, played.tokens("streaming"), 0.8)


@pytest.mark.parametrize(("name", "prompt"), [("llama", LONG), ("neox-strange", SHORT)])
def test_its_text_is_that_of_one_token_a_round_whatever_the_length_of_the_chain(
    tiny_models: TinyModels, name: str, prompt: str
) -> None:
    texts = {k: streamed(tiny_models, name, prompt, replace(SMALL, k=k)).tokens("streaming") for k in (5, 32)}
    engine = tiny_models.loaded(tiny_models.pair(name), "float32")
    given = tiny_models.prompt_tokens(tiny_models.pair(name), prompt)
    assert texts == dict.fromkeys(texts, one_by_one(engine, given, len(texts[5]), SMALL))


def test_chains_are_accepted_after_the_window_has_moved_on(tiny_models: TinyModels) -> None:
    late = [event for event in streamed(tiny_models, "neox", SHORT, SMALL).rounds("streaming") if event.position > 60]
    assert sum(len(event.accepted) for event in late) > len(late)


def test_its_text_is_that_of_plain_decoding_until_it_outgrows_the_cache_and_another_one_then(
    tiny_models: TinyModels,
) -> None:
    pair = tiny_models.pair("neox")
    common = must_be_ars(SMALL, len(tiny_models.prompt_tokens(pair, SHORT)))
    plain = tiny_models.generate(pair, "float32", SHORT, TEXT)
    text = streamed(tiny_models, "neox", SHORT, SMALL).tokens("streaming")
    assert text[:common] == plain[:common]
    assert text != plain


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


def test_of_a_prompt_that_outgrows_the_cache_no_token_must_be_ars() -> None:
    assert [must_be_ars(SMALL, tokens) for tokens in (36, 37, 38, 39, 500)] == [2, 1, 0, 0, 0]


@pytest.mark.parametrize("parameters", [{}, {"sinks": 4}, {"sinks": 4, "window": "x"}, {"sinks": None, "window": 33}])
def test_of_parameters_that_do_not_tell_nothing_is_known(parameters: dict[str, Any]) -> None:
    assert same_until("streaming", parameters, 9) is None


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


@pytest.mark.parametrize("name", ["neox", "llama", "qwen3"])
def test_a_text_within_the_cache_is_that_of_plain_decoding(tiny_models: TinyModels, name: str) -> None:
    pair = tiny_models.pair(name)
    text = streamed(tiny_models, name, SHORT, Streaming()).tokens("streaming")
    assert text == tiny_models.generate(pair, "float32", SHORT, TEXT)


def test_its_chain_is_turned_while_it_decodes_and_the_text_stays_the_same(tiny_models: TinyModels) -> None:
    steering, events = Steering(), list[Event]()
    config = RunConfig(("streaming",), TEXT, streaming=SMALL)
    for event in decode(tiny_models.loaded(tiny_models.pair("neox"), "float32"), SHORT, config, steering):
        events.append(event)
        if isinstance(event, Round) and event.round in (2, 9):
            steering.turn("k", 32 if event.round == 2 else 2, "streaming")
    played = Played(events)
    assert {len(event.tokens) - 1 for event in played.rounds("streaming")} >= {5, 32, 2}
    assert played.tokens("streaming") == streamed(tiny_models, "neox", SHORT, SMALL).tokens("streaming")


def test_exact_rounds_write_the_text_of_exact_single_tokens(tiny_models: TinyModels) -> None:
    engine = tiny_models.loaded(tiny_models.pair("neox"), "bfloat16").batch_invariant()
    config = RunConfig(("streaming",), TEXT, streaming=SMALL)
    played = Played(list(decode(engine, SHORT, config)))
    given = tiny_models.prompt_tokens(tiny_models.pair("neox"), SHORT)
    assert played.tokens("streaming") == one_by_one(engine, given, TEXT, SMALL)


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
