"""NaN, infinite or excluded logits of a draft cost drafts, never the text, and the recording can be read."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from torch import Tensor

from decoder import RunConfig, decode
from decoder.events import LOST, Event, decode_line, encode
from decoder.methods.delayed import Delayed
from decoder.sampling.settings import Sampling
from dynatui.record.reader import read
from tests import tiny
from tests.decoder.broken_targets import Change, Changed, damaged, with_draft_logits
from tests.decoder.makers import Played, TinyModels, with_pair
from tests.decoder.session.cuda_graph.matching import with_slots

PROMPT = "The tree grows"
LENGTH = 24
METHODS = ("ar", "linear", "dynatree", "auto", "fixed", "bestfirst", "alg1")
SAMPLINGS = {"greedy": Sampling(), "truncated": Sampling(0.8, 20, 0.9)}


def every_row(value: float) -> Change:
    def change(_tokens: Sequence[int], logits: Tensor) -> None:
        logits[:] = value

    return change


def most_tokens(_tokens: Sequence[int], logits: Tensor) -> None:
    """Excludes all but one token, so that levels with several children have impossible ones."""
    logits[:, 1:] = -math.inf


def recorded_and_read(events: Sequence[Event], path: Path) -> list[Event]:
    path.write_bytes(b"".join(map(encode, events)))
    return read(path)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_logits_of_a_draft_that_are_not_finite_cost_drafts_only_and_are_told(
    tiny_models: TinyModels, tmp_path: Path, value: float, sampling: Sampling
) -> None:
    engine = with_draft_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), every_row(value))
    race = Played(list(decode(engine, PROMPT, RunConfig(METHODS, LENGTH, parameters={"sampling": sampling}))))
    for method in METHODS:
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
    engine = with_draft_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), change)
    race = Played(list(decode(engine, PROMPT, RunConfig(("delayed",), LENGTH, temperature=1.0, delayed=own))))
    assert race.end("delayed").reason == "length"
    assert any(event.limited_by == LOST for event in race.rounds("delayed"))
    assert recorded_and_read(race.events, tmp_path / "run.jsonl") == race.events


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_a_token_of_probability_0_is_no_child(tiny_models: TinyModels, tmp_path: Path, sampling: Sampling) -> None:
    engine = with_draft_logits(tiny_models.loaded(tiny_models.pair("llama"), "float32"), most_tokens)
    race = Played(list(decode(engine, PROMPT, RunConfig(METHODS, LENGTH, parameters={"sampling": sampling}))))
    for method in METHODS:
        assert race.tokens(method) == race.tokens("ar")
        assert all(math.isfinite(each) for event in race.rounds(method) for each in event.logprobs)
    assert recorded_and_read(race.events, tmp_path / "run.jsonl") == race.events
    assert all(decode_line(encode(event), 1) for event in race.events)


def test_drafts_on_the_device_are_lost_like_those_of_the_host(tiny_models: TinyModels) -> None:
    pair = tiny_models.pair("llama")
    last = tiny_models.prompt_tokens(pair, PROMPT)[-1]
    broken = tiny.TinyPair(pair.target, damaged(pair.draft, tiny_models.fresh(), last, math.nan))
    engine = with_slots(tiny_models.loaded(broken, "float32"))
    race = Played(list(decode(engine, PROMPT, RunConfig(("ar", "linear", "dynatree", "auto"), LENGTH))))
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
    race = Played(list(decode(broken, PROMPT, RunConfig(("ar", "linear", "auto"), LENGTH))))
    assert race.tokens("linear") == race.tokens("auto") == race.tokens("ar")
    assert any(event.limited_by == LOST for event in race.rounds("linear"))
