"""Prompts are read unchanged, or refused in one line with the reason."""

import io
import sys
from pathlib import Path

import pytest

from decoder.errors import PromptError
from dynatui.prompts import load


class FakeStdin:
    """Standard input with these bytes."""

    def __init__(self, content: bytes) -> None:
        self.buffer = io.BytesIO(content)


@pytest.fixture
def text_file(tmp_path: Path) -> Path:
    return tmp_path / "prompt.txt"


@pytest.fixture
def lines_file(tmp_path: Path) -> Path:
    return tmp_path / "prompts.jsonl"


def refusal(path: Path | str) -> str:
    with pytest.raises(PromptError) as caught:
        load.from_file(str(path))
    return str(caught.value)


def test_our_own_prompts_are_five_distinct_openings_of_prose() -> None:
    prompts = load.embedded()
    assert len(set(prompts)) == 5
    assert all(40 <= len(prompt.split()) <= 120 for prompt in prompts)
    assert all(prompt == prompt.strip() for prompt in prompts)


@pytest.mark.parametrize(
    ("content", "prompt"),
    [
        (b"Once\n", "Once"),
        (b"Once", "Once"),
        (b"Once\n\n", "Once\n"),
        (b"Once\r\nupon\r\n", "Once\r\nupon"),
        (b"Once\r", "Once\r"),
        (b"  Once \n", "  Once "),
        (b"\xef\xbb\xbfOnce\n", "Once"),
        ("Élan 🌲\n".encode(), "Élan 🌲"),
    ],
)
def test_a_text_file_loses_one_newline_and_nothing_else(text_file: Path, content: bytes, prompt: str) -> None:
    text_file.write_bytes(content)
    assert load.from_file(str(text_file)) == (prompt,)


def test_standard_input_is_a_text_file_named_minus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", FakeStdin(b"Once\n"))
    assert load.from_file("-") == ("Once",)


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refusal("-")


def test_a_jsonl_file_holds_a_prompt_a_line(lines_file: Path) -> None:
    lines_file.write_text(
        '{"prompt": "one", "id": 7}\n\n{"turns": ["two", "and then"], "category": "x"}\r\n{"prompt": "three\\n"}',
        encoding="utf-8",
        newline="",
    )
    assert load.from_file(str(lines_file)) == ("one", "two", "three\n")


def test_half_a_surrogate_pair_becomes_the_replacement_character(lines_file: Path) -> None:
    lines_file.write_text('{"prompt": "a\\ud83cb"}', encoding="utf-8")
    assert load.from_file(str(lines_file)) == ("a\ufffdb",)


def test_a_whole_surrogate_pair_is_a_character(lines_file: Path) -> None:
    lines_file.write_text('{"prompt": "\\ud83c\\udf32"}', encoding="utf-8")
    assert load.from_file(str(lines_file)) == ("🌲",)


def test_bytes_of_an_argument_that_are_no_text_become_the_replacement_character() -> None:
    assert load.from_text("caf\udce9") == "caf\ufffd"


def test_an_empty_argument_is_refused() -> None:
    with pytest.raises(PromptError, match="the prompt is empty"):
        load.from_text("")


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n"])
def test_an_empty_file_is_refused(text_file: Path, content: bytes) -> None:
    text_file.write_bytes(content)
    assert refusal(text_file) == f"{text_file} is empty; write a prompt into it"


def test_a_file_that_is_no_text_is_refused_at_its_first_bad_byte(text_file: Path) -> None:
    text_file.write_bytes(b"Once \xff upon")
    assert "is not UTF-8 text (byte 6)" in refusal(text_file)


@pytest.mark.parametrize("name", [".", "missing.txt"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot read" in refusal(tmp_path / name)


def test_an_endless_file_is_refused(text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LARGEST_FILE", 10)
    text_file.write_bytes(b"x" * 11)
    assert "longer than any context" in refusal(text_file)


BAD_LINES = {
    "no JSON": "Once",
    "a list": "[]",
    "a number": "3",
    "a prompt that is a number": '{"prompt": 3}',
    "an empty prompt": '{"prompt": ""}',
    "no turns": '{"turns": []}',
    "an empty turn": '{"turns": [""]}',
    "neither": '{"text": "x"}',
    "a torn line": '{"prompt": "x"',
    "depth": "[" * 100_000,
    "a huge number": '{"prompt": 1' + "0" * 5000 + "}",
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_refused_by_its_number(lines_file: Path, line: str) -> None:
    lines_file.write_text(f'{{"prompt": "fine"}}\n{line}\n', encoding="utf-8")
    said = refusal(lines_file)
    assert said.startswith(f"{lines_file}: line 2: ")
    assert "\n" not in said
    assert len(said) < 400


def test_a_jsonl_file_of_blank_lines_is_refused(lines_file: Path) -> None:
    lines_file.write_text("\n\n", encoding="utf-8")
    assert "is empty" in refusal(lines_file)
