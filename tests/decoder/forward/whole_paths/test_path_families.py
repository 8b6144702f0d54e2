"""Modules that compute whole paths: tree nodes have the logits of plain text, and methods write `generate`'s text."""

import functools
from typing import Any

import pytest
import torch

from decoder import RunConfig
from decoder.errors import ConfigError, PairError
from decoder.forward.language_model import LanguageModel
from decoder.forward.layer_kinds import FAMILIES as KNOWN
from decoder.forward.layer_kinds import UNCAPTURED, takes_paths
from decoder.forward.near_tie import Judge
from decoder.forward.static.static_forward import static_forward
from decoder.forward.whole_paths import PathForward
from decoder.models.compatibility import check_architecture, probe
from decoder.run import decoding_path
from decoder.run.decoding_path import PATHS, expected_path
from tests import tiny
from tests.decoder import any_family
from tests.decoder.any_family import PROMPT, decoded, engine_of, greedy
from tests.decoder.fixed_tree import largest_difference, plain
from tests.decoder.path_families import BY_TRIAL, FAMILIES, FURTHER, USUAL, target_of
from tests.decoder.tensor_parallel.started_ranks import require_spreadable

COUNT = 32
METHODS = ("ar", "linear", "fixed", "dynatree", "auto")


@functools.cache
def target(family: str) -> Any:
    return target_of(family)


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=0.005)


def model_of(family: str) -> LanguageModel:
    model = engine_of(target(family)).pair.target
    probe(model)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_nodes_of_trees_have_the_logits_of_plain_text(family: str) -> None:
    """Kept paths end at an inner node, at a leaf of a short branch, and at a deepest leaf."""
    form = PathForward(target(family))
    assert largest_difference(form, target(family), [[0, 2, 5], [0, 1, 4], [0, 2, 5, 6], [0]]) < 1e-3


@pytest.mark.parametrize("family", ["bloom", "gpt_neo", "deepseek_v4", "rwkv"])
def test_trees_may_grow_level_by_level(family: str) -> None:
    levels = [range(1), range(1, 3), range(3, 6), range(6, 8)]
    form = PathForward(target(family))
    assert largest_difference(form, target(family), [[0, 1, 3], [0, 2, 5, 6], [0]], levels) < 1e-3


@pytest.mark.parametrize("family", FAMILIES)
def test_loading_chooses_whole_paths(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    model = model_of(family)
    assert model.hf.by_paths
    assert isinstance(model.runs_by, PathForward)
    assert isinstance(model.inexact().runs_by, PathForward)


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
def test_loading_keeps_a_form_that_computes_trees(family: str) -> None:
    model = LanguageModel.of_module(tiny.build(tiny.FAMILIES[family](), seed=1), family)
    probe(model)
    assert not model.hf.by_paths


@pytest.mark.parametrize("family", USUAL)
def test_every_method_writes_the_text_of_greedy_search(family: str) -> None:
    drafted, looked_up = engine_of(target(family), draft(family)), engine_of(target(family))
    texts = {name: decoded(drafted, PROMPT, RunConfig((name,), COUNT))[0] for name in METHODS}
    texts["lookup"], _ = decoded(looked_up, PROMPT, RunConfig(("auto",), COUNT))
    assert texts == dict.fromkeys(texts, greedy(target(family), PROMPT, COUNT))


@pytest.mark.parametrize("family", FURTHER)
def test_a_dynamic_tree_writes_the_text_of_greedy_search(family: str) -> None:
    text, rounds = decoded(engine_of(target(family), draft(family)), PROMPT, RunConfig(("dynatree",), COUNT))
    assert text == greedy(target(family), PROMPT, COUNT)
    assert rounds < COUNT


@pytest.mark.parametrize("family", BY_TRIAL)
def test_a_family_that_a_trial_finds_writes_the_text_of_greedy_search(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    for model in engine.pair.models.values():
        probe(model)
    text, rounds = decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))
    assert text == greedy(target(family), PROMPT, COUNT)
    assert rounds < COUNT


def test_loading_leaves_the_weights_as_they_are() -> None:
    """RWKV divides weights in place by a configuration value, so no other value of it is tried."""
    module = target_of("rwkv")
    before = plain(module, PROMPT)
    probe(LanguageModel.of_module(module, "rwkv"))
    assert torch.equal(plain(module, PROMPT), before)


@pytest.mark.parametrize("family", ["bloom", "rwkv"])
def test_every_method_writes_the_same_sampled_text(family: str) -> None:
    engine = engine_of(target(family), draft(family))
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30, 3, temperature=0.7))[0] for name in METHODS]
    assert texts == [texts[0]] * len(METHODS)


@pytest.mark.parametrize("family", ["bloom", "rwkv"])
def test_a_family_drafts_for_a_plain_target(family: str) -> None:
    other = any_family.built(any_family.config_of("granitemoe"))
    engine = engine_of(other, target(family))
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), COUNT))[0] == greedy(other, PROMPT, COUNT)


@pytest.mark.parametrize("family", ["gpt_neo", "xlstm"])
def test_near_ties_are_judged_in_one_pass_over_the_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.forward.near_tie.CHUNK", 6)
    scores = plain(target(family), PROMPT)[-1]
    verdict = Judge(model_of(family))(PROMPT, (7, 8), by_module=True)
    assert verdict.gap == pytest.approx(float((scores[7] - scores[8]).abs()), rel=1e-3)


# Reports and refusals of whole paths


def test_the_known_families_are_those_of_the_tests() -> None:
    assert {*KNOWN} == {*USUAL, *FURTHER}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_configuration_tells_whole_paths_where_the_type_or_alibi_does(family: str) -> None:
    assert takes_paths(target(family).config.get_text_config()) == (family != "big_bird")


def test_rounds_are_told_to_be_slower() -> None:
    engine = engine_of(target("bloom"))
    assert decoding_path.decoding_path(engine).reason == PATHS
    config = target("bloom").config
    assert expected_path({"target": config, "draft": config}, torch.device("cpu"), exact=False).reason == PATHS


def test_rounds_on_a_device_with_graphs_are_expected_to_be_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding_path, "has_graphs", lambda _: True)
    config = target("bloom").config
    path = expected_path({"target": config, "draft": config}, torch.device("cuda"), exact=False)
    assert path == decoding_path.DecodingPath(decoding_path.HOST, UNCAPTURED)


def test_what_needs_rows_refuses_whole_paths() -> None:
    model = model_of("bloom")
    with pytest.raises(PairError, match=r"caches of its own.*leave out --exact"):
        model.exact()
    with pytest.raises(PairError, match=r"caches of its own.*leave out streaming"):
        model.streaming(2, 8)
    with pytest.raises(PairError, match="a module that computes whole paths"):
        static_forward(model)
    with pytest.raises(ConfigError, match=r"keeps a cache of its own.*start one process"):
        require_spreadable(target("bloom").config)
