"""Scores at every place of a text give what rounds of a server count, by position."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from decoder.draft.lookup import LookupDrafter
from decoder.engine import Engine
from decoder.methods.linear import Linear
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.session.protocol import Session
from dynatui.lab.tuning.scoring import AT_ONCE, ScoredText, given, scored, written
from dynatui.lab.tuning.survival import Counts, counted
from dynatui.servers.profile_file import LONGEST_CHAIN
from tests import heads
from tests.decoder import mtp_checkpoints
from tests.decoder.makers import TinyModels, host_session
from tests.lab.tuning.slow_rounds import SlowModel, rounds

PROMPT = [5, 6, 7, 8]
PLACES = 24
GREEDY = Sampling()
HEADS = (
    heads.name("llama", "nested"),
    heads.name("llama", "P-EAGLE"),
    mtp_checkpoints.name("glm4_moe"),
    heads.name("llama", "z-lab"),
)


def slow(models: TinyModels, name: str, temperature: float = 0.0) -> tuple[SlowModel, SlowModel]:
    pair = models.pair(name)
    target, draft = (SlowModel(models.plain(path, "float32"), temperature) for path in (pair.target, pair.draft))
    return target, draft


def greedy_counts(pair: Pair, text: ScoredText) -> Sequence[Counts]:
    (by_length,) = counted(scored(pair, text)).greedy.values()
    return by_length


@pytest.mark.parametrize(
    ("family", "k", "prompt"),
    [
        *((family, k, PROMPT) for family in ("neox", "qwen3", "llama-strange") for k in (1, 3, 16)),
        ("neox", 3, PROMPT[:1]),
    ],
)
def test_greedy_counts_are_those_of_rounds_run_one_by_one(
    tiny_models: TinyModels, family: str, k: int, prompt: list[int]
) -> None:
    engine = tiny_models.engine(family)
    found = greedy_counts(engine.pair, written(engine, prompt, PLACES, GREEDY, 0))[k - 1]
    assert (found.rounds, list(found.accepted)) == rounds(*slow(tiny_models, family), prompt, PLACES, k)


def test_counts_do_not_depend_on_the_places_that_a_pass_scores(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tiny_models.engine("neox")
    text = written(engine, PROMPT, PLACES, GREEDY, 0)
    assert len(text.tokens) > AT_ONCE
    whole = scored(engine.pair, text)
    monkeypatch.setattr("dynatui.lab.tuning.scoring.AT_ONCE", 64)
    parts = scored(engine.pair, text)
    assert (whole.accepted == parts.accepted).all()
    assert whole.confidence is not None
    assert parts.confidence is not None
    assert np.allclose(whole.confidence, parts.confidence, atol=1e-5)


def rounds_of(session: Session, places: int) -> tuple[int, list[int]]:
    """Rounds and accepted tokens by position of a session of the engine, from the text's second token on."""
    session.prefill()
    count, accepted, done = 0, [0] * 3, 1
    while done < places:
        outcome = session.step(())
        count, done = count + 1, done + len(outcome.committed)
        for level in range(len(outcome.accepted)):
            accepted[level] += 1
    return count, accepted


@pytest.mark.parametrize("name", HEADS)
def test_a_head_counts_as_in_the_engine_s_own_rounds(tiny_models: TinyModels, name: str) -> None:
    engine = tiny_models.engine(name)
    text = written(engine, PROMPT, PLACES, GREEDY, 0)
    found = greedy_counts(engine.pair, text)[2]
    begun = [*PROMPT, text.tokens[0]]
    session = host_session(engine, begun, PLACES + LONGEST_CHAIN, Linear(3))
    assert (found.rounds, list(found.accepted)) == rounds_of(session, PLACES)


@pytest.mark.parametrize("name", ["neox", *HEADS])
def test_confidence_is_that_of_the_draft_s_own_chain_at_every_place(tiny_models: TinyModels, name: str) -> None:
    engine = tiny_models.engine(name)
    text = written(engine, PROMPT, 6, GREEDY, 0)
    places = scored(engine.pair, text)
    assert places.confidence is not None
    for place in (1, 4):
        session = host_session(engine, text.whole[: len(PROMPT) + place], 20, Linear(5))
        session.prefill()
        tree = session.step(()).tree
        assert np.exp(tree.draft_logprobs or tree.logprobs)[1:6] == pytest.approx(
            places.confidence[place, :5], abs=1e-4
        )


