"""A prompt with what its file says about it, found in an object by its fields."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from decoder.errors import quoted, shortened

USER = "user"
"""Role of the user's messages in a conversation."""
ASSISTANT = "assistant"


class ChatMessage(msgspec.Struct, frozen=True):
    role: str
    """Such as system, user or assistant; chat templates decide which roles there are."""
    content: str


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or a conversation up to a user's message, with its category."""

    text: str
    """Plain text; for a conversation, the content of its last message, which is the user's."""
    earlier: tuple[ChatMessage, ...] | None = None
    """For a conversation, the messages before its last one; None for plain text."""
    category: str = ""
    """From the prompt's file."""

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """Plain text is a single message of the user."""
        return (*(self.earlier or ()), ChatMessage(USER, self.text))


AnyPrompt: TypeAlias = str | Prompt
"""A prompt. Plain text without a category is a `str`."""


def as_prompt(prompt: AnyPrompt) -> Prompt:
    return Prompt(prompt) if isinstance(prompt, str) else prompt


def plainest(prompt: Prompt) -> AnyPrompt:
    return prompt.text if prompt == Prompt(prompt.text) else prompt


def with_category(text: str, category: str) -> AnyPrompt:
    return plainest(Prompt(text, category=category))


def templated(prompt: AnyPrompt, chat: bool | None) -> bool:  # noqa: FBT001 - a setting of the run, passed on
    """Whether a chat template writes the text of a prompt: for every prompt if `chat` is True, for none if it is False,
    and if it is None for conversations alone.
    """
    return as_prompt(prompt).earlier is not None if chat is None else chat


FIELDS = ("messages", "conversations", "conversation", "prompt", "instruction", "question", "turns", "text")
"""In order of precedence; `text` is last, since in data sets for training it holds prompt and answer."""
_CONVERSATIONS = ("messages", "conversations", "conversation")
_BODY = "body"
_FURTHER = ("input", "context")
"""What an instruction is about."""
_CATEGORIES = ("category", "tag")
_LONGEST_CATEGORY = 80
_SPEAKERS = ("role", "from")
_CONTENTS = ("content", "value", "text")
_ROLES = {"human": USER, "prompter": USER, **dict.fromkeys(("gpt", "chatgpt", "bard", "bing", "model"), ASSISTANT)}
"""By the names of speakers in ShareGPT's and similar files."""


class FieldError(ValueError):
    """The message is the reason."""


@dataclass(frozen=True)
class Found:
    prompt: AnyPrompt | None
    """None for a conversation without a message of the user."""
    field: str
    answer: str = ""
    """Of the assistant, directly after the last message of a conversation's user; empty without one."""


def has_prompt(record: object, field: str | None = None) -> bool:
    """Whether a value is an object with the named field or, if none is named, with one that holds prompts."""
    return isinstance(record, dict) and next(_present(record, field), None) is not None


def prompt_in(record: Mapping[str, Any], field: str | None = None) -> Found:
    """The prompt in the named field, or else in the first of `FIELDS`; raises FieldError if there is none."""
    found = next(_present(record, field), None)
    if found is None:
        looked_for = quoted(field) if field else ", ".join(map(_in_quotes, FIELDS))
        raise FieldError(f"the object has no field {looked_for}")
    name, value, inside = found
    prompt = _prompt(name, value, exactly=field is not None)
    if prompt is None:
        return Found(None, name)
    if name.endswith("instruction") and field is None:
        about = next((each for key in _FURTHER if isinstance(each := inside.get(key), str) and each.strip()), "")
        prompt = Prompt(f"{prompt.text}\n\n{about}" if about else prompt.text)
    answer = "" if prompt.earlier is None else _answer(name, value, len(prompt.earlier) + 1)
    return Found(plainest(Prompt(prompt.text, prompt.earlier, _category(record))), name, answer)


def _present(record: Mapping[str, Any], field: str | None) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Name and value of each field that may hold the prompt, and the object that has it; a name may be a path:
    body.messages.
    """
    if field is not None:
        value: Any = record
        for key in (field,) if field in record else field.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            yield field, value, record
        return
    body = record.get(_BODY)
    for prefix, inside in (("", record), (f"{_BODY}.", body if isinstance(body, dict) else {})):
        yield from ((prefix + name, inside[name], inside) for name in FIELDS if inside.get(name) is not None)


def _prompt(name: str, value: object, *, exactly: bool) -> Prompt | None:
    """None for a conversation without a message of the user."""
    kind = name.rpartition(".")[2]
    match value:
        case [dict(), *_]:
            return _conversation(name, value)
        case [] if kind in _CONVERSATIONS:
            return None
        case [str(text), *_] if (exactly or kind == "turns") and text:
            return Prompt(text)
        case str(text) if text and kind != "turns":
            return Prompt(text)
        case "" | [] | [""]:
            raise FieldError(f'"{shortened(name)}" holds no prompt')
    raise FieldError(f'"{shortened(name)}" is {quoted(value)}, which is no prompt')


def _conversation(name: str, messages: Sequence[object]) -> Prompt | None:
    """Up to its last message of the user; None if there is none."""
    read = [_message(name, number, message) for number, message in enumerate(messages, 1)]
    last = max((place for place, message in enumerate(read) if message.role == USER), default=None)
    return None if last is None else Prompt(read[last].content, tuple(read[:last]))


def _answer(name: str, messages: Sequence[object], place: int) -> str:
    answer = _message(name, place + 1, messages[place]) if place < len(messages) else None
    return answer.content if answer and answer.role == ASSISTANT else ""


def _message(name: str, number: int, message: object) -> ChatMessage:
    where = f'turn {number} of "{shortened(name)}"'
    if not isinstance(message, dict):
        raise FieldError(f"{where} is {quoted(message)}, which is no object")
    speaker = next((message[key] for key in _SPEAKERS if isinstance(message.get(key), str)), None)
    if speaker is None:
        raise FieldError(f'{where} does not say who speaks, under "role" or "from"')
    content = next((message[key] for key in _CONTENTS if message.get(key) is not None), None)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise FieldError(f'{where} has no text under "content" or "value"')
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise FieldError(f"{where} has content that is no text; only text is read")
    return ChatMessage(_ROLES.get(speaker.casefold(), speaker), "".join(map(str, texts)))


def _category(record: Mapping[str, Any]) -> str:
    value = next((record[key] for key in _CATEGORIES if isinstance(record.get(key), str | int | float)), "")
    return str(value)[:_LONGEST_CATEGORY]


def _in_quotes(name: str) -> str:
    return f'"{name}"'
