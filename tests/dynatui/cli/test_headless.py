"""Tests of runs without a screen: printed output and recordings, however a run ends. The engine is a fake."""

import io
import json
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET, structs

from decoder.errors import DeviceError, PromptError
from decoder.events import LOST, End, Event, Figures, Round, Run, Summary
from decoder.methods.dynatree import PRESETS
from decoder.prompt import AnyPrompt, Prompt, as_prompt
from decoder.run.config import RunConfig
from decoder.session.steering import Steering
from dynatui.cli import headless
from dynatui.record.reader import read_events
from dynatui.record.transcript import Transcript
from dynatui.result import aligned, table
from dynatui.session import Models, Session, View
from dynatui.sources.engine import Loaded, load_engine
from dynatui.terminal.shutdown import INTERRUPTING
from dynatui.terminal.streams import OutputError, ReaderLeftError
from tests.dynatui.fake_engine import FakeEngine, FakeReady, round_, run, story

TWO_METHODS = RunConfig(methods=("dynatree", "ar"))
HOSTILE = "\x1b]52;c;UFdORUQ=\x07 \x9b2J [bold]\u202e"
STEERING = set("\x1b\x07\x9b\u202e")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Failing(io.StringIO):
    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, _text: str) -> int:
        raise self.error


class Captured:
    def __init__(self, out: io.StringIO | None = None, *, as_json: bool = False) -> None:
        self.out = out or io.StringIO()
        self.err = io.StringIO()
        self.transcript = Transcript(self.out, self.err, as_json=as_json)
        self.code = 0

    def run(self, engine: FakeEngine, *prompts: AnyPrompt, **further: Any) -> "Captured":
        given: dict[str, Any] = {"config": TWO_METHODS, **further}
        session = Session(prompts or ("one",), **given)
        self.code = headless.run(session, self.transcript, engine.loader(session))
        return self

    @property
    def printed(self) -> str:
        return self.out.getvalue()

    @property
    def said(self) -> str:
        return self.err.getvalue()

    def objects(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.printed.splitlines()]


def ran(*prompts: AnyPrompt, as_json: bool = False, **further: Any) -> Captured:
    """What is printed of a run of two methods by the fake engine."""
    return Captured(as_json=as_json).run(FakeEngine(), *prompts, **further)


def replayed(*events: Event, out: io.StringIO | None = None, as_json: bool = False) -> Captured:
    captured = Captured(out, as_json=as_json)
    assert headless.replay_events(events, captured.transcript) == 0
    return captured


def told(prompt: str = "one", **changed: Any) -> list[Event]:
    """A run whose first event has changed fields."""
    first, *rest = story(prompt)
    return [structs.replace(first, **changed), *rest]


def kept(prompt: str, number: int = 1, count: int = 1) -> list[Event]:
    """Events of a recorded run of prompt `number` of `count`."""
    return told(prompt, prompt_number=number, prompt_count=count)


def at(number: int, act: Callable[[], object]) -> FakeEngine:
    def before(count: int, _steering: Steering) -> None:
        if count == number:
            act()

    return FakeEngine(before_event=before)


def test_the_text_of_the_first_method_is_the_output_and_a_table_of_all_methods_closes_it() -> None:
    captured = ran("Tell", notes=("p.json: 1 prompt from `text`",))
    assert (captured.code, captured.printed) == (0, "Once upon a time\n")
    assert captured.said.startswith("p.json: 1 prompt from `text`\n")
    *_, head, first, second = captured.said.splitlines()
    assert head.split() == ["method", "x", "plain", "(95", "%)", "tokens/s", "same", "as", "ar", "L-bar", "accepted"]
    assert (first.split()[0], first.split()[-2:]) == ("dynatree", ["2.00", "50%"])
    assert second.startswith("ar ")


def test_the_table_is_aligned_and_says_what_is_unknown() -> None:
    lines = aligned(table({"ar": Figures(committed=3), "dynatree": Figures(identical_to_ar=False, near_tie=True)}))
    assert len({len(line) for line in lines}) == 1
    assert lines[1].split() == ["ar", "1", "-", "-", "-", "-"]
    assert lines[2].split() == ["dynatree", "-", "-", "near", "tie", "-", "-"]


def test_what_libraries_print_is_beside_other_messages(capsys: pytest.CaptureFixture[str]) -> None:
    captured, engine = Captured(), FakeEngine()
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
    models = Models("t", "d", "cpu", "float32", "bfloat16", exact=True, compiled=True)
    Captured().run(engine, models=models, view=View(speed=0.5))
    assert engine.pairs == [("t", "d", "cpu", "float32", "bfloat16", True, True)]
    assert (engine.runs, engine.configs, engine.speeds) == ([TWO_METHODS], [TWO_METHODS], [0.5])


