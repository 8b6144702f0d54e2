"""Loads prompts exactly as their authors wrote them: nothing is removed but one newline at the end of a text file.

A file is read as JSON objects with prompts if its name, a given field or its content shows this, else as one prompt.
Files are plain or gzip, in UTF-8 or in the encoding of a byte order mark. Text is read in chunks of bounded size, so
that a small gzip file with a very long text does not fill the memory. JSON: lines, consecutive objects or one array,
whatever their fields.
"""

import codecs
import gzip
import json
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, cast

from decoder.errors import PromptError, first_line, shortened
from decoder.prompt import AnyPrompt, FieldError, Prompt, as_prompt, has_prompt, plainest, prompt_in, templated
from dynatui.files import opened
from dynatui.number_format import counted

CHUNK = 2**20
"""Size of a chunk in bytes."""
_GZIP = b"\x1f\x8b"
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def text_chunks(file: BinaryIO, shown: str) -> Iterator[str]:
    """Text of a file in chunks, without its byte order mark; newlines are left as they are.

    Raises PromptError, which names the file `shown`, if the file is not text or is a damaged gzip file.
    """
    pieces = _unpacked(file, shown)
    first = next(pieces, b"")
    mark, encoding = next((each for each in _MARKS if first.startswith(each[0])), (b"", "utf-8"))
    decoder, fed, line = codecs.getincrementaldecoder(encoding)(), len(mark), 1
    piece = first.removeprefix(mark)
    while True:
        fed += len(piece)
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            bad, begin = error.object, error.start
            line += bad[:begin].decode(encoding, "ignore").count("\n")
            raise PromptError(
                f"{shown} is not {encoding.upper()} text (line {line}, byte {fed - len(bad) + begin + 1}); convert it, "
                "with iconv for example"
            ) from None
        line += text.count("\n")
        if text:
            yield text
        if not piece:
            return
        piece = next(pieces, b"")


def _unpacked(file: BinaryIO, shown: str) -> Iterator[bytes]:
    begun = _Begun(file)
    source = gzip.GzipFile(fileobj=cast("Any", begun)) if begun.head.startswith(_GZIP) else begun
    try:
        while piece := source.read(CHUNK):
            yield piece
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise PromptError(f"{shown} is a damaged gzip file ({error}); make or download it again") from None


class _Begun:
    """A file whose first bytes are already read. It is never read after its end: a terminal would wait for input."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.head = file.read(CHUNK)
        self._ended = len(self.head) < CHUNK

    def read(self, size: int) -> bytes:
        if self.head:
            taken, self.head = self.head[:size], self.head[size:]
            return taken
        piece = b"" if self._ended else self._file.read(size)
        self._ended = len(piece) < size
        return piece


LONGEST = 16 * 2**20
"""Largest length of an object in characters, so that an endless text cannot fill the memory."""
_BLANKS = re.compile(r"[ \t\r\n]*")
_decoder = json.JSONDecoder()


class MalformedError(ValueError):
    def __init__(self, line: int, why: str) -> None:
        super().__init__(why)
        self.line = line


class Window:
    """The part of a text that is in memory. It begins at the text's first unread character, and grows on demand."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self.text = ""
        self.at = 0
        """Index in `text` of the first unread character."""
        self.line = 1
        """Line number of the first unread character."""
        self._chunks = chunks

    def grow(self) -> bool:
        """Doubles the unread text; False at the text's end, or if the unread text is longer than `LONGEST`."""
        unread = [self.text[self.at :]]
        wanted = 2 * len(unread[0]) or 1
        if wanted > 2 * LONGEST:
            return False
        while wanted > sum(map(len, unread)) and (chunk := next(self._chunks, "")):
            unread.append(chunk)
        self.text, self.at = "".join(unread), 0
        return len(unread) > 1

    def read_to(self, at: int) -> None:
        """Marks the text before the index `at` as read."""
        self.line += self.text.count("\n", self.at, at)
        self.at = at

    def next_character(self) -> str:
        """Marks blanks as read, and returns the character after them; empty at the end of the text."""
        blanks = 0
        while True:
            match = _BLANKS.match(self.text, self.at)
            end = match.end() if match else self.at
            blanks += end - self.at
            self.read_to(end)
            if end < len(self.text):
                return self.text[end]
            if blanks > LONGEST:
                raise MalformedError(self.line, f"more than {LONGEST >> 20} MiB of blanks precede it")
            if not self.grow():
                return ""

    def skip_line(self) -> None:
        """Marks the rest of the current line as read, as far as it is in memory."""
        end = self.text.find("\n", self.at)
        self.read_to(end + 1 if end >= 0 else len(self.text))


