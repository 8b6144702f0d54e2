"""Tests of the command line: options reach the run, recordings are shown, and exit codes tell how it ended."""

import errno
import io
import json
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs

import decoder
from decoder.errors import DeviceError
from decoder.events import Event, Round, Run
from decoder.knobs import TunableParameters
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from dynatui import main as cli
from dynatui.cli import settings
from dynatui.lab.commands import bench
from dynatui.prompts import embedded
from dynatui.record.comparison import CHANGED
from dynatui.session import DEMO, Models, Session, View
from dynatui.sources.playback import TraceSource
from dynatui.terminal.streams import ReaderLeftError
from tests.dynatui.cli.fake_screen import Asked, FakeScreen, Printed, Refused
from tests.dynatui.fake_engine import FakeEngine, story
from tests.dynatui.pty_terminal import written

USUAL = RunConfig(temperature=0.6, seed=7)


def test_replay_and_follow_hand_recordings_to_the_screen(screen: FakeScreen, recorded: Path, tmp_path: Path) -> None:
    assert cli.main(["replay", str(recorded), "--speed", "4"]) == 0
    assert screen.replays == [([story()], View(speed=4))]
    other = tmp_path / "other.jsonl"
    shutil.copy(recorded, other)
    assert cli.main(["replay", str(recorded), str(other), "--no-mouse"]) == 0
    assert screen.compared == [((recorded, [story()]), (other, [story()]), View(mouse=False))]
    assert cli.main(["--follow", str(recorded), "--fps", "7"]) == 0
    assert screen.followed == [(recorded, View(fps=7))]
    assert not screen.sessions


@pytest.mark.parametrize(("given", "speed"), [("0.001", 0.001), ("1/100", 0.01), ("100", 100.0), ("1000", 1000.0)])
def test_every_speed_of_the_option_is_played(screen: FakeScreen, recorded: Path, given: str, speed: float) -> None:
    assert cli.main(["replay", str(recorded), "--speed", given]) == 0
    runs, view = screen.replays[-1]
    assert TraceSource(runs, speed=view.speed).speed == speed


