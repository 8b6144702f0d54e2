"""Decodes a text both by `GraphSession` and by `HostSession`, and requires equal rounds.

The two may choose differently between equally probable nodes. From the first such round on, only the texts are
compared. Rules and random sizes of rounds that several files use are here too.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.draft.tree_size.plan import SIZES, TreePlan
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.forward.static_hf import ModuleStatic
from decoder.knobs import KnobName
from decoder.methods.adaptive import AdaptiveTree
from decoder.methods.auto import Auto
from decoder.methods.bestfirst import BestFirst
from decoder.methods.dynatree import DynaTree
from decoder.methods.eagle2 import Eagle2
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.loading import TRIED
from decoder.run.race import _ON_DEVICE
from decoder.sampling.settings import Sampling
from decoder.session.cuda_graph.compiled import Compile, by_torch, compile_pair
from decoder.session.cuda_graph.self_test import Reference, prepare_rounds, refusal
from decoder.session.cuda_graph.session import GraphSession
from decoder.session.cuda_graph.slots import GraphSlots
from decoder.session.cuda_graph.static_shapes import Passes
from decoder.session.protocol import Outcome, Session
from decoder.session.steering import KnobState, Turn
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from tests.decoder.makers import TinyModels, graph_slots, host_session
from tests.fake_cuda.recording import Recorded

PROMPT = "The tree grows"
GREEDY = Sampling()
LIVELY = DynaTree(window=2, eta_d=2, eta_h=0.3, target_acceptance=0.4, rho_stop=0.02, tau=0.02, rho_deep=0.1, n_max=40)
"""Rules for which history adjusts knobs often."""
METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(),
    "fixed": Fixed(),
    "dynatree": DynaTree(),
    "lively": LIVELY,
    "best": replace(LIVELY, selection="best", n_max=9),
    "best-first": BestFirst(),
    "eagle2": Eagle2(),
    "sure chain": Linear(6, 0.3),
}
SMALL = DynaTree(
    d0=2, d_max=3, window=2, eta_d=1, eta_h=0.3, target_acceptance=0.4, rho_stop=0.1, rho_deep=0.2, n_max=12
)
SMALL_METHODS: dict[str, Rules | None] = {
    "ar": None,
    "linear": Linear(3),
    "fixed": Fixed(depth=2, branching=2, n_max=6),
    "best-first": BestFirst(6, 3),
    "eagle2": Eagle2(3, 3, 6),
    "sure chain": Linear(4, 0.3),
    "lively": SMALL,
    "best": replace(SMALL, selection="best"),
}
"""Rules of small trees, for stand-ins that are slow."""
WIDE = Auto(d_max=6, d0=5, rho_deep=0.0, history=False)
Turns = Mapping[int, Sequence[tuple[KnobName, float]]]
"""Round number -> knobs that are turned just before the round."""
FAR = 1e-3
"""Tolerance of log-probabilities. Host and device keep weights in layouts of their own, for which a CPU's library has
kernels of its own that add in another order: logits of a few units differ by up to 2e-4, by processor. Wrong positions
and masks change the tiny models' logits by whole units.
"""


@dataclass(frozen=True)
class Case:
    """A text of a pair under rules, all of whose rounds are compared."""

    pair: str
    rules: str = "lively"
    dtype: str = "float64"
    by_module: bool = False
    sampling: Sampling = GREEDY
    seed: int = 7
    limit: int = 24
    prompt: str = ""
    """Name of a prompt, or the usual one."""
    alone: bool = False
    """Without a draft model, so that the host looks trees up in a prompt that repeats itself."""
    turns: bool = False


class RandomSizes(PlanController):
    """Chooses random sizes, so that tests do not depend on measured times, and records the choices and results."""

    def __init__(self, seed: int, *, plain: float = 0.4, depths: Sequence[int] = (1, 2, 3, 4, 6)) -> None:
        super().__init__(PlanCosts(), AcceptanceModel())
        self._random = random.Random(seed)
        self._plain, self._depths = plain, depths
        self.chosen: list[TreePlan | None] = []
        self.learnt: list[tuple[TreePlan, Sequence[int]]] = []

    @classmethod
    def scripted(cls, plans: Sequence[TreePlan | None]) -> "RandomSizes":
        """Chooses these plans one after the other."""
        made, order = cls(0), list(plans)
        made.choose = lambda _: order.pop(0)  # type: ignore[method-assign, assignment]
        return made

    def learn(self, plan: TreePlan, ranks: Sequence[int]) -> None:
        self.learnt.append((plan, ranks))

    def choose(self, deepest: int) -> TreePlan | None:
        rests = self._random.random() < self._plain
        plan = (
            None if rests else TreePlan(min(deepest, self._random.choice(self._depths)), self._random.choice(SIZES[:4]))
        )
        self.chosen.append(plan)
        return plan


class Devices:
    """Engines of tiny pairs whose rounds run as on a device."""

    def __init__(self, models: TinyModels) -> None:
        self.models = models
        self._kept: dict[tuple[object, ...], Engine] = {}

    def plain(self, name: str = "neox", dtype: str = "float64", *, by_module: bool = False) -> Engine:
        """An engine whose slots do the work of graphs by plain calls."""
        return with_slots(self.models.engine(name, dtype), by_module=by_module)

    def recorded(self, name: str = "neox", dtype: str = "float64", *, by_module: bool = False) -> Engine:
        """An engine with rounds replayed from records, none of which is made yet."""
        return recorded(self.models.engine(name, dtype), by_module=by_module)

    def kept(self, name: str = "neox", dtype: str = "float64", *, by_module: bool = False) -> Engine:
        """One engine, which reuses its records across tests, as slots reuse graphs across texts."""
        key = name, dtype, by_module
        if key not in self._kept:
            self._kept[key] = self.recorded(name, dtype, by_module=by_module)
        return self._kept[key]

    def prompt(self, name: str = "neox") -> list[int]:
        return self.models.prompt_tokens(self.models.pair(name), PROMPT)

    def begun(
        self,
        engine: Engine,
        rules: Rules | None,
        limit: int = 60,
        sizes: PlanController | None = None,
        prompt: Sequence[int] = (),
    ) -> GraphSession:
        """A device session that has read its prompt, by default the usual one."""
        return begun(engine, prompt or self.prompt(), limit, rules, sizes)

    def generated(self, count: int, name: str = "neox") -> list[int]:
        """The text of transformers' plain greedy search in float64."""
        return self.models.generate(self.models.pair(name), "float64", PROMPT, count)