def test_json_has_one_object_a_prompt_with_the_keys_of_the_contract() -> None:
    first, second = ran("one", "two", as_json=True).objects()
    about = ["prompt", "text", "target", "draft", "device", "dtype", "draft_dtype", "exact", "path", "path_reason"]
    assert list(first) == [*about, "seed", "temperature", "top_k", "top_p", "methods"]
    assert (first["prompt"], second["prompt"], first["text"]) == ("one", "two", "Once upon a time")
    assert list(first["methods"]) == ["dynatree", "ar"]
    assert list(first["methods"]["ar"]) == [*Figures.__struct_fields__, "tokens"]
    assert first["methods"]["ar"]["tokens"] == [8, 10, 8, 11, 8, 12, 8, 13]


def test_the_recording_holds_every_event_and_its_replay_prints_what_the_run_printed(tmp_path: Path) -> None:
    live = ran("one", "two", as_json=True, record=tmp_path / "run.jsonl")
    assert read_events(tmp_path / "run.jsonl") == kept("one", 1, 2) + kept("two", 2, 2)
    assert replayed(*story("one"), *story("two"), as_json=True).printed == live.printed


@pytest.mark.parametrize("as_json", [False, True])
def test_a_replay_shows_runs_and_methods_that_broke_off(*, as_json: bool) -> None:
    captured = replayed(*story("one")[:6], *story("two")[:8], as_json=as_json)
    texts = [str(each["text"]) for each in captured.objects()] if as_json else captured.printed.splitlines()
    assert texts == ["Once upon ", "Once upon a "]
    assert "ar broke off: boom" in replayed(run(), End(method="ar", reason="error", error="boom")).said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_run_after_the_round_with_all_that_is_there(number: signal.Signals, tmp_path: Path) -> None:
    before = [signal.getsignal(each) for each in INTERRUPTING]
    engine, path = at(5, lambda: signal.raise_signal(number)), tmp_path / "run.jsonl"
    captured = Captured(as_json=True).run(engine, "one", "two", record=path)
    assert (captured.code, [each["text"] for each in captured.objects()]) == (130, ["Once "])
    assert engine.prompts == ["one"]
    assert isinstance(read_events(path)[-1], Summary)
    assert captured.said.endswith("interrupted\n")
    assert [signal.getsignal(each) for each in INTERRUPTING] == before


def test_a_second_signal_interrupts_at_once_and_the_text_is_out(tmp_path: Path) -> None:
    def twice() -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    captured = Captured().run(at(5, twice), record=tmp_path / "run.jsonl")
    assert (captured.code, captured.printed) == (130, "Once \n")
    assert read_events(tmp_path / "run.jsonl") == kept("one")[:5]


def test_a_signal_while_models_load_interrupts() -> None:
    engine, session = FakeEngine(), Session(("one",))

    def slow(report: Callable[[str], None], progress: Callable[[str], None]) -> Loaded:
        signal.raise_signal(signal.SIGINT)
        return engine.loader(session)(report, progress)

    assert headless.run(session, Captured().transcript, slow) == 130
    assert not engine.prompts


def test_a_hangup_that_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert Captured().run(at(5, lambda: signal.raise_signal(signal.SIGHUP))).code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_midway_loses_nothing_that_was_there(tmp_path: Path) -> None:
    def fail() -> None:
        raise DeviceError("memory is full; give a smaller model")

    captured = Captured(as_json=True)
    with pytest.raises(DeviceError):
        captured.run(at(6, fail), record=tmp_path / "run.jsonl")
    assert [each["text"] for each in captured.objects()] == ["Once upon "]
    assert read_events(tmp_path / "run.jsonl") == kept("one")[:6]


