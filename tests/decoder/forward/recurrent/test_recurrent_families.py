"""Passes of recurrent families: which modules get tokens one by one, and what a round computes."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from decoder import RunConfig
from decoder.forward.recurrent.forward import RecurrentForward
from decoder.session.protocol import Outcome
from tests import tiny
from tests.decoder.any_family import PROMPT, counted, engine_of, rounds_of, whole_and_layers
from tests.decoder.recurrent_families import FAMILIES, STEPWISE, target_of

COUNT = 60


@pytest.mark.parametrize("family", FAMILIES)
def test_families_whose_scan_ignores_a_state_are_called_token_by_token(family: str) -> None:
    assert RecurrentForward(target_of(family)).stepwise == (family in STEPWISE)


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