def begun(
    engine: Engine, prompt: Sequence[int], limit: int, rules: Rules | None, sizes: PlanController | None = None
) -> GraphSession:
    """A device session that has read its prompt."""
    session = graph_session(engine, prompt, limit, rules, sizes)
    session.prefill()
    return session


def rounds_of(session: Session) -> list[Outcome]:
    """All rounds of a session that has read its prompt."""
    found = [session.step(())]
    while not found[-1].finished:
        found.append(session.step(()))
    return found


def text_of(rounds: Iterable[Outcome]) -> list[int]:
    return [token for outcome in rounds for token in outcome.committed]


def text_of_host(engine: Engine, prompt: Sequence[int], limit: int) -> list[int]:
    """The text of plain decoding by rounds on the host."""
    session = host_session(engine, prompt, limit, None)
    session.prefill()
    return text_of(rounds_of(session))


def with_slots(engine: Engine, *, by_module: bool = False) -> Engine:
    """The engine with empty slots, which make plain calls on a CPU; `by_module`: models run as Hugging Face modules."""
    graph_slots = GraphSlots()
    if by_module:
        graph_slots.forms = {
            model: ModuleStatic(model.hf.module) for model in (engine.pair.target, engine.pair.draft_model)
        }
    return replace(engine, slots=graph_slots)


def recorded(engine: Engine, *, by_module: bool = False) -> Engine:
    """The engine of `with_slots` with rounds replayed from records, as a GPU replays graphs."""
    found = with_slots(engine, by_module=by_module)
    graph_slots(found)._captures = Recorded([])  # type: ignore[assignment]  # stands in for Graphs
    return found


def records(engine: Engine) -> int:
    """Number of records made so far."""
    captures: Any = graph_slots(engine)._captures
    return len(captures.records)


