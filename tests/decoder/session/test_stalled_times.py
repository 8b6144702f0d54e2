"""The times of stalled rounds teach nothing: `auto` drafts on a busy machine as on an idle one."""

import itertools
from typing import Any

import pytest

from decoder.draft.tree_size.cost_profile import measure_costs
from decoder.draft.tree_size.plan_controller import PlanController
from decoder.methods import METHODS
from decoder.methods.auto import Auto
from decoder.run.config import RunConfig
from decoder.session import host
from decoder.session.host import HostSession
from decoder.system import computing_clock
from decoder.system.device import Stopwatch
from tests.decoder.makers import PROMPT, TinyModels, graph_slots
from tests.decoder.session.cuda_graph.matching import WIDE, graph_session, recorded
from tests.decoder.session.made_costs import FREE, priced


class Taught:
    """Counts the rounds whose times were learnt, in place of `record_times`."""

    def __init__(self) -> None:
        self.rounds = 0

    def __call__(self, *_: object) -> None:
        self.rounds += 1


@pytest.fixture
def taught() -> Taught:
    return Taught()


@pytest.fixture
def session(tiny_models: TinyModels, taught: Taught, monkeypatch: pytest.MonkeyPatch) -> HostSession:
    """A session of `auto` whose thread never waits."""
    pair = tiny_models.pair("neox")
    engine = priced(tiny_models.loaded(pair, "float32"), FREE)
    monkeypatch.setattr(host, "waited_here_s", lambda: 0.0)
    opened: Any = METHODS["auto"].open(engine, tiny_models.prompt_tokens(pair, PROMPT), RunConfig(auto=Auto()))
    monkeypatch.setattr(opened.proposer, "record_times", taught)
    opened.prefill()
    return opened  # type: ignore[no-any-return]  # a session of the host


def test_the_times_of_each_round_are_learnt_once(session: HostSession, taught: Taught) -> None:
    for before in range(3):
        session.step(())
        assert taught.rounds == before
    session.close()
    session.close()
    assert taught.rounds == 3


def test_the_times_of_a_stalled_round_are_not_learnt(session: HostSession, taught: Taught) -> None:
    for stalled_s in (0.0, 0.5, 0.5, 0.0):
        session.step(()).stalled_s = stalled_s
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
    pair = tiny_models.pair("neox")
    engine = recorded(tiny_models.loaded(pair, "float64"))
    sizes = PlanController(graph_slots(engine).costs, engine.acceptance)
    monkeypatch.setattr(sizes, "record_times", taught)
    opened = graph_session(engine, tiny_models.prompt_tokens(pair, PROMPT), 64, WIDE, sizes)
    opened.prefill()
    for _ in range(3):
        opened.step(())
    quiet = taught.rounds
    for _ in range(6):
        opened.step(()).stalled_s = 0.5
    opened.close()
    assert taught.rounds in (quiet, quiet + 1)  # the last quiet round may have captured a graph, which is never learnt


def test_costs_are_measured_without_waits(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each reading of the time comes 10 ms after the reading before it; the thread waited for 9 ms of them."""
    times, waits = (count / 100 for count in itertools.count()), (0.009 * (count // 2) for count in itertools.count())
    monkeypatch.setattr(Stopwatch, "now", lambda _: next(times))
    monkeypatch.setattr(computing_clock, "waited_here_s", lambda: next(waits))
    costs = measure_costs(tiny_models.engine("neox").pair, 8)
    assert costs.plain_s() == pytest.approx(0.001)
    assert [costs.draft.seconds(rows) for rows in (1, 2, 4)] == pytest.approx([0.001] * 3)
