"""Number of forward passes of a round, size of its tree, and the memory for both."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from decoder import DynaTree, RunConfig, decode
from decoder.draft.model_drafter import ModelDrafter
from decoder.errors import DeviceError
from decoder.events import LENGTH, Round, Start
from decoder.knobs import MOST
from decoder.session.host import HostSession
from decoder.tree import depths
from tests.decoder.makers import Played, TinyModels, host_session
from tests.decoder.session.all_methods import CONFIG, PROMPT, TREES
from tests.reference import simulate


@contextmanager
def counted(model: Any) -> Iterator[list[int]]:
    """A list to which every forward pass of the model adds its number of rows."""
    passes: list[int] = []
    right = model.runs_by

    def forward(cache: Any, tokens: Sequence[int], *rest: Any) -> Any:
        passes.append(len(tokens))
        return right.forward(cache, tokens, *rest)

    def read(cache: Any, tokens: Sequence[int]) -> Any:
        passes.append(len(tokens))
        return right.read(cache, tokens)

    model.runs_by = SimpleNamespace(forward=forward, read=read, new_cache=right.new_cache)
    yield passes
    model.runs_by = right


def test_the_target_runs_once_a_round_and_twice_in_algorithm_1(played: Played) -> None:
    for method in ("ar", *TREES):
        assert {event.target_forwards for event in played.rounds(method)} == {2 if method == "alg1" else 1}, method


@pytest.mark.parametrize("method", ["ar", *TREES])
def test_the_forward_passes_told_are_those_that_were_run(tiny_models: TinyModels, method: str) -> None:
    engine = tiny_models.engine("llama")
    with counted(engine.pair.target) as target, counted(engine.pair.draft_model) as draft:
        seen = (0, 0)
        for event in decode(engine, PROMPT, replace(CONFIG, methods=(method,))):
            if isinstance(event, Start):
                seen = (len(target), len(draft))
            if isinstance(event, Round):
                assert (len(target) - seen[0], len(draft) - seen[1]) == (event.target_forwards, event.draft_forwards)
                seen = (len(target), len(draft))
        assert (len(target), len(draft)) == seen


def test_the_summary_adds_the_forward_passes_up(played: Played) -> None:
    for method in ("ar", *TREES):
        figures, rounds = played.figures(method), played.rounds(method)
        assert figures.target_forwards == sum(event.target_forwards or 0 for event in rounds), method
        assert figures.draft_forwards == sum(event.draft_forwards or 0 for event in rounds), method


@pytest.mark.parametrize("method", TREES)
@pytest.mark.parametrize("name", ["neox", "neox-strange"])
def test_the_draft_runs_at_most_once_a_level_and_once_more(tiny_models: TinyModels, name: str, method: str) -> None:
    rounds = tiny_models.play(tiny_models.pair(name), "float32", PROMPT, CONFIG).rounds(method)
    whole = [event for event in rounds if event.limited_by != LENGTH]
    assert len(whole) > 4
    for event in whole:
        levels = max(depths(event.parents)) + (method == "alg1")
        assert event.draft_forwards is not None
        assert levels <= event.draft_forwards <= levels + 1


def test_growing_for_the_best_nodes_takes_one_forward_a_grown_level(tiny_models: TinyModels) -> None:
    tree = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=12, selection="best")
    pair = tiny_models.pair("neox")
    config = RunConfig(("dynatree",), 20, dynatree=tree)
    steps = simulate(tiny_models.oracle(pair, "float64"), tiny_models.prompt_tokens(pair, PROMPT), "dynatree", tree, 20)
    for event, step in zip(tiny_models.play(pair, "float64", PROMPT, config).rounds("dynatree"), steps, strict=True):
        assert event.draft_forwards is not None
        assert event.draft_forwards <= step.levels + 1


@pytest.mark.parametrize("n_max", [1, 3, 8, 20])
def test_the_best_nodes_are_those_of_a_tree_that_grows_without_a_limit(tiny_models: TinyModels, n_max: int) -> None:
    tree = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=4096, selection="best")
    pair = tiny_models.engine("neox", "float64")
    trees = []
    for rules in (tree, replace(tree, n_max=n_max)):
        session = host_session(pair, tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), 8, rules)
        session.prefill()
        trees.append(session.step(()).tree)
    whole, best = trees
    assert best.tokens == whole.subtree(whole.most_probable(n_max)).tokens
    assert len(whole) > 200


def test_the_largest_rules_need_no_more_room_than_a_tree_has(tiny_models: TinyModels) -> None:
    largest = DynaTree(d0=1, d_max=MOST, branching=(3, 3, 3), n_max=MOST, rho_stop=0, tau=0, selection="best")
    pair = tiny_models.engine("neox")
    session = host_session(pair, tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), 8, largest)
    assert isinstance(session.proposer, ModelDrafter)
    rows: Any = session.proposer.passes.cache
    assert rows.store.shape[3] < 2 * MOST


def test_a_tree_that_tries_more_than_it_keeps_finds_room(tiny_models: TinyModels) -> None:
    rules = DynaTree(branching=(3, 3, 3), rho_stop=0, rho_deep=0, tau=0, d0=4, d_max=5, n_max=40, selection="best")
    pair = tiny_models.pair("neox")
    config = RunConfig(("dynatree", "ar"), 20, dynatree=rules)
    played = tiny_models.play(pair, "float64", PROMPT, config)
    assert played.tokens("dynatree") == played.tokens("ar")
    session = host_session(tiny_models.loaded(pair, "float64"), [1, 2, 3], 8, rules)
    session.prefill()
    session.step(())
    assert isinstance(session.proposer, ModelDrafter)
    rows: Any = session.proposer.passes.cache
    assert rows.store.shape[3] > 3 + 8 + 1 + 40


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")]
)
def test_a_full_memory_is_one_line_on_a_cpu_too(
    tiny_models: TinyModels, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise error

    monkeypatch.setattr(HostSession, "_reserve", full)
    with pytest.raises(DeviceError, match="the memory of cpu is full; choose smaller models"):
        list(decode(tiny_models.engine("neox"), PROMPT, RunConfig(("ar",), 4)))


def test_ar_never_runs_the_draft(played: Played) -> None:
    assert played.figures("ar").draft_forwards == 0
