"""A prompt with its category, and the search for a prompt in an object of a prompt file."""

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
    """For example system, user or assistant; the chat template defines which roles are valid."""
    content: str


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or a conversation up to a user's message, with its category."""

    text: str
    """Plain text; for a conversation, the content of its last message, which is the user's."""
    earlier: tuple[ChatMessage, ...] | None = None
    """For a conversation, the messages before its last one; None for plain text."""
    category: str = ""

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """All messages; plain text is a single message of the user."""
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
    """Whether a chat template writes the text of a prompt: always if `chat` is True, never if it is False, and only for
    conversations if it is None.
    """
    return as_prompt(prompt).earlier is not None if chat is None else chat


FIELDS = ("messages", "conversations", "conversation", "prompt", "instruction", "question", "turns", "text")
"""Fields that may hold a prompt, by precedence; `text` is last, since in training data this field includes the answer.
"""
_CONVERSATIONS = ("messages", "conversations", "conversation")
_BODY = "body"
_FURTHER = ("input", "context")
"""Fields with the input to which an instruction applies."""
_CATEGORIES = ("category", "tag")
_LONGEST_CATEGORY = 80
_SPEAKERS = ("role", "from")
_CONTENTS = ("content", "value", "text")
_ROLES = {"human": USER, "prompter": USER, **dict.fromkeys(("gpt", "chatgpt", "bard", "bing", "model"), ASSISTANT)}
"""Chat roles by speaker name, for the speaker names of ShareGPT and similar data sets."""


class FieldError(ValueError):
    """The object has no usable prompt; the message is the reason."""


@dataclass(frozen=True)
class Found:
    prompt: AnyPrompt | None
    """None for a conversation without a message of the user."""
    field: str
    answer: str = ""
    """The assistant's message directly after the user's last message in a conversation; empty if there is none."""


def has_prompt(record: object, field: str | None = None) -> bool:
    """Whether a value is an object that has the field `field` or, if `field` is None, any of `FIELDS`."""
    return isinstance(record, dict) and next(_present(record, field), None) is not None


def prompt_in(record: Mapping[str, Any], field: str | None = None) -> Found:
    """The prompt in the named field, or else in the first field of `FIELDS` that is present. Raises FieldError."""
    found = next(_present(record, field), None)
    if found is None:
        looked_for = quoted(field) if field else ", ".join(f'"{name}"' for name in FIELDS)
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
    """(name, value, enclosing object) of each present field that may hold the prompt, by precedence. A name may be a
    path, such as body.messages.
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
    """The prompt in the value of a field; None for a conversation without a message of the user."""
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
    raise FieldError(f'"{shortened(name)}" is {quoted(value)}, which is not a prompt')


def _conversation(name: str, messages: Sequence[object]) -> Prompt | None:
    """The conversation up to the user's last message; None if there is no message of the user."""
    read = [_message(name, number, message) for number, message in enumerate(messages, 1)]
    last = max((place for place, message in enumerate(read) if message.role == USER), default=None)
    return None if last is None else Prompt(read[last].content, tuple(read[:last]))


def _answer(name: str, messages: Sequence[object], place: int) -> str:
    answer = _message(name, place + 1, messages[place]) if place < len(messages) else None
    return answer.content if answer and answer.role == ASSISTANT else ""


def _message(name: str, number: int, message: object) -> ChatMessage:
    where = f'turn {number} of "{shortened(name)}"'
    if not isinstance(message, dict):
        raise FieldError(f"{where} is {quoted(message)}, which is not an object")
    speaker = next((message[key] for key in _SPEAKERS if isinstance(message.get(key), str)), None)
    if speaker is None:
        raise FieldError(f'{where} does not say who speaks, under "role" or "from"')
    content = next((message[key] for key in _CONTENTS if message.get(key) is not None), None)
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise FieldError(f'{where} has no text under "content" or "value"')
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise FieldError(f"{where} has content that is not text; only text is supported")
    return ChatMessage(_ROLES.get(speaker.casefold(), speaker), "".join(map(str, texts)))


def _category(record: Mapping[str, Any]) -> str:
    value = next((record[key] for key in _CATEGORIES if isinstance(record.get(key), str | int | float)), "")
    return str(value)[:_LONGEST_CATEGORY]