def test_a_method_that_breaks_off_is_named_and_the_run_counts_as_failed() -> None:
    class Breaking(FakeEngine):
        def decode(self, pair: FakeReady, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
            *begun, summary = super().decode(pair, prompt, config, steering)
            yield from begun[:5]
            yield End(method="ar", reason="error", error="out of memory")
            yield summary

    captured = Captured().run(Breaking())
    assert captured.code == 3
    assert "ar broke off: out of memory" in captured.said


def test_a_reader_that_leaves_ends_the_run_quietly_with_a_whole_recording(tmp_path: Path) -> None:
    with pytest.raises(ReaderLeftError):
        Captured(Failing(BrokenPipeError())).run(FakeEngine(), record=tmp_path / "run.jsonl")
    assert read_events(tmp_path / "run.jsonl") == kept("one")[:4]


def test_an_output_that_takes_no_more_is_one_clear_error_and_progress_that_nobody_can_read_none() -> None:
    full = Failing(OSError(28, "No space left on device"))
    with pytest.raises(OutputError, match="cannot write to standard output: No space left"):
        Captured(full).run(FakeEngine())
    out = io.StringIO()
    headless.replay_events(story(), Transcript(out, full, as_json=False))
    assert out.getvalue() == "Once upon a time\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_a_terminal_gets_no_control_code_from_a_model_and_a_pipe_the_text_unchanged(*, as_json: bool) -> None:
    captured = replayed(run(HOSTILE), round_("dynatree", 0, HOSTILE), out=Terminal(), as_json=as_json)
    assert not set(captured.printed + captured.said) & STEERING
    assert replayed(run(), round_("dynatree", 0, HOSTILE)).printed == HOSTILE + "\n"
    strange = structs.replace(run(), target=HOSTILE + "\n")
    assert not set(replayed(strange, End(method="ar", reason="error", error=HOSTILE)).said) & STEERING


def test_how_a_run_was_decoded_is_told_and_json_carries_it() -> None:
    sampled: dict[str, Any] = {"temperature": 0.6, "top_k": 40, "top_p": 0.9, "seed": 7}
    events = told(path="host", path_reason="it does not run", **sampled)
    for as_json in (False, True):
        said = replayed(*events, as_json=as_json).said
        assert "\nrounds: host, it does not run\n" in said
        assert "sampled: temperature 0.6 top-k 40 top-p 0.9 seed 7\n" in said
    (found,) = replayed(*events, as_json=True).objects()
    assert {name: found[name] for name in sampled} == sampled
    assert (found["path"], found["path_reason"]) == ("host", "it does not run")
    assert "sampled" not in replayed(*story()).said


def test_presets_and_what_is_left_out_of_the_comparison_are_told() -> None:
    for name, rules in PRESETS.items():
        said = replayed(*told(methods={"dynatree": asdict(rules), "ar": {}})).said
        assert f"dynatree: preset {name}\n" in said
        assert said.count(": preset ") == 1
    first, *rest = story("one", methods=("hf", "ar"))
    left_out = "hf: sampled with other random numbers than ar, so the texts are not compared\n"
    assert left_out in replayed(structs.replace(first, temperature=0.6), *rest).said
    assert left_out not in replayed(first, *rest).said


class Choosy(FakeEngine):
    """An engine that refuses the prompt "long", as too long."""

    def decode(self, pair: FakeReady, prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        if prompt == "long":
            raise PromptError("the prompt has 9 tokens; shorten the prompt")
        yield from super().decode(pair, prompt, config, steering)


def test_a_prompt_that_is_too_long_costs_no_other_and_is_told_by_the_exit_code() -> None:
    engine = Choosy()
    captured = Captured().run(engine, "long", "Tell", "long", "More")
    assert (captured.code, captured.printed) == (2, "Once upon a time\n" * 2)
    assert engine.prompts == ["Tell", "More"]
    assert "prompt 3 of 4 is skipped: the prompt has 9 tokens; shorten the prompt\n" in captured.said
    assert captured.said.endswith("2 of 4 prompts skipped\n")
    with pytest.raises(PromptError, match="9 tokens"):
        Captured().run(Choosy(), "long", "long")


def test_the_category_of_a_prompt_is_in_its_object() -> None:
    captured, engine = Captured(as_json=True), FakeEngine()
    session = Session((Prompt("Tell", category="math"), "More"), config=TWO_METHODS)
    decode = engine.loader(session)(print, print).decode

    def with_category(prompt: AnyPrompt, config: RunConfig, steering: Steering) -> Iterator[Event]:
        for event in decode(prompt, config, steering):
            category = as_prompt(prompt).category or UNSET
            yield structs.replace(event, category=category) if isinstance(event, Run) else event

    headless.run(session, captured.transcript, lambda _report, _progress: Loaded(with_category))
    assert [each.get("category") for each in captured.objects()] == ["math", None]


def test_prompts_that_do_not_fit_are_told_before_the_first_is_decoded() -> None:
    captured = Captured()
    session = Session(("Once", "word " * 9000, "upon"), config=RunConfig(("ar",), 4))
    assert headless.run(session, captured.transcript, load_engine(session)) == 2
    assert 0 < captured.said.index("prompt 2 of 3 will be skipped: the prompt has") < captured.said.index("1 of 3\n")
    assert captured.printed.count("\n") >= 2


def test_lost_drafts_are_counted_and_told_with_a_remedy() -> None:
    def lost(event: Event) -> bool:
        return isinstance(event, Round) and event.method == "dynatree"

    captured = replayed(
        *(structs.replace(each, limited_by=LOST) if lost(each) else each for each in story()), as_json=True
    )
    (methods,) = (each["methods"] for each in captured.objects())
    assert methods["dynatree"]["lost_drafts"] == methods["dynatree"]["rounds"]
    assert "lost_drafts" not in methods["ar"]
    assert "rounds of dynatree, so drafts lack tokens; choose another --draft-dtype or --draft" in captured.said
