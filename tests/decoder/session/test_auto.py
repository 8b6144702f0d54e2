"""The method auto in the engine: what it drafts for any costs of drafting, and from which rounds it learns them."""

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pytest

from decoder import Fixed, RunConfig
from decoder.draft.auto_drafter import PROBED_ROWS
from decoder.draft.draft_passes import DraftPasses
from decoder.draft.model_drafter import ModelDrafter
from decoder.draft.tree_size import loss_limit as credit
from decoder.draft.tree_size.acceptance_model import AcceptanceModel
from decoder.draft.tree_size.controller import TreeSizeController
from decoder.draft.tree_size.cost_model import Costs, RowCostCurve
from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.draft.tree_size.loss_limit import PATIENCE
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.engine import Engine
from decoder.forward.language_model import LanguageModel
from decoder.forward.token_choice import ranked
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.run.loading import load_pair
from decoder.sampling.ranking import Ranking
from decoder.session import host
from decoder.session.host import HostSession
from decoder.system import device as devices
from decoder.system.device import Stopwatch
from decoder.tree import depths
from dynatui.lab.bench.shapes import with_random_draft
from tests.decoder.makers import PROMPT, Played, TinyModels, graph_slots, play, with_pair
from tests.decoder.session.cuda_graph import matching
from tests.decoder.session.cuda_graph.matching import graph_session, recorded
from tests.decoder.session.made_costs import DEAR, FREE, WIDE, priced, some_costs, some_rules


def by_auto(engine: Engine, rules: Auto, limit: int = 32) -> Played:
    return play(engine, RunConfig(("auto",), limit, auto=rules))


def test_for_some_costs_rounds_draft_and_for_some_they_do_not(tiny_models: TinyModels) -> None:
    """Otherwise that its texts are those of plain decoding for any costs would prove little."""
    luck, pair = random.Random(0), tiny_models.engine("neox", "float64")
    races = [by_auto(priced(pair, some_costs(luck)), some_rules(luck)) for _ in range(12)]
    sizes = {len(event.tokens) for race in races for event in race.rounds("auto")}
    assert 1 in sizes
    assert max(sizes) > 8


def test_where_drafting_is_too_dear_every_round_is_plain_and_leaves_history_alone(tiny_models: TinyModels) -> None:
    rules = replace(WIDE, history=True, window=2)
    played = by_auto(priced(tiny_models.engine("neox"), DEAR), rules, PATIENCE - 2)
    rounds = played.rounds("auto")
    assert len(rounds) == PATIENCE - 2
    assert {(len(event.tokens), event.draft_forwards, len(event.committed)) for event in rounds} == {(1, 0, 1)}
    assert played.turned("auto", "history") == []
    assert {event.knobs.d0 for event in rounds if event.knobs} == {rules.d0}


@pytest.mark.parametrize(
    ("rules", "deepest", "widest"),
    [
        (replace(WIDE, d0=1, d_max=2), 2, 3),
        (replace(WIDE, branching=(1, 1, 1), rho_deep=0), 12, 1),
        (replace(WIDE, branching=(3, 3, 3), rho_stop=1, rho_deep=1), 1, 3),
        (replace(WIDE, d0=2, rho_deep=1), 2, 3),
    ],
    ids=["D_max", "branching", "rho_stop", "D0"],
)
def test_what_a_knob_cuts_stays_cut(tiny_models: TinyModels, rules: Auto, deepest: int, widest: int) -> None:
    """Lookups are off because these knobs limit only the draft model's branches."""
    rounds = by_auto(priced(tiny_models.engine("neox"), FREE), replace(rules, lookup=False)).rounds("auto")
    assert max(max(depths(event.parents)) for event in rounds) == deepest
    assert max(event.parents.count(node) for event in rounds for node in event.parents) == widest


