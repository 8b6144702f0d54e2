"""Tests of the sources of records: the engine's thread, with a scripted engine, and recordings."""

import dataclasses
import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType, structs

import decoder
from decoder.errors import ConfigError, PairError, PromptError, RecordingError
from decoder.events import Event, Expected, Round, Run, Summary
from decoder.methods.dynatree import DynaTree
from decoder.prompt import AnyPrompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.record.reader import read_events
from dynatui.record.recording import Recorder
from dynatui.session import Models, Session, View
from dynatui.sources.engine import EngineSource, Load, Loaded, load_engine, load_with_times
from dynatui.sources.playback import TraceSource
from dynatui.sources.source import Conditions, bounded_speed, readable_speed
from dynatui.state.run_state import Failure, Loading, Prompt
from tests.dynatui.fake_engine import FakeEngine, FakeReady
from tests.dynatui.scripted_runs import plain_round, run, runs_of, story, tree_round

OWN_PAIR = Models(target="big", draft="small")
PATIENCE_S = 60.0


class Script:
    """A fake engine that yields rounds until it is stopped and keeps the arguments of its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, RunConfig, Steering]] = []
        self.errors: list[Exception] = []
        self.rounds = 3
        self.endless = False
        self.parts: list[str] = []
        """What the parts of the work in idle time tell, in reverse order."""
        self.prepared: list[int] = []
        """For each part that was done: the number of calls of `decode` before it."""
        self.before_a_part: Callable[[], object] = lambda: None
        self.threads: list[tuple[str, bool]] = []
        """Name of each thread that has loaded, and whether it is a daemon."""
        self.decoding = False
        self.methods: dict[str, dict[str, int]] = {}
        """Parameters of methods in the event `run`, instead of the usual ones."""

    def load(self, report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        self.threads.append((threading.current_thread().name, threading.current_thread().daemon))
        report("loading nothing")
        progress("half of it")
        self._raise()
        return Loaded(self.decode, self.prepare)

    def prepare(self) -> str:
        """Does a part of the work that is left for idle time, which must not be in a run."""
        assert not self.decoding
        self.before_a_part()
        if not self.parts:
            return ""
        self.prepared.append(len(self.calls))
        return self.parts.pop()

    def decode(self, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        self.decoding = True
        text = as_prompt(prompt).text
        self.calls.append((text, config, steering))
        self._raise()
        yield structs.replace(run(config.methods, text), methods=self.methods or run(config.methods).methods)
        number = 0
        while not steering.stopped and (self.endless or number < self.rounds):
            yield tree_round(number)
            number += 1
            time.sleep(0.001)
        self.decoding = False
        yield Summary(methods={})

    def _raise(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def until(holds: Callable[[], bool]) -> None:
    """Waits until a condition holds; fails after `PATIENCE_S`, which is long because the machine may be busy."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if holds():
            return
        time.sleep(0.005)
    pytest.fail("it never came")


@pytest.fixture
def script() -> Script:
    return Script()


@pytest.fixture
def source(script: Script) -> Iterator[EngineSource]:
    """An engine source with two prompts and no pause between them; closed at the end."""
    engine = EngineSource(Session(("one", "two"), OWN_PAIR), script.load, rest_s=0.0)
    yield engine
    assert engine.close(PATIENCE_S)


@pytest.fixture
def decoding(source: EngineSource, script: Script) -> EngineSource:
    """The source, which decodes the first prompt without end."""
    script.endless = True
    source.start()
    until(lambda: len(rounds_of(source)) > 5)
    return source


def rounds_of(source: EngineSource) -> list[Round]:
    return [record for record in list(source.records) if isinstance(record, Round)]


def has(source: EngineSource, kind: type[Summary | Failure]) -> bool:
    return any(isinstance(record, kind) for record in list(source.records))


def test_prompts_follow_one_another_and_after_the_last_one_only_a_command_begins_again(
    source: EngineSource, script: Script
) -> None:
    source.start()
    until(lambda: sum(isinstance(record, Summary) for record in list(source.records)) == 2)
    time.sleep(0.1)
    assert [prompt for prompt, _, _ in script.calls] == ["one", "two"]
    assert [record for record in source.records if isinstance(record, Prompt)] == [Prompt(1, 2), Prompt(2, 2)]
    source.go(1)
    until(lambda: len(script.calls) == 4)
    assert [prompt for prompt, _, _ in script.calls[2:]] == ["one", "two"]


