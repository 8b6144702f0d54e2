"""Whatever is wrong or far too long on a command line is one short line and exit code 2, before anything is loaded."""

import os
from pathlib import Path

import click
import pytest

from decoder.errors import LONGEST_QUOTE, quoted, shortened, with_short_quotes
from dynatui import main as cli
from dynatui.record.recording import Recorder
from tests.dynatui.cli.fake_screen import Refused
from tests.dynatui.fake_engine import FakeEngine

ALONE = "a target needs a draft; give --draft MODEL, or --draft lookup, which copies drafts from earlier in the text"
NEEDY = (
    "alg1 cannot run without a draft model (suffix lookup and drafting heads are not draft models); "
    "leave alg1 out of --methods, or name a model with --draft"
)
LINES = (
    ("--nope", "No such option '--nope'"),
    (
        "dance",
        "'dance'; give a prompt with --prompt TEXT, or a file of prompts with --prompt-file FILE; see dynatui --help",
    ),
    ("reply", "No such command 'reply'. Did you mean 'replay'? See dynatui --help"),
    ("bench dance", "No such command 'dance'; see dynatui bench --help"),
    ("--prompt", "requires an argument"),
    ("--d0 deep", "Invalid value for '--d0'"),
    ("--d0 12", "D0 is 12; give 1 to 7"),
    ("--tau-h nan", "tau_h is nan; give 0 < tau_l < tau_h <= 1"),
    ("--tau-h 0.02", "tau_l is 0.3 and tau_h is 0.02"),
    ("--rho-stop 0.9", "rho_stop is 0.9"),
    *((f"--branching {given}", "give 3 whole numbers, for example 1,2,3") for given in ("1,2", "1,2,x")),
    ("--branching 3,2,1", "give three ascending numbers, each 1 or more"),
    ("--fixed 5", "give depth and branching, and optionally the least path probability and the"),
    ("--fixed 5,2,x", "for example 5,2 or 5,2,0.05,256"),
    ("--fixed 5,2,7", "the fixed tree's tau is 7; give 0 to 1"),
    ("--k 0", "K is 0; give 1 or more"),
    (
        "--auto n_max=9",
        "--auto has 'n_max=9', which names no knob of auto; give knobs and values such as d0=6; the knobs are ",
    ),
    ("--auto d0", "--auto has 'd0'; give d0 as a number"),
    ("--auto d_max=2.5", "--auto has 'd_max=2.5'; give d_max as a whole number"),
    ("--auto history=maybe", "--auto has 'history=maybe'; give history=on or history=off"),
    ("--auto d0=99", "D0 is 99; give 1 to 11 (D_max - 1)"),
    ("--auto b_max=1", "branching is 1,2,1; give three ascending numbers, each 1 or more"),
    ("--n-max 0", "n_max is 0; give 1 or more"),
    ("--n-max some", "--n-max is 'some'; give a whole number from 1 up"),
    ("--n-max auto --headless", "--n-max is 'auto'; auto is a method: --methods auto"),
    ("--n-max -3", "n_max is -3; give"),
    *((f"--temperature {t}", f"temperature is {t}; give 0 (greedy) to 2") for t in ("-1", "nan", "inf", "3")),
    ("--temperature warm", "Invalid value for '--temperature'"),
    *((f"--top-p {p}", f"top_p is {p}; give more than 0 and at most 1 (all tokens)") for p in ("0", "1.5", "nan")),
    ("--top-k -1", "top_k is -1; give 1 or more, or 0 for all tokens"),
    ("--methods dance,ar", "no method 'dance'; choose from dynatree"),
    ("--methods ar,ar", "methods contains ar more than once"),
    ("--max-new-tokens 0", "max_new_tokens is 0"),
    ("--seed -1", "Invalid value for '--seed'"),
    ("--preset mine", "give one of tuned, paper"),
    ("--selection all", "give bfs or best"),
    ("--symbols runes", "Invalid value for '--symbols'"),
    *((f"--speed {given}", f"--speed is '{given}'; give 0.001 to 1") for given in ("0", "nan", "2/1")),
    *((f"--speed {given}", f"--speed is '{given}'; give a number, or a fraction such as") for given in ("1/0", "fast")),
    ("--fps 0", "Invalid value for '--fps'"),
    ("--prompt-file nowhere.txt", "cannot read nowhere.txt"),
    ("--prompt-file \x1b[2J", "cannot read ␛[2J"),
    ("--record .", "cannot write ."),
    *((f"--headless --metrics-port {port}", "--metrics-port") for port in ("-1", "65536", 10**20, "http", "9.5", "")),
    ("replay", "Missing argument 'FILE'"),
    ("replay x --k 3", "No such option '--k'; see dynatui replay --help"),
    ("replay nowhere.jsonl", "cannot read nowhere.jsonl"),
    ("replay a b c", "unexpected extra argument"),
    ("--json replay nowhere.jsonl", "--json is given before replay"),
    ("--json config", "--json is given before config"),
    ("--target x doctor", "--target is given before doctor"),
    ("--follow nowhere.jsonl", "nowhere.jsonl: No such file or directory"),
    *(
        (f"--follow x {option} y", f"{option} has no effect beside --follow")
        for option in ("--target", "--prompt", "--record")
    ),
    ("--follow x --no-history", "--history has no effect beside --follow"),
    ("--follow x --metrics-port 0", "--metrics-port has no effect beside --follow"),
    ("--target x", ALONE),
    ("--draft x", "a draft model needs its target; give both --target and --draft, omit both, or"),
    ("--draft lookup --methods ar,alg1", NEEDY),
    ("--draft lookup --drafting iid --verifier traversal", "delayed cannot run without a draft model"),
    ("bench speed --target x", ALONE),
    ("bench speed --draft lookup --methods alg1", NEEDY),
    ("bench speed --draft lookup --hostile", "--hostile needs a draft model, but --draft lookup"),
    ("bench speed --draft lookup --context 9", "a measurement of rounds needs a draft model"),
    ("bench paper --draft lookup --output out", "dynatui bench paper needs a draft model"),
    ("bench sampling --draft lookup --output out", "dynatui bench sampling needs a draft model"),
    ("tune --target x", ALONE),
    ("attach", "URL"),
    ("attach http://me:hunter2@host:8000", "which ends a user name or password"),
    ("attach ftp://host", "give http or https"),
    ("attach host:8000 --interval 0", "--interval is 0.0; give 0.1 to 3600 seconds"),
    ("attach host:8000 --interval nan", "--interval is nan"),
    ("attach host:8000 --polls 0", "--polls"),
    ("attach host:8000 --prompt ", "the prompt is empty"),
    ("attach host:8000 --record /", "cannot write /"),
)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("line", "said"), LINES)
def test_what_is_wrong_is_one_line_and_exit_code_2(line: str, said: str, refused: Refused, engine: FakeEngine) -> None:
    told = refused(*line.split(" "))
    assert said in told
    assert "hunter2" not in told
    assert not engine.pairs


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--compile", "--compile needs a draft model"),
        ("--draft-dtype bfloat16", "--draft-dtype has no effect without"),
    ],
)
def test_what_has_no_effect_on_lookups_is_refused_by_the_engine(line: str, said: str, refused: Refused) -> None:
    assert refused("--headless", "--draft", "lookup", *line.split()).startswith(said)


