"""The tokens of a text: origin, search, repetition.

A token may encode only a part of a character, so the last token of a round gets all text that is not in the pieces of
the tokens before it.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from os.path import commonprefix
from typing import Literal, TypeAlias

from decoder.events import Round
from dynatui.clean import clean

Origin: TypeAlias = Literal["prompt", "accepted", "bonus", "plain"]
FARTHEST = 1 << 15
"""Repetitions are searched only in this number of newest tokens of the text, so that frames are drawn in time."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    """Text of the token, without control characters; empty for a token that only begins a character."""
    origin: Origin
    round: int
    depth: int
    """Position within the round's tokens, from 1; for an accepted token, its depth in the tree."""
    node: int | None = None
    """Index of the token's node in the round's tree; None for the target's own token."""
    probability: float | None = None
    """The draft's probability of the token after its parent; None if the token was not drafted."""
    spent_s: float = 0.0
    """The token's equal share of the round's decode time, in seconds."""


def tokens_of(event: Round, round_s: float) -> tuple[Token, ...]:
    """The committed tokens of a round; for a method that does not show its draft, one entry for the whole round."""
    count = max(1, len(event.committed))
    spent_s = round_s / count
    if event.draft_forwards is None:
        return (Token(clean(event.text), "plain", event.round, 1, spent_s=spent_s),)
    path, logprobs = event.accepted, event.draft_logprobs or event.logprobs
    texts = _divided(event.text, [event.pieces[node] for node in path], count)
    return tuple(
        Token(
            clean(text),
            "accepted" if place < len(path) else "bonus",
            event.round,
            place + 1,
            path[place] if place < len(path) else None,
            math.exp(min(0.0, logprobs[path[place]])) if place < len(path) else None,
            spent_s,
        )
        for place, text in enumerate(texts)
    )


def entry_of(position: int, tokens: Sequence[Token], rounds: Sequence[Round]) -> int | None:
    """Index in `tokens` of the entry that contains generated token `position`; an entry is a token or a whole round."""
    for event in rounds:
        if event.position <= position < event.position + len(event.committed):
            entries = [index for index, token in enumerate(tokens) if token.round == event.round]
            return entries[min(position - event.position, len(entries) - 1)] if entries else None
    return None


def hits(query: str, texts: Sequence[str]) -> tuple[range, ...]:
    """The range of entries of each match. A blank matches any white space; a query without capitals ignores case."""
    words = query.split()
    if not words:
        return ()
    starts = [0, *accumulate(map(len, texts))]
    ignore = re.NOFLAG if any(letter.isupper() for letter in query) else re.IGNORECASE
    spans = (match.span() for match in re.finditer(r"\s+".join(map(re.escape, words)), "".join(texts), ignore))
    return tuple(range(bisect_right(starts, start) - 1, bisect_right(starts, end - 1)) for start, end in spans)


def repeated_length(text: Sequence[int], path: Sequence[int]) -> int:
    """Length in tokens of the longest suffix of `text` + `path` that also occurs in `text`; 0 if no suffix does."""
    code: dict[int, str] = {}
    # Strings are searched in linear time, so each distinct token becomes one character.
    whole = "".join(code.setdefault(token, chr(len(code))) for token in (*text[-FARTHEST:], *path))
    searched = whole[: len(whole) - len(path)]
    lengths = range(1, len(searched) + 1)
    return bisect_left(lengths, x=True, key=lambda length: whole[len(whole) - length :] not in searched)


def _divided(text: str, pieces: list[str], count: int) -> list[str]:
    """`text` in `count` parts: each piece's common prefix with the remaining text, and the rest as the last part."""
    parts = list[str]()
    for piece in [*pieces, ""][: count - 1]:
        cut = len(commonprefix((text, piece)))
        parts.append(text[:cut])
        text = text[cut:]
    return [*parts, text]
