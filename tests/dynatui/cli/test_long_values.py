"""Values that are far too long or contain null characters are refused in one short line, whatever their source."""

import os
from pathlib import Path

import pytest
from typer.core import TyperOption

from decoder.errors import LONGEST_QUOTE, quoted, shortened, with_short_quotes
from dynatui import main as cli
from tests.dynatui.fake_engine import FakeEngine

SHORT = 500
WORD, DIGITS, NULL = "x" * 5000, "7" * 5000, "a\0b"
MANY = "9" * 400
WITH_VALUES = [
    option.opts[0]
    for option in cli.command().params
    if isinstance(option, TyperOption) and option.expose_value and not option.is_flag and option.opts[0] != "--prompt"
]
IN_TOML = {
    "a word": f'"{WORD}"',
    "a list": f'["{WORD}"]',
    "digits": DIGITS,
    "hexadecimal digits": f"0x7{DIGITS}",
    "digits within": f"{{a = 0x7{DIGITS}}}",
    "a number": MANY,
    "a null character": '"a\\u0000b"',
    "a null character in a list": '["a\\u0000b"]',
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DYNATUI_CONFIG", raising=False)


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


@pytest.mark.parametrize("value", [WORD, DIGITS, MANY, f"-{MANY}", f"1,2,{DIGITS}", f"1,{MANY},{MANY}"], ids=len)
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


@pytest.mark.parametrize("value", [WORD, DIGITS, MANY], ids=len)
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
