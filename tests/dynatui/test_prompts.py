"""Prompts are read unchanged, or refused in one line with the reason."""

import gzip
import io
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from decoder.errors import PromptError
from decoder.prompts import json_objects
from decoder.prompts.prompt import ChatMessage, Prompt
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
    assert load.from_file(str(text_file)).prompts == (prompt,)


def test_standard_input_is_a_text_file_named_minus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", FakeStdin(b"Once\n"))
    assert load.from_file("-").prompts == ("Once",)


def test_closed_standard_input_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refusal("-")


def test_a_jsonl_file_holds_a_prompt_a_line(lines_file: Path) -> None:
    lines_file.write_text(
        '{"prompt": "one", "id": 7}\n\n{"turns": ["two", "and then"], "category": "x"}\r\n{"prompt": "three\\n"}',
        encoding="utf-8",
        newline="",
    )
    assert load.from_file(str(lines_file)).prompts == ("one", Prompt("two", category="x"), "three\n")


def test_half_a_surrogate_pair_becomes_the_replacement_character(lines_file: Path) -> None:
    lines_file.write_text('{"prompt": "a\\ud83cb"}', encoding="utf-8")
    assert load.from_file(str(lines_file)).prompts == ("a\ufffdb",)


def test_a_whole_surrogate_pair_is_a_character(lines_file: Path) -> None:
    lines_file.write_text('{"prompt": "\\ud83c\\udf32"}', encoding="utf-8")
    assert load.from_file(str(lines_file)).prompts == ("🌲",)


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
    assert "is not UTF-8 text (line 1, byte 6)" in refusal(text_file)


@pytest.mark.parametrize("name", [".", "missing.txt"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot read" in refusal(tmp_path / name)


def test_an_endless_file_is_refused(text_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "LONGEST", 10)
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
    "neither": '{"answer": "x"}',
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


CONVERSATION = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "Two."},
    {"role": "user", "content": "Three?"},
    {"role": "assistant", "content": "Four."},
]
ASKED = Prompt(
    "Three?", (ChatMessage("system", "Be brief."), ChatMessage("user", "One?"), ChatMessage("assistant", "Two."))
)
SHAREGPT = [{"from": "human", "value": "One?"}, {"from": "gpt", "value": "Two."}]
OBJECTS: dict[str, tuple[dict[str, object], object, str]] = {
    "messages": ({"messages": CONVERSATION}, ASKED, "messages"),
    "a batch": ({"custom_id": "1", "body": {"messages": CONVERSATION}}, ASKED, "body.messages"),
    "parts": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
        Prompt("ab", ()),
        "messages",
    ),
    "sharegpt": ({"id": "x", "conversations": SHAREGPT}, Prompt("One?", ()), "conversations"),
    "a conversation under prompt": ({"prompt": CONVERSATION, "chosen": "x"}, ASKED, "prompt"),
    "prompt": ({"prompt": "Once", "text": "Once upon"}, "Once", "prompt"),
    "text": ({"text": "Once"}, "Once", "text"),
    "alpaca": ({"instruction": "Add.", "input": "1 2", "output": "3"}, "Add.\n\n1 2", "instruction"),
    "alpaca alone": ({"instruction": "Add.", "input": "", "output": "3"}, "Add.", "instruction"),
    "question": ({"question": "Why?", "answer": "So."}, "Why?", "question"),
    "turns": ({"turns": ["a", "b"], "category": "x"}, Prompt("a", category="x"), "turns"),
    "tag": ({"prompt": "a", "tag": 7}, Prompt("a", category="7"), "prompt"),
    "null": ({"messages": None, "prompt": "a"}, "a", "prompt"),
}
SHAPES: dict[str, Callable[[list[dict[str, object]]], str]] = {
    "lines": lambda objects: "\n".join(map(json.dumps, objects)),
    "lines with CRLF": lambda objects: "\r\n\r\n".join(map(json.dumps, objects)) + "\r\n",
    "an array": json.dumps,
    "an array on many lines": lambda objects: json.dumps(objects, indent=2),
    "objects on many lines": lambda objects: "\n".join(json.dumps(each, indent=2) for each in objects),
}


