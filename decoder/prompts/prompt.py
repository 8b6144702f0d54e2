"""A prompt with what its file says about it. Knows neither files nor models."""

from typing import TypeAlias

import msgspec

USER = "user"
"""Role of the user's turns in a conversation."""


class Turn(msgspec.Struct, frozen=True):
    role: str
    """Such as system, user or assistant; chat templates decide which roles there are."""
    content: str


class Prompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text, or a conversation up to a user's turn, with its category."""

    text: str
    """Plain text; for a conversation, the content of its last turn, which is the user's."""
    earlier: tuple[Turn, ...] | None = None
    """For a conversation, the turns before its last turn; None for plain text."""
    category: str = ""
    """From the prompt's file."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns; plain text is a single turn of the user."""
        return (*(self.earlier or ()), Turn(USER, self.text))


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
