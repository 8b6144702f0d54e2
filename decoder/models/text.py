"""Tokenizing of prompts, with or without a chat template, and incremental detokenizing, in which a token may be a part
of a character.
"""

import re
from collections import Counter
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any, cast

from decoder.errors import ConfigError, DecoderError, PromptError, first_line, quoted
from decoder.models.tokenizer import REPLACEMENT, TextTokenizer, decoded
from decoder.prompts.prompt import AnyPrompt, Prompt, as_prompt, templated

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
TORN_BYTES = 3
"""Largest number of bytes in an incomplete UTF-8 character."""
MOST_WAITING = 64
"""Largest number of tokens that wait; more tokens without a complete character cannot become one."""
KEPT_TOKENS, MOST_TOKENS = 16, 32
"""A window with more than `MOST_TOKENS` tokens of returned text is shortened to the last `KEPT_TOKENS` of them."""
START_CHARACTERS = 256
"""Number of characters at a prompt's start that are searched for special tokens such as BOS."""
TOKEN_CHARACTERS = 32
"""Upper bound of the average length of a text's tokens, in characters."""


OF_MODELS = "the models'"
"""Genitive in messages if no model is named as the owner of the context limit."""


def without_surrogates(text: str) -> str:
    """The text with U+FFFD in place of lone surrogates, which neither JSON nor UTF-8 can encode."""
    return LONE_SURROGATES.sub(REPLACEMENT, text)


def encoded(tokenizer: TextTokenizer, text: str) -> list[int]:
    """Tokens of a text, without special tokens."""
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    return ids


def first_tokens(tokenizer: TextTokenizer) -> list[int]:
    plain = encoded(tokenizer, "a")
    whole: list[int] = tokenizer("a", add_special_tokens=True, verbose=False).input_ids
    places = range(len(whole) - len(plain) + 1)
    return next((whole[:place] for place in places if whole[place : place + len(plain)] == plain), [])


def _begun_once(tokenizer: TextTokenizer, ids: list[int]) -> list[int]:
    start = first_tokens(tokenizer)
    while start and ids[: 2 * len(start)] == [*start, *start]:
        ids = ids[len(start) :]
    return ids


def repeated_start(tokenizer: TextTokenizer, prompt: str, *, special: bool) -> str:
    """Text of the special tokens, such as BOS, with which a prompt would begin twice; `encode_prompt` drops them."""
    ids: list[int] = tokenizer(prompt[:START_CHARACTERS], add_special_tokens=special, verbose=False).input_ids
    repeated = ids[: len(ids) - len(_begun_once(tokenizer, ids))]
    return decoded(tokenizer, repeated, special=True)


def encode_prompt(
    tokenizer: TextTokenizer, prompt: str, max_new_tokens: int, context: int, *, special: bool, limit: str = OF_MODELS
) -> list[int]:
    """Token ids of a prompt. `special` adds the tokenizer's special tokens, except those with which the prompt itself
    begins; `limit` is the genitive of the name of the model that sets `context`, for messages.

    Raises PromptError if the prompt is empty, or leaves no room for `max_new_tokens` within `context` tokens.
    """
    if len(prompt) > TOKEN_CHARACTERS * context:  # tokenizing such a long text would take minutes
        raise PromptError(
            f"the prompt has {len(prompt)} characters, far more than {limit} context of {context} tokens can hold; "
            "shorten the prompt"
        )
    ids: list[int] = _begun_once(tokenizer, tokenizer(prompt, add_special_tokens=special, verbose=False).input_ids)
    if not ids:
        raise PromptError("the prompt is empty; give at least one word")
    room = context - len(ids)
    if max_new_tokens > room:
        remedy = f"give --max-new-tokens {room} or less" if room > 0 else "shorten the prompt: not one new token fits"
        raise PromptError(
            f"the prompt has {len(ids)} tokens; with {max_new_tokens} new tokens the text exceeds {limit} "
            f"context of {context} tokens; {remedy}"
        )
    return ids


