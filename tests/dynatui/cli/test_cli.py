"""Tests of the command line: options reach the run; every error is one line with the right exit code."""

import errno
import io
import json
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import decoder
from decoder.errors import DeviceError
from decoder.events import Event
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from dynatui import main as cli
from dynatui.prompts import load
from dynatui.record.recording import Recorder
from dynatui.session import Models, Session, View
from dynatui.terminal.streams import ReaderLeftError
from tests.dynatui.cli.fake_screen import FakeScreen
from tests.dynatui.fake_engine import FakeEngine, story


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def asked(screen: FakeScreen, *arguments: str) -> Session:
    assert cli.main(arguments) == 0
    return screen.sessions[-1]


def test_without_arguments_our_prompts_race_on_the_embedded_pair(screen: FakeScreen) -> None:
    assert asked(screen) == Session(
        prompts=load.embedded(), config=RunConfig(temperature=0.6, seed=7), view=View(tour=True)
    )


def test_models_device_and_dtype_are_handed_on(screen: FakeScreen) -> None:
    session = asked(screen, "--target", "t", "--draft", "d", "--device", "cuda:1", "--dtype", "bfloat16")
    assert session.models == Models("t", "d", "cuda:1", "bfloat16")


def test_the_draft_may_have_a_dtype_of_its_own(screen: FakeScreen) -> None:
    assert asked(screen).models.draft_dtype == "auto"
    assert asked(screen, "--draft-dtype", "bfloat16").models == Models(draft_dtype="bfloat16")


def test_methods_agree_bit_for_bit_when_asked(screen: FakeScreen) -> None:
    assert not asked(screen).models.exact
    assert asked(screen, "--exact").models.exact


def test_passes_are_compiled_when_asked(screen: FakeScreen) -> None:
    assert not asked(screen).models.compiled
    assert asked(screen, "--compile").models.compiled


def test_prompts_come_from_files_and_from_the_command_line(screen: FakeScreen, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from a\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"prompt":"b1"}\n{"prompt":"b2"}\n', encoding="utf-8")
    files = ("--prompt-file", str(tmp_path / "a.txt"), "--prompt-file", str(tmp_path / "b.jsonl"))
    session = asked(screen, *files, "--prompt", "mine", "--prompt", "yours")
    assert session.prompts == ("from a", "b1", "b2", "mine", "yours")
    assert session.files == ((files[1], ("from a",)), (files[3], ("b1", "b2")))