def test_loading_is_reported_first_and_all_work_done_in_a_daemon_thread(source: EngineSource, script: Script) -> None:
    source.start()
    until(lambda: bool(script.calls))
    first, step, further = source.records[:3]
    assert isinstance(first, Loading)
    assert isinstance(step, Loading)
    assert (first.step, step.step, step.progress) == ("importing torch", "loading nothing", "")
    assert 0 <= step.at_s < PATIENCE_S
    assert further == dataclasses.replace(step, progress="half of it")
    assert script.threads == [("dynatui-engine", True)]


def test_restart_and_next_end_the_prompt_in_progress(decoding: EngineSource, script: Script) -> None:
    decoding.go(0)
    until(lambda: len(script.calls) == 2)
    decoding.go(1)
    until(lambda: len(script.calls) == 3)
    assert [prompt for prompt, _, _ in script.calls] == ["one", "one", "two"]
    assert script.calls[0][2].stopped


def test_knobs_speed_and_pause_outlive_the_prompt_that_they_steer(decoding: EngineSource, script: Script) -> None:
    decoding.turn("tau_h", 0.8, "dynatree")
    decoding.turn("history", 0.0, "dynatree")
    turns = [(turn.name, turn.value, turn.rules_name) for turn in script.calls[0][2].turns]
    assert turns == [("tau_h", 0.8, "dynatree"), ("history", 0.0, "dynatree")]
    decoding.set_speed(0.5)
    decoding.set_paused(paused=True)
    decoding.go(1)
    until(lambda: len(script.calls) == 2)
    _, config, steering = script.calls[1]
    assert (config.of(DynaTree).tau_h, config.of(DynaTree).history) == (0.8, False)
    assert (steering.turns, steering.speed, steering.paused) == ((), 0.5, True)


def test_two_settings_are_compared_on_the_prompt_in_progress_and_the_next_ones(
    decoding: EngineSource, script: Script
) -> None:
    usual = decoding.config.methods
    decoding.turn("d0", 3.0, "dynatree")
    decoding.compare("dynatree")
    until(lambda: len(script.calls) == 2)
    decoding.go(1)
    until(lambda: len(script.calls) == 3)
    assert [prompt for prompt, _, _ in script.calls] == ["one", "one", "two"]
    for _, config, _ in script.calls[1:]:
        assert config.methods == ("dynatree", "dynatree:A", "ar")
        assert [config.rules(name).knob("d0") for name in config.methods[:2]] == [3, 4]
    decoding.compare("")
    until(lambda: len(script.calls) == 4)
    assert (script.calls[3][0], script.calls[3][1].methods) == ("two", usual)
    with pytest.raises(ConfigError, match="ar"):
        decoding.compare("ar")
    assert decoding.comparing == ""


def test_side_a_has_the_settings_from_before_the_turns_since_the_latest_comparison(
    decoding: EngineSource, script: Script
) -> None:
    for number, value in enumerate((3.0, 5.0)):
        decoding.turn("d0", value, "dynatree")
        decoding.compare("dynatree")
        until(lambda: len(script.calls) == 2 + 2 * number)  # noqa: B023 - called at once
        decoding.compare("")
        until(lambda: len(script.calls) == 3 + 2 * number)  # noqa: B023 - called at once
    sides = [[config.rules(name).knob("d0") for name in config.methods[:2]] for _, config, _ in script.calls[1::2]]
    assert sides == [[3, 4], [5, 3]]


def test_a_finished_prompt_stays_for_a_while_unless_the_user_goes_on(script: Script) -> None:
    engine = EngineSource(Session(("one", "two"), OWN_PAIR), script.load, rest_s=60.0)
    engine.start()
    until(lambda: has(engine, Summary))
    assert len(script.calls) == 1
    engine.go(1)
    until(lambda: len(script.calls) == 2)
    assert engine.close(PATIENCE_S)


def test_while_a_finished_prompt_stays_work_in_advance_is_done_and_told(script: Script) -> None:
    script.parts = ["kernels: 2 of 2 tried", "kernels: 1 of 2 tried"]
    source, told = EngineSource(Session(("one", "two"), OWN_PAIR), script.load, rest_s=60.0), list[str]()
    script.before_a_part = lambda: told.append(source.preparing)
    source.start()
    until(lambda: len(told) == 3)
    assert told == ["", "kernels: 1 of 2 tried", "kernels: 2 of 2 tried"]
    until(lambda: not source.preparing)
    assert script.prepared == [1, 1]
    assert source.close(PATIENCE_S)


def test_work_in_advance_goes_on_while_a_finished_prompt_is_held(source: EngineSource, script: Script) -> None:
    script.parts = ["more"] * 50
    source.set_paused(paused=True)
    source.start()
    until(lambda: not script.parts)
    assert len(script.calls) == 1


