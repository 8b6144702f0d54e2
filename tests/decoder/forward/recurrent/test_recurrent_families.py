"""Recurrent families: tree nodes have the logits of plain text, and every method writes the text of `generate`."""

import functools
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from decoder import RunConfig
from decoder.forward.near_tie import Judge
from decoder.forward.recurrent.forward import RecurrentForward
from decoder.models.compatibility import check_architecture, probe
from decoder.session.protocol import Outcome
from tests import tiny
from tests.decoder import any_family
from tests.decoder.any_family import (
    DISTINCT,
    PROMPT,
    counted,
    decoded,
    engine_of,
    greedy,
    rounds_of,
    whole_and_layers,
)
from tests.decoder.fixed_tree import largest_difference, plain
from tests.decoder.recurrent_families import FAMILIES, FURTHER, STEPWISE, USUAL, target_of

COUNT, SHORT = 60, 30
METHODS = ("ar", "linear", "dynatree", "auto")


@functools.cache
def target(family: str) -> Any:
    return target_of(family)


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=0.008)


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_of_trees_have_the_logits_of_plain_text(family: str) -> None:
    """Kept paths end at an inner node, at a leaf of a short branch, and at a deepest leaf."""
    keeping = [[0, 2, 5], [0, 1, 4], [0, 2, 5, 6], [0]]
    assert largest_difference(RecurrentForward(target(family)), target(family), keeping) < 1e-3


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "mamba2", "jamba"])
def test_trees_may_grow_level_by_level(family: str) -> None:
    levels = [range(1), range(1, 3), range(3, 6), range(6, 8)]
    form = RecurrentForward(target(family))
    assert largest_difference(form, target(family), [[0, 1, 3], [0, 2, 5, 6], [0]], levels) < 1e-3


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"bailing_hybrid", "qwen3_5_moe_text"}))
def test_a_family_passes_the_checks_of_loading(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    probe(engine_of(target(family)).pair.target)


@pytest.mark.parametrize("family", USUAL)
def test_every_method_writes_the_text_of_greedy_search(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    texts = {name: decoded(engine, PROMPT, RunConfig((name,), SHORT))[0] for name in METHODS}
    right = greedy(target(family), PROMPT, SHORT)
    assert texts == dict.fromkeys(METHODS, right)
    assert len(set(right)) >= DISTINCT


@pytest.mark.parametrize("family", ["qwen3_5_text", "mamba2"])
def test_a_lookup_writes_the_text_of_greedy_search(family: str) -> None:
    prompt = [*PROMPT, *greedy(target(family), PROMPT, COUNT), *PROMPT]
    text, rounds = decoded(engine_of(target(family)), prompt, RunConfig(("auto",), COUNT))
    assert text == greedy(target(family), prompt, COUNT)
    assert rounds < COUNT


@pytest.mark.parametrize("family", FURTHER)
def test_a_dynamic_tree_writes_the_text_of_greedy_search(family: str) -> None:
    text, rounds = decoded(engine_of(target(family), draft(family)), PROMPT, RunConfig(("dynatree",), SHORT))
    assert text == greedy(target(family), PROMPT, SHORT)
    assert len(set(text)) >= DISTINCT
    assert rounds < SHORT


@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2", "mamba2"])
def test_every_method_writes_the_same_sampled_text(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30, 3, temperature=0.7))[0] for name in METHODS]
    assert texts == [texts[0]] * len(METHODS)


@pytest.mark.parametrize("family", ["lfm2", "mamba2"])
def test_a_family_drafts_for_a_plain_target(family: str) -> None:
    other = any_family.built(any_family.config_of("granitemoe"))
    engine = engine_of(other, target(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), SHORT))[0] == greedy(other, PROMPT, SHORT)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_whose_scan_ignores_a_state_are_called_token_by_token(family: str) -> None:
    assert RecurrentForward(target(family)).stepwise == (family in STEPWISE)


def calls_by_round(family: str, method: str) -> Iterator[tuple[Outcome, set[int], set[int]]]:
    """Each round with its numbers of calls of the target and its layers, and of the modules that own states."""
    module = target_of(family)
    engine = engine_of(module, tiny.kin(module, seed=2, noise=0.02))
    form: Any = engine.pair.target.runs_by
    _ = form.stepwise
    owners = {f"owner {number}": owner.module for number, owner in enumerate(form.owners)}
    others = whole_and_layers(module)
    with counted(others | owners) as calls:
        before = Counter(dict.fromkeys(others | owners, 1))  # the first round also reads the prompt
        for outcome in rounds_of(engine, PROMPT, RunConfig((method,), COUNT)):
            own = {name: calls[name] - before[name] for name in before}
            before = calls.copy()
            yield outcome, {own[name] for name in others}, {own[name] for name in owners}


@pytest.mark.parametrize("family", ["qwen3_5_text", "falcon_h1", "lfm2", "mamba2"])
def test_a_round_is_one_pass_and_at_most_one_replay_of_the_owners(family: str) -> None:
    """No replay is needed if the accepted path is one of the tree's longest, whose states are known."""
    replays = 0
    for outcome, layers, owners in calls_by_round(family, "dynatree"):
        kept = len([0, *outcome.accepted][: len(outcome.committed)])
        replayed = kept <= max(outcome.tree.depths)
        assert layers == {1}
        assert owners == {1 + replayed}
        replays += replayed
    assert replays


@pytest.mark.parametrize("family", ["lfm2", "mamba2"])
def test_a_round_without_a_draft_replays_nothing(family: str) -> None:
    assert all(layers == owners == {1} for _, layers, owners in calls_by_round(family, "ar"))


@pytest.mark.parametrize("family", ["mamba2", "bamba", "jamba"])
def test_near_ties_are_judged_in_one_pass_over_the_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.forward.near_tie.CHUNK", 6)
    scores = plain(target(family), PROMPT)[-1]
    verdict = Judge(engine_of(target(family)).pair.target)(PROMPT, (7, 8), by_module=True)
    assert verdict.gap == pytest.approx(float((scores[7] - scores[8]).abs()), rel=1e-3)
