"""Tokenizing of prompts, with or without a chat template, and incremental detokenizing, in which a token may be a part
of a character.
"""

import re
from collections.abc import Sequence
from os.path import commonprefix
from typing import Any, cast

from decoder.errors import ConfigError, DecoderError, PromptError, first_line, quoted
from decoder.models.tokenizer import REPLACEMENT, ByteRun, TextTokenizer, TokenKinds, byte_name, decoded
from decoder.prompt import AnyPrompt, Prompt, as_prompt, templated

LONE_SURROGATES = re.compile("[\ud800-\udfff]")
TORN_BYTES = 3
"""Largest number of bytes in an incomplete UTF-8 character."""
LONGEST_RUN = 64
"""A run of at least this many byte tokens returns its complete characters before the run ends."""
KEPT_TOKENS, MOST_TOKENS = 16, 32
"""A window with more than `MOST_TOKENS` tokens of returned text is shortened to the last `KEPT_TOKENS` of them."""
KEPT_CHARACTERS = 4
"""Number of returned characters at a window's end that must stay the same when the window is shortened."""
START_CHARACTERS = 256
"""Number of characters at a prompt's start that are searched for special tokens such as BOS."""
TOKEN_CHARACTERS = 32
"""Upper bound of the average length of a text's tokens, in characters."""


