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
from decoder.prompt import ChatMessage, Prompt
from dynatui import prompts
from dynatui.prompts import embedded, from_file, from_text


class FakeStdin:
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
        from_file(str(path))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    return str(caught.value)


def prompts_of(path: Path, content: str | bytes) -> tuple[object, ...]:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return from_file(str(path)).prompts


def test_our_own_prompts_are_five_distinct_openings_of_prose() -> None:
    prompts = embedded()
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
    assert prompts_of(text_file, content) == (prompt,)


def test_standard_input_is_a_text_file_named_minus_unless_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", FakeStdin(b"Once\n"))
    assert from_file("-").prompts == ("Once",)
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refusal("-")


@pytest.mark.parametrize(
    ("content", "prompts"),
    [
        (
            '{"prompt": "one", "id": 7}\n\n{"turns": ["two", "and then"], "category": "x"}\r\n{"prompt": "three\\n"}',
            ("one", Prompt("two", category="x"), "three\n"),
        ),
        ('{"prompt": "a\\ud83cb"}', ("a\ufffdb",)),
        ('{"prompt": "\\ud83c\\udf32"}', ("🌲",)),
    ],
    ids=["a prompt a line", "half a surrogate pair", "a whole one"],
)
def test_a_jsonl_file_holds_a_prompt_a_line(lines_file: Path, content: str, prompts: tuple[object, ...]) -> None:
    assert prompts_of(lines_file, content) == prompts


def test_an_argument_is_a_prompt_unless_it_is_empty() -> None:
    assert from_text("caf\udce9") == "caf\ufffd"  # bytes that are no text
    with pytest.raises(PromptError, match="the prompt is empty"):
        from_text("")


