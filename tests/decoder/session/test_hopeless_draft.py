"""A confident draft that is right only by chance costs little: the whole engine with the embedded target.

Time is simulated, because measurements on shared cores cannot resolve 3%. The unit of time is a plain call of the
target, and each call and round takes about as long as it does for the embedded pair. So equal decisions take equal time
on every machine. `dynatui bench speed --hostile --methods dynatree --preset fast` measures real time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

from decoder.draft.tree_size import loss_limit as credit
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.engine import Engine
from decoder.forward.best_tokens import ranked
from decoder.forward.language_model import LanguageModel
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.run.config import RunConfig
from decoder.run.loading import load_pair
from decoder.sampling.ranking import Ranking
from decoder.session import host as engine
from decoder.system.device import Stopwatch
from dynatui.lab.bench.shapes import with_random_draft
from tests.decoder.makers import with_pair

Prices = Mapping[int, float]
"""Number of rows -> seconds."""
TARGET = {1: 1.0, 2: 1.1, 4: 1.27, 8: 1.5, 16: 1.95, 32: 3.1}
LEVEL = {1: 0.17, 8: 0.25, 32: 0.5}
READING = {1: 0.25, 48: 0.8, 96: 1.25, 192: 2.2}
"""Seconds of the draft's first pass of a round, which reads the tokens that the draft has missed."""
ROUND, OPEN_ROUND, DRAFTED_ROUND = 0.009, 0.0175, 0.03
"""Seconds of a round besides its calls: of ar, of `auto` without drafting, and of `auto` with drafting."""
PROMPTS = ("The old man put down his lantern and looked at the boy", "It was the best of times,")
TOKENS = 256
BAR = 0.97


@dataclass
class World:
    """The simulated time."""

    seconds: float = 0.0
    stall: float = 0.0
    """Seconds that each pass of several rows stalls."""


def price(prices: Prices, rows: int) -> float:
    return float(np.interp(rows, list(prices), list(prices.values())))


class Priced:
    """A model whose calls advance the simulated time; everything else is the wrapped model's."""

    def __init__(self, model: LanguageModel, world: World, forward: Prices, read: Prices) -> None:
        self._model, self._world = model, world
        self._forward, self._read = forward, read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def forward(self, cache: Any, tokens: Any, *given: Any) -> Any:
        self._world.seconds += price(self._forward, len(tokens)) + self._world.stall * (len(tokens) > 1)
        return self._model.forward(cache, tokens, *given)

    def read(self, cache: Any, tokens: Any, *given: Any) -> Any:
        self._world.seconds += price(self._read, len(tokens))
        return self._model.read(cache, tokens, *given)

    def best(self, cache: Any, tokens: Any, positions: Any, visible: Any, ranking: Ranking) -> Any:
        return ranked(self.forward(cache, tokens, positions, visible), ranking)

    def best_after(self, cache: Any, tokens: Any, ranking: Ranking) -> Any:
        return ranked(self.read(cache, tokens)[None], ranking)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """A simulated clock that only model calls and rounds advance."""
    now = World()

    class Watch(Stopwatch):
        def now(self) -> float:
            return now.seconds

    monkeypatch.setattr(engine, "Stopwatch", Watch)
    return now


@pytest.fixture(scope="module")
def loaded() -> Engine:
    return load_pair(device="cpu", dtype="float32")


def priced(engine: Engine, world: World) -> Engine:
    """The pair with simulated and known costs, and with an acceptance model that has learnt nothing."""
    known = Costs(
        RowCostCurve({1: 1.0}),
        RowCostCurve(READING),
        RowCostCurve(LEVEL),
        RowCostCurve(TARGET),
        RowCostCurve({1: DRAFTED_ROUND}),
    )
    target = cast("LanguageModel", Priced(engine.pair.target, world, TARGET, READING))
    draft = cast("LanguageModel", Priced(engine.pair.draft_model, world, LEVEL, READING))
    costs = {1 << power: known for power in range(13)}
    fresh = replace(engine, costs=costs, acceptance=AcceptanceModel())
    return with_pair(fresh, target=target, draft=draft, eos=frozenset())


def sizes(engine: Engine, world: World, prompt: str, tokens: int, *, lookup: bool = False) -> list[int]:
    """Numbers of nodes of the trees of a text; rounds are marked as stalled if their passes stall."""
    config = RunConfig(max_new_tokens=tokens, auto=Auto(lookup=lookup))
    session = METHODS["auto"].open(engine, engine.pair.tokenizer(prompt).input_ids, config)
    session.prefill()
    found, finished, world.seconds = list[int](), None, 0.0
    while not finished:
        outcome = session.step(())
        outcome.stalled_s = world.stall
        world.seconds += DRAFTED_ROUND if outcome.draft_forwards or len(outcome.tree) > 1 else OPEN_ROUND
        found.append(len(outcome.tree))
        finished = outcome.finished
    return found


def rates(engine: Engine, world: World, *, lookup: bool = False) -> Iterator[float]:
    """Speed relative to ar on each prompt in turn; the acceptance model keeps learning from prompt to prompt."""
    for prompt in PROMPTS:
        sizes(engine, world, prompt, TOKENS, lookup=lookup)
        yield TOKENS * (1 + ROUND) / world.seconds


@pytest.mark.parametrize("lookup", [False, True])
def test_a_draft_that_disagrees_everywhere_costs_at_most_3_percent(
    loaded: Engine, world: World, *, lookup: bool
) -> None:
    assert min(rates(priced(with_random_draft(loaded), world), world, lookup=lookup)) > BAR


def test_that_would_not_hold_with_a_budget_that_stakes_more(
    loaded: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credit, "CREDIT_A_TOKEN", 10 * credit.CREDIT_A_TOKEN)
    monkeypatch.setattr(credit, "MOST_CREDIT", 1000.0)
    assert next(rates(priced(with_random_draft(loaded), world), world)) < BAR


def test_the_draft_that_was_trained_for_it_pays_in_the_same_world(loaded: Engine, world: World) -> None:
    """The loss above is therefore caused by the draft and not by the simulated costs."""
    assert next(rates(priced(loaded, world), world)) > 1.2


def test_stalled_rounds_do_not_make_auto_draft_less(loaded: Engine, world: World) -> None:
    quiet = sizes(priced(loaded, world), world, PROMPTS[0], 64, lookup=True)
    world.stall = 4.0
    assert sizes(priced(loaded, world), world, PROMPTS[0], 64, lookup=True) == pytest.approx(quiet)
    assert sum(quiet) > 2 * len(quiet)