def test_lookup_counts_as_its_drafter_drafts(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox")
    pair = replace(engine.pair, draft=None)
    prompt = PROMPT * 4
    text = replace(written(engine, prompt, PLACES, GREEDY, 0), tokens=PROMPT * 10, chosen=PROMPT * 10)
    places = scored(pair, text)
    drafter = LookupDrafter()
    chain = drafter.propose([*prompt, *text.tokens[:2]], Linear(LONGEST_CHAIN).rule(), LONGEST_CHAIN).tree.tokens[1:]
    assert places.drafted[2] == len(chain) > 0
    assert (places.accepted[2, : len(chain)] == np.equal(chain, text.tokens[2 : 2 + len(chain)])).all()
    assert (places.ranks, places.confidence, places.drawn) == (None, None, None)


def test_a_text_ends_after_its_end_of_text_token_but_its_last_chains_do_not(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox")
    free = written(engine, PROMPT, PLACES, GREEDY, 0)
    end = free.tokens[9]
    first = free.tokens.index(end)
    ending = replace(engine, pair=replace(engine.pair, eos=frozenset({end})))
    text = written(ending, PROMPT, PLACES, GREEDY, 0)
    assert (text.places, text.tokens) == (first + 1, free.tokens[: first + 1 + LONGEST_CHAIN])


def test_an_answer_of_the_target_itself_counts_as_its_text(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox")
    text = written(engine, PROMPT, PLACES, GREEDY, 0)
    answer = given(engine.pair, PROMPT, text.tokens, PLACES, GREEDY, 0)
    assert (answer.places, list(answer.chosen), answer.chosen_probs) == (PLACES, text.tokens, [1.0] * len(text.tokens))
    assert (scored(engine.pair, answer).accepted == scored(engine.pair, text).accepted).all()


def test_in_another_answer_a_token_is_right_if_the_target_would_choose_it_there(tiny_models: TinyModels) -> None:
    engine, (target, draft) = tiny_models.engine("neox"), slow(tiny_models, "neox")
    tokens = [11, 40, 9, 77, 23, 9]
    answer = given(engine.pair, PROMPT, tokens, 6, GREEDY, 0)
    beginnings = [[*PROMPT, *tokens[:place]] for place in range(6)]
    assert answer.chosen == [target.best(text) for text in beginnings]
    right = [target.best(text) == draft.best(text) for text in beginnings]
    assert scored(engine.pair, answer).accepted[:, 0].tolist() == right
    assert sum(right) > 0


@pytest.fixture
def warm(tiny_models: TinyModels) -> tuple[Engine, ScoredText]:
    engine = tiny_models.engine("neox")
    return engine, written(engine, PROMPT, 8, Sampling(1.3), 5)


def test_drawn_tokens_are_accepted_by_the_quotient_of_the_probabilities(
    tiny_models: TinyModels, warm: tuple[Engine, ScoredText]
) -> None:
    engine, text = warm
    target, draft = slow(tiny_models, "neox", 1.3)
    places = scored(engine.pair, text)
    assert places.drawn is not None
    for place in range(8):
        before, token = text.whole[: len(PROMPT) + place], text.tokens[place]
        p, q = target.probs(before)[token], draft.probs(before)[token]
        assert text.chosen_probs[place] == pytest.approx(p, rel=1e-3)
        assert places.drawn[place, 0] == pytest.approx(min(1, q / p), rel=1e-3)
        assert places.accepted[place, 0] == (draft.best(before) == token)


def test_sampled_answers_choose_by_the_target_s_law(tiny_models: TinyModels) -> None:
    engine, (target, _) = tiny_models.engine("neox"), slow(tiny_models, "neox", 1.0)
    chosen = [given(engine.pair, PROMPT, [3], 1, Sampling(1.0), seed).chosen[0] for seed in range(300)]
    probs = target.probs(PROMPT)
    best = int(probs.argmax())
    share = np.mean(np.array(chosen) == best)
    assert share == pytest.approx(probs[best], abs=4 * np.sqrt(probs[best] * (1 - probs[best]) / 300) + 0.005)


@pytest.mark.parametrize("drawn", [False, True])
def test_sampled_rates_are_those_of_rejection_sampling(tiny_models: TinyModels, *, drawn: bool) -> None:
    engine, texts, k = tiny_models.engine("neox"), 40, 2
    target, draft = slow(tiny_models, "neox", 1.0)
    torch.manual_seed(0)
    ours, theirs = np.zeros((texts, 1 + k)), np.zeros((texts, 1 + k))
    for seed in range(texts):
        found = counted(scored(engine.pair, written(engine, PROMPT, 20, Sampling(1.0), seed)))
        (by_length,) = (found.drawn or {} if drawn else found.greedy).values()
        ours[seed] = by_length[k - 1].rounds, *by_length[k - 1].accepted
        slowly = rounds(target, draft, PROMPT, 20, k, drawn=drawn, seed=seed)
        theirs[seed] = slowly.rounds, *slowly.accepted
    for level in range(1, 1 + k):
        shares = [each[:, level].sum() / each[:, 0].sum() for each in (ours, theirs)]
        spread = np.sqrt(
            sum(
                (share * (1 - share) + 0.01) / each[:, 0].sum()
                for share, each in zip(shares, (ours, theirs), strict=True)
            )
        )
        assert shares[0] == pytest.approx(shares[1], abs=4 * spread)
        assert 0 < shares[0] < 1