@pytest.mark.parametrize("missed", [PROBED_ROWS // 2, 2 * PROBED_ROWS])
def test_a_silent_draft_is_judged_by_what_it_would_have_guessed_for_the_latest_tokens(
    tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch, missed: int
) -> None:
    probed: list[tuple[list[int], list[int]]] = []

    def probe_draft(
        _: TreeSizeController, guesses: Sequence[tuple[Sequence[int], object]], text: Sequence[int]
    ) -> None:
        probed.append(([tokens[0] for tokens, _ in guesses], list(text)))

    monkeypatch.setattr(TreeSizeController, "probe_draft", probe_draft)
    monkeypatch.setattr("decoder.draft.tree_size.loss_limit.LossLimit._least_patience", missed)
    engine = priced(tiny_models.engine("neox", "float64"), DEAR)
    text = by_auto(with_pair(engine, draft=engine.pair.target), WIDE, missed + 1).tokens("auto")
    guessed, chosen = probed[0]
    assert guessed == chosen == text[max(0, missed - PROBED_ROWS) : missed - 1]


def test_a_draft_that_caught_up_in_two_passes_guesses_as_in_one(tiny_models: TinyModels) -> None:
    engine = tiny_models.engine("neox", "float64")
    text, found, growth = [5, 9, 2, 7, 7, 3, 8, 1], list[list[list[int]]](), Fixed(branching=2).rule().growth
    for latest in (3, 8):
        drafter = ModelDrafter(DraftPasses(engine.pair.draft_model, engine.pair.vocabulary, 20))
        drafter.read(text[:2])
        found.append([guess.tokens for guess in drafter.catch_up_with_guesses(text, growth, latest)[0]])
        assert drafter.passes.cache.length == len(text)
    assert found[0] == found[1][-3:]


# Costs


def test_costs_that_are_measured_here_give_the_same_text(tiny_models: TinyModels) -> None:
    loaded = replace(tiny_models.engine("neox"), costs={})
    expected = tiny_models.generate(tiny_models.pair("neox"), "float32", PROMPT, 100)
    assert by_auto(loaded, WIDE, 100).tokens("auto") == expected
    assert loaded.costs


@pytest.mark.wall_time
def test_costs_are_measured_once_for_texts_of_about_one_length(tiny_models: TinyModels) -> None:
    pair = replace(tiny_models.engine("neox"), costs={})
    started = time.perf_counter()
    short = pair.costs_of(20)
    # This takes a second on an idle machine.
    assert time.perf_counter() - started < 10
    assert pair.costs_of(30) is short
    assert pair.costs_of(100) is not short


def test_every_cost_that_is_measured_is_above_zero(tiny_models: TinyModels) -> None:
    pair = tiny_models.engine("neox").pair
    for rows in (1, pair.context):
        curves = vars(measure_costs(pair, rows)).values()
        assert all(seconds > 0 for curve in curves for seconds in curve.by_rows()[1:])


def test_costs_are_measured_without_waits(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the time comes 10 ms after the reading before it; the thread waited for 9 ms of them."""
    times, waits = (count / 100 for count in itertools.count()), (0.009 * (count // 2) for count in itertools.count())
    monkeypatch.setattr(Stopwatch, "now", lambda _: next(times))
    monkeypatch.setattr(devices, "waited_here_s", lambda: next(waits))
    costs = measure_costs(tiny_models.engine("neox").pair, 8)
    assert costs.plain_s() == pytest.approx(0.001)
    assert [costs.draft.seconds(rows) for rows in (1, 2, 4)] == pytest.approx([0.001] * 3)


# Stalled rounds, whose times teach nothing


class Taught:
    """Counts the rounds whose times were learnt, in place of `record_times`."""

    rounds = 0

    def __call__(self, *_: object) -> None:
        self.rounds += 1


@pytest.fixture
def taught() -> Taught:
    return Taught()


@pytest.fixture
def session(tiny_models: TinyModels, taught: Taught, monkeypatch: pytest.MonkeyPatch) -> HostSession:
    """A session of `auto` whose thread never waits."""
    ids = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    monkeypatch.setattr(host, "waited_here_s", lambda: 0.0)
    opened: Any = METHODS["auto"].open(priced(tiny_models.engine("neox"), FREE), ids, RunConfig(auto=Auto()))
    monkeypatch.setattr(opened.proposer, "record_times", taught)
    opened.prefill()
    return opened  # type: ignore[no-any-return]  # a session of the host


def test_the_times_of_each_round_are_learnt_once_and_of_a_stalled_one_not(session: HostSession, taught: Taught) -> None:
    for stalled_s, before in ((0.0, 0), (0.5, 1), (0.5, 1), (0.0, 1)):
        session.step(()).stalled_s = stalled_s
        assert taught.rounds == before
    session.close()
    session.close()
    assert taught.rounds == 2


def test_nor_are_those_of_a_round_whose_thread_waited(
    session: HostSession, taught: Taught, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([0.0, 10.0, 10.0, 10.0])
    monkeypatch.setattr(host, "waited_here_s", lambda: next(waits))
    session.step(())
    session.step(())
    session.close()
    assert taught.rounds == 1


def test_nor_are_those_of_a_stalled_round_on_a_device(
    tiny_models: TinyModels, taught: Taught, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = recorded(tiny_models.engine("neox", "float64"))
    ids = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT)
    sizes = PlanController(graph_slots(engine).costs, engine.acceptance)
    monkeypatch.setattr(sizes, "record_times", taught)
    opened = graph_session(engine, ids, 64, matching.WIDE, sizes)
    opened.prefill()
    for _ in range(3):
        opened.step(())
    quiet = taught.rounds
    for _ in range(6):
        opened.step(()).stalled_s = 0.5
    opened.close()
    assert taught.rounds in (quiet, quiet + 1)  # the last quiet round may have captured a graph, which is never learnt


# A confident draft that is right only by chance costs little. Time is simulated, because measurements on shared cores
# cannot resolve 3%. The unit of time is a plain call of the target, and each call and round takes about as long as it
# does for the embedded pair. So equal decisions take equal time on every machine.


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

    monkeypatch.setattr(host, "Stopwatch", Watch)
    return now


@pytest.fixture(scope="module")
def loaded() -> Engine:
    return load_pair(device="cpu", dtype="float32")


def simulated(engine: Engine, world: World) -> Engine:
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
    assert min(rates(simulated(with_random_draft(loaded), world), world, lookup=lookup)) > BAR


def test_that_would_not_hold_with_a_budget_that_stakes_more(
    loaded: Engine, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credit, "CREDIT_A_TOKEN", 10 * credit.CREDIT_A_TOKEN)
    monkeypatch.setattr(credit, "MOST_CREDIT", 1000.0)
    assert next(rates(simulated(with_random_draft(loaded), world), world)) < BAR


def test_the_draft_that_was_trained_for_it_pays_in_the_same_world(loaded: Engine, world: World) -> None:
    """The loss above is therefore caused by the draft and not by the simulated costs."""
    assert next(rates(simulated(loaded, world), world)) > 1.2


def test_stalled_rounds_do_not_make_auto_draft_less(loaded: Engine, world: World) -> None:
    quiet = sizes(simulated(loaded, world), world, PROMPTS[0], 64, lookup=True)
    world.stall = 4.0
    assert sizes(simulated(loaded, world), world, PROMPTS[0], 64, lookup=True) == pytest.approx(quiet)
    assert sum(quiet) > 2 * len(quiet)
