"""Tests of runs without a screen: printed output and recordings, however a run ends. The engine is a fake."""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import cast

import msgspec
import pytest
from msgspec import UNSET, structs

from decoder.errors import DeviceError, PromptError, RecordingError
from decoder.events import LOST, End, Event, Figures, Round, Run, Summary
from decoder.methods.dynatree import PRESETS
from decoder.prompts.prompt import AnyPrompt, Prompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.cli import headless
from dynatui.record.reader import read_events
from dynatui.record.transcript import Transcript, table
from dynatui.session import Models, Session, View
from dynatui.sources.engine import Loaded, load_engine
from dynatui.terminal.shutdown import INTERRUPTING
from dynatui.terminal.streams import OutputError, ReaderLeftError
from tests.dynatui.fake_engine import FakeEngine, FakeReady, round_, run, story

TWO_METHODS = RunConfig(methods=("dynatree", "ar"))
HOSTILE = "\x1b]52;c;UFdORUQ=\x07 \x9b2J [bold]\u202e"


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


class Failing(io.StringIO):
    """A stream whose writes raise a given error."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, _text: str) -> int:
        raise self.error


class CapturedRun:
    """A transcript with access to its two streams."""

    def __init__(self, out: io.StringIO | None = None, *, as_json: bool = False) -> None:
        self.out = out or io.StringIO()
        self.err = io.StringIO()
        self.transcript = Transcript(self.out, self.err, as_json=as_json)

    def run(self, engine: FakeEngine, session: Session) -> int:
        return headless.run(session, self.transcript, engine.loader(session))

    def objects(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.getvalue().splitlines()]


def kept(prompt: str, number: int = 1, count: int = 1) -> list[Event]:
    """Events of a recorded run of prompt `number` of `count`."""
    first, *rest = story(prompt)
    assert isinstance(first, Run)
    return [structs.replace(first, prompt_number=number, prompt_count=count), *rest]


def at(number: int, act: Callable[[Steering], None]) -> Callable[[int, Steering], None]:
    """Calls `act` just before event `number`."""

    def before(count: int, steering: Steering) -> None:
        if count == number:
            act(steering)

    return before


def fail_with(error: BaseException) -> Callable[[Steering], None]:
    def act(_steering: Steering) -> None:
        raise error

    return act


def test_the_text_of_the_first_method_is_the_output() -> None:
    captured = CapturedRun()
    assert captured.run(FakeEngine(), Session(("Tell",), config=TWO_METHODS)) == 0
    assert captured.out.getvalue() == "Once upon a time\n"


def test_what_libraries_print_is_beside_other_messages(capsys: pytest.CaptureFixture[str]) -> None:
    captured, engine = CapturedRun(), FakeEngine()
    session = Session(("Tell",), config=TWO_METHODS)

    def printing(report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        sys.stdout.write("a kernel is chosen\n")
        return engine.loader(session)(report, progress)

    assert headless.run(session, captured.transcript, printing) == 0
    assert capsys.readouterr() == ("", "a kernel is chosen\n")
    sys.stdout.write("results again\n")
    assert capsys.readouterr() == ("results again\n", "")


def test_the_engine_gets_what_was_asked_for() -> None:
    engine = FakeEngine()
    session = Session(
        ("x",),
        Models("t", "d", "cpu", "float32", "bfloat16", exact=True, compiled=True),
        TWO_METHODS,
        view=View(speed=0.5),
    )
    CapturedRun().run(engine, session)
    assert engine.pairs == [("t", "d", "cpu", "float32", "bfloat16", True, True)]
    assert engine.runs == [TWO_METHODS]
    assert engine.configs == [TWO_METHODS]
    assert engine.speeds == [0.5]


@pytest.mark.parametrize("as_json", [False, True])
def test_which_way_rounds_are_decoded_is_told_with_the_reason(*, as_json: bool) -> None:
    captured = CapturedRun(as_json=as_json)
    events = story("one")
    assert isinstance(events[0], Run)
    events[0] = structs.replace(events[0], path="host", path_reason="it does not run")
    headless.replay_events(events, Transcript(captured.out, captured.err, as_json=as_json))
    assert "\nrounds: host, it does not run\n" in captured.err.getvalue()
    if as_json:
        (found,) = captured.objects()
        assert (found["path"], found["path_reason"]) == ("host", "it does not run")


def test_a_run_closes_with_a_table_of_all_methods() -> None:
    captured = CapturedRun()
    captured.run(FakeEngine(), Session(("Tell",), config=TWO_METHODS))
    *_, head, first, second = captured.err.getvalue().splitlines()
    assert head.split()[:3] == ["method", "committed", "rounds"]
    assert first.split()[:4] == ["dynatree", "8", "4", "2.00"]
    assert second.startswith("ar ")


def test_the_table_is_aligned_and_says_what_is_unknown() -> None:
    lines = table({"ar": Figures(committed=3), "dynatree": Figures(identical_to_ar=False, near_tie=True)})
    assert len({len(line) for line in lines}) == 1
    assert "-" in lines[1]
    assert lines[2].split()[-2:] == ["no", "yes"]


def test_json_has_one_object_a_prompt_with_the_keys_of_the_contract() -> None:
    captured = CapturedRun(as_json=True)
    captured.run(FakeEngine(), Session(("one", "two"), config=TWO_METHODS))
    first, second = captured.objects()
    told = ["prompt", "text", "target", "draft", "device", "dtype", "draft_dtype", "exact", "path", "path_reason"]
    assert list(first) == [*told, "seed", "temperature", "top_k", "top_p", "methods"]
    assert (first["prompt"], second["prompt"]) == ("one", "two")
    assert first["text"] == "Once upon a time"
    methods = first["methods"]
    assert isinstance(methods, dict)
    assert list(methods) == ["dynatree", "ar"]
    assert list(methods["ar"]) == [*Figures.__struct_fields__, "tokens"]
    assert methods["ar"]["tokens"] == [8, 10, 8, 11, 8, 12, 8, 13]


def test_the_recording_holds_every_event(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    CapturedRun().run(FakeEngine(), Session(("one", "two"), config=TWO_METHODS, record=path))
    assert read_events(path) == kept("one", 1, 2) + kept("two", 2, 2)


def test_a_replay_prints_what_the_run_printed() -> None:
    live, again = CapturedRun(as_json=True), CapturedRun(as_json=True)
    live.run(FakeEngine(), Session(("one", "two"), config=TWO_METHODS))
    assert headless.replay_events(story("one") + story("two"), again.transcript) == 0
    assert again.out.getvalue() == live.out.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
def test_a_replay_shows_runs_that_broke_off(*, as_json: bool) -> None:
    captured = CapturedRun(as_json=as_json)
    headless.replay_events(story("one")[:6] + story("two")[:8], captured.transcript)
    said = [str(each["text"]) for each in captured.objects()] if as_json else captured.out.getvalue().splitlines()
    assert said == ["Once upon ", "Once upon a "]


def test_a_replay_of_a_method_that_broke_off_is_done_all_the_same() -> None:
    captured = CapturedRun()
    assert headless.replay_events([run(), End(method="ar", reason="error", error="boom")], captured.transcript) == 0
    assert "ar broke off: boom" in captured.err.getvalue()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_after_the_round_with_all_that_is_there(number: signal.Signals, tmp_path: Path) -> None:
    captured, path = CapturedRun(as_json=True), tmp_path / "run.jsonl"
    engine = FakeEngine(before_event=at(5, lambda _: signal.raise_signal(number)))
    assert captured.run(engine, Session(("one", "two"), config=TWO_METHODS, record=path)) == 130
    assert [each["text"] for each in captured.objects()] == ["Once "]
    assert engine.prompts == ["one"]
    last = read_events(path)[-1]
    assert isinstance(last, Summary)
    assert captured.err.getvalue().endswith("interrupted\n")


def test_a_second_signal_interrupts_at_once_and_the_text_is_out(tmp_path: Path) -> None:
    def twice(_steering: Steering) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    captured, path = CapturedRun(), tmp_path / "run.jsonl"
    assert (
        captured.run(FakeEngine(before_event=at(5, twice)), Session(("one",), config=TWO_METHODS, record=path)) == 130
    )
    assert captured.out.getvalue() == "Once \n"
    assert read_events(path) == kept("one")[:5]


def test_a_signal_while_models_load_interrupts() -> None:
    captured, engine, session = CapturedRun(), FakeEngine(), Session(("one",))

    def slow(report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        signal.raise_signal(signal.SIGINT)
        return engine.loader(session)(report, progress)

    assert headless.run(session, captured.transcript, slow) == 130
    assert not engine.prompts


def test_signals_do_afterwards_what_they_did_before() -> None:
    before = [signal.getsignal(number) for number in INTERRUPTING]
    CapturedRun().run(FakeEngine(), Session(("one",), config=TWO_METHODS))
    assert [signal.getsignal(number) for number in INTERRUPTING] == before


def test_a_hangup_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        engine = FakeEngine(before_event=at(5, lambda _: signal.raise_signal(signal.SIGHUP)))
        assert CapturedRun().run(engine, Session(("one",), config=TWO_METHODS)) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_midway_loses_nothing_that_was_there(tmp_path: Path) -> None:
    captured, path = CapturedRun(as_json=True), tmp_path / "run.jsonl"
    engine = FakeEngine(before_event=at(6, fail_with(DeviceError("memory is full; give a smaller model"))))
    with pytest.raises(DeviceError):
        captured.run(engine, Session(("one",), config=TWO_METHODS, record=path))
    assert [each["text"] for each in captured.objects()] == ["Once upon "]
    assert read_events(path) == kept("one")[:6]


def test_a_method_that_breaks_off_is_named_and_the_run_counts_as_failed() -> None:
    class Breaking(FakeEngine):
        def decode(self, pair: FakeReady, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
            *begun, summary = super().decode(pair, prompt, config, steering)
            yield from begun[:5]
            yield End(method="ar", reason="error", error="out of memory")
            yield summary

    captured = CapturedRun()
    assert captured.run(Breaking(), Session(("one",), config=TWO_METHODS)) == 3
    assert "ar broke off: out of memory" in captured.err.getvalue()


def test_a_recording_that_cannot_be_opened_stops_before_models_load(tmp_path: Path) -> None:
    engine = FakeEngine()
    with pytest.raises(RecordingError):
        CapturedRun().run(engine, Session(("one",), record=tmp_path))
    assert not engine.pairs


def test_a_reader_that_leaves_ends_the_run_quietly_with_a_whole_recording(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(ReaderLeftError):
        CapturedRun(Failing(BrokenPipeError())).run(FakeEngine(), Session(("one",), config=TWO_METHODS, record=path))
    assert read_events(path) == kept("one")[:4]


def test_an_output_that_takes_no_more_is_one_clear_error() -> None:
    with pytest.raises(OutputError, match="cannot write to standard output: No space left"):
        CapturedRun(Failing(OSError(28, "No space left on device"))).run(
            FakeEngine(), Session(("one",), config=TWO_METHODS)
        )


def test_progress_that_nobody_can_read_stops_nothing() -> None:
    out = io.StringIO()
    transcript = Transcript(out, Failing(OSError(28, "full")), as_json=False)
    headless.replay_events(story(), transcript)
    assert out.getvalue() == "Once upon a time\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_gets_no_control_code_from_a_model(*, as_json: bool) -> None:
    captured = CapturedRun(Terminal(), as_json=as_json)
    headless.replay_events([run(HOSTILE), round_("dynatree", 0, HOSTILE)], captured.transcript)
    shown = captured.out.getvalue() + captured.err.getvalue()
    assert not set(shown) & set("\x1b\x07\x9b\u202e")


def test_a_pipe_gets_the_text_unchanged() -> None:
    captured = CapturedRun()
    headless.replay_events([run(), round_("dynatree", 0, HOSTILE)], captured.transcript)
    assert captured.out.getvalue() == HOSTILE + "\n"


def test_progress_shows_no_control_code_wherever_it_goes() -> None:
    captured = CapturedRun()
    strange = msgspec.structs.replace(run(), target=HOSTILE + "\n")
    headless.replay_events([strange, End(method="ar", reason="error", error=HOSTILE)], captured.transcript)
    assert not set(captured.err.getvalue()) & set("\x1b\x07\x9b\u202e")


def replayed(*events: Event, as_json: bool = False) -> CapturedRun:
    captured = CapturedRun(as_json=as_json)
    assert headless.replay_events(events, captured.transcript) == 0
    return captured


def test_a_sampled_run_says_how_and_json_carries_it() -> None:
    events = story("one")
    begins = structs.replace(cast("Run", events[0]), temperature=0.6, top_k=40, top_p=0.9, seed=7)
    assert "sampled: temperature 0.6 top-k 40 top-p 0.9 seed 7\n" in replayed(begins, *events[1:]).err.getvalue()
    assert "sampled" not in replayed(*events).err.getvalue()
    (told,) = replayed(begins, *events[1:], as_json=True).objects()
    assert [told[name] for name in ("seed", "temperature", "top_k", "top_p")] == [7, 0.6, 40, 0.9]


def test_the_transcript_names_the_preset_of_each_method_that_has_one() -> None:
    first, *rest = story("one")
    for name, rules in PRESETS.items():
        methods = {"dynatree": asdict(rules), "ar": {}}
        told = replayed(structs.replace(cast("Run", first), methods=methods), *rest).err.getvalue()
        assert f"dynatree: preset {name}\n" in told
        assert told.count(": preset ") == 1


def test_hf_is_said_to_be_left_out_of_the_comparison_where_it_draws_alone() -> None:
    events = story("one", methods=("hf", "ar"))
    left_out = "hf: sampled with other random numbers than ar, so the texts are not compared\n"
    begins = structs.replace(cast("Run", events[0]), temperature=0.6)
    assert left_out in replayed(begins, *events[1:]).err.getvalue()
    assert left_out not in replayed(*events).err.getvalue()


class Choosy(FakeEngine):
    """An engine that refuses the prompt "long", as too long."""

    def decode(self, pair: FakeReady, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        if prompt == "long":
            raise PromptError("the prompt has 9 tokens; shorten the prompt")
        yield from super().decode(pair, prompt, config, steering)


def test_a_prompt_that_is_too_long_costs_no_other_and_is_told_by_the_exit_code() -> None:
    captured, engine = CapturedRun(), Choosy()
    assert captured.run(engine, Session(("long", "Tell", "long", "More"), config=TWO_METHODS)) == 2
    assert engine.prompts == ["Tell", "More"]
    assert captured.out.getvalue() == "Once upon a time\n" * 2
    said = captured.err.getvalue()
    assert "prompt 3 of 4 is skipped: the prompt has 9 tokens; shorten the prompt\n" in said
    assert said.endswith("2 of 4 prompts skipped\n")


def test_where_no_prompt_fits_the_run_ends_with_the_reason() -> None:
    with pytest.raises(PromptError, match="9 tokens"):
        CapturedRun().run(Choosy(), Session(("long", "long"), config=TWO_METHODS))


def test_what_was_read_from_files_is_told_first() -> None:
    captured = CapturedRun()
    captured.run(FakeEngine(), Session(("Tell",), config=TWO_METHODS, notes=("p.json: 1 prompt from `text`",)))
    assert captured.err.getvalue().startswith("p.json: 1 prompt from `text`\n")


def test_the_category_of_a_prompt_is_in_its_object() -> None:
    captured, engine = CapturedRun(as_json=True), FakeEngine()
    session = Session((Prompt("Tell", category="math"), "More"), config=TWO_METHODS)
    decode = engine.loader(session)(print, print).decode

    def with_category(prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        for event in decode(prompt, config, steering):
            category = as_prompt(prompt).category or UNSET
            yield structs.replace(event, category=category) if isinstance(event, Run) else event

    headless.run(session, captured.transcript, lambda _report, _progress: Loaded(with_category))
    assert [each.get("category") for each in captured.objects()] == ["math", None]


def test_prompts_that_do_not_fit_are_told_before_the_first_is_decoded() -> None:
    captured = CapturedRun()
    session = Session(("Once", "word " * 9000, "upon"), config=RunConfig(("ar",), 4))
    assert headless.run(session, captured.transcript, load_engine(session)) == 2
    said = captured.err.getvalue()
    assert 0 < said.index("prompt 2 of 3 will be skipped: the prompt has") < said.index("prompt 1 of 3\n")
    assert captured.out.getvalue().count("\n") >= 2


def test_lost_drafts_are_counted_and_told_with_a_remedy() -> None:
    captured = CapturedRun(as_json=True)
    transcript = Transcript(captured.out, captured.err, as_json=True)
    for event in story("one"):
        lost = isinstance(event, Round) and event.method == "dynatree"
        transcript.feed(structs.replace(event, limited_by=LOST) if lost else event)
    (told,) = captured.objects()
    methods = cast("dict[str, dict[str, object]]", told["methods"])
    assert methods["dynatree"]["lost_drafts"] == methods["dynatree"]["rounds"]
    assert "lost_drafts" not in methods["ar"]
    assert (
        "rounds of dynatree, so drafts lack tokens; choose another --draft-dtype or --draft" in captured.err.getvalue()
    )
