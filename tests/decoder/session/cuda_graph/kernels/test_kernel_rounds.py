"""Whole rounds with all kernels write the same trees and texts as rounds that the host drives."""

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from decoder.sampling.settings import Sampling, Schedule
from decoder.session.cuda_graph.kernel_trial import chosen_operators, kernels
from decoder.session.cuda_graph.operators import PLAIN
from decoder.session.cuda_graph.pass_comparison import Share
from decoder.tree_rules import Rules
from tests.decoder.makers import PROMPT, TinyModels, graph_slots
from tests.decoder.session.cuda_graph.matching import last, match, with_slots

pytestmark = pytest.mark.usefixtures("by_interpreter")
SMALL = DynaTree(d_max=3, d0=2, branching=(2, 2, 3), window=1)
RULES: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "bfs": SMALL,
    "best": replace(SMALL, selection="best", n_max=5),
}


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(1.0, 20, 0.9)], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rules", RULES)
def test_every_round_is_that_of_the_host(tiny_models: TinyModels, rules: str, dtype: str, sampling: Sampling) -> None:
    pair = tiny_models.pair("neox")
    engine = with_slots(tiny_models.loaded(pair, dtype)).sampled(3, Schedule(sampling))
    every: dict[str, Any] = {**kernels()}
    graph_slots(engine).operators = replace(PLAIN, **every)
    rounds = match(engine, tiny_models.prompt_tokens(pair, PROMPT), 8, RULES[rules])
    assert sum(len(outcome.committed) for outcome in rounds) == 8


def test_the_trial_finds_the_kernels_results_equal(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    faster = Share(0.5, 0.5, 0.5)
    monkeypatch.setattr("decoder.session.cuda_graph.kernel_trial.relative_time", lambda *_: faster)
    engine = with_slots(tiny_models.engine("neox"))
    found = last(chosen_operators(engine.pair, graph_slots(engine), [Linear(2), RULES["best"]]))
    assert found.kernels == tuple(kernels())
