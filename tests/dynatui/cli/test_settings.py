"""Tests of settings: precedence of option, environment variable, file and default; one line per invalid setting."""

import tomllib
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest

from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.fixed import Fixed
from decoder.run.config import RunConfig
from dynatui import main as cli
from dynatui.cli import settings
from dynatui.keymap import KEYMAP
from dynatui.session import DEMO, View
from tests.dynatui.cli.fake_screen import Asked, FakeScreen, Printed, Refused, Write
from tests.dynatui.fake_engine import FakeEngine

pytestmark = pytest.mark.usefixtures("screen")

TEMPERATURE, TOP_P = "0 (greedy) to 2", "more than 0 and at most 1 (all tokens)"
SAMPLING = (
    ("TEMPERATURE", "-1", TEMPERATURE),
    ("TEMPERATURE", "nan", TEMPERATURE),
    ("TEMPERATURE", "3", TEMPERATURE),
    ("TOP_P", "0", TOP_P),
    ("TOP_P", "1.5", TOP_P),
    ("TOP_K", "-1", "1 or more, or 0 for all tokens"),
)
"""Invalid settings: name, value, and the advice in the message."""


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        (("seed = 8", "7", "--seed 6"), "config.seed", [8, 7, 6]),
        (("mouse = false", "true", "--no-mouse"), "view.mouse", [False, True, False]),
        (("exact = true", "no", "--exact"), "models.exact", [True, False, True]),
        (("compile = true", "no", "--compile"), "models.compiled", [True, False, True]),
        (("kernels = false", "yes", "--no-kernels"), "models.kernels", [False, True, False]),
        (("symbols = 'ascii'", "block", "--symbols braille"), "view.symbols", ["ascii", "block", "braille"]),
        (("prompt = ['a b', 'c']", "d e", "--prompt f"), "prompts", [("a b", "c"), ("d e",), ("f",)]),
        (
            ("methods = 'ar, hf'", "linear", "--methods fixed"),
            "config.methods",
            [("ar", "hf"), ("linear",), ("fixed",)],
        ),
        (("temperature = 0.3", "0", "--temperature 1"), "config.sampling.temperature", [0.3, 0, 1]),
    ],
)
def test_a_flag_comes_before_a_variable_and_that_before_the_file(
    asked: Asked,
    write: Write,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, str, str],
    field: str,
    expected: object,
) -> None:
    (line, variable, flags), read = given, attrgetter(field)
    write(line + "\n")
    found = [read(asked())]
    monkeypatch.setenv("DYNATUI_" + line.partition(" ")[0].upper(), variable)
    assert [*found, read(asked()), read(asked(*flags.split()))] == expected


def test_without_a_file_or_a_value_the_defaults_hold(monkeypatch: pytest.MonkeyPatch, asked: Asked) -> None:
    monkeypatch.delenv("DYNATUI_CONFIG")
    for folder in ("/nowhere", "/dev/null"):
        monkeypatch.setenv("XDG_CONFIG_HOME", folder)
        assert asked().config == RunConfig(temperature=0.6, seed=7, dynatree=DEMO)
    monkeypatch.setenv("DYNATUI_TAU_H", "")
    assert asked("--preset", "tuned").config.of(DynaTree) == PRESETS["tuned"]