def require_known(tokenizer: TextTokenizer, ids: Sequence[int], target: str, vocabulary: int) -> None:
    """Raises PromptError for a prompt token that the target lacks, for example a token added after training."""
    if unknown := [token for token in ids if token >= vocabulary]:
        text = decoded(tokenizer, unknown[:1], special=True)
        raise PromptError(
            f"the prompt contains {quoted(text)}, which is token {unknown[0]} of the tokenizer, but {target} knows "
            f"only {vocabulary} tokens; leave this token out, or choose another target"
        )


class TextStream:
    """Incremental detokenizer of committed tokens; an incomplete character waits for its last byte.

    The texts that `push` and `finish` return, joined, are what the tokens add to the decoding of the prompt; a
    character that begins in the prompt belongs to the prompt. Returned text is never changed: if an invalid byte makes
    a decoder turn a whole run of byte tokens into U+FFFD, the characters of the run that were returned stay. The time
    of a push does not depend on the length of the text before it.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self.begin(prompt_ids)

    @property
    def waiting(self) -> bool:
        """Whether the text of the latest tokens has not been returned completely."""
        return self._unread > 0

    def begin(self, prompt_ids: Sequence[int]) -> None:
        for torn in range(TORN_BYTES + 1):
            window, text = self._ending(prompt_ids[: len(prompt_ids) - torn])
            if not text.endswith(REPLACEMENT):
                break
        self._window = [*window, *prompt_ids[len(prompt_ids) - torn :]]
        self._unread, self._text = 0, decoded(self._tokenizer, self._window)
        self._shown = len(self._text) if text.endswith(REPLACEMENT) else len(text)
        """Number of characters of the window's text that were returned or belong to the prompt."""
        self._begun = self._text[self._shown :]
        """Text of an incomplete character at the end of the prompt, before it is completed."""

    def push(self, tokens: Sequence[int]) -> str:
        """Returns the text that these tokens complete."""
        text = decoded(self._tokenizer, [*self._window, *tokens])
        if text == self._text and text.rstrip(REPLACEMENT) == text != "":
            return ""  # tokens without text, such as special tokens, are not kept
        self._window += tokens
        self._unread += len(tokens)
        self._text, whole = text, len(text.rstrip(REPLACEMENT))
        if self._unread > MOST_WAITING:
            whole = max(whole, len(text) - TORN_BYTES)
        released = text[self._shown : whole]
        self._shown = max(self._shown, whole)
        self._unread = min(self._unread, MOST_WAITING) if whole < len(text) else 0
        if self._unread in (0, MOST_WAITING) and len(self._window) > MOST_TOKENS + self._unread:
            hidden = len(text) - self._shown
            self._window, self._text = self._ending(self._window)
            self._shown = len(self._text) - hidden
        return self._after_prompt(released)

    def finish(self) -> str:
        """Returns the text of all waiting tokens, even if their last character is incomplete."""
        rest, self._shown, self._unread = self._text[self._shown :], len(self._text), 0
        return self._after_prompt(rest)

    def _after_prompt(self, text: str) -> str:
        """The text without the character that begins in the prompt, or all U+FFFD that stand for it."""
        if not text:
            return ""
        same, begun = len(commonprefix((self._begun, text))), len(self._begun)
        self._begun = ""
        return text[same + (same < begun) :]

    def _ending(self, tokens: Sequence[int]) -> tuple[list[int], str]:
        """Some of the last tokens, whose text begins with a whole character, if there is such an ending; and their
        text. Decoders may treat the start of a text differently, so the ending must have a text.
        """
        kept = KEPT_TOKENS
        while kept + TORN_BYTES < len(tokens):
            for size in range(kept, kept + TORN_BYTES + 1):
                ending = [*tokens[-size:]]
                text = decoded(self._tokenizer, ending)
                if text and text[0] != REPLACEMENT:
                    return ending, text
            kept *= 2
        ending = [*tokens[-MOST_TOKENS:]]
        return ending, decoded(self._tokenizer, ending)


