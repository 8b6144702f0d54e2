"""Families that run through their modules, by rows, with states, or as whole paths: tree nodes have the logits of plain
text, and methods write the text of `generate`.
"""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from decoder import RunConfig
from decoder.forward.hf import ModuleForward
from decoder.forward.language_model import LanguageModel
from decoder.forward.near_tie import Judge
from decoder.forward.protocol import Forward
from decoder.forward.recurrent.forward import RecurrentForward
from decoder.forward.whole_paths import PathForward
from decoder.models.compatibility import check_architecture, probe
from tests import tiny
from tests.decoder import any_family, path_families, recurrent_families
from tests.decoder.any_family import DISTINCT, PROMPT, decoded, engine_of, greedy
from tests.decoder.fixed_tree import largest_difference, plain
from tests.decoder.survey.tiny_models import tiny_config


@dataclass(frozen=True)
class Kind:
    """Families whose models run in one form."""

    made: Callable[[str], Any]
    form: Callable[[Any], Forward]
    every_method: tuple[str, ...]
    """Families that every method decodes; the others have the same passes."""
    others: Iterable[str]
    methods: tuple[str, ...] = ("ar", "linear", "dynatree", "auto")
    count: int = 24
    noise: float = 0.005
    """By which the weights of the draft differ from the target's."""
    tolerance: float = 1e-3
    keeping: tuple[list[int], ...] = ([0, 2, 5], [0, 1, 4], [0, 2, 5, 6], [0])
    """Kept paths, one a tree: they end at an inner node, at a leaf of a short branch, and at a deepest leaf."""
    distinct: bool = True
    """Whether a text of `count` tokens has so many different ones that wrong decoding shows."""


BY_ROWS = "mistral", "gpt_oss", "llama4_text", "deepseek_v3", "gemma4_text", "qwen3_moe"
"""One of each kind of window, cache and experts."""
KINDS = {
    "rows": Kind(
        lambda family: any_family.built(any_family.config_of(family)),
        ModuleForward,
        BY_ROWS,
        any_family.FAMILIES.keys() - BY_ROWS,
        tolerance=1e-4,
        keeping=([0, 2, 5], [0, 1, 3, 7], [0, 2, 5, 6]),
    ),
    # Windows, states, an indexer, biases by distance and looped layers, combined.
    "several": Kind(
        lambda family: any_family.built(tiny_config(family)),
        lambda module: engine_of(module).pair.target.runs_by,
        (),
        ("dory", "inkling_text", "inkling2_text", "inkling2_loop_text", "qwen4_exp_text"),
        count=20,
        distinct=False,
    ),
    "states": Kind(
        recurrent_families.target_of,
        RecurrentForward,
        tuple(recurrent_families.USUAL),
        recurrent_families.FURTHER,
        count=30,
        noise=0.008,
    ),
    "paths": Kind(
        path_families.target_of,
        PathForward,
        path_families.USUAL,
        (*path_families.FURTHER, *path_families.BY_TRIAL),
        ("ar", "linear", "fixed", "dynatree", "auto"),
        count=32,
        distinct=False,
    ),
}
OF = {family: kind for kind in KINDS.values() for family in (*kind.every_method, *sorted(kind.others))}
"""The kind of each family."""
LONG, DULL = 48, ("starcoder2", "deepseek_v2")
"""Families whose texts have few different tokens at first, and how many are decoded."""
EACH = pytest.mark.parametrize("family", OF)


@functools.cache
def target(family: str) -> Any:
    return OF[family].made(family)


@functools.cache
def draft(family: str) -> Any:
    return tiny.kin(target(family), seed=2, noise=OF[family].noise)


def text(family: str, method: str, *, draft_it: bool = True) -> tuple[list[int], int]:
    """Text of a method after the prompt, and the number of rounds; without a draft, lookups draft."""
    engine = engine_of(target(family), draft(family) if draft_it else None)
    if family in path_families.BY_TRIAL:
        for model in engine.pair.models.values():
            probe(model)
    return decoded(engine, PROMPT, RunConfig((method,), LONG if family in DULL else OF[family].count))


@EACH
def test_nodes_of_trees_have_the_logits_of_plain_text(family: str) -> None:
    kind = OF[family]
    assert largest_difference(kind.form(target(family)), target(family), kind.keeping) < kind.tolerance


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "mamba2", "jamba", "bloom", "gpt_neo", "deepseek_v4", "rwkv"])
def test_trees_may_grow_level_by_level(family: str) -> None:
    levels = [range(1), range(1, 3), range(3, 6), range(6, 8)]
    form = OF[family].form(target(family))
    assert largest_difference(form, target(family), [[0, 1, 3], [0, 2, 5, 6], [0]], levels) < 1e-3