def test_a_prompt_that_is_due_waits_for_one_part_so_all_are_done_some_time(
    source: EngineSource, script: Script
) -> None:
    script.parts = ["more"] * 3
    source.start()
    until(lambda: not script.parts)
    assert script.prepared == [1, 2, 2]


def test_a_source_that_is_closed_waits_for_the_part_in_progress_alone(script: Script) -> None:
    script.parts, begun, released = ["more"] * 50, threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        released.wait(PATIENCE_S)

    script.before_a_part = slow
    source = EngineSource(Session(("one",), OWN_PAIR), script.load, rest_s=60.0)
    source.start()
    assert begun.wait(PATIENCE_S)
    source.stop()
    released.set()
    assert source.close(PATIENCE_S)
    assert len(script.parts) == 49


def test_no_part_is_begun_once_the_source_is_stopped(source: EngineSource, script: Script) -> None:
    script.parts, script.endless = ["more"], True
    source.start()
    until(lambda: bool(script.calls))
    assert source.close(PATIENCE_S)
    assert script.parts == ["more"]


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (PairError("no model at /nowhere; give a folder"), "no model at /nowhere; give a folder", 3),
        (
            OSError(errno.EMFILE, "Too many open files", "/models/big"),
            "cannot open another file: Too many open files; raise the limit with ulimit -n 256",
            2,
        ),
        (ZeroDivisionError("by zero"), "ZeroDivisionError: by zero", 3),
    ],
    ids=["of the user", "a limit of the system", "a fault of ours"],
)
def test_an_error_becomes_a_record_and_restart_tries_again(
    source: EngineSource, script: Script, caplog: pytest.LogCaptureFixture, error: Exception, message: str, code: int
) -> None:
    script.errors = [error]
    source.start()
    until(lambda: has(source, Failure))
    failure = source.records[-1]
    assert isinstance(failure, Failure)
    assert (failure.message[: len(message)], failure.exit_code) == (message, code)
    assert ("ZeroDivisionError" in caplog.text) == isinstance(error, ZeroDivisionError)
    source.go(0)
    until(lambda: bool(script.calls))
    assert script.calls[0][0] == "one"