@pytest.mark.parametrize(
    "name", ["prompts.jsonl", "prompts.JSONL", "p.ndjson", "p.json", "p.txt", "prompts", "p.jsonl.gz"]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_objects_are_read_by_content_whatever_the_name(tmp_path: Path, shape: str, name: str) -> None:
    content = SHAPES[shape]([record for record, _, _ in OBJECTS.values()]).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    read = load.from_file(str(tmp_path / name))
    assert read.prompts == tuple(prompt for _, prompt, _ in OBJECTS.values())
    assert read.fields == tuple(field for _, _, field in OBJECTS.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_objects_are_read_from_standard_input(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    content = SHAPES[shape]([{"prompt": "a"}, {"prompt": "b"}]).encode()
    monkeypatch.setattr(sys, "stdin", FakeStdin(content))
    assert load.from_file("-").prompts == ("a", "b")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[",
        "{a} and {b}",
        "[Music] la la\nla",
        "[1, 2, 3] is a list",
        '["a", "b"]',
        "{}",
        '{"name": "Bob", "age": 3',
        "[{",
        '{"answer": 42}',
        "{\n  int prompt = 3;\n}\n\n",
        '  {"prompt": ',
        '"prompt"',
    ],
)
def test_text_that_only_begins_like_json_is_a_text_prompt(text_file: Path, text: str) -> None:
    text_file.write_text(text, encoding="utf-8", newline="")
    assert load.from_file(str(text_file)).prompts == (text.removesuffix("\n"),)


@pytest.mark.parametrize("bad", ['{"prompt": "x"', "Once", '{"prompt": "x}', '{"prompt": "x",}'])
@pytest.mark.parametrize("place", [1, 2, 5])
def test_a_malformed_line_without_a_telling_name_is_refused_by_its_number(
    monkeypatch: pytest.MonkeyPatch, bad: str, place: int
) -> None:
    if (bad, place) == ("Once", 1):
        pytest.skip("a text that begins with a word is plain text")
    lines = ['{"prompt": "fine"}'] * 5
    lines[place - 1] = bad
    monkeypatch.setattr(sys, "stdin", FakeStdin("\n".join(lines).encode()))
    assert refusal("-").startswith(f"standard input: line {place}: ")


def test_a_fault_in_an_array_is_on_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text('[\n {"prompt": "a"},\n {\n  "prompt": b\n }\n]', encoding="utf-8")
    assert ": line 4: Expecting value" in refusal(tmp_path / "p.json")


@pytest.mark.parametrize("content", ['[{"prompt": "a"}', '[{"prompt": "a"} {"prompt": "b"}]', '[{"prompt": "a"}] b'])
def test_a_torn_array_is_refused(text_file: Path, content: str) -> None:
    text_file.write_text(content, encoding="utf-8")
    assert "line 1: " in refusal(text_file)


def test_a_named_field_is_read_alone(text_file: Path) -> None:
    text_file.write_text('{"prompt": "a", "body": {"x": "b"}}\n{"body.x": "c", "text": "d"}', encoding="utf-8")
    read = load.from_file(str(text_file), "body.x")
    assert (read.prompts, read.fields) == (("b", "c"), ("body.x", "body.x"))


def test_an_object_without_the_named_field_is_refused(text_file: Path) -> None:
    text_file.write_text('{"prompt": "a"}', encoding="utf-8")
    with pytest.raises(PromptError, match=r"line 1: the object has no field 'query'.*--prompt-field"):
        load.from_file(str(text_file), "query")


@pytest.mark.parametrize(
    "turns",
    [
        [{"role": "user", "content": 3}],
        [{"role": "user"}],
        [{"content": "a"}],
        [{"role": "user", "content": [{"type": "image_url"}]}],
        [{"role": "user", "content": "a"}, "b"],
    ],
)
def test_a_conversation_that_is_no_text_is_refused(lines_file: Path, turns: object) -> None:
    lines_file.write_text(json.dumps({"messages": turns}), encoding="utf-8")
    assert 'of "messages"' in refusal(lines_file)


def test_conversations_without_a_user_s_turn_are_left_out_and_counted(lines_file: Path) -> None:
    lines_file.write_text(
        '{"conversations": []}\n{"conversations": [{"from": "gpt", "value": "Hi"}]}\n'
        '{"conversations": [{"from": "human", "value": "Hi"}]}',
        encoding="utf-8",
    )
    read = load.from_file(str(lines_file))
    assert read.prompts == (Prompt("Hi", ()),)
    assert read.said(None).endswith("with the model's chat template; 2 without a user's turn left out")


def test_what_was_read_is_told_by_field(lines_file: Path) -> None:
    lines = [{"messages": CONVERSATION}, {"messages": CONVERSATION}, {"prompt": "a"}]
    lines_file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    read = load.from_file(str(lines_file))
    assert read.said(None) == (
        f"{lines_file}: 2 prompts from `messages`, with the model's chat template; 1 prompt from `prompt`"
    )
    assert "`messages`, the last user's turn as plain text" in read.said(False)
    assert "1 prompt from `prompt`, with the model's chat template" in read.said(True)


def test_plain_text_is_not_told_of_unless_it_looks_like_json(text_file: Path) -> None:
    text_file.write_text("Once", encoding="utf-8")
    assert not load.from_file(str(text_file)).said(None)
    text_file.write_text("{Once", encoding="utf-8")
    assert load.from_file(str(text_file)).said(None).endswith("1 prompt, the whole text")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("content", ["Élan 🌲", '{"prompt": "Élan 🌲"}'])
def test_a_byte_order_mark_gives_the_encoding(text_file: Path, encoding: str, content: str) -> None:
    mark = "\ufeff" if encoding[-2:] in ("le", "be") else ""
    text_file.write_bytes(f"{mark}{content}".encode(encoding))
    assert load.from_file(str(text_file)).prompts == ("Élan 🌲",)


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"one\ntwo\n \xff", "UTF-8 text (line 3, byte 10)"),
        (b'{"prompt": "a"}\n' * 200_000 + b"\xc3(", "UTF-8 text (line 200001, byte 3200001)"),
        (b"\xff\xfea\0\n\0\0\xdc", "UTF-16-LE text (line 2, byte 7)"),
        ("é".encode()[:1], "UTF-8 text (line 1, byte 1)"),
    ],
    ids=["early", "after many chunks", "UTF-16", "torn"],
)
def test_bytes_that_are_no_text_are_told_with_their_line(text_file: Path, content: bytes, place: str) -> None:
    text_file.write_bytes(content)
    assert place in refusal(text_file)