def test_two_recordings_without_a_screen_are_compared(
    recorded: Path, tmp_path: Path, printed: Printed, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(printed("replay", str(recorded), str(recorded), "--json"))
    assert (told["texts"], told["methods"]["dynatree"]["different_texts"]) == (1, 0)
    assert printed("replay", str(recorded), str(recorded), "--headless").startswith(
        f"A {recorded}, B {recorded}: 1 text"
    )
    strange = [structs.replace(event, committed=[8, 99]) if isinstance(event, Round) else event for event in story()]
    assert cli.main(["replay", str(recorded), written(tmp_path / "strange.jsonl", strange), "--json"]) == CHANGED
    assert json.loads(capsys.readouterr().out)["methods"]["dynatree"]["different_texts"] == 1
    other = [structs.replace(event, prompt_tokens=[9]) if isinstance(event, Run) else event for event in story("Other")]
    assert "have no prompt in common" in refused(
        "replay", str(recorded), written(tmp_path / "other.jsonl", other), "--json"
    )


def test_without_arguments_our_prompts_race_on_the_embedded_pair(asked: Asked) -> None:
    assert asked() == Session(prompts=embedded(), config=USUAL.with_rules("dynatree", DEMO), view=View(tour=True))
    assert USUAL.methods == ("dynatree", "auto", "ar", "linear", "fixed")


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("--target t --draft d --device cuda:1 --dtype bfloat16", "models", Models("t", "d", "cuda:1", "bfloat16")),
        ("--draft-dtype bfloat16", "models", Models(draft_dtype="bfloat16")),
        ("--draft lookup", "models", Models(draft="lookup")),
        ("--exact", "models", Models(exact=True)),
        ("--compile", "models", Models(compiled=True)),
        ("--methods linear,ar,hf", "config.methods", ("linear", "ar", "hf")),
        ("--max-new-tokens 9 --seed 3", "config", RunConfig(max_new_tokens=9, seed=3, temperature=0.6)),
        ("--chat", "config.chat", True),
        ("--no-chat", "config.chat", False),
        ("", "config.chat", None),
        ("", "metrics_port", None),
        ("--metrics-port 0", "metrics_port", 0),
        ("--metrics-port 65535", "metrics_port", 65535),
        ("--record r.jsonl", "record", Path("r.jsonl")),
        ("--speed 0.5 --fps 5", "view", View(speed=0.5, fps=5, tour=True)),
        ("--theme nord --symbols ascii", "view", View(theme="nord", symbols="ascii", tour=True)),
        ("--no-color --no-mouse", "view", View(color=False, mouse=False, tour=True)),
        ("--log-file here/log", "view.log", Path("here/log")),
        ("--speed 1/2", "view.speed", 0.5),
        ("--speed 1/4x", "view.speed", 0.25),
        ("--speed 1", "view.speed", 1.0),
        ("--speed .5x", "view.speed", 0.5),
        ("--theme nord", "view.tour", True),
        ("--no-tour", "view.tour", False),
        ("--prompt Once", "view.tour", False),
        ("--target t --draft d", "view.tour", False),
        ("--record run.jsonl", "view.tour", False),
    ],
)
def test_an_option_reaches_the_session(line: str, field: str, expected: object, asked: Asked) -> None:
    assert attrgetter(field)(asked(*line.split())) == expected


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        (
            "--tau-h 0.8 --tau-l 0.3 --d0 4.5 --d-max 9 --branching 2,3,4 --rho-stop 0.2 --rho-deep 0.6 "
            "--selection best --no-history --preset paper",
            DynaTree(
                d0=4.5, d_max=9, branching=(2, 3, 4), tau_h=0.8, tau_l=0.3, rho_stop=0.2, rho_deep=0.6,
                selection="best", history=False,
            ),
        ),
        ("", DEMO),
        ("--seed 3", PRESETS["sampled"]),
        (f"--tau-h {PRESETS['sampled'].tau_h}", PRESETS["sampled"]),
        ("--inflate 160M", PRESETS["sampled"]),
        ("--preset sampled", PRESETS["sampled"]),
        ("--temperature 0.6", PRESETS["sampled"]),
        ("--prompt Once", PRESETS["sampled"]),
        ("--temperature 0", PRESETS["tuned"]),
        ("--temperature 0.8", PRESETS["sampled"]),
        *((f"--temperature {t} --preset {name}", PRESETS[name]) for t in (0, 0.8) for name in PRESETS),
        ("--k 7", Linear(k=7)),
        ("--fixed 3,4", Fixed(depth=3, branching=4)),
        ("--tau 0.02 --n-max 64 --d0 3 --fixed 3,4,0.1,99", Fixed(3, 4, 0.1, 99)),
        ("--tau 0.02 --n-max 64 --d0 3", Auto()),
        ("--auto 'd0=6, tau_h=.8, b_max=4,history=off'", Auto(d0=6, tau_h=0.8, branching=(1, 2, 4), history=False)),
        ("--auto d0=6,tau_h=.8,b_max=4,history=off", RunConfig(temperature=0.6).of(DynaTree)),
        ("--auto lookup=off", Auto(lookup=False)),
    ],
)  # fmt: skip
def test_an_option_sets_the_parameters_of_its_method_alone(line: str, rules: TunableParameters, asked: Asked) -> None:
    assert asked(*shlex.split(line)).config.of(type(rules)) == rules