def test_an_error_of_one_prompt_does_not_load_the_models_again(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.start()
    until(lambda: bool(script.calls))
    script.errors = [PromptError("the prompt is too long; give fewer tokens")]
    source.go(1)
    until(lambda: has(source, Failure))
    assert source.records[-1] == Failure("the prompt is too long; give fewer tokens", 2)
    source.go(1)
    calls = len(script.calls)
    until(lambda: len(script.calls) > calls)
    told = [record.step for record in source.records if isinstance(record, Loading)]
    assert told == ["importing torch", "loading nothing", "loading nothing"]


def test_everything_is_recorded_until_the_recording_is_closed(script: Script, tmp_path: Path) -> None:
    script.endless = True
    path = tmp_path / "run.jsonl"
    engine = EngineSource(Session(("one",), OWN_PAIR, record=path), script.load, Recorder(path))
    assert engine.recorded is not None
    engine.start()
    until(lambda: len(engine.records) > 12)
    assert engine.close(PATIENCE_S)
    events = [record for record in engine.records if isinstance(record, Event)]
    recorded = read_events(path)
    assert recorded == events[: len(recorded)]
    assert len(recorded) > 3


@pytest.mark.parametrize(
    ("session", "slow", "speed"),
    [
        (Session(("one",)), True, readable_speed(150 / 4)),
        (Session(("one",), OWN_PAIR), False, 1.0),
        (Session(("one",), view=View(speed=0.5)), True, 0.5),
    ],
    ids=["embedded", "a user's pair", "chosen"],
)
def test_the_embedded_pair_alone_is_slowed_down_to_what_can_be_read_unless_a_speed_is_chosen(
    session: Session, speed: float, script: Script, *, slow: bool
) -> None:
    script.rounds = 20
    engine = EngineSource(session, script.load)
    assert (engine.speed < 1.0) is slow
    engine.start()
    until(lambda: has(engine, Summary))
    assert engine.speed == speed
    assert engine.close(PATIENCE_S)


def test_readable_speeds_are_powers_of_two() -> None:
    assert [readable_speed(rate) for rate in (0.0, 15.0, 30.0, 75.0, 1e9)] == [1.0, 1.0, 0.5, 0.25, 1 / 64]
    assert (bounded_speed(1e-9), bounded_speed(1e9)) == (0.001, 1000.0)


def test_a_recording_is_played_by_its_wall_time_can_be_slowed_and_held_and_has_no_knobs() -> None:
    source = TraceSource(runs_of(story()), speed=0.5)
    source.start()
    assert (source.controls, source.records) == (None, [])
    for paused, now in ((False, 100.0), (False, 100.15), (True, 110.0)):
        source.set_paused(paused=paused)
        source.advance(now)
        assert source.records == [Prompt(1, 1), *story()[:3]]
    source.set_paused(paused=False)
    source.set_speed(1.0)
    source.advance(110.1)
    assert len(source.records) == 6
    source.advance(200.0)
    assert source.records[1:] == story()
    source.stop()
    assert source.close(0.0)


def test_a_fast_recording_starts_at_a_readable_speed() -> None:
    slow, fast = (
        [structs.replace(e, wall_s=e.wall_s * factor) if isinstance(e, Round) else e for e in story()]
        for factor in (10, 0.01)
    )
    assert TraceSource(runs_of(fast)).speed < TraceSource(runs_of(slow)).speed == 1.0


def test_a_recording_begun_late_has_the_whole_run(decoding: EngineSource, tmp_path: Path) -> None:
    decoding.record(tmp_path / "late.jsonl")
    until(lambda: len(rounds_of(decoding)) > 12)
    decoding.record(None)
    events = read_events(tmp_path / "late.jsonl")
    assert isinstance(events[0], Run)
    assert [event.round for event in events if isinstance(event, Round)] == list(range(len(events) - 1))
    assert len(events) > 8
    assert decoding.recorded is None


def test_a_recording_that_cannot_begin_leaves_decoding_alone(decoding: EngineSource) -> None:
    with pytest.raises(RecordingError, match="no-such-folder"):
        decoding.record(Path("/no-such-folder/a.jsonl"))
    count = len(rounds_of(decoding))
    until(lambda: len(rounds_of(decoding)) > count)
    assert decoding.recorded is None


def test_an_edited_prompt_is_begun_at_once_and_stays(decoding: EngineSource, script: Script) -> None:
    decoding.edit("one, but better")
    until(lambda: len(script.calls) == 2)
    assert script.calls[1][0] == decoding.prompt == "one, but better"
    assert decoding.session.prompts == ("one, but better", "two")


def test_decoding_pauses_by_itself_at_a_condition(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.break_on(Conditions(frozenset({"full"})))
    script.methods = {"dynatree": {"n_max": 5}}
    source.start()
    until(lambda: source.paused)
    assert "full" in source.broke
    source.set_paused(paused=False)
    assert source.broke == ""


def test_a_condition_that_is_switched_on_late_knows_the_run_and_the_watched_method(source: EngineSource) -> None:
    differing = structs.replace(plain_round("linear", 0), committed=[99])
    for event in (run(("dynatree", "linear", "ar")), differing):
        source._take(event)
    source.watch("linear")
    source.break_on(Conditions(frozenset({"difference"})))
    source._take(plain_round("ar", 0))
    assert source.broke == "linear differs from ar at token 0, round 1 of ar"


def test_a_finished_prompt_stays_as_long_as_the_user_holds_it(source: EngineSource, script: Script) -> None:
    source.set_paused(paused=True)
    source.start()
    until(lambda: has(source, Summary))
    time.sleep(0.2)
    assert len(script.calls) == 1
    source.set_paused(paused=False)
    until(lambda: len(script.calls) > 1)


def test_only_the_screen_leaves_kernels_for_the_time_between_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    for name in ("load_pair", "decode"):
        monkeypatch.setitem(vars(decoder), name, getattr(engine, name))
    monkeypatch.setattr("decoder.run.expected.expectation", lambda _pair, _bandwidth: None)
    monkeypatch.setattr(FakeReady, "prepare", lambda _: "kernels: 1 of 2 tried")
    session = Session(("x",), OWN_PAIR, RunConfig(("ar",)))
    loaded = [load(session)(print, print) for load in (load_engine, load_with_times)]
    assert engine.kernels_later == [False, True]
    assert loaded[1].prepare() == "kernels: 1 of 2 tried"


def test_only_runs_on_the_screen_tell_the_least_times_of_passes_if_known(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session(("Once upon a time",), config=RunConfig(("ar",), max_new_tokens=2))
    steps = list[str]()

    def told(load: Load) -> Expected | UnsetType:
        events = load(steps.append, steps.append).decode(session.prompts[0], session.config, Steering())
        (found,) = (event.expected for event in events if isinstance(event, Run))
        return found

    expected = told(load_with_times(session))
    assert isinstance(expected, Expected)
    assert expected.target_read_s > expected.draft_pass_s > 0
    assert steps[-1] == "measuring the device"
    assert told(load_engine(session)) is UNSET
    monkeypatch.setattr("decoder.run.expected.expectation", lambda _pair, _bandwidth: None)
    assert told(load_with_times(session)) is UNSET