def test_the_session_knows_what_is_set_behind_flags(
    write: Write, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    write("tau_h = 0.8\nmouse = false\n")
    monkeypatch.setenv("DYNATUI_SEED", "3")
    assert asked("--tau-h", "0.9").set_for_good == {"tau_h", "mouse", "seed"}


def test_every_option_of_a_live_run_can_be_set() -> None:
    live = settings.options_of(cli.command())
    named = {option for parameter in cli.command().params for option in parameter.opts if option.startswith("--")}
    eager = {"--version", "--install-completion", "--show-completion"}
    assert {f"--{key.replace('_', '-')}" for key in live} == named - eager


def test_replaying_and_following_share_the_settings_of_the_screen_but_not_the_speed_of_decoding(
    screen: FakeScreen, write: Write, recorded: Path, monkeypatch: pytest.MonkeyPatch, asked: Asked
) -> None:
    write("symbols = 'ascii'\nfps = 3\ntau_h = 0.8\nmethods = 'ar'\nspeed = 0.5\n")
    monkeypatch.setenv("DYNATUI_FPS", "4")
    assert cli.main(["replay", str(recorded), "--theme", "nord"]) == 0
    assert screen.replays[-1][1] == View(symbols="ascii", fps=4, theme="nord")
    assert cli.main(["--follow", str(recorded)]) == 0
    assert asked().view.speed == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\ntau_hh = 1", "line 2: there is no setting tau_hh; did you mean tau_h?"),
        ("tau-h = 0.8", "line 1: there is no setting tau-h; did you mean tau_h?"),
        ("[knobs]\ntau_h = 0.8", "line 1: there is no setting knobs"),
        ("config = 'x'", "there is no setting config"),
        ("version = true", "there is no setting version"),
        ("seed = 1\ntau_h = 'high'", "line 2: tau_h is 'high'; give a number"),
        ("tau_h = true", "line 1: tau_h is True; give a number"),
        ("seed = 1.5", "line 1: seed is 1.5; give a whole number"),
        ("history = 1", "line 1: history is 1; give true or false"),
        ("methods = ['ar']", "line 1: methods is ['ar']; give text in quotes"),
        ("fixed = 5", 'line 1: fixed is 5; give text in quotes: fixed = "5"'),
        ('n_max = "auto"', "line 1: n_max is 'auto'; auto is a method: --methods auto"),
        ('n_max = "many"', "line 1: n_max is 'many'; give a whole number"),
        ("seed = 1\ndevice = auto  # any", '(at line 2, column 10); put text in quotes: device = "auto"'),
        ("device = auto auto", "correct the file, or start from"),
        ("prompt = 'x'", "line 1: prompt is 'x'; give a list"),
        ("prompt = ['x', 1]", "line 1: prompt is ['x', 1]; give a list"),
        ("d0 = 1" + "0" * 400, "line 1: d0 is a number of 401 digits"),
        ("fps = 99", "line 1: fps is 99; 99 is not in the range 1<=x<=60"),
        ("symbols = 'runes'", "line 1: symbols is 'runes'; 'runes' is not one of 'braille', 'block', 'ascii'"),
        ("tau_h = 0.02", "tau_h is 0.02; give 0 < tau_l < tau_h <= 1 (tau_h from PATH: line 1)"),
        ("tau_h = nan", "(tau_h from PATH: line 1)"),
        *((f"{name.lower()} = {value}", f"; give {said} ({name.lower()} from PATH") for name, value, said in SAMPLING),
        ("methods = 'ar,dance'", "no method 'dance'; choose from"),
        ("methods = 'ar,dance'", " (methods from PATH: line 1)"),
        ("prompt_file = ['nowhere.txt']", "cannot read nowhere.txt: No such file or directory"),
        ("prompt_file = ['nowhere.txt']", "(prompt_file from PATH"),
        ("tau_h = ", "Invalid value (at line 1, column 9)"),
        ("seed = 1\nseed = 2", "Cannot overwrite a value (at line 2"),
        ("x = " + "[" * 5000, "recursion"),
        (b"\xff\xfe", "is not UTF-8 text (byte 1)"),
        (b"#" * (2**20 + 1), "larger than 1 MiB"),
        (None, "No such file or directory"),
        # keys
        ('keys = "f5"', "line 1: keys is 'f5'; write a table: [keys]"),
        (
            '[keys]\npauze = "f5"',
            "no action is called 'pauze'; did you mean pause? dynatui config --print-default lists",
        ),
        ("[keys]\npause = 5", "line 2: pause is 5; give a key in quotes, or a list of such keys"),
        ('[keys]\nstep = "f6"\npause = ["f5", 5]', "line 3: pause is ['f5', 5]; give a key in quotes"),
        (
            '[keys]\npause = "h"',
            "line 1: pause is 'h', but history has that key already; give pause or history another",
        ),
        ("[keys]\ntau_h = 0.8", "line 2: tau_h is below [keys], but is not an action with keys; write tau_h above [k"),
        ('[keys]\npause = "\\u0000"', "pause is '\\x00', which is no key; give a character"),
        (f'[keys]\npause = "{"x" * 9999}"', 'give a character, or a key such as "f5"'),
        ("[keys]\npause = {}", "line 2: pause is {}; give a key in quotes"),
        ("[[keys]]", "line 1: keys is [{}]; write a table"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_file_is_one_line_that_names_place_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | bytes | None, said: str, refused: Refused
) -> None:
    path = tmp_path / "mine.toml"
    monkeypatch.setenv("DYNATUI_CONFIG", str(path))
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
    line = refused()
    assert said.replace("PATH", str(path)) in line
    assert str(path) in line
    assert len(line) < 600


def test_config_refuses_what_a_run_refuses(write: Write, refused: Refused) -> None:
    path = write("tau_h = 0.02\n")
    why = f"tau_l is 0.3 and tau_h is 0.02; give 0 < tau_l < tau_h <= 1 (tau_h from {path}: line 1)"
    assert refused("config") == why


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("TAU_H", "high", "DYNATUI_TAU_H: tau_h is 'high'; 'high' is not a valid float"),
        ("TAU_H", "0.02", "give 0 < tau_l < tau_h <= 1 (tau_h from DYNATUI_TAU_H)"),
        *((name, value, f"; give {said} ({name.lower()} from DYNATUI_{name})") for name, value, said in SAMPLING),
        ("HISTORY", "perhaps", "DYNATUI_HISTORY: history is 'perhaps'; 'perhaps' is not a valid boolean"),
        ("SYMBOLS", "runes", "DYNATUI_SYMBOLS: symbols is 'runes'"),
        ("METHODS", "ar,\x1b[2J", "no method '\\x1b[2J'; choose from"),
    ],
)
def test_a_wrong_variable_is_one_line_that_names_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str, refused: Refused
) -> None:
    monkeypatch.setenv(f"DYNATUI_{name}", value)
    assert said in refused()


