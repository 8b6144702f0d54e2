"""A paused run stops between the stages of a round, advances one stage per step, and excludes pauses from decode time.

The tests use no threads: a paused run sleeps, and the fake `sleep` performs the user's action.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec import structs

from decoder import DynaTree, RunConfig, Stage, Steering, decode
from decoder.events import End, Event, Round, Start, Summary, decode_line, encode
from tests.decoder.makers import METHODS, PROMPT, Played, TinyModels

LONG_S = 1000.0
"""Duration of a fake sleep in seconds; longer than all decoding of a test."""
STAGED = [method for method in METHODS if method != "hf"]
NAMES = ("drafted", "verified", "committed")


@dataclass
class Bench:
    """A run with a fake clock, which replaces the `time` module."""

    tiny_models: TinyModels
    steering: Steering = field(default_factory=Steering)
    events: list[Event] = field(default_factory=list)
    seen: list[Stage | None] = field(default_factory=list)
    """Stage at which the run was paused at each sleep."""
    now: float = 0.0
    user: Callable[["Bench"], None] = lambda _: None
    """The user's action, called at each sleep."""

    def perf_counter(self) -> float:
        self.now += 1e-6
        return self.now

    def sleep(self, _seconds: float) -> None:
        self.now += LONG_S
        self.seen.append(self.steering.stage)
        self.user(self)

    def run(self, methods: tuple[str, ...], limit: int = 12) -> "Bench":
        for event in self.decoding(methods, limit):
            self.events.append(event)
        return self

    def decoding(self, methods: tuple[str, ...], limit: int = 12) -> Iterator[Event]:
        config = RunConfig(methods, limit, dynatree=DynaTree(rho_stop=0.05))
        return decode(self.tiny_models.loaded(self.tiny_models.pair("neox"), "float32"), PROMPT, config, self.steering)

    @property
    def stages(self) -> list[Stage]:
        return [stage for stage in self.seen if stage]

    @property
    def played(self) -> Played:
        return Played(self.events)