def graph_session(
    engine: Engine, prompt: Sequence[int], limit: int, rules: Rules | None, sizes: PlanController | None = None
) -> GraphSession:
    """A device session; `sizes` chooses the sizes of its rounds instead of the default controller."""
    session = engine.session(prompt, limit, KnobState(rules) if rules else None)
    assert isinstance(session, GraphSession)
    session._sizes = sizes or session._sizes
    return session


def match(
    engine: Engine,
    prompt: Sequence[int],
    limit: int,
    rules: Rules | None,
    turns: Turns | None = None,
    sampled: Mapping[int, Sequence[Sampling]] | None = None,
    host_engine: Engine | None = None,
) -> list[Outcome]:
    """All rounds of a text, equal in both sessions; `sampled`: round number -> sampling settings turned there."""
    host, device = host_session(host_engine or engine, prompt, limit, rules), begun(engine, prompt, limit, rules)
    host.prefill()
    found: list[Outcome] = []
    turned: tuple[Turn, ...] = ()
    ahead: tuple[float, float] | None = None
    while not found or not found[-1].finished:
        new = tuple(Turn(name, value) for name, value in (turns or {}).get(len(found), ()))
        turned += new
        for sampling in (sampled or {}).get(len(found), ()):
            engine.sampling.turn(len(host.text) + _ON_DEVICE, sampling)
        expected, outcome = host.step(turned), device.step(turned)
        if tie(outcome.tree, expected.tree):
            for session, outcome_so_far in ((host, expected), (device, outcome)):
                if not outcome_so_far.finished:
                    rounds_of(session)
            break
        check(outcome, expected)
        ahead = _checked_knobs(device, None if new else ahead)
        found.append(outcome)
    assert device.text == host.text
    return found


def tie(tree: TokenTree, other: TokenTree) -> bool:
    """Whether the first differing nodes of two trees are equally probable."""
    both = zip(tree.parents, tree.tokens, other.parents, other.tokens, strict=False)
    node = next((node for node, (*one, parent, token) in enumerate(both) if one != [parent, token]), None)
    return node is not None and tree.path_logprobs[node] == pytest.approx(other.path_logprobs[node], abs=FAR)


def _checked_knobs(session: GraphSession, ahead: tuple[float, float] | None) -> tuple[float, float] | None:
    """Checks that history has set the knobs on the device bit for bit as on the host. If the next verification has run
    already, the device's knobs are returned, and have to be given as `ahead` after the next round.
    """
    rules = session._knobs.rules if session._knobs else None
    if session._instead or not isinstance(rules, AdaptiveTree):
        return None
    growth = session._slot.state.rule.growth
    expected, on_device = (rules.d0, rules.tau_h), (float(growth.d0), float(growth.tau_h))
    assert ahead in (None, expected)
    if session._verification:
        return on_device
    assert on_device == expected
    return None


def check(outcome: Outcome, expected: Outcome) -> None:
    """Checks that two outcomes describe the same round; times and draft passes may differ."""
    assert outcome.tree.tokens == expected.tree.tokens
    assert outcome.tree.parents == expected.tree.parents
    assert outcome.tree.logprobs == pytest.approx(expected.tree.logprobs, abs=FAR)
    own, expected_own = ((tree.draft_logprobs or tree.logprobs)[1:] for tree in (outcome.tree, expected.tree))
    assert own == pytest.approx(expected_own, abs=FAR)
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
    """Makes the static forms of both models and tests them; returns the reason if device rounds cannot run."""
    return prepare_rounds(engine.pair, graph_slots(engine), TRIED)


def refused(engine: Engine, right: Sequence[Reference] | None = None) -> str | None:
    """The reason if device rounds cannot run; None if they can."""
    return refusal(engine.pair, graph_slots(engine), TRIED, right)


def compiled(engine: Engine, report: Callable[[str], None], listed: Passes, compile_pass: Compile = by_torch) -> None:
    """Compiles the passes of both models; only faster compiled forms are kept."""
    compile_pair(engine.pair, graph_slots(engine), TRIED, report, listed, compile_pass)