@pytest.mark.parametrize("damage", [lambda packed: packed[:-9], lambda packed: packed[:20] + b"x" * 9 + packed[29:]])
def test_a_damaged_gzip_file_is_refused(text_file: Path, damage: Callable[[bytes], bytes]) -> None:
    text_file.write_bytes(damage(gzip.compress(b"Once upon a time there was a tree. " * 9)))
    assert "is a damaged gzip file" in refusal(text_file)


@pytest.mark.parametrize("begin", [b"", b'{"prompt": "a"}\n', b'{"prompt": "'], ids=["text", "blanks", "one prompt"])
def test_a_gzip_file_of_great_length_does_not_fill_the_memory(
    text_file: Path, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (load, json_objects):
        monkeypatch.setattr(module, "LONGEST", 2**20)
    text_file.write_bytes(gzip.compress(begin) + gzip.compress(b" " * 2**24) * 16)
    tracemalloc.start()
    try:
        refusal(text_file)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_a_large_file_of_short_prompts_is_read(lines_file: Path) -> None:
    line = json.dumps({"prompt": "x" * 100, "answer": "y" * 900})
    lines_file.write_text(f"{line}\n" * 20_000, encoding="utf-8")
    assert len(load.from_file(str(lines_file)).prompts) == 20_000


def test_too_many_prompts_are_refused(lines_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "MOST_PROMPTS", 3)
    lines_file.write_text('{"prompt": "a"}\n' * 4, encoding="utf-8")
    assert "more than 3 prompts" in refusal(lines_file)
