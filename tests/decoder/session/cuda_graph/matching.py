"""Plays one text on the device's side and by `HostSession`, round by round, and requires that every round is equal.

Which of equally probable nodes is drafted is open: from a round on in which that makes a difference, only the texts are
compared.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.forward.static.hf import ModuleStatic
from decoder.knobs import KnobName
from decoder.methods.adaptive import AdaptiveTree
from decoder.run.loading import TRIED
from decoder.run.race import _ON_DEVICE
from decoder.sampling.settings import Sampling
from decoder.session.cuda_graph.compiled import Compile, by_torch, compile_pair
from decoder.session.cuda_graph.self_test import Reference, prepare_rounds, refusal
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import Passes
from decoder.session.knob_state import KnobState
from decoder.session.protocol import Outcome, Session
from decoder.session.steering import Turn
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests.decoder.makers import graph_slots, host_session
from tests.decoder.session.cuda_graph.operations import Recorded

Turns = Mapping[int, Sequence[tuple[KnobName, float]]]
"""Round number to the knobs that are turned just before it."""
FAR = 1e-4
"""Log-probabilities of float32 logits differ by less, by whatever kernel they were computed."""


def with_slots(engine: Engine, *, by_module: bool = False) -> Engine:
    """The engine with no slots yet; where asked for, all its models run as Hugging Face modules."""
    graph_slots = GraphSlots(graphs=False)
    if by_module:
        graph_slots._forwards = {
            model: ModuleStatic(model.hf.module) for model in (engine.pair.target, engine.pair.draft_model)
        }
    return replace(engine, slots=graph_slots)


def recorded(engine: Engine, *, by_module: bool = False) -> Engine:
    """The same, whose rounds are repeated from records, as a GPU repeats graphs."""
    found = with_slots(engine, by_module=by_module)
    graph_slots(found).graphs, graph_slots(found)._captures = True, Recorded([])  # type: ignore[assignment]  # acts as Graphs does
    return found


def records(engine: Engine) -> int:
    """How many were made so far."""
    captures: Any = graph_slots(engine)._captures
    return len(captures.records)


def graph_session(
    engine: Engine, prompt: Sequence[int], limit: int, rules: Rules | None, sizes: PlanController | None = None
) -> GraphSession:
    """A session on the device; `sizes`: what chooses the size of its rounds, where that is not the engine's."""
    return on_device(engine, prompt, limit, KnobState(rules) if rules else None, sizes)


def on_device(
    engine: Engine, prompt: Sequence[int], limit: int, knobs: KnobState | None, sizes: PlanController | None = None
) -> GraphSession:
    """The same under knobs that may have been turned."""
    if knobs and knobs.rule.budget.by_cost and sizes is None:
        sizes = PlanController(graph_slots(engine).costs, engine.acceptance)
    return GraphSession(
        engine.pair,
        graph_slots(engine),
        prompt,
        limit,
        knobs,
        replace(engine, slots=None).session,
        sizes,
        engine.sampling,
        engine.seed,
    )


_opened = Engine.session


def opened_on_device(engine: Engine, prompt: Sequence[int], limit: int, knobs: KnobState | None) -> Session:
    """`Engine.session` as on CUDA: a text is decoded on the device wherever the engine has slots."""
    return on_device(engine, prompt, limit, knobs) if engine.slots else _opened(engine, prompt, limit, knobs)


def match(
    engine: Engine,
    prompt: Sequence[int],
    limit: int,
    rules: Rules | None,
    turns: Turns | None = None,
    sampled: Mapping[int, Sequence[Sampling]] | None = None,
) -> list[Outcome]:
    """All rounds of a text, as both play them; `sampled`: by round, how it is sampled as soon as that may change."""
    host = host_session(engine, prompt, limit, rules)
    device = graph_session(engine, prompt, limit, rules)
    host.prefill()
    device.prefill()
    found: list[Outcome] = []
    turned: tuple[Turn, ...] = ()
    while not found or not found[-1].finished:
        turned += tuple(Turn(name, value) for name, value in (turns or {}).get(len(found), ()))
        for sampling in (sampled or {}).get(len(found), ()):
            engine.sampling.turn(len(host.text) + _ON_DEVICE, sampling)
        expected, outcome = host.step(turned), device.step(turned)
        if tie(outcome.tree, expected.tree):
            _finish(host, expected)
            _finish(device, outcome)
            break
        check(outcome, expected)
        _check_knobs(device)
        found.append(outcome)
    assert device.text == host.text
    return found


def tie(tree: TokenTree, other: TokenTree) -> bool:
    """Whether the first node that differs is as probable as the other tree's."""
    both = zip(tree.parents, tree.tokens, other.parents, other.tokens, strict=False)
    node = next((node for node, (*one, parent, token) in enumerate(both) if one != [parent, token]), None)
    return node is not None and tree.path_logprobs[node] == pytest.approx(other.path_logprobs[node], abs=FAR)


def _finish(session: Session, outcome: Outcome) -> None:
    while not outcome.finished:
        outcome = session.step(())


def _check_knobs(session: GraphSession) -> None:
    """History has moved the device's knobs as it has moved the host's, to the last bit."""
    rules = session._knobs.rules if session._knobs else None
    if isinstance(rules, AdaptiveTree) and not session._instead:
        growth = session._slot.state.rule.growth
        assert (float(growth.d0), float(growth.tau_h)) == (rules.d0, rules.tau_h)


def check(outcome: Outcome, expected: Outcome) -> None:
    """Both tell of the same round, whatever it took."""
    assert outcome.tree.tokens == expected.tree.tokens
    assert outcome.tree.parents == expected.tree.parents
    assert outcome.tree.logprobs == pytest.approx(expected.tree.logprobs, abs=FAR)
    if outcome.tree.draft_logprobs and expected.tree.draft_logprobs:
        assert outcome.tree.draft_logprobs == pytest.approx(expected.tree.draft_logprobs, abs=FAR)
    for name in (
        "accepted",
        "committed",
        "knobs",
        "rules",
        "room",
        "finished",
        "turned_before",
        "turned_after",
        "target_forwards",
    ):
        assert getattr(outcome, name) == getattr(expected, name), name


def prepared(engine: Engine) -> str | None:
    """Makes the forms of both models and tries them; returns why rounds cannot run."""
    return prepare_rounds(engine.pair, graph_slots(engine), TRIED)


def refused(engine: Engine, right: Sequence[Reference] | None = None) -> str | None:
    """Why rounds cannot run."""
    return refusal(engine.pair, graph_slots(engine), TRIED, right)


def compiled(engine: Engine, report: Callable[[str], None], listed: Passes, compile_pass: Compile = by_torch) -> None:
    """Compiles what is faster."""
    compile_pair(engine.pair, graph_slots(engine), TRIED, report, listed, compile_pass)