@pytest.mark.parametrize(
    ("variables", "field", "expected"),
    [
        ({"NO_COLOR": "1"}, "view.color", False),
        ({"NO_COLOR": ""}, "view.color", True),
        ({"DYNATUI_TOUR": "false"}, "view.tour", False),
        ({"DYNATUI_METRICS_PORT": "9400"}, "metrics_port", 9400),
    ],
)
def test_a_variable_reaches_the_session(
    variables: dict[str, str], field: str, expected: object, asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert attrgetter(field)(asked()) == expected


def test_prompts_come_from_files_and_from_the_command_line(asked: Asked, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("from a\n", encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"prompt":"b1"}\n{"prompt":"b2"}\n', encoding="utf-8")
    files = ("--prompt-file", str(tmp_path / "a.txt"), "--prompt-file", str(tmp_path / "b.jsonl"))
    session = asked(*files, "--prompt", "mine", "--prompt", "yours")
    assert session.prompts == ("from a", "b1", "b2", "mine", "yours")
    assert session.files == ((files[1], ("from a",)), (files[3], ("b1", "b2")))
    assert asked(*files[:2], *files[:2]).prompts == ("from a", "from a")


def test_a_first_tilde_is_the_home_folder(asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    target, draft, record = str(tmp_path / "models/t"), str(tmp_path / "models/d"), tmp_path / "run.jsonl"
    session = asked("--target=~/models/t", "--draft=~/models/d", "--record=~/run.jsonl")
    assert (session.models.target, session.models.draft, session.record) == (target, draft, record)
    session = asked("--target=a~/t", "--draft=~nobody-of-this-name/d", "--prompt", "~ is a tilde")
    assert (session.models.target, session.models.draft) == ("a~/t", "~nobody-of-this-name/d")
    assert session.prompts == ("~ is a tilde",)
    monkeypatch.setenv("DYNATUI_RECORD", "~/run.jsonl")
    monkeypatch.setenv("DYNATUI_CONFIG", "~/my.toml")
    (tmp_path / "my.toml").write_text('target = "~/models/t"\ndraft = "~/models/d"\n', encoding="utf-8")
    assert settings.file_path() == tmp_path / "my.toml"
    session = asked()
    assert (session.models.target, session.models.draft, session.record) == (target, draft, record)


def test_follow_without_a_screen_prints_what_is_recorded_until_it_is_interrupted(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def events(_path: Path, _stop: threading.Event) -> Iterator[Event]:
        yield from story()[:6]
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setitem(sys.modules, "dynatui.sources.follow", SimpleNamespace(events=events))
    assert cli.main(["--follow", str(recorded)]) == 130
    out, err = capsys.readouterr()
    assert out == "Once upon \n"
    assert err.endswith("interrupted\n")


@pytest.mark.usefixtures("engine")
def test_without_a_terminal_text_and_figures_are_printed(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--prompt", "x"], ["replay", str(recorded)]):
        assert cli.main(arguments) == 0
        out, err = capsys.readouterr()
        assert out == "Once upon a time\n"
        assert "L-bar" in err


@pytest.mark.parametrize(
    ("error", "code", "last"),
    [
        (KeyboardInterrupt(), 130, ""),
        (DeviceError("no device cuda:7\nhere; give --device cpu"), 3, "no device cuda:7␊here; give --device cpu"),
        (ReaderLeftError(), 0, ""),
    ],
)
def test_how_a_run_ended_is_told_by_the_exit_code_and_in_one_line(
    monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, error: BaseException, code: int, last: str
) -> None:
    engine.load_error, said = error, io.StringIO()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert cli.main(["--prompt", "x"]) == code
    assert said.getvalue().endswith(last and f"dynatui: {last}\n")


def test_the_version_is_one_line_and_help_names_every_option(printed: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert printed("--version") == f"dynatui {decoder.__version__}\n"
    monkeypatch.setenv("COLUMNS", "120")
    text = printed("--help")
    assert "…" not in text
    assert all(panel in text for panel in ("Models", "Prompts", "Run", "DynaTree", "Without a screen", "Screen"))
    assert all(option in text for option in ("--prompt-file", "--rho-deep", "--no-history", "--k", "--fixed", "replay"))


def test_help_on_a_full_disk_is_one_line(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    def fail(_text: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("click.echo", fail)
    line = "cannot write: No space left on device; send the output to a place with free space"
    assert refused("--version") == line


def test_run_doctor_and_bench_need_one_model_for_lookups(printed: Printed, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--draft", "lookup", "--device", "cpu", "--dtype", "float32", "--max-new-tokens", "8"]
    found = json.loads(printed(*arguments, "--prompt", "Once upon a time, once upon a time, once"))
    assert found["draft"] == "lookup"
    assert list(found["methods"]) == ["dynatree", "auto", "ar", "linear", "fixed"]
    assert all(figures["identical_to_ar"] for figures in found["methods"].values())
    assert all(figures["draft_forwards"] == 0 for figures in found["methods"].values())
    cli.main(["doctor", "--draft", "lookup", "--device", "cpu"])
    told = capsys.readouterr().out
    assert "drafts are copied from earlier in the text, without a model" in told
    assert "draft " not in told.split("models", 1)[1].split("rounds", 1)[0]
    methods = bench._with_draft(tuple(bench.all_methods().split(",")), "lookup")
    assert {"ar", "auto", "linear", "fixed", "dynatree", "bestfirst"} <= set(methods)
    assert not {"alg1", "delayed", "streaming"} & set(methods)