def objects(window: Window) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields each object with the number of the line on which it begins; raises MalformedError for anything else."""
    in_array = window.next_character() == "["
    if in_array:
        window.read_to(window.at + 1)
    while (following := window.next_character()) and not (in_array and following == "]"):
        line = window.line
        value, end = value_at(window, line if not in_array else None)
        if not isinstance(value, dict):
            raise MalformedError(line, f"it holds {_kind(value)} in place of an object")
        window.read_to(end)
        yield line, value
        if in_array and window.next_character() == ",":
            window.read_to(window.at + 1)
        elif in_array and window.next_character() != "]":
            raise MalformedError(window.line, "',' or ']' is missing after an object")
    if in_array:
        if not following:
            raise MalformedError(window.line, "the array's end is missing")
        window.read_to(window.at + 1)
        if window.next_character():
            raise MalformedError(window.line, "text follows after the array")


def value_at(window: Window, line: int | None = None) -> tuple[Any, int]:
    """The JSON value at the window's first unread character, and the index after it.

    Raises MalformedError with the line number `line` or, if `line` is None, with the line number of the fault.
    """
    while True:
        try:
            return _decoder.raw_decode(window.text, window.at)
        except (ValueError, RecursionError) as error:
            fault, why = window.at, first_line(error)
            if isinstance(error, json.JSONDecodeError):
                fault, why = error.pos, error.msg
            lines = window.text.count("\n", window.at, fault)
            if window.grow():
                continue
            if len(window.text) - window.at > LONGEST:
                lines, why = 0, f"the object is longer than {LONGEST >> 20} MiB, which is longer than any context"
            raise MalformedError(line or window.line + lines, why) from None


def _kind(value: object) -> str:
    match value:
        case str():
            return "a text"
        case list():
            return "a list"
        case bool() | None:
            return json.dumps(value)
    return "a number"


STANDARD_INPUT = "-"
MOST_PROMPTS = 2**20
MOST_TEXT = 2**29
"""Characters of all prompts, limited like `MOST_PROMPTS` so that an endless file cannot fill the memory."""
_NAMED_JSON = re.compile(r"\.(json|jsonl|ndjson)(\.gz)?$", re.IGNORECASE)
_LIKE_JSON = ("{", "[")
_EXAMPLE = 'write one object per line, such as {"prompt": "Once"}'


@dataclass(frozen=True)
class PromptFile:
    name: str
    prompts: tuple[AnyPrompt, ...]
    fields: tuple[str, ...] = ()
    """Name of the field from which each prompt was read; empty if the file is one prompt."""
    left_out: int = 0
    """Number of conversations that were left out, since they have no user message."""
    answers: tuple[str, ...] = ()
    """Answer to each prompt, an empty string if there is none; no answers if the file is one prompt."""

    def said(self, chat: bool | None) -> str:  # noqa: FBT001 - a setting of the run, passed on
        """Describes what was read; empty for plain text that does not look like JSON."""
        if not self.fields:
            first = as_prompt(self.prompts[0]).text.lstrip()[:1]
            return f"{_shown(self.name)}: 1 prompt, the whole text" if first in _LIKE_JSON else ""
        pairs = zip(self.fields, self.prompts, strict=True)
        kinds = Counter((name, as_prompt(each).earlier is not None, templated(each, chat)) for name, each in pairs)
        parts = [_part(count, *kind) for kind, count in kinds.items()]
        if self.left_out:
            parts.append(f"{self.left_out} conversations without a user message left out")
        return f"{_shown(self.name)}: {'; '.join(parts)}"


def embedded() -> tuple[str, ...]:
    folder = files("dynatui.prompts")
    texts = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".txt")), key=lambda entry: entry.name)
    return tuple(_without_newline(entry.read_text(encoding="utf-8")) for entry in texts)


def from_text(text: str) -> str:
    """The prompt `text`, where invalid UTF-8 is replaced by U+FFFD, which JSON can represent."""
    if not text:
        raise PromptError("the prompt is empty; give --prompt at least one character")
    return _without_surrogates(text)


def from_file(name: str, prompt_field: str | None = None) -> PromptFile:
    """The prompts in a file, which may be a gzip file, or standard input (`-`).

    If `prompt_field` is None, the first known field of each object is read. Raises PromptError, which names the line.
    """
    shown = _shown(name)
    if name == STANDARD_INPUT and sys.stdin is None:
        raise PromptError("standard input is closed; give a file with prompts instead of -")
    try:
        with nullcontext(sys.stdin.buffer) if name == STANDARD_INPUT else opened(Path(name)) as file:
            return _read(name, text_chunks(file, shown), prompt_field)
    except OSError as error:
        remedy = "give a file with prompts, or - for standard input"
        raise PromptError(f"cannot read {shown}: {error.strerror}; {remedy}") from None


def _read(name: str, chunks: Iterator[str], prompt_field: str | None) -> PromptFile:
    seen = list[str]()
    noted = _noted(chunks, seen)
    of_objects = bool(_NAMED_JSON.search(name)) or prompt_field is not None
    if of_objects or _begins_with_a_prompt(Window(noted)):
        return _from_objects(name, Window(chain(seen, chunks)), prompt_field)
    return _from_text_file(name, chain(seen, chunks))


def _noted(chunks: Iterator[str], seen: list[str]) -> Iterator[str]:
    for chunk in chunks:
        seen.append(chunk)
        yield chunk


def _begins_with_a_prompt(window: Window) -> bool:
    """Whether the text begins with an object that has a prompt, or has such an object after a malformed first line."""
    with suppress(MalformedError):
        if window.next_character() not in _LIKE_JSON:
            return False
        if has_prompt(next(objects(window), (0, None))[1]):
            return True
    window.skip_line()
    with suppress(MalformedError):
        return bool(window.next_character() == "{" and has_prompt(value_at(window)[0]))
    return False


def _from_objects(name: str, window: Window, prompt_field: str | None) -> PromptFile:
    shown, prompts, fields, left_out, text = _shown(name), list[AnyPrompt](), list[str](), 0, 0
    answers = list[str]()
    try:
        for line, record in objects(window):
            try:
                found = prompt_in(record, prompt_field)
            except FieldError as error:
                remedy = f"{_EXAMPLE}, or name the field with --prompt-field"
                raise PromptError(f"{shown}: line {line}: {error}; {remedy}") from None
            if found.prompt is None:
                left_out += 1
                continue
            prompt = as_prompt(found.prompt)
            text += sum(len(message.content) for message in prompt.messages) + len(found.answer)
            if len(prompts) == MOST_PROMPTS or text > MOST_TEXT:
                most = f"{MOST_PROMPTS} prompts, or more than {MOST_TEXT >> 20} MiB of them"
                raise PromptError(f"{shown} has more than {most}; give a part of the file")
            prompts.append(_clean(prompt))
            answers.append(_without_surrogates(found.answer))
            fields.append(sys.intern(found.field))
    except MalformedError as error:
        raise PromptError(f"{shown}: line {error.line}: {error}; {_EXAMPLE}") from None
    if not prompts:
        why = f"holds {left_out} conversations without a user message" if left_out else "is empty"
        raise PromptError(f"{shown} {why}; {_EXAMPLE}")
    return PromptFile(name, tuple(prompts), tuple(fields), left_out, tuple(answers))


def _from_text_file(name: str, chunks: Iterable[str]) -> PromptFile:
    shown, parts, length = _shown(name), list[str](), 0
    for chunk in chunks:
        parts.append(chunk)
        length += len(chunk)
        if length > LONGEST:
            raise PromptError(
                f"{shown} is one text of more than {LONGEST >> 20} MiB, which is longer than any context; shorten the "
                f"text, or {_EXAMPLE}"
            )
    text = _without_newline("".join(parts))
    if not text:
        raise PromptError(f"{shown} is empty; write a prompt into it")
    return PromptFile(name, (text,))


def _part(count: int, name: str, conversation: bool, wrapped: bool) -> str:  # noqa: FBT001 - called with a tuple
    prompts = f"{counted(count, 'prompt')} from `{shortened(name)}`"
    if wrapped:
        return f"{prompts}, with the model's chat template"
    return f"{prompts}, the last user's turn as plain text" if conversation else prompts


def _clean(prompt: Prompt) -> AnyPrompt:
    """The prompt without lone surrogates, which JSON can escape."""
    clean, earlier = _without_surrogates, prompt.earlier
    messages = earlier and tuple(type(each)(clean(each.role), clean(each.content)) for each in earlier)
    return plainest(Prompt(clean(prompt.text), messages, clean(prompt.category)))


def _shown(name: str) -> str:
    return "standard input" if name == STANDARD_INPUT else shortened(name)


def _without_newline(text: str) -> str:
    return text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text


def _without_surrogates(text: str) -> str:
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