OF_MODELS = "the models'"
"""Words in messages for the models whose context limits a text, if the caller names no model."""


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

    The texts that `push` and `finish` return, joined, are the decoding of the prompt and all tokens, without the
    characters that begin in the prompt. Usually, the joined texts are the text that the tokens add to the decoding of
    the prompt alone. A character that begins in the prompt and ends after the prompt belongs to the prompt.

    Returned text is never changed, but a decoder may change earlier text: in a run of byte tokens, one invalid byte
    turns every byte of the run into U+FFFD (see `TokenKinds`). So the text of a run is returned only when the run ends.
    In a run of at least `longest_run` bytes, complete characters are returned at once; if the run becomes invalid
    later, these characters stay, and only the bytes after them become U+FFFD. Complete characters of such a run at the
    end of a prompt belong to the prompt.

    Therefore, at most `longest_run` bytes wait or, if the tokenizer decodes bytes character by character, at most
    `TORN_BYTES` characters U+FFFD. The time of a push does not depend on the length of the text before it.
    """

    _window: list[int]
    """The latest tokens that are not silent; one invalid byte token replaces each invalid run."""
    _shown: int
    """Number of characters of the window's text that were returned or belong to the prompt."""
    _hidden: int
    """Number of waiting characters of the window's text; an incomplete character of a run does not count."""
    _most: int
    """Number of tokens, not counting `_run.unread`, that the window may have before it is shortened."""
    _run: ByteRun
    """The run at the end of the text."""
    _prompt_end: str
    """Characters U+FFFD at the end of the prompt that are not in `_shown`, since the last of them may be an incomplete
    character; empty for tokenizers with runs.
    """
    _begun: tuple[int, int]
    """Number of characters that begin in the run at the prompt's end and are not in `_shown`, for two cases: the run
    stays valid, or it becomes invalid.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt_ids: Sequence[int], *, longest_run: int = LONGEST_RUN) -> None:
        """If `longest_run` is 0, every character is returned with its last byte."""
        self._tokenizer = tokenizer
        self._kinds = TokenKinds(tokenizer)
        self._longest_run = longest_run
        self.begin(prompt_ids)

    @property
    def waiting(self) -> list[int]:
        """Latest tokens whose text has not been returned completely."""
        if self._run.unread or not self._hidden:
            return self._window[len(self._window) - len(self._run.unread) :]
        begun = (self._window[:length] for length in reversed(range(len(self._window))))
        returned = next(tokens for tokens in begun if len(self._text(tokens)) <= self._shown)
        return self._window[len(returned) :]

    def push(self, tokens: Sequence[int]) -> str:
        """Returns the text that these tokens complete."""
        return self._after_prompt("".join(map(self._add, tokens)) + self._release())

    def finish(self) -> str:
        """Returns the text of all waiting tokens, even if their last character is incomplete."""
        broken = self._break() if self._run.torn else ""
        text = self._text(self._window)
        rest, self._shown, self._hidden, self._run = text[self._shown :], len(text), 0, self._run.read()
        return self._after_prompt(broken + rest)

    def begin(self, prompt_ids: Sequence[int]) -> None:
        self._shown, self._hidden, self._most, self._run = 0, 0, MOST_TOKENS, ByteRun()
        self._window, self._prompt_end, self._begun = [], "", (0, 0)
        start = len(prompt_ids)
        while start and (self._kinds.in_run(last := prompt_ids[start - 1]) is not None or self._kinds.silent(last)):
            start -= 1
        self._window = self._last_words(prompt_ids[:start])
        self._release()
        for token in prompt_ids[start:]:
            self._add(token)
        self._release()
        if self._kinds.invalid is None:
            self._prompt_end = REPLACEMENT * self._hidden
        else:
            self._begun = self._hidden + (self._run.torn > 0), len(self._run.unread)

    def _last_words(self, tokens: Sequence[int]) -> list[int]:
        """The last `KEPT_TOKENS` tokens, or more if these have no text, without silent tokens. The window begins with
        them, since decoders may treat the start of a text differently.
        """
        kept = KEPT_TOKENS
        while True:
            last = [token for token in tokens[-kept:] if not self._kinds.silent(token)]
            if kept >= len(tokens) or self._text(last):
                return last
            kept *= 2

    def _after_prompt(self, text: str) -> str:
        """The text without the characters that begin in the prompt."""
        valid, _ = self._begun
        begun = same = len(commonprefix((self._prompt_end, text)))
        if same < min(len(self._prompt_end), len(text)):
            begun, self._prompt_end = same + 1, ""
        elif valid and text:
            begun = min(valid, len(text))
            self._begun = valid - begun, valid - begun
        self._prompt_end = self._prompt_end[same:]
        return text[begun:]

    def _add(self, token: int) -> str:
        """Adds a token; returns text only if the token makes a run invalid or continues an invalid run."""
        if self._kinds.silent(token):
            return ""
        value = self._kinds.in_run(token)
        if value is None:
            broken = self._break() if self._run.torn else ""
            self._run, self._begun = ByteRun(), (self._begun[0], self._begun[0])
            self._window.append(token)
            return broken
        if self._run.invalid:
            return REPLACEMENT
        self._window.append(token)
        self._run = self._run.followed_by(value)
        return self._break() if self._run.invalid else ""

    def _break(self) -> str:
        """Marks the run as invalid; returns all text up to the end of the run."""
        assert self._kinds.invalid is not None, "only bytes of runs are unread"  # noqa: S101 - a programmer's mistake
        count = len(self._run.unread)
        self._run, self._begun = ByteRun(invalid=True), (self._begun[1], self._begun[1])
        before = self._window[: len(self._window) - count]
        text = self._text(before)[self._shown :] + REPLACEMENT * count
        self._window = [*before, self._kinds.invalid]
        self._shown, self._hidden = len(self._text(self._window)), 0
        return text

    def _release(self) -> str:
        """Returns the text that no later token changes, and shortens the window."""
        text = self._text(self._window)
        if self._kinds.invalid is None:
            torn = text[-TORN_BYTES:]
            waiting = len(torn) - len(torn.rstrip(REPLACEMENT))
        elif self._run.length < self._longest_run:
            waiting = self._run.characters
        else:
            waiting, self._run = 0, self._run.read()
        released = text[self._shown : len(text) - waiting]
        self._shown += len(released)
        self._hidden = len(text) - self._shown
        if len(self._window) - len(self._run.unread) > self._most:
            self._shorten(text)
        return released

    def _shorten(self, text: str) -> None:
        """Drops the window's first tokens, unless this would change the end of `text`, the window's text."""
        end = text[max(0, self._shown - KEPT_CHARACTERS) :]
        fewest = KEPT_TOKENS + len(self._run.unread)
        for kept in range(fewest, fewest + TORN_BYTES + 1):  # one of these windows begins with a whole character
            window = self._window[-kept:]
            shorter = self._text(window)
            if shorter.endswith(end) and len(shorter) > self._hidden:
                self._window, self._shown, self._most = window, len(shorter) - self._hidden, MOST_TOKENS
                return
        self._most = 2 * len(self._window)

    def _text(self, window: list[int]) -> str:
        """Text of a window, without an incomplete character at its end that belongs to a run."""
        return decoded(self._tokenizer, window[: len(window) - self._run.torn])


class Pieces:
    """Text of single tokens as they appear inside a longer text; cached, since many trees contain the same tokens.

    A token that byte fallback uses for a part of a character has no text of its own; its piece is its name, for example
    `<0xE1>`.
    """

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self._tokenizer = tokenizer
        self._kinds = TokenKinds(tokenizer)
        self._before = decoded(tokenizer, self._kinds.anchor, special=True)
        self._known: dict[int, str] = {}

    def __call__(self, token: int) -> str:
        if token not in self._known:
            together = decoded(self._tokenizer, [*self._kinds.anchor, token], special=True)
            alone = decoded(self._tokenizer, [token], special=True)
            piece = together[len(self._before) :] if together.startswith(self._before) else alone
            partial = token in self._kinds.bytes and REPLACEMENT in piece
            self._known[token] = byte_name(self._kinds.bytes[token]) if partial else piece
        return self._known[token]


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
