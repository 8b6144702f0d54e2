"""Families that combine windows, recurrent states, an indexer, biases by distance, or looped layers."""

import functools
from typing import Any

import pytest

from decoder import RunConfig
from decoder.models.compatibility import check_architecture, probe
from tests import tiny
from tests.decoder.any_family import PROMPT, built, decoded, engine_of, greedy
from tests.decoder.fixed_tree import largest_difference
from tests.decoder.survey.tiny_models import tiny_config

FAMILIES = ("dory", "inkling_text", "inkling2_text", "inkling2_loop_text", "qwen4_exp_text")
COUNT = 20


@functools.cache
def target(family: str) -> Any:
    return built(tiny_config(family))


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_of_trees_have_the_logits_of_plain_text(family: str) -> None:
    form = engine_of(target(family)).pair.target.runs_by
    assert largest_difference(form, target(family), [[0, 2, 5], [0, 1, 4], [0, 2, 5, 6], [0]]) < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_passes_the_checks_of_loading(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    model = engine_of(target(family)).pair.target
    probe(model)
    assert not model.hf.by_paths


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dynamic_tree_writes_the_text_of_greedy_search(family: str) -> None:
    engine = engine_of(target(family), tiny.kin(target(family), seed=2, noise=0.005))
    text, rounds = decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))
    assert text == greedy(target(family), PROMPT, COUNT)
    assert rounds < COUNT