def test_a_file_that_is_named_twice_is_decoded_twice(screen: FakeScreen, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from a\n", encoding="utf-8")
    assert asked(screen, *("--prompt-file", str(tmp_path / "a.txt")) * 2).prompts == ("from a", "from a")


def test_every_parameter_of_dynatree_has_an_option(screen: FakeScreen) -> None:
    session = asked(
        screen,
        *("--tau-h", "0.8", "--tau-l", "0.3", "--d0", "4.5", "--d-max", "9", "--branching", "2,3,4"),
        *("--rho-stop", "0.2", "--rho-deep", "0.6", "--selection", "best", "--no-history", "--preset", "paper"),
    )
    assert session.config.of(DynaTree) == DynaTree(
        d0=4.5,
        d_max=9,
        branching=(2, 3, 4),
        tau_h=0.8,
        tau_l=0.3,
        rho_stop=0.2,
        rho_deep=0.6,
        selection="best",
        history=False,
    )


def test_the_other_methods_have_options_too(screen: FakeScreen) -> None:
    config = asked(screen, "--k", "7", "--fixed", "3,4").config
    assert (config.of(Linear), config.of(Fixed)) == (Linear(k=7), Fixed(depth=3, branching=4))


def test_without_options_a_run_has_the_knobs_for_sampled_tokens_and_the_usual_methods(screen: FakeScreen) -> None:
    config = asked(screen).config
    assert config == RunConfig(temperature=0.6, seed=7)
    assert config.of(DynaTree) == PRESETS["sampled"]
    assert config.methods == ("dynatree", "auto", "ar", "linear", "fixed")


def test_the_default_preset_depends_on_the_temperature_but_a_named_preset_does_not(screen: FakeScreen) -> None:
    for temperature, preset in (("0", "tuned"), ("0.8", "sampled")):
        assert asked(screen, "--temperature", temperature).config.of(DynaTree) == PRESETS[preset]
        for name, rules in PRESETS.items():
            assert asked(screen, "--temperature", temperature, "--preset", name).config.of(DynaTree) == rules


def test_options_of_a_tree_are_dynatree_s_alone(screen: FakeScreen) -> None:
    config = asked(
        screen, "--preset", "tuned", "--tau", "0.02", "--n-max", "64", "--d0", "3", "--fixed", "3,4,0.1,99"
    ).config
    assert (config.of(DynaTree).tau, config.of(DynaTree).n_max, config.of(DynaTree).d0) == (0.02, 64, 3)
    assert (config.of(Fixed), config.of(Auto)) == (Fixed(3, 4, 0.1, 99), Auto())


def test_auto_has_bounds_of_its_own(screen: FakeScreen) -> None:
    config = asked(screen, "--auto", "d0=6, tau_h=.8, b_max=4, history=off").config
    assert config.of(Auto) == Auto(d0=6, tau_h=0.8, branching=(1, 2, 4), history=False)
    assert config.of(DynaTree) == RunConfig(temperature=0.6).of(DynaTree)


def test_who_asks_for_an_automatic_number_of_nodes_is_told_of_the_method(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--n-max", "auto", "--headless"]) == 2
    assert capsys.readouterr().err == "dynatui: --n-max is 'auto'; auto is a method: --methods auto\n"


def test_methods_length_and_seed_are_handed_on(screen: FakeScreen) -> None:
    config = asked(screen, "--methods", "linear, ar,hf", "--max-new-tokens", "9", "--seed", "3").config
    assert config == RunConfig(methods=("linear", "ar", "hf"), max_new_tokens=9, seed=3, temperature=0.6)


def test_the_screen_is_as_it_was_asked_for(screen: FakeScreen) -> None:
    view = asked(screen, "--speed", "0.5", "--fps", "5", "--theme", "nord", "--symbols", "ascii", "--no-color").view
    assert view == View(speed=0.5, fps=5, theme="nord", symbols="ascii", color=False, tour=True)


def test_the_mouse_can_be_left_to_the_terminal_and_the_log_go_elsewhere(screen: FakeScreen, tmp_path: Path) -> None:
    view = asked(screen, "--no-mouse", "--log-file", str(tmp_path / "log")).view
    assert (view.mouse, view.log) == (False, tmp_path / "log")


@pytest.mark.parametrize(("arguments", "expected"), [(["--chat"], True), (["--no-chat"], False), ([], None)])
def test_prompts_are_wrapped_in_the_chat_template_when_asked(
    screen: FakeScreen, arguments: list[str], *, expected: bool | None
) -> None:
    assert asked(screen, *arguments).config.chat is expected


def test_no_color_in_the_environment_counts_when_it_is_not_empty(
    screen: FakeScreen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not asked(screen).view.color
    monkeypatch.setenv("NO_COLOR", "")
    assert asked(screen).view.color


def test_the_screen_gets_the_place_of_the_recording(screen: FakeScreen, tmp_path: Path) -> None:
    assert asked(screen, "--record", str(tmp_path / "r.jsonl")).record == tmp_path / "r.jsonl"


def test_replay_hands_the_events_to_the_screen(screen: FakeScreen, recorded: Path) -> None:
    assert cli.main(["replay", str(recorded), "--speed", "4"]) == 0
    assert screen.replays == [([story()], View(speed=4))]


def test_two_recordings_are_shown_side_by_side(screen: FakeScreen, recorded: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    shutil.copy(recorded, other)
    assert cli.main(["replay", str(recorded), str(other), "--no-mouse"]) == 0
    assert screen.compared == [((recorded, [story()]), (other, [story()]), View(mouse=False))]


def test_two_recordings_without_a_screen_are_printed_in_turn(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.jsonl"
    with Recorder(other) as recorder:
        for event in story("Other"):
            recorder.write(event)
    assert cli.main(["replay", str(recorded), str(other), "--json"]) == 0
    assert [json.loads(line)["prompt"] for line in capsys.readouterr().out.splitlines()] == ["Tell", "Other"]


def test_follow_hands_the_file_to_the_screen(screen: FakeScreen, recorded: Path) -> None:
    assert cli.main(["--follow", str(recorded), "--fps", "7"]) == 0
    assert screen.followed == [(recorded, View(fps=7))]
    assert not screen.sessions


def test_follow_without_a_screen_prints_what_is_recorded_until_it_is_interrupted(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def events(_path: Path, _stop: threading.Event) -> Iterator[Event]:
        yield from story()[:6]
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(sys.modules, "dynatui.sources.follow", SimpleNamespace(events=events))
    assert cli.main(["--follow", str(recorded)]) == 130
    printed = capsys.readouterr()
    assert printed.out == "Once upon \n"
    assert printed.err.endswith("interrupted\n")


@pytest.mark.parametrize("option", ["--headless", "--json"])
@pytest.mark.usefixtures("engine")
def test_these_options_need_no_screen(screen: FakeScreen, option: str) -> None:
    assert cli.main([option, "--prompt", "x"]) == 0
    assert not screen.sessions


@pytest.mark.usefixtures("engine")
def test_where_there_is_no_terminal_the_text_goes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--prompt", "x"]) == 0
    assert capsys.readouterr().out == "Once upon a time\n"


def test_replay_without_a_terminal_prints_text_and_figures(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["replay", str(recorded)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "Once upon a time\n"
    assert "L-bar" in printed.err


def test_interruption_is_exit_code_130(engine: FakeEngine) -> None:
    engine.load_error = KeyboardInterrupt()
    assert cli.main(["--prompt", "x"]) == 130


def test_a_failing_device_is_exit_code_3_and_one_line(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    engine.load_error = DeviceError("no device cuda:7\nhere; give --device cpu")
    assert cli.main(["--prompt", "x"]) == 3
    assert capsys.readouterr().err.splitlines()[-1] == "dynatui: no device cuda:7␊here; give --device cpu"


def test_a_reader_that_left_is_no_error(monkeypatch: pytest.MonkeyPatch, engine: FakeEngine) -> None:
    engine.load_error = ReaderLeftError()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert cli.main(["--prompt", "x"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--nope", "No such option: --nope"),
        ("dance", "No such command 'dance'"),
        ("--prompt", "requires an argument"),
        ("--d0 deep", "Invalid value for '--d0'"),
        ("--d0 12", "D0 is 12; give 1 to 7"),
        ("--tau-h nan", "tau_h is nan; give 0 < tau_l < tau_h <= 1"),
        ("--tau-h 0.02", "tau_l is 0.2 and tau_h is 0.02"),
        ("--rho-stop 0.9", "rho_stop is 0.9"),
        ("--branching 1,2", "give 3 whole numbers, for example 1,2,3"),
        ("--branching 1,2,x", "give 3 whole numbers, for example 1,2,3"),
        ("--branching 3,2,1", "give three ascending numbers, each 1 or more"),
        ("--fixed 5", "give depth and branching, and optionally the least path probability and the"),
        ("--fixed 5,2,x", "for example 5,2 or 5,2,0.05,256"),
        ("--fixed 5,2,7", "the fixed tree's tau is 7; give 0 to 1"),
        ("--k 0", "K is 0; give 1 or more"),
        ("--n-max 0", "n_max is 0; give 1 or more"),
        ("--n-max some", "--n-max is 'some'; give a whole number from 1 up"),
        ("--n-max -3", "n_max is -3; give"),
        ("--temperature -1", "temperature is -1; give 0 (greedy) to 2"),
        ("--temperature nan", "temperature is nan; give 0 (greedy) to 2"),
        ("--temperature inf", "temperature is inf; give 0 (greedy) to 2"),
        ("--temperature 3", "temperature is 3; give 0 (greedy) to 2"),
        ("--temperature warm", "Invalid value for '--temperature'"),
        ("--top-p 0", "top_p is 0; give more than 0 and at most 1 (all tokens)"),
        ("--top-p 1.5", "top_p is 1.5; give more than 0 and at most 1 (all tokens)"),
        ("--top-p nan", "top_p is nan; give more than 0"),
        ("--top-k -1", "top_k is -1; give 1 or more, or 0 for all tokens"),
        ("--methods dance,ar", "no method dance; choose from dynatree"),
        ("--methods ar,ar", "methods contains ar more than once"),
        ("--max-new-tokens 0", "max_new_tokens is 0"),
        ("--seed -1", "Invalid value for '--seed'"),
        ("--preset mine", "give one of tuned, paper"),
        ("--selection all", "give bfs or best"),
        ("--symbols runes", "Invalid value for '--symbols'"),
        ("--speed 0", "--speed is '0'; give 0.001 to 1"),
        ("--speed nan", "--speed is 'nan'; give 0.001 to 1"),
        ("--speed 2/1", "--speed is '2/1'; give 0.001 to 1"),
        ("--speed 1/0", "--speed is '1/0'; give a number, or a fraction such as 1/2"),
        ("--speed fast", "--speed is 'fast'; give a number, or a fraction such as 1/2"),
        ("--fps 0", "Invalid value for '--fps'"),
        ("--prompt-file nowhere.txt", "cannot read nowhere.txt"),
        ("--record .", "cannot write ."),
        ("replay", "Missing argument 'FILE'"),
        ("replay x --k 3", "No such option: --k; see dynatui replay --help"),
        ("replay nowhere.jsonl", "cannot read nowhere.jsonl"),
        ("--json replay nowhere.jsonl", "--json is given before replay"),
        ("--json config", "--json is given before config"),
        ("replay a b c", "unexpected extra argument"),
        ("--follow nowhere.jsonl", "nowhere.jsonl: No such file or directory"),
        ("--follow x --target y", "--target has no effect beside --follow"),
        ("--follow x --prompt y", "--prompt has no effect beside --follow"),
        ("--follow x --record y", "--record has no effect beside --follow"),
        ("--follow x --no-history", "--history has no effect beside --follow"),
        ("--prompt-file \x1b[2J", "cannot read ␛[2J"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_whatever_is_wrong_is_one_line_and_exit_code_2(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments.split(" ")) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.startswith("dynatui: ")
    assert printed.err.count("\n") == 1


def test_a_recording_that_another_process_writes_is_refused_in_one_line(
    engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path):
        assert cli.main(["--headless", "--prompt", "x", "--record", str(path)]) == 2
    line = f"dynatui: another process is writing {path}; give --record another file\n"
    assert capsys.readouterr().err == line
    assert engine.pairs == []


def test_the_version_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"dynatui {decoder.__version__}\n"


def test_help_names_every_option_in_its_panel(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "…" not in text
    assert all(panel in text for panel in ("Models", "Prompts", "Run", "DynaTree", "Without a screen", "Screen"))
    assert all(option in text for option in ("--prompt-file", "--rho-deep", "--no-history", "--k", "--fixed", "replay"))


def test_help_on_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("typer.echo", fail)
    assert cli.main(["--version"]) == 2
    assert capsys.readouterr().err == (
        "dynatui: cannot write: No space left on device; send the output to a place with free space\n"
    )


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dynatui --pres", ["--preset"]),
        ("dynatui re", ["replay", "report"]),
        ("dynatui --device c", ["cpu", "cuda"]),
        ("dynatui --methods ar,l", ["ar,linear"]),
    ],
)
def test_the_shell_completes(
    words: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_DYNATUI_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
    with pytest.raises(SystemExit) as ended:
        cli.main([])
    assert ended.value.code == 0
    assert capsys.readouterr().out.split() == offered


@pytest.mark.parametrize(("given", "speed"), [("1/2", 0.5), ("1/4x", 0.25), ("0.5", 0.5), ("1", 1.0), (".5x", 0.5)])
def test_a_speed_may_be_written_as_the_screen_writes_it(screen: FakeScreen, given: str, speed: float) -> None:
    assert asked(screen, "--speed", given).view.speed == speed