FINE = b'{"prompt": "a"}\n'
BAD_LINES = (
    *("Once", "[]", "3", '{"prompt": 3}', '{"prompt": ""}', '{"turns": []}', '{"turns": [""]}', '{"answer": "x"}'),
    *('{"prompt": "x"', "[" * 100_000, '{"prompt": 1' + "0" * 5000 + "}"),
)
TORN = ('[{"prompt": "a"}', '[{"prompt": "a"} {"prompt": "b"}]', '[{"prompt": "a"}] b')
NO_TURNS: tuple[list[object], ...] = (
    [{"role": "user", "content": 3}],
    [{"role": "user"}],
    [{"content": "a"}],
    [{"role": "user", "content": [{"type": "image_url"}]}],
    [{"role": "user", "content": "a"}, "b"],
)
GZIP = gzip.compress(b"Once upon a time there was a tree. " * 9, mtime=0)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        *(("p.txt", content, "PATH is empty; write a prompt into it") for content in (b"", b"\n", b"\r\n")),
        ("p.jsonl", b"\n\n", "is empty"),
        ("p.txt", b"Once \xff upon", "is not UTF-8 text (line 1, byte 6)"),
        ("p.txt", b"one\ntwo\n \xff", "UTF-8 text (line 3, byte 10)"),
        ("p.txt", FINE * 200_000 + b"\xc3(", "UTF-8 text (line 200001, byte 3200001)"),
        ("p.txt", b"\xff\xfea\0\n\0\0\xdc", "UTF-16-LE text (line 2, byte 7)"),
        ("p.txt", "é".encode()[:1], "UTF-8 text (line 1, byte 1)"),
        *(("p.txt", damaged, "is a damaged gzip file") for damaged in (GZIP[:-9], GZIP[:20] + b"x" * 9 + GZIP[29:])),
        *(("p.jsonl", FINE + line.encode() + b"\n", "PATH: line 2: ") for line in BAD_LINES),
        ("p.json", b'[\n {"prompt": "a"},\n {\n  "prompt": b\n }\n]', ": line 4: Expecting value"),
        *(("p.txt", torn.encode(), "line 1: ") for torn in TORN),
        *(("p.jsonl", json.dumps({"messages": turns}).encode(), 'of "messages"') for turns in NO_TURNS),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_prompt_is_refused_in_a_line_with_its_place(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert said.replace("PATH", str(tmp_path / name)) in refusal(tmp_path / name)


@pytest.mark.parametrize("name", [".", "missing.txt"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    assert "cannot read" in refusal(tmp_path / name)


def test_an_endless_file_and_too_many_prompts_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MOST_PROMPTS", 3)
    (tmp_path / "many.jsonl").write_bytes(FINE * 4)
    assert "more than 3 prompts" in refusal(tmp_path / "many.jsonl")
    monkeypatch.setattr(prompts, "LONGEST", 10)
    (tmp_path / "long.txt").write_bytes(b"x" * 11)
    assert "longer than any context" in refusal(tmp_path / "long.txt")


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
    read = from_file(str(tmp_path / name))
    assert read.prompts == tuple(prompt for _, prompt, _ in OBJECTS.values())
    assert read.fields == tuple(field for _, _, field in OBJECTS.values())


@pytest.mark.parametrize("shape", SHAPES)
def test_objects_are_read_from_standard_input(monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    content = SHAPES[shape]([{"prompt": "a"}, {"prompt": "b"}]).encode()
    monkeypatch.setattr(sys, "stdin", FakeStdin(content))
    assert from_file("-").prompts == ("a", "b")


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[", "{a} and {b}", "[Music] la la\nla", "[1, 2, 3] is a list", '["a", "b"]', "{}", "[{", '"prompt"'),
        *('{"name": "Bob", "age": 3', '{"answer": 42}', "{\n  int prompt = 3;\n}\n\n", '  {"prompt": '),
    ],
)
def test_text_that_only_begins_like_json_is_a_text_prompt(text_file: Path, text: str) -> None:
    assert prompts_of(text_file, text) == (text.removesuffix("\n"),)


@pytest.mark.parametrize("bad", ['{"prompt": "x"', "Once", '{"prompt": "x}', '{"prompt": "x",}'])
@pytest.mark.parametrize("place", [1, 2, 5])
def test_a_bad_line_without_a_telling_name_is_refused_by_number(
    monkeypatch: pytest.MonkeyPatch, bad: str, place: int
) -> None:
    if (bad, place) == ("Once", 1):
        pytest.skip("a text that begins with a word is plain text")
    lines = ['{"prompt": "fine"}'] * 5
    lines[place - 1] = bad
    monkeypatch.setattr(sys, "stdin", FakeStdin("\n".join(lines).encode()))
    assert refusal("-").startswith(f"standard input: line {place}: ")


def test_a_named_field_is_read_alone(text_file: Path) -> None:
    text_file.write_text('{"prompt": "a", "body": {"x": "b"}}\n{"body.x": "c", "text": "d"}', encoding="utf-8")
    read = from_file(str(text_file), "body.x")
    assert (read.prompts, read.fields) == (("b", "c"), ("body.x", "body.x"))
    with pytest.raises(PromptError, match=r"line 1: the object has no field 'query'.*--prompt-field"):
        from_file(str(text_file), "query")


def test_conversations_without_a_user_s_turn_are_left_out_and_counted(lines_file: Path) -> None:
    lines_file.write_text(
        '{"conversations": []}\n{"conversations": [{"from": "gpt", "value": "Hi"}]}\n'
        '{"conversations": [{"from": "human", "value": "Hi"}]}',
        encoding="utf-8",
    )
    read = from_file(str(lines_file))
    assert read.prompts == (Prompt("Hi", ()),)
    assert read.said(None).endswith("with the model's chat template; 2 conversations without a user message left out")


def test_the_assistant_s_message_after_the_user_s_last_turn_is_the_answer(lines_file: Path) -> None:
    user, answer = {"role": "user", "content": "Hm?"}, {"role": "assistant", "content": "Yes."}
    shared = [{"from": "human", "value": "Hm?"}, {"from": "gpt", "value": "No."}]
    rows: list[dict[str, object]] = [
        {"messages": [user, answer]},
        {"messages": [user, answer, user]},
        {"messages": [user, {"role": "tool", "content": "1"}, answer]},
        {"conversations": [*shared, *shared]},
        {"prompt": "Hm?"},
    ]
    lines_file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert from_file(str(lines_file)).answers == ("Yes.", "", "", "No.", "")


def test_what_was_read_is_told_by_field_and_plain_text_only_if_it_looks_like_json(
    lines_file: Path, text_file: Path
) -> None:
    lines = [{"messages": CONVERSATION}, {"messages": CONVERSATION}, {"prompt": "a"}]
    lines_file.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    read = from_file(str(lines_file))
    assert read.said(None) == (
        f"{lines_file}: 2 prompts from `messages`, with the model's chat template; 1 prompt from `prompt`"
    )
    assert "`messages`, the last user's turn as plain text" in read.said(False)
    assert "1 prompt from `prompt`, with the model's chat template" in read.said(True)
    text_file.write_text("Once", encoding="utf-8")
    assert not from_file(str(text_file)).said(None)
    text_file.write_text("{Once", encoding="utf-8")
    assert from_file(str(text_file)).said(None).endswith("1 prompt, the whole text")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("content", ["Élan 🌲", '{"prompt": "Élan 🌲"}'])
def test_a_byte_order_mark_gives_the_encoding(text_file: Path, encoding: str, content: str) -> None:
    mark = "\ufeff" if encoding[-2:] in ("le", "be") else ""
    assert prompts_of(text_file, f"{mark}{content}".encode(encoding)) == ("Élan 🌲",)


@pytest.mark.parametrize("begin", [b"", b'{"prompt": "a"}\n', b'{"prompt": "'], ids=["text", "blanks", "one prompt"])
def test_a_long_gzip_file_does_not_fill_the_memory(
    text_file: Path, begin: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompts, "LONGEST", 2**20)
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
    assert len(from_file(str(lines_file)).prompts) == 20_000
