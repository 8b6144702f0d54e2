"""Families whose layers keep states: nodes of trees are plain text, and every method writes the text of `generate`."""

import functools
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from decoder import RunConfig
from decoder.forward.near_tie import Judge
from decoder.forward.recurrent.forward import RecurrentForward
from decoder.models.compatibility import check_architecture, probe
from tests import tiny
from tests.decoder import any_family
from tests.decoder.any_family import CONTEXT, PROMPT, decoded, engine_of, greedy
from tests.decoder.recurrent_families import FAMILIES, FURTHER, STEPWISE, USUAL, target_of

PARENTS = (-1, 0, 0, 1, 1, 2, 5, 3)
"""A tree's nodes by the parents above them: siblings, and branches of unequal length."""
COUNT, SHORT = 60, 30
METHODS = ("ar", "linear", "dynatree", "auto")


@functools.cache
def target(family: str) -> Any:
    return target_of(family)


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=0.008)


def path_of(node: int) -> list[int]:
    return [] if node < 0 else [*path_of(PARENTS[node]), node]


PATHS = [path_of(node) for node in range(len(PARENTS))]
VISIBLE = np.array([[other in path for other in range(len(PARENTS))] for path in PATHS])


@torch.inference_mode()
def plain(module: Any, text: list[int]) -> Tensor:
    """Logits after each token of a text, without a cache."""
    logits: Tensor = module(input_ids=torch.tensor([text]), use_cache=False).logits[0]
    return logits


@torch.inference_mode()
def largest_difference(module: Any, keeping: list[list[int]], levels: list[range]) -> float:
    """Largest difference of any node's logits from those of its path as plain text, over the largest logit.

    Trees are computed in these levels, and each is followed by one of the kept paths.
    """
    form, text, worst = RecurrentForward(module), list(PROMPT), 0.0
    cache = form.new_cache(CONTEXT)
    form.read(cache, text[:9])
    form.read(cache, text[9:])
    for kept in keeping:
        tokens = [(7 * node + len(text)) % 90 for node in range(len(PARENTS))]
        parts = []
        for level in levels:
            places = [len(text) + len(PATHS[node]) - 1 for node in level]
            visible = VISIBLE[level.start : level.stop, : level.stop]
            parts.append(form.forward(cache, [tokens[node] for node in level], places, visible))
        logits = torch.cat(parts)
        for path in (path for node, path in enumerate(PATHS) if node not in PARENTS):
            right = plain(module, text + [tokens[node] for node in path])[len(text) :]
            worst = max(worst, float((logits[path] - right).abs().max() / right.abs().max()))
        cache.keep([cache.length + node for node in kept])
        text += [tokens[node] for node in kept]
    return worst


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_of_trees_have_the_logits_of_plain_text(family: str) -> None:
    """Also after paths that end within the tree, at a leaf of a short branch, and at a deepest leaf."""
    keeping = [[0, 2, 5], [0, 1, 4], [0, 2, 5, 6], [0]]
    assert largest_difference(target(family), keeping, [range(len(PARENTS))]) < 1e-3


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "mamba2", "jamba"])
def test_trees_may_grow_level_by_level(family: str) -> None:
    levels = [range(1), range(1, 3), range(3, 6), range(6, 8)]
    assert largest_difference(target(family), [[0, 1, 3], [0, 2, 5, 6], [0]], levels) < 1e-3


@pytest.mark.parametrize("family", sorted(FAMILIES.keys() - {"bailing_hybrid", "qwen3_5_moe_text"}))
def test_a_family_passes_the_checks_of_loading(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    probe(engine_of(target(family)).pair.target)


@pytest.mark.parametrize("family", USUAL)
def test_every_method_writes_the_text_of_greedy_search(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    texts = {name: decoded(engine, PROMPT, RunConfig((name,), SHORT))[0] for name in METHODS}
    assert texts == dict.fromkeys(METHODS, greedy(target(family), PROMPT, SHORT))


@pytest.mark.parametrize("family", ["qwen3_5_text", "mamba2"])
def test_a_lookup_writes_the_text_of_greedy_search(family: str) -> None:
    prompt = [*PROMPT, *greedy(target(family), PROMPT, COUNT), *PROMPT]
    text, rounds = decoded(engine_of(target(family)), prompt, RunConfig(("auto",), COUNT))
    assert text == greedy(target(family), prompt, COUNT)
    assert rounds < COUNT


@pytest.mark.parametrize("family", FURTHER)
def test_a_dynamic_tree_writes_the_text_of_greedy_search(family: str) -> None:
    text, rounds = decoded(engine_of(target(family), draft(family)), PROMPT, RunConfig(("dynatree",), COUNT))
    assert text == greedy(target(family), PROMPT, COUNT)
    assert rounds < COUNT


@pytest.mark.parametrize("family", ["qwen3_5_text", "lfm2", "mamba2"])
def test_every_method_writes_the_same_sampled_text(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30, 3, temperature=0.7))[0] for name in METHODS]
    assert texts == [texts[0]] * len(METHODS)


@pytest.mark.parametrize("family", ["lfm2", "mamba2"])
def test_a_family_drafts_for_a_plain_target(family: str) -> None:
    other = any_family.built(any_family.config_of("granitemoe"))
    engine = engine_of(other, target(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))[0] == greedy(other, PROMPT, COUNT)


@pytest.mark.parametrize("family", FAMILIES)
def test_families_whose_scan_ignores_a_state_are_called_token_by_token(family: str) -> None:
    assert RecurrentForward(target(family)).stepwise == (family in STEPWISE)


def calls_of(family: str, method: str) -> tuple[Counter[str], int]:
    """Number of calls of the target and of the module that owns its last state, and number of rounds."""
    module = target_of(family)
    engine, counts = engine_of(module, draft(family)), Counter[str]()
    form: Any = engine.pair.target.runs_by
    owner = form.owners[-1].module
    _ = form.stepwise
    handles = [
        each.register_forward_pre_hook(lambda *_, name=name: counts.update([name]))
        for name, each in (("whole", module), ("owner", owner))
    ]
    _, rounds = decoded(engine, PROMPT, RunConfig((method,), COUNT))
    for handle in handles:
        handle.remove()
    return counts, rounds


@pytest.mark.parametrize("family", ["lfm2", "mamba2"])
def test_a_round_is_one_pass_and_at_most_one_replay_of_the_owners(family: str) -> None:
    counts, rounds = calls_of(family, "dynatree")
    assert counts["whole"] == 1 + rounds
    assert 1 + rounds < counts["owner"] <= 1 + 2 * rounds


@pytest.mark.parametrize("family", ["lfm2", "mamba2"])
def test_a_round_without_a_draft_replays_nothing(family: str) -> None:
    counts, rounds = calls_of(family, "ar")
    assert counts["owner"] == counts["whole"] == 1 + rounds


@pytest.mark.parametrize("family", ["mamba2", "bamba", "jamba"])
def test_near_ties_are_judged_in_one_pass_over_the_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.forward.near_tie.CHUNK", 6)
    scores = plain(target(family), PROMPT)[-1]
    verdict = Judge(engine_of(target(family)).pair.target)(PROMPT, (7, 8), by_module=True)
    assert verdict.gap == pytest.approx(float((scores[7] - scores[8]).abs()), rel=1e-3)
