"""Loads prompts exactly as their authors wrote them: nothing is removed but one newline at the end of a text file.

A file is read as JSON objects with prompts if its name, a given field or its content shows this, else as one prompt.
"""

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from importlib.resources import files
from itertools import chain
from pathlib import Path

from decoder.errors import PromptError, shortened
from decoder.prompt import AnyPrompt, FieldError, Prompt, as_prompt, has_prompt, plainest, prompt_in, templated
from dynatui.files import opened
from dynatui.number_format import counted
from dynatui.prompts.reader import LONGEST, MalformedError, Window, objects, text_chunks, value_at

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