class Pieces:
    """Text of single tokens as they appear inside a longer text; cached, since many trees contain the same tokens.

    A token that byte fallback uses for a part of a character has no text of its own; its piece is its name, for example
    `<0xE1>`.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._anchor: list[int] = encoded(tokenizer, "a")[-1:]
        """An ordinary token, next to which other tokens are decoded as if within a text."""
        self._before = decoded(tokenizer, self._anchor, special=True)
        self._bytes = _byte_tokens(tokenizer)
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        if token not in self._known:
            together = decoded(self._tokenizer, [*self._anchor, token], special=True)
            alone = decoded(self._tokenizer, [token], special=True)
            piece = together[len(self._before) :] if together.startswith(self._before) else alone
            self._known[token] = self._bytes.get(token, piece) if REPLACEMENT in piece else piece
        return self._known[token]


def _byte_tokens(tokenizer: TextTokenizer) -> dict[int, str]:
    """Names of the tokens that byte fallback uses; empty for tokenizers without byte fallback."""
    names = [f"<0x{value:02X}>" for value in range(256)]
    numbers: list[int | None] = tokenizer.convert_tokens_to_ids(names)
    counts = Counter(numbers)  # names that do not exist may all have the id of unknown tokens
    return {token: name for name, token in zip(names, numbers, strict=True) if token is not None and counts[token] == 1}


_TUNED = "or choose models that were tuned for chat"


def fed_text(tokenizer: TextTokenizer, prompt: AnyPrompt, chat: bool | None) -> tuple[str, bool]:  # noqa: FBT001 - a setting of the run, passed on
    """The text that the models read for a prompt, and whether the chat template wrote it; for `chat` see `templated`.

    Raises ConfigError if a template is missing or fails on plain text, PromptError if it fails on a conversation.
    """
    if not templated(prompt, chat):
        return without_surrogates(as_prompt(prompt).text), False
    return _in_template(tokenizer, as_prompt(prompt)), True


def encode_prompts(
    tokenizer: TextTokenizer,
    prompts: Sequence[AnyPrompt],
    max_new_tokens: int,
    context: int,
    *,
    limit: str = OF_MODELS,
    chat: bool | None = None,
) -> list[list[int]]:
    """Token ids of each prompt. See `templated` for `chat`, and `encode_prompt` for `limit` and the errors."""
    encoded = []
    for number, prompt in enumerate(prompts, 1):
        try:
            text, by_template = fed_text(tokenizer, prompt, chat)
            encoded.append(
                encode_prompt(tokenizer, text, max_new_tokens, context, special=not by_template, limit=limit)
            )
        except PromptError as error:
            several = len(prompts) > 1
            numbered = f"prompt {number} of {len(prompts)}: {error}" if several else str(error)
            raise PromptError(numbered, "prompt") from None
    return encoded


def _in_template(tokenizer: TextTokenizer, prompt: Prompt) -> str:
    conversation = prompt.earlier is not None
    remedy = "give --no-chat, which decodes the last user's turn as plain text" if conversation else "leave --chat out"
    if not tokenizer.chat_template:
        why = "the prompt is a conversation" if conversation else "--chat was asked for"
        raise ConfigError(f"{why}, but the tokenizer has no chat template; {remedy}, {_TUNED}", "chat")
    messages = [
        {"role": without_surrogates(message.role), "content": without_surrogates(message.content)}
        for message in prompt.messages
    ]
    try:
        text = cast("Any", tokenizer).apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is code of the checkpoint and may raise any error
        fault = f"the tokenizer's chat template fails on the prompt ({first_line(error)}); {remedy}, {_TUNED}"
        kind: type[DecoderError] = PromptError if conversation else ConfigError
        raise kind(fault, "chat") from error
    return without_surrogates(str(text))
