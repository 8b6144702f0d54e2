"""Drafts are ranked by measured speed on a user's prompts, next to the speed expected from acceptance and cost."""

from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.errors import ConfigError, DecoderError, PairError
from decoder.run.config import RunConfig
from dynatui.lab.bench.contenders import Contender, DecodedText
from dynatui.lab.bench.protocol import Sample
from dynatui.lab.bench.summary import Samples
from dynatui.lab.commands.draft_ranking import ranking
from dynatui.lab.tuning.drafts import (
    METHODS,
    OnDrafts,
    Ranking,
    _draft,
    acceptance,
    best_chain,
    guesses_at_once,
    lane_name,
    rank,
)
from dynatui.lab.tuning.scoring import greedy_text
from tests import heads, tiny
from tests.decoder import mtp_checkpoints
from tests.decoder.makers import TinyModels

PROMPTS = ("The sea was calm that night", "Nobody had ever asked her")
NEW_TOKENS = 12


def ranked_drafts(target: object, *drafts: object, **how: Any) -> Ranking:
    usual = {"prompts": PROMPTS[:1], "config": RunConfig(max_new_tokens=6), "device": "cpu", "dtype": "float32"}
    given: dict[str, Any] = usual | how
    return rank(OnDrafts(str(target), tuple(map(str, drafts)), **given), lambda _: None)


@pytest.fixture(scope="module")
def ranked(tiny_models: TinyModels) -> Ranking:
    pair, config = tiny_models.pair("neox"), RunConfig(max_new_tokens=NEW_TOKENS)
    return ranked_drafts(pair.target, pair.draft, pair.target, "/nowhere", prompts=PROMPTS, config=config)


def test_the_expected_chain_follows_acceptance_and_cost() -> None:
    assert best_chain([1.5, 1.75, 1.8], 0.1) == (2, 1.75 / 1.2)
    assert best_chain([1.3, 1.4], 0.5) == (0, 1.0)
    assert best_chain([1.9, 2.7, 3.4], 0.05)[0] > best_chain([1.9, 2.0, 2.02], 0.05)[0] > 0
    assert best_chain([], 0.1) == (0, 1.0)
    assert best_chain([1.9, 2.7, 3.4], 0.1, at_once=3) == (3, 3.4 / 1.1)


def test_agreement_is_the_share_of_tokens_guessed_after_the_first(tiny_models: TinyModels) -> None:
    engine, draft = tiny_models.loaded(tiny_models.pair("neox"), "float32"), tiny_models.pair("neox").draft
    module, prompt, text = tiny_models.plain(draft, "float32"), [5, 6, 7], [8, 9, 10, 11]
    beginnings = [prompt + text[:length] for length in range(1, len(text))]
    with torch.inference_mode():
        text[3] = int(module(torch.tensor([beginnings[-1]])).logits[0, -1].argmax())
        slow = [int(module(torch.tensor([ids])).logits[0, -1].argmax()) for ids in beginnings]
    right = [guess == token for guess, token in zip(slow, text[1:], strict=True)]
    agreement, lengths = acceptance(engine.pair, [greedy_text(prompt, text)])
    assert 0 < agreement == sum(right) / 3
    assert len(lengths) == 3


HEADS = (
    heads.name("llama", "nested"),
    heads.name("llama", "P-EAGLE"),
    mtp_checkpoints.name("glm4_moe"),
    heads.name("llama", "z-lab"),
)


def test_a_head_may_draft_several_levels_in_a_pass(tiny_models: TinyModels) -> None:
    pairs = [tiny_models.loaded(tiny_models.pair(pair), "float32").pair for pair in HEADS]
    assert [guesses_at_once(pair) for pair in pairs[:3]] == [None, 6, None]


def test_heads_are_ranked_beside_models(tiny_models: TinyModels) -> None:
    (target, head), other = astuple(tiny_models.pair(HEADS[0])), tiny_models.pair(HEADS[1]).draft
    found = ranked_drafts(target, "mtp", head, other, target)
    agreements = {draft.name: draft.agreement for draft in found.drafts}
    assert agreements.keys() == {str(head), str(other), str(target)}
    assert agreements[str(target)] == 1
    assert list(found.refused) == ["mtp"]
    assert all(draft.cost_ratio > 0 for draft in found.drafts)
    assert len(ranking(found).splitlines()) > 5
    target = tiny_models.pair(HEADS[2]).target
    assert {draft.name for draft in ranked_drafts(target, target, "mtp").drafts} == {str(target), "mtp"}


def test_the_fastest_draft_comes_first_and_one_that_cannot_be_loaded_is_named(ranked: Ranking) -> None:
    speeds = [estimate.value for draft in ranked.drafts if (estimate := draft.measured[draft.fastest])]
    assert len(speeds) == len(ranked.drafts) == 2
    assert speeds == sorted(speeds, reverse=True)
    assert list(ranked.refused) == ["/nowhere"]


def test_what_cannot_be_ranked_is_refused(tiny_models: TinyModels, tmp_path: Path) -> None:
    target, strangers = tiny_models.pair("neox").target, tiny.strangers_tongue(tmp_path)
    with pytest.raises(DecoderError, match="/nowhere"):
        ranked_drafts(target, "/nowhere", "/nor/here")
    with pytest.raises(PairError, match=r"does not have the tokenizer of .*; choose drafts with the target's tok"):
        ranked_drafts(strangers.target, strangers.draft)
    with pytest.raises(ConfigError, match="greedy"):
        ranked_drafts(target, target, config=RunConfig(temperature=0.7))
    with pytest.raises(ConfigError, match="--drafts is empty"):
        ranked_drafts(target)


def test_the_report_has_a_row_a_draft_and_a_sentence_on_each_but_no_verdict_where_texts_differ(ranked: Ranking) -> None:
    told = ranking(ranked)
    assert max(map(len, told.splitlines())) <= 80
    flat = " ".join(told.split())
    assert flat.count(" by ") >= len(ranked.drafts)
    assert "/nowhere cannot be used" in flat
    others = [structs.replace(draft, measured=dict.fromkeys(draft.measured)) for draft in ranked.drafts]
    told = " ".join(ranking(structs.replace(ranked, drafts=others)).split())
    assert told.count("writes texts that differ from those of plain decoding") == len(others)
    assert "plain decoding:" not in told


def test_what_limits_a_draft_is_told_of_the_prompts_that_have_its_speed() -> None:
    def sample(lane: str, prompt: int, decode_s: float, text: list[int]) -> Sample:
        times = Tally(rounds=8, drafted=16, levels=16, timed_tokens=16, decode_s=decode_s, draft_s=1, verify_s=1)
        return Sample(lane, lane, prompt, 0, structs.replace(times, log=TokenLog().plus(text)))

    right, wrong = list(range(16)), [99] * 16
    lanes = ["ar", *(lane_name("small", method) for method in METHODS)]
    found = [sample(lane, 0, 4.0, right) for lane in lanes] + [sample("ar", 1, 4.0, right)]
    found += [sample(lane, 1, 400.0, wrong) for lane in lanes[1:]]
    contenders = [Contender(lane, lane, lambda *_: DecodedText(Tally()), {}) for lane in lanes]
    draft = _draft("small", Samples(found, contenders), 0, agreement=0.5, ratio=0.1, chain=(2, 1.5))
    estimate = draft.measured[draft.fastest]
    assert draft.limits is not None
    assert estimate is not None
    assert draft.limits.speedup == pytest.approx(estimate.value) == pytest.approx(1.0)