@pytest.fixture
def bench(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A paused run with the fake clock."""
    made = Bench(tiny_models)
    for module in ("system.device", "run.race", "run.lane", "session.steering"):
        monkeypatch.setattr(f"decoder.{module}.time", made)
    made.steering.paused = True
    return made


def stepping(bench: Bench) -> None:
    """A user who steps once at each sleep."""
    bench.steering.step()


# Contents of each stage


def test_hf_is_held_before_and_after_its_bursts_only(bench: Bench) -> None:
    bench.user = stepping
    rounds = bench.run(("hf",)).played.rounds("hf")
    assert [(stage.name, stage.event) for stage in bench.stages] == [("committed", event) for event in rounds]


@pytest.mark.parametrize("method", STAGED)
def test_each_stage_of_every_round_knows_what_has_happened_and_nothing_more(bench: Bench, method: str) -> None:
    copies: list[tuple[str, Round]] = []

    def look(bench: Bench) -> None:
        if stage := bench.steering.stage:
            assert decode_line(encode(stage.event), 1) == stage.event
            lists = {name: list(getattr(stage.event, name)) for name in ("accepted", "committed")}
            copies.append((stage.name, structs.replace(stage.event, **lists)))
        bench.steering.step()

    bench.user = look
    rounds = bench.run((method, "ar") if method != "ar" else ("ar",)).played.rounds(method)
    assert [(name, event.round) for name, event in copies[: 3 * len(rounds)]] == [
        (name, event.round) for event in rounds for name in NAMES
    ]
    for name, event in copies[: 3 * len(rounds)]:
        final = rounds[event.round]
        if name == "committed":
            assert event == final
        else:
            later: dict[str, Any] = {"text": "", "commit_s": None, "stalled_s": None, "waited_s": None}
            later |= {name: getattr(event, name) for name in ("t", "wall_s", "target_forwards")}
            if name == "drafted":
                later |= {"accepted": [], "committed": [], "verify_s": None}
            assert event == structs.replace(final, **later)
    clocks = [event.t for _, event in copies[: 3 * len(rounds)]]
    assert clocks == sorted(set(clocks))
    for event in rounds:
        assert all(
            part is not None and 0 < part < LONG_S / 2 for part in (event.draft_s, event.verify_s, event.commit_s)
        )
    assert rounds[-1].t == bench.played.figures(method).decode_s < LONG_S / 2 < 3 * LONG_S < rounds[-1].wall_s


@pytest.mark.parametrize("methods", [("dynatree", "ar", "linear"), ("alg1", "hf", "fixed"), ("hf", "linear")])
def test_a_stepped_run_writes_the_same_text_and_watches_its_first_method(
    bench: Bench, methods: tuple[str, ...]
) -> None:
    bench.user = stepping
    for event in bench.decoding(methods):
        assert bench.steering.stage is None, event
        bench.events.append(event)
    expected = bench.tiny_models.generate(bench.tiny_models.pair("neox"), "float32", PROMPT, 12)
    assert {method: bench.played.tokens(method) for method in methods} == dict.fromkeys(methods, expected)
    assert {stage.event.method for stage in bench.stages} == {methods[0]}
    assert tuple(dict.fromkeys(event.method for event in bench.events if isinstance(event, Round))) == methods


# Length of a step


def test_a_held_run_stays_where_it_is_until_it_is_stepped(bench: Bench) -> None:
    def patient(bench: Bench) -> None:
        if len(bench.seen) % 4 == 0:
            bench.steering.step()

    bench.user = patient
    bench.run(("dynatree", "ar", "linear"))
    held = [(stage.name, stage.event.round) if stage else None for stage in bench.seen]
    places = [None, *((name, number) for number in (0, 1) for name in NAMES)]
    assert held[: 4 * len(places)] == [place for place in places for _ in range(4)]


def test_a_pause_holds_every_method_before_its_round(bench: Bench) -> None:
    bench.user = lambda bench: setattr(bench.steering, "stopped", len(bench.seen) == 3)
    bench.run(("dynatree", "ar"))
    assert bench.seen == [None] * 3
    assert not any(isinstance(event, Round) for event in bench.events)


def hasty(bench: Bench) -> None:
    """Steps twice at each sleep."""
    bench.steering.step()
    bench.steering.step()


def change_of_mind(bench: Bench) -> None:
    """Goes on after many steps, and pauses again."""
    for _ in range(50 if len(bench.seen) == 1 else 1):
        bench.steering.step()
    if len(bench.seen) == 1:
        bench.steering.paused = False
        bench.steering.paused = True


def twitch(bench: Bench) -> None:
    """Goes on and pauses at once, three times, and then goes on."""
    bench.steering.paused = False
    bench.steering.paused = len(bench.seen) < 4


def enough(bench: Bench) -> None:
    """Steps, and goes on after two stages."""
    bench.steering.step()
    bench.steering.paused = len(bench.stages) < 2


@pytest.mark.parametrize(
    ("user", "seen"),
    [
        (hasty, [None, *("verified", "drafted", "committed") * 2]),
        (change_of_mind, [None, *NAMES]),
        (twitch, [None, *NAMES]),
        (enough, [None, "drafted", "verified"]),
    ],
)
def test_each_step_of_the_present_pause_is_one_stage_and_going_on_is_a_release(
    bench: Bench, user: Callable[[Bench], None], seen: list[str | None]
) -> None:
    bench.user = user
    bench.run(("dynatree", "ar"), 24)
    names = [stage and stage.name for stage in bench.seen]
    assert names[: len(seen)] == seen
    assert user in (hasty, change_of_mind) or len(names) == len(seen)
    assert len(bench.played.tokens("ar")) == 24


def test_a_run_that_is_paused_when_a_round_is_told_is_held_at_that_round(bench: Bench) -> None:
    """The screen implements breakpoints on conditions this way."""
    bench.steering.paused = False
    bench.user = lambda bench: setattr(bench.steering, "stopped", True)
    for event in bench.decoding(("dynatree", "ar"), 24):
        bench.events.append(event)
        if isinstance(event, Round) and (event.method, event.round) == ("dynatree", 2):
            bench.steering.paused = True
    (stage,) = bench.stages
    assert (stage.name, stage.event) == ("committed", bench.played.rounds("dynatree")[-1])
    assert stage.event.round == 2


def test_once_the_first_has_ended_a_step_is_one_round_of_another(bench: Bench) -> None:
    counts: list[int] = []

    def count(bench: Bench) -> None:
        if any(isinstance(event, End) for event in bench.events):
            counts.append(sum(isinstance(event, Round) for event in bench.events))
        bench.steering.step()

    bench.user = count
    bench.run(("dynatree", "ar"), 24)
    assert len(counts) > 3
    assert counts == list(range(counts[0], counts[0] + len(counts)))


def test_a_run_that_nobody_holds_builds_no_stage(tiny_models: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr("decoder.run.race.Stage", never)
    assert isinstance(Bench(tiny_models).run(("dynatree", "alg1")).events[-1], Summary)


# Time


def test_slow_motion_does_not_hold_a_step_up(bench: Bench) -> None:
    bench.steering.speed = 1e-9
    bench.user = stepping
    bench.run(("dynatree", "ar"), 6)
    assert len(bench.seen) == len(bench.stages) + bench.seen.count(None)
    assert bench.seen.count(None) <= 1 + len(bench.played.rounds("ar"))


# Stopping


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("methods", [("dynatree", "ar", "linear"), ("alg1", "ar"), ("linear", "dynatree"), ("ar",)])
def test_a_stop_at_any_stage_lets_the_round_finish(bench: Bench, methods: tuple[str, ...], name: str) -> None:
    def stop(bench: Bench) -> None:
        bench.steering.step()
        if (stage := bench.steering.stage) and (stage.name, stage.event.round) == (name, 1):
            bench.steering.stopped = True

    bench.user = stop
    bench.run(methods, 24)
    expected = bench.tiny_models.generate(bench.tiny_models.pair("neox"), "float32", PROMPT, 24)
    for method in methods:
        written = bench.played.tokens(method)
        assert written == expected[: len(written)]
        assert bench.played.end(method).reason == "stopped"
        kinds = [type(event) for event in bench.events if getattr(event, "method", None) == method]
        assert (kinds[0], kinds[-1]) == (Start, End)
    assert len(bench.played.rounds(methods[0])) == 2
    assert bench.stages[-1].name == name
    assert isinstance(bench.events[-1], Summary)
    assert bench.played.figures(methods[0]).identical_to_ar in (True, None)