def test_a_recording_that_another_process_writes_is_refused(engine: FakeEngine, refused: Refused) -> None:
    with Recorder(Path("run.jsonl")):
        told = refused("--headless", "--prompt", "x", "--metrics-port", "0", "--record", "run.jsonl")
    assert told == "another process is writing run.jsonl; give --record another file"
    assert engine.pairs == []


def test_a_token_that_cannot_be_sent_is_refused_unshown(monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    monkeypatch.setenv("DYNATUI_ATTACH_TOKEN", "two words")
    told = refused("attach", "host:8000")
    assert "DYNATUI_ATTACH_TOKEN" in told
    assert "two words" not in told


SHORT = 500
WORD, DIGITS, NULL = "x" * 5000, "7" * 5000, "a\0b"
MANY = "9" * 400
WITH_VALUES = [
    option.opts[0]
    for option in cli.command().params
    if isinstance(option, click.Option) and option.expose_value and not option.is_flag and option.opts[0] != "--prompt"
]
IN_TOML = {
    "a word": f'"{WORD}"',
    "a list": f'["{WORD}"]',
    "hexadecimal digits": f"0x7{DIGITS}",
    "a number": MANY,
    "a null character in a list": '["a\\u0000b"]',
}


def assert_one_short_line(
    option: str, arguments: list[str], fake: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> str:
    """Checks that the value is refused in one short line, or accepted because the fake engine opens no files."""
    fake.pairs.clear()
    code = cli.main(["--headless", "--prompt", "x", *arguments])
    said = capsys.readouterr().err
    if fake.pairs:
        assert code == 0, option
        return ""
    assert code == 2, option
    assert said.startswith("dynatui: "), option
    assert said.count("\n") == 1, option
    assert len(said) < SHORT, option
    assert ";" in said, f"{option}: what to do stands at the end"
    return said


def options_for(value: str) -> list[str]:
    """The options to try with a value; not `--follow` with a short one, which may be the name of a file."""
    return [option for option in WITH_VALUES if option != "--follow" or len(value) >= 1000]


@pytest.mark.parametrize("value", [WORD, DIGITS, f"-{MANY}", f"1,{MANY},{MANY}"], ids=len)
def test_of_an_option(value: str, engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    for option in options_for(value):
        assert_one_short_line(option, [f"{option}={value}"], engine, capsys)


def test_no_option_takes_a_null_character(engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    for option in WITH_VALUES:
        assert "null character" in assert_one_short_line(option, [f"{option}={NULL}"], engine, capsys)


@pytest.mark.parametrize("command", [["replay"], ["replay", "run.jsonl"], ["bench", "speed", "--json"]])
def test_no_command_takes_a_null_character(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command, NULL]) == 2
    assert capsys.readouterr().err == "dynatui: an argument holds a null character; leave the character out\n"


@pytest.mark.parametrize("value", IN_TOML.values(), ids=IN_TOML)
def test_of_a_setting_in_the_file(
    value: str, engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", "config.toml")
    for option in WITH_VALUES:
        key = option.lstrip("-").replace("-", "_")
        Path("config.toml").write_text(f"{key} = {value}\n", encoding="utf-8")
        said = assert_one_short_line(option, [], engine, capsys)
        assert "config.toml" in said or not said, option


@pytest.mark.parametrize("value", [WORD, MANY], ids=len)
def test_variables(
    value: str, engine: FakeEngine, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for option in options_for(value):
        with monkeypatch.context() as patch:
            patch.setenv(f"DYNATUI_{option.lstrip('-').replace('-', '_').upper()}", value)
            assert_one_short_line(option, [], engine, capsys)


@pytest.mark.parametrize(
    "command", [[WORD], [f"--{WORD}"], ["replay", WORD], ["--follow", WORD]], ids=lambda given: given[0][:8]
)
def test_of_a_command_or_a_file(command: list[str], engine: FakeEngine, capsys: pytest.CaptureFixture[str]) -> None:
    del engine
    assert cli.main(command) == 2
    said = capsys.readouterr().err
    assert len(said) < SHORT
    assert ";" in said


def test_long_names_in_settings_are_shortened(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("config.toml").write_text(f"{WORD} = 1\n", encoding="utf-8")
    for name in ("config.toml", os.sep + WORD):
        monkeypatch.setenv("DYNATUI_CONFIG", name)
        assert cli.main(["--headless", "--prompt", "x"]) == 2
        assert len(capsys.readouterr().err) < SHORT


def test_long_values_are_quoted_by_their_ends_and_long_numbers_by_their_digits() -> None:
    assert shortened("x" * LONGEST_QUOTE) == "x" * LONGEST_QUOTE
    assert (quoted("a'b"), quoted(7), quoted(True), quoted([1])) == ('"a\'b"', "7", "True", "[1]")
    assert shortened("a" * 999 + "b") == f"{'a' * 80}…{'a' * 79}b"
    assert quoted("a" * 999) == f"'{'a' * 79}…{'a' * 79}'"
    assert quoted(["a" * 999]).startswith("['aaa")
    assert shortened(10**60) == quoted(10**60) == "a number of 61 digits"
    assert shortened(-(10**9999)) == "a number of 10000 digits"
    assert quoted([10**9999]) == "a list"
    sentence = "nothing is wrong with this sentence, though it is long " * 9
    assert with_short_quotes(sentence) == sentence
    long = f"'{'a b ' * 99}'"
    assert with_short_quotes(f"{long} is no number") == f"{shortened(long)} is no number"