def test_other_models_and_runs_without_a_screen_are_greedy_by_default(engine: FakeEngine, asked: Asked) -> None:
    pair = ("--target", "big", "--draft", "small")
    temperatures = [asked(*pair, *more).config.sampling.temperature for more in ((), ("--temperature", "1"))]
    for without in ("--headless", "--json"):
        assert cli.main([without, "--prompt", "x"]) == 0
    assert [*temperatures, *(config.sampling.temperature for config in engine.configs)] == [0, 1, 0, 0]


def test_an_error_names_the_settings_it_needs(write: Write, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    write("tau_h = 0.8\nfixed = '3,2'\nseed = 8\n")
    assert refused("--preset", "tuned", "--d0", "12") == "D0 is 12; give 1 to 7 (D_max - 1)"
    assert "config.toml" not in refused("--tau-h", "0.02")
    path = write("tau_l = 0.3\nseed = 8\n")
    monkeypatch.setenv("DYNATUI_TAU_H", "0.2")
    assert refused().endswith(f"(tau_l from {path}: line 1, tau_h from DYNATUI_TAU_H)")


def test_config_prints_every_setting_its_place_and_the_name_of_an_idle_variable(
    write: Write, monkeypatch: pytest.MonkeyPatch, printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write("seed = 4\ntau_h = 0.8\nprompt = [\"\\u001b[2J\", 'b']\n")
    monkeypatch.setenv("DYNATUI_METHODS", "ar")
    monkeypatch.setenv("DYNATUI_SEED", "5")
    text = printed("config")
    lines = {line.split(" ")[0]: line for line in text.splitlines() if not line.startswith("#")}
    assert [part.strip() for part in lines["tau_h"].split("#")] == ["tau_h = 0.8", f"{path}: line 2"]
    assert lines["seed"].endswith("# DYNATUI_SEED")
    assert lines["k"].endswith("# default")
    assert "# target is not set\n" in text
    assert set(tomllib.loads(text)) <= set(settings.options_of(cli.command()))
    assert tomllib.loads(text)["prompt"] == ["\x1b[2J", "b"]
    monkeypatch.setenv("DYNATUI_TAUH", "0.8")
    monkeypatch.setenv("DYNATUI_DATA", "/somewhere")
    assert cli.main(["config"]) == 0
    assert capsys.readouterr().err == (
        "dynatui: the variable DYNATUI_TAUH sets no option; dynatui config --print-default lists all settings\n"
    )


@pytest.mark.parametrize(
    "text", ["", "tau_h = 0.8\nfixed = '3,2'\nprompt = ['\"x\\ty']\nlog_file = 'a/b'\nmouse = false\n"]
)
def test_what_config_prints_can_be_the_file(text: str, write: Write, asked: Asked, printed: Printed) -> None:
    write(text)
    before, told = asked(), printed("config")
    assert before.config.of(Fixed).depth == (3 if text else Fixed().depth)
    assert "k = 5 " in told
    write(told)
    assert replace(asked(), set_for_good=before.set_for_good) == before


@pytest.mark.parametrize(("temperature", "preset"), [("0", "tuned"), ("0.8", "sampled")])
def test_config_shows_the_default_preset_for_the_temperature_and_its_values_without_setting_them(
    temperature: str, preset: str, write: Write, printed: Printed
) -> None:
    write(f"temperature = {temperature}\ntau_h = 0.97\n")
    text = printed("config")
    source = f"# default at temperature {temperature}"
    shown = {line.partition(" = ")[0]: line for line in text.splitlines() if line.endswith(source)}
    assert shown["# preset"].startswith(f'# preset = "{preset}" ')
    assert shown["# n_max"].startswith(f"# n_max = {PRESETS[preset].n_max} ")
    assert "tau_h" in tomllib.loads(text)
    assert not {"preset", "n_max"} & tomllib.loads(text).keys()


def test_config_shows_the_values_of_a_preset_in_the_settings_with_its_name(write: Write, printed: Printed) -> None:
    path = write('preset = "paper"\n')
    text = printed("config")
    lines = {line.split(" ")[0]: line for line in text.splitlines()}
    assert lines["preset"].endswith(f"# {path}: line 1")
    assert lines["n_max"].startswith(f"n_max = {PRESETS['paper'].n_max} ")
    assert lines["n_max"].endswith("# preset paper")


def test_a_broken_file_does_not_hinder_its_repair(write: Write, printed: Printed) -> None:
    path = write("broken")
    assert all(printed(*line.split()) for line in ("--help", "--version", "config --print-default"))
    assert printed("config", "--path") == f"{path}\n"


def test_the_file_to_begin_with_sets_nothing_and_names_every_setting_and_its_true_default(
    write: Write, asked: Asked, printed: Printed
) -> None:
    text = printed("config", "--print-default")
    assert tomllib.loads(text) == {"keys": {}}
    before = asked()
    write(text)
    assert asked() == before
    before = asked("--temperature", "0")
    lines = printed("config", "--print-default").partition("[keys]")[0].splitlines()
    assert all(
        sum(line.startswith((f"#{key} = ", f"# {key}: ")) for line in lines) == 1
        for key in settings.options_of(cli.command())
    )
    values = [line[1:] for line in lines if line[:2].strip("#").isidentifier()]
    assert len(values) > 20
    write("\n".join(values))
    assert replace(asked("--temperature", "0"), set_for_good=before.set_for_good) == before


def test_keys_are_bound_in_a_table_of_the_file(screen: FakeScreen, write: Write, recorded: Path, asked: Asked) -> None:
    assert asked().view.keys == KEYMAP
    write('tau_h = 0.75\n\n[keys]\npause = "f5"\ntau_h_up = ["&", "f6"]\nstep = []\n')
    session = asked()
    bound = {cap: session.view.keys.action_for(cap, "watch") for cap in ("f5", "P", "&", "f6", ".")}
    assert bound == {"f5": "pause", "P": None, "&": "turn(']')", "f6": "turn(']')", ".": None}
    assert (session.config.of(DynaTree).tau_h, session.set_for_good) == (0.75, frozenset({"tau_h"}))
    assert cli.main(["replay", str(recorded)]) == 0
    assert screen.replays[-1][1].keys.action_for("f5", "watch") == "pause"


def test_the_printed_defaults_name_every_key_and_the_settings_in_force_those_that_are_not_the_usual_ones(
    write: Write, asked: Asked, printed: Printed
) -> None:
    keys = printed("config", "--print-default").partition("[keys]\n")[2]
    assert tomllib.loads(keys.replace("#", "", 1).replace("\n#", "\n")) == {
        name: caps[0] if len(caps) == 1 else list(caps) for name, caps in KEYMAP.settings().items()
    }
    write(keys.join(("[keys]\n", "")).replace("\n#", "\n"))
    assert asked().view.keys.settings() == KEYMAP.settings()
    write('[keys]\npause = "f5"\nstep = "."\n')
    told = printed("config")
    assert told.endswith('\n[keys]\npause = "f5"\n')
    assert tomllib.loads(told)["keys"] == {"pause": "f5"}
