"""Tests of the sources of records: the engine's thread, with a scripted engine, and recordings."""

import dataclasses
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec import UNSET, UnsetType, structs

import decoder
from decoder.errors import PairError, PromptError, RecordingError
from decoder.events import Event, Expected, Round, Run, Summary
from decoder.methods.dynatree import DynaTree
from decoder.prompts.prompt import AnyPrompt, as_prompt
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
        """Errors that the next calls raise, one each."""
        self.rounds = 3
        self.endless = False
        self.parts: list[str] = []
        """What the parts of the work that is left for idle time tell, in reverse order."""
        self.prepared: list[int] = []
        """For each part that was done: the number of calls of `decode` before it."""
        self.decoding = False
        self.methods: dict[str, dict[str, int]] = {}
        """Parameters of methods in the event `run`, instead of the usual ones."""

    def load(self, report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        """Reports progress and returns `decode`."""
        report("loading nothing")
        progress("half of it")
        self._raise()
        return Loaded(self.decode, self.prepare)

    def prepare(self) -> str:
        """Does a part of the work that is left for idle time, which must not be in a run."""
        assert not self.decoding
        if not self.parts:
            return ""
        self.prepared.append(len(self.calls))
        return self.parts.pop()

    def decode(self, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        """Events of a run of `rounds` rounds, or of rounds until the run is stopped."""
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
    session = Session(("one", "two"), OWN_PAIR)
    engine = EngineSource(session, script.load, rest_s=0.0)
    yield engine
    assert engine.close(PATIENCE_S)


def test_prompts_follow_one_another_round_and_round(source: EngineSource, script: Script) -> None:
    source.start()
    until(lambda: len(script.calls) >= 5)
    assert [prompt for prompt, _, _ in script.calls[:5]] == ["one", "two", "one", "two", "one"]
    assert [record for record in source.records if isinstance(record, Prompt)][:3] == [
        Prompt(1, 2),
        Prompt(2, 2),
        Prompt(1, 2),
    ]


def test_loading_is_reported_first(source: EngineSource, script: Script) -> None:
    source.start()
    until(lambda: bool(script.calls))
    first, step, further = source.records[:3]
    assert isinstance(first, Loading)
    assert isinstance(step, Loading)
    assert first.step == "importing torch"
    assert (step.step, step.progress) == ("loading nothing", "")
    assert 0 <= step.at_s < PATIENCE_S
    assert further == dataclasses.replace(step, progress="half of it")


def test_all_work_is_done_in_a_daemon_thread(source: EngineSource, script: Script) -> None:
    names: list[tuple[str, bool]] = []
    script.errors = []
    load = script.load

    def noting(report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        names.append((threading.current_thread().name, threading.current_thread().daemon))
        return load(report, progress)

    source._load = noting
    source.start()
    until(lambda: bool(names))
    assert names == [("dynatui-engine", True)]


def test_restart_and_next_end_the_prompt_in_progress(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.start()
    until(lambda: len(source.records) > 6)
    source.go(0)
    until(lambda: len(script.calls) == 2)
    source.go(1)
    until(lambda: len(script.calls) == 3)
    assert [prompt for prompt, _, _ in script.calls] == ["one", "one", "two"]
    assert script.calls[0][2].stopped


def test_a_turned_knob_steers_this_prompt_and_begins_the_next(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.start()
    until(lambda: len(source.records) > 4)
    source.turn("tau_h", 0.8, "dynatree")
    source.turn("history", 0.0, "dynatree")
    assert [(turn.name, turn.value, turn.rules_name) for turn in script.calls[0][2].turns] == [
        ("tau_h", 0.8, "dynatree"),
        ("history", 0.0, "dynatree"),
    ]
    source.go(1)
    until(lambda: len(script.calls) == 2)
    _, config, steering = script.calls[1]
    assert (config.of(DynaTree).tau_h, config.of(DynaTree).history) == (0.8, False)
    assert steering.turns == ()


def test_speed_and_pause_outlive_the_prompt(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.start()
    until(lambda: len(source.records) > 4)
    source.set_speed(0.5)
    source.set_paused(paused=True)
    source.go(1)
    until(lambda: len(script.calls) == 2)
    assert (script.calls[1][2].speed, script.calls[1][2].paused) == (0.5, True)


def test_a_finished_prompt_stays_for_a_while_unless_the_user_goes_on(script: Script) -> None:
    engine = EngineSource(Session(("one", "two"), OWN_PAIR), script.load, rest_s=60.0)
    engine.start()
    until(lambda: any(isinstance(record, Summary) for record in engine.records))
    assert len(script.calls) == 1
    engine.go(1)
    until(lambda: len(script.calls) == 2)
    assert engine.close(PATIENCE_S)


def test_while_a_finished_prompt_stays_work_in_advance_is_done_and_told(script: Script) -> None:
    script.parts = ["kernels: 2 of 2 tried", "kernels: 1 of 2 tried"]
    source, told = EngineSource(Session(("one", "two"), OWN_PAIR), script.load, rest_s=60.0), list[str]()
    prepare = script.prepare

    def noting() -> str:
        told.append(source.preparing)
        return prepare()

    script.prepare = noting  # type: ignore[method-assign]  # notes what the screen shows before each part
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


def test_a_prompt_that_is_due_waits_for_one_part_and_so_all_parts_are_done_some_time(
    source: EngineSource, script: Script
) -> None:
    script.parts = ["more"] * 3
    source.start()
    until(lambda: len(script.calls) > 4)
    assert script.prepared == [1, 2, 3]


def test_a_source_that_is_closed_waits_for_the_part_in_progress_alone(script: Script) -> None:
    script.parts, begun, released = ["more"] * 50, threading.Event(), threading.Event()
    prepare = script.prepare

    def slow() -> str:
        begun.set()
        released.wait(PATIENCE_S)
        return prepare()

    script.prepare = slow  # type: ignore[method-assign]  # a part that takes a while
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


def test_an_error_becomes_a_record_and_restart_tries_again(source: EngineSource, script: Script) -> None:
    script.errors = [PairError("no model at /nowhere; give a folder")]
    source.start()
    until(lambda: any(isinstance(record, Failure) for record in source.records))
    assert source.records[-1] == Failure("no model at /nowhere; give a folder", 3)
    source.go(0)
    until(lambda: bool(script.calls))
    assert script.calls[0][0] == "one"


def test_an_error_of_one_prompt_does_not_load_the_models_again(source: EngineSource, script: Script) -> None:
    source.start()
    until(lambda: bool(script.calls))
    script.errors = [PromptError("the prompt is too long; give fewer tokens")]
    until(lambda: any(isinstance(record, Failure) for record in source.records))
    assert source.records[-1] == Failure("the prompt is too long; give fewer tokens", 2)
    source.go(1)
    calls = len(script.calls)
    until(lambda: len(script.calls) > calls)
    told = [record.step for record in source.records if isinstance(record, Loading)]
    assert told == ["importing torch", "loading nothing", "loading nothing"]


def test_an_unexpected_error_is_shown_and_logged(
    source: EngineSource, script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.errors = [ZeroDivisionError("by zero")]
    source.start()
    until(lambda: any(isinstance(record, Failure) for record in source.records))
    failure = source.records[-1]
    assert isinstance(failure, Failure)
    assert failure.message.startswith("ZeroDivisionError: by zero")
    assert failure.exit_code == 3
    assert "ZeroDivisionError" in caplog.text


def test_a_limit_of_the_system_is_told_with_its_remedy_and_is_no_bug(source: EngineSource, script: Script) -> None:
    script.errors.append(OSError(errno.EMFILE, "Too many open files", "/models/big"))
    source.start()
    until(lambda: any(isinstance(record, Failure) for record in source.records))
    told = "cannot open another file: Too many open files; raise the limit with ulimit -n 256"
    assert source.records[-1] == Failure(told, 2)


def test_everything_is_recorded_until_the_recording_is_closed(script: Script, tmp_path: Path) -> None:
    script.endless = True
    path = tmp_path / "run.jsonl"
    engine = EngineSource(Session(("one",), OWN_PAIR, record=path), script.load, Recorder(path))
    assert engine.recorded is not None
    engine.start()
    until(lambda: len(engine.records) > 12)
    assert engine.close(PATIENCE_S)
    events = [record for record in engine.records if not isinstance(record, Loading | Prompt | Failure)]
    recorded = read_events(path)
    assert recorded == events[: len(recorded)]
    assert len(recorded) > 3


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_recording_that_cannot_be_written_is_told(script: Script) -> None:
    engine = EngineSource(Session(("one",), OWN_PAIR), script.load, Recorder(Path("/dev/full")))
    engine.start()
    until(lambda: any(isinstance(record, Failure) for record in engine.records))
    assert engine.close(PATIENCE_S)


@pytest.mark.wall_time
def test_no_command_waits_for_a_recording_that_nobody_reads(script: Script, tmp_path: Path) -> None:
    script.endless = True
    path = tmp_path / "fifo"
    os.mkfifo(path)
    unread = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    engine = EngineSource(Session(("x" * 2**15,), OWN_PAIR), script.load, Recorder(path))
    engine.start()
    until(lambda: len(engine.records) > 6)
    time.sleep(0.3)
    began = time.monotonic()
    engine.set_paused(paused=True)
    engine.turn("tau_h", 0.8, "dynatree")
    engine.set_speed(1.0)
    engine.record(tmp_path / "run.jsonl")
    engine.record(None)
    assert time.monotonic() - began < 2
    assert not engine.close(0.05)
    os.close(unread)
    assert read_events(tmp_path / "run.jsonl")


@pytest.mark.wall_time
def test_a_thread_that_does_not_end_is_left_behind(script: Script) -> None:
    released = threading.Event()
    load = script.load

    def hanging(report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        released.wait(PATIENCE_S)
        return load(report, progress)

    engine = EngineSource(Session(("one",), OWN_PAIR), hanging)
    engine.start()
    began = time.monotonic()
    assert not engine.close(0.05)
    assert time.monotonic() - began < PATIENCE_S / 2
    released.set()
    assert engine.close(PATIENCE_S)


def test_the_embedded_pair_is_slowed_down_to_what_can_be_read(script: Script) -> None:
    script.rounds = 20
    engine = EngineSource(Session(("one",)), script.load)
    assert engine.speed < 1.0
    engine.start()
    until(lambda: any(isinstance(record, Summary) for record in engine.records))
    assert engine.speed == readable_speed(150 / 4)
    assert engine.close(PATIENCE_S)


@pytest.mark.parametrize(
    ("session", "speed"), [(Session(("one",), OWN_PAIR), 1.0), (Session(("one",), view=View(speed=0.5)), 0.5)]
)
def test_a_chosen_speed_and_a_users_pair_are_left_alone(session: Session, speed: float, script: Script) -> None:
    script.rounds = 20
    engine = EngineSource(session, script.load)
    engine.start()
    until(lambda: any(isinstance(record, Summary) for record in engine.records))
    assert engine.speed == speed
    assert engine.close(PATIENCE_S)


def test_readable_speeds_are_powers_of_two() -> None:
    assert [readable_speed(rate) for rate in (0.0, 15.0, 30.0, 75.0, 1e9)] == [1.0, 1.0, 0.5, 0.25, 1 / 64]
    assert (bounded_speed(1e-9), bounded_speed(1e9)) == (0.001, 1000.0)


def test_a_recording_is_played_by_its_wall_time() -> None:
    source = TraceSource(runs_of(story()), speed=1.0)
    source.advance(100.0)
    assert [type(record).__name__ for record in source.records] == ["Prompt", "Run", "Start", "Start"]
    source.advance(100.15)
    assert source.records[-1] == story()[4]
    source.advance(200.0)
    assert source.records[1:] == story()


def test_a_recording_can_be_slowed_and_held() -> None:
    source = TraceSource(runs_of(story()), speed=0.5)
    source.advance(0.0)
    source.advance(0.15)
    assert len(source.records) == 4
    source.set_paused(paused=True)
    source.advance(10.0)
    assert len(source.records) == 4
    source.set_paused(paused=False)
    source.set_speed(1.0)
    source.advance(10.1)
    assert len(source.records) == 6


def test_the_runs_of_a_recording_can_be_chosen() -> None:
    second = [structs.replace(story()[0], prompt="second"), *story()[1:]]
    source = TraceSource(runs_of([*story(), *second]), speed=1.0)
    source.advance(0.0)
    source.go(1)
    source.advance(0.01)
    assert _prompts(source) == ["Once upon", "second"]
    source.go(0)
    source.advance(0.02)
    source.go(1)
    source.advance(0.03)
    assert _prompts(source) == ["Once upon", "second", "second", "Once upon"]
    assert [record for record in source.records if isinstance(record, Prompt)][1] == Prompt(2, 2)


def _prompts(source: TraceSource) -> list[str]:
    return [record.prompt for record in source.records if isinstance(record, Run)]


def test_a_recording_has_no_knobs_and_ends_at_once() -> None:
    source = TraceSource(runs_of(story()))
    source.start()
    assert source.controls is None
    source.stop()
    assert source.records == []
    assert source.close(0.0)


def test_a_fast_recording_starts_at_a_readable_speed() -> None:
    slow, fast = (
        [structs.replace(e, wall_s=e.wall_s * factor) if hasattr(e, "wall_s") else e for e in story()]
        for factor in (10, 0.01)
    )
    assert TraceSource(runs_of(fast)).speed < TraceSource(runs_of(slow)).speed == 1.0


def test_a_recording_begun_late_has_the_whole_run(source: EngineSource, script: Script, tmp_path: Path) -> None:
    script.endless = True
    source.start()
    until(lambda: len(rounds_of(source)) > 5)
    source.record(tmp_path / "late.jsonl")
    until(lambda: len(rounds_of(source)) > 12)
    source.record(None)
    events = read_events(tmp_path / "late.jsonl")
    assert isinstance(events[0], Run)
    assert [event.round for event in events if isinstance(event, Round)] == list(range(len(events) - 1))
    assert len(events) > 8
    assert source.recorded is None


def test_a_recording_that_cannot_begin_leaves_decoding_alone(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.start()
    until(lambda: len(rounds_of(source)) > 2)
    with pytest.raises(RecordingError, match="no-such-folder"):
        source.record(Path("/no-such-folder/a.jsonl"))
    count = len(rounds_of(source))
    until(lambda: len(rounds_of(source)) > count)
    assert source.recorded is None


def test_an_edited_prompt_is_begun_at_once_and_stays(source: EngineSource, script: Script) -> None:
    script.endless = True
    source.start()
    until(lambda: len(script.calls) == 1)
    source.edit("one, but better")
    until(lambda: len(script.calls) == 2)
    assert script.calls[1][0] == source.prompt == "one, but better"
    assert source.session.prompts == ("one, but better", "two")


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
    until(lambda: any(isinstance(record, Summary) for record in source.records))
    time.sleep(0.2)
    assert len(script.calls) == 1
    source.set_paused(paused=False)
    until(lambda: len(script.calls) > 1)


def rounds_of(source: EngineSource) -> list[Round]:
    return [record for record in list(source.records) if isinstance(record, Round)]


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


def test_only_runs_on_the_screen_tell_the_least_times_of_passes() -> None:
    session = Session(("Once upon a time",), config=RunConfig(("ar",), max_new_tokens=2))
    steps = list[str]()

    def told(load: Load) -> list[Expected | UnsetType]:
        events = load(steps.append, steps.append).decode(session.prompts[0], session.config, Steering())
        return [event.expected for event in events if isinstance(event, Run)]

    (expected,) = told(load_with_times(session))
    assert isinstance(expected, Expected)
    assert expected.target_read_s > expected.draft_pass_s > 0
    assert steps[-1] == "measuring the device"
    assert told(load_engine(session)) == [UNSET]


def test_of_a_pair_whose_times_are_unknown_runs_tell_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.run.expected.expectation", lambda _pair, _bandwidth: None)
    session = Session(("Once upon a time",), config=RunConfig(("ar",), max_new_tokens=2))
    events = load_with_times(session)(print, print).decode(session.prompts[0], session.config, Steering())
    assert [event.expected for event in events if isinstance(event, Run)] == [UNSET]
