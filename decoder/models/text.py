"""Tokenizing prompts and detokenizing streams; a token may be a part of a character. Knows nothing of models."""

import re
from collections.abc import Sequence

from decoder.errors import PromptError, quoted
from decoder.models.tokenizer import TextTokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LONE_SURROGATES = re.compile("[\ud800-\udfff]")
CONTEXT_TOKENS = 8
CHARACTER_BYTES = 4
"""Maximum number of bytes of a character in UTF-8; one character consists of at most this number of tokens."""
TOKEN_CHARACTERS = 32
"""Upper bound of the average length of a text's tokens, in characters; single tokens may be longer."""


def without_surrogates(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which neither JSON nor UTF-8 can encode."""
    return LONE_SURROGATES.sub(REPLACEMENT, text)


def encode_prompt(
    tokenizer: TextTokenizer, prompt: str, max_new_tokens: int, context: int, *, special: bool
) -> list[int]:
    """Token ids of a prompt; `special` adds the tokenizer's special tokens for the beginning and end of a text.

    Raises:
        PromptError: The prompt has no tokens, or leaves no room for `max_new_tokens` within `context` tokens.
    """
    if len(prompt) > TOKEN_CHARACTERS * context:  # tokenizing such a long text would take minutes
        raise PromptError(
            f"the prompt has {len(prompt)} characters, far more than the models' context of {context} tokens can hold; "
            "shorten the prompt"
        )
    ids: list[int] = tokenizer(prompt, add_special_tokens=special, verbose=False).input_ids
    if not ids:
        raise PromptError("the prompt is empty; give at least one word")
    room = context - len(ids)
    if max_new_tokens > room:
        remedy = f"give --max-new-tokens {room} or less" if room > 0 else "shorten the prompt: not one new token fits"
        raise PromptError(
            f"the prompt has {len(ids)} tokens; with {max_new_tokens} new tokens the text exceeds the models' "
            f"context of {context} tokens; {remedy}"
        )
    return ids


def require_known(tokenizer: TextTokenizer, ids: Sequence[int], vocabulary: int) -> None:
    """Raises PromptError if a prompt has a token outside the vocabulary that both models share.

    A tokenizer may have tokens that were added after a model was trained.
    """
    if unknown := [token for token in ids if token >= vocabulary]:
        text = decoded(tokenizer, unknown[:1], special=True)
        raise PromptError(
            f"the prompt contains {quoted(text)}, which is token {unknown[0]} of the tokenizer, but the models know "
            f"only {vocabulary} tokens; leave this token out, or choose other models"
        )


def decoded(tokenizer: TextTokenizer, ids: list[int], *, special: bool = False) -> str:
    """The text of these tokens, without any clean-up; `special` includes the text of special tokens."""
    text = tokenizer.decode(ids, skip_special_tokens=not special, clean_up_tokenization_spaces=False)
    assert isinstance(text, str), "a single list of ids has a single text"  # noqa: S101 - the library's type is wider
    return text


class TextStream:
    """Incremental detokenizer of committed tokens; an incomplete character waits for its last byte."""

    def __init__(self, tokenizer: TextTokenizer, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        # The context begins with a few tokens of the prompt, since some tokenizers drop a space at the start of a text.
        self._shown = list(prompt_ids[-CONTEXT_TOKENS:])
        self._waiting: list[int] = []

    @property
    def waiting(self) -> list[int]:
        """Latest tokens, whose text is an incomplete character."""
        return self._waiting

    def copy(self) -> "TextStream":
        """A copy of this stream; tokens pushed to the copy leave this stream unchanged."""
        twin = TextStream(self._tokenizer, self._shown)
        twin._waiting = [*self._waiting]
        return twin

    def push(self, tokens: Sequence[int]) -> str:
        """Adds tokens to the stream; returns the text that they complete."""
        self._waiting.extend(tokens)
        for torn in range(min(CHARACTER_BYTES, len(self._waiting) + 1)):
            complete = len(self._waiting) - torn
            added = self._added(complete)
            if not added.endswith(REPLACEMENT):
                return self._release(added, complete)
        return self.finish()

    def finish(self) -> str:
        """Returns the text of all waiting tokens, even if their last character is incomplete."""
        return self._release(self._added(len(self._waiting)), len(self._waiting))

    def _added(self, count: int) -> str:
        shown = decoded(self._tokenizer, self._shown)
        return decoded(self._tokenizer, [*self._shown, *self._waiting[:count]])[len(shown) :]

    def _release(self, added: str, count: int) -> str:
        self._shown = [*self._shown, *self._waiting[:count]][-CONTEXT_TOKENS:]
        self._waiting = self._waiting[count:]
        return added


class Pieces:
    """Text of single tokens as they appear inside a longer text; cached, since many trees contain the same tokens."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._anchor: list[int] = tokenizer("a", add_special_tokens=False).input_ids[-1:]
        self._anchor_text = decoded(tokenizer, self._anchor, special=True)
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        """The text of one token."""
        if token not in self._known:
            together = decoded(self._tokenizer, [*self._anchor, token], special=True)
            alone = decoded(self._tokenizer, [token], special=True)
            follows = together.startswith(self._anchor_text)
            self._known[token] = together[len(self._anchor_text) :] if follows else alone
        return self._known[token]