CHECKED_ROWS = ("gpt_oss", "gemma3n_text", "llama4_text", "deepseek_v32", "gemma4_text")
UNCHECKED = {*KINDS["rows"].every_method, *KINDS["rows"].others, "bailing_hybrid", "qwen3_5_moe_text"} - {*CHECKED_ROWS}


@pytest.mark.parametrize("family", [family for family in OF if family not in UNCHECKED])
def test_loading_chooses_the_form_of_a_family(family: str) -> None:
    check_architecture(family, target(family).config.get_text_config())
    model = engine_of(target(family)).pair.target
    probe(model)
    for form in (model.runs_by, model.inexact().runs_by):
        assert type(form) is type(OF[family].form(target(family)))


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
def test_loading_keeps_a_form_that_computes_trees(family: str) -> None:
    model = LanguageModel.of_module(tiny.build(tiny.FAMILIES[family](), seed=1), family)
    probe(model)
    assert not model.hf.by_paths


@pytest.mark.parametrize("family", [family for kind in KINDS.values() for family in kind.every_method])
def test_every_method_writes_the_text_of_greedy_search(family: str) -> None:
    right = greedy(target(family), PROMPT, OF[family].count)
    texts = {method: text(family, method)[0] for method in OF[family].methods}
    assert texts == dict.fromkeys(texts, right)
    assert len(set(right)) >= DISTINCT or not OF[family].distinct


@pytest.mark.parametrize("family", [family for kind in KINDS.values() for family in sorted(kind.others)])
def test_a_dynamic_tree_writes_the_text_of_greedy_search(family: str) -> None:
    found, rounds = text(family, "dynatree")
    assert found == greedy(target(family), PROMPT, len(found))
    assert len(set(found)) >= DISTINCT or not OF[family].distinct
    assert rounds < len(found)


@pytest.mark.parametrize("family", [*any_family.FAMILIES, *path_families.USUAL])
def test_lookups_write_the_text_of_greedy_search(family: str) -> None:
    found, _ = text(family, "auto", draft_it=False)
    assert found == greedy(target(family), PROMPT, len(found))


@pytest.mark.parametrize("family", ["qwen3_5_text", "mamba2"])
def test_a_lookup_that_pays_writes_the_text_of_greedy_search(family: str) -> None:
    prompt = [*PROMPT, *greedy(target(family), PROMPT, 60), *PROMPT]
    found, rounds = decoded(engine_of(target(family)), prompt, RunConfig(("auto",), 60))
    assert found == greedy(target(family), prompt, 60)
    assert rounds < 60


@pytest.mark.parametrize(
    "family", ["gpt_oss", "deepseek_v3", "llama4_text", "qwen3_5_text", "lfm2", "mamba2", "bloom", "rwkv"]
)
def test_every_method_writes_the_same_sampled_text(family: str) -> None:
    engine, methods = engine_of(target(family), draft(family)), OF[family].methods
    texts = [decoded(engine, PROMPT, RunConfig((name,), 30, 3, temperature=0.7))[0] for name in methods]
    assert texts == [texts[0]] * len(methods)


@pytest.mark.parametrize(
    ("family", "other"),
    [
        *(("gemma3_text", "mistral"), ("deepseek_v2", "mistral"), ("lfm2", "granitemoe"), ("mamba2", "granitemoe")),
        *(("bloom", "granitemoe"), ("rwkv", "granitemoe")),
    ],
)
def test_a_family_drafts_for_another(family: str, other: str) -> None:
    """With windows, keys and values of several shapes, states or whole paths."""
    engine = engine_of(target(other), draft(family) if OF[family] is KINDS["rows"] else target(family))
    count = OF[family].count
    assert decoded(engine, PROMPT, RunConfig(("dynatree",), count))[0] == greedy(target(other), PROMPT, count)


@pytest.mark.parametrize("family", ["mamba2", "bamba", "jamba", "gpt_neo", "xlstm"])
def test_near_ties_are_judged_in_one_pass_over_the_text(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.forward.near_tie.CHUNK", 6)
    scores = plain(target(family), PROMPT)[-1]
    model = engine_of(target(family)).pair.target
    probe(model)
    verdict = Judge(model)(PROMPT, (7, 8), by_module=True)
    assert verdict.gap == pytest.approx(float((scores[7] - scores[8]).abs()), rel=1e-3)
