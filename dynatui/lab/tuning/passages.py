"""Cuts prompts into passages, which are prefixes of prompts. The check uses other passages than the search, since the
best of many settings may be the best only by chance on the passages of the search. Handles only token ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from decoder.errors import PromptError
from dynatui.number_format import counted

FEWEST = 6
"""Minimum number of passages for the search, and also for the check; an interval over fewer passages is too wide."""
WANTED = 16
"""Number of passages for the search, and also for the check, if prompts are long enough."""
SHORTEST = 8
"""Minimum length of a passage, and minimum difference in length of two passages of one prompt, in tokens."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Passages:
    """Token ids of the passages; no passage is used both for the search and for the check."""

    search: tuple[Tokens, ...]
    check: tuple[Tokens, ...]
    prompts: int
    """Number of different prompts. Confidence intervals ignore that passages of one prompt resemble each other."""


def split(prompts: Sequence[Sequence[int]], length: int) -> Passages:
    """Splits prompts into passages. The lengths of passages of one prompt differ by at least `length` tokens if prompts
    are long enough. Raises PromptError if the prompts are too few or too short.
    """
    distinct = _distinct(prompts)
    if len(distinct) >= 2 * FEWEST:
        search, check = (
            tuple(chain.from_iterable(_beginnings(prompt, -(-WANTED // len(half)), length) for prompt in half))
            for half in (distinct[::2], distinct[1::2])
        )
        return Passages(search, check, len(distinct))
    wanted = max(2 * FEWEST, -(-2 * WANTED // len(distinct)))
    cut = [_beginnings(prompt, wanted, length) for prompt in distinct]
    if min(map(len, _halves(cut))) < FEWEST:
        cut = [_beginnings(prompt, 2 * FEWEST, SHORTEST) for prompt in distinct]
    search, check = _halves(cut)
    if min(len(search), len(check)) < FEWEST:
        raise PromptError(
            f"{counted(len(distinct), 'different prompt')} of {sum(map(len, distinct))} tokens in all cannot be split "
            f"into texts for the search and texts for the check; give {2 * FEWEST} prompts or more, or one prompt of "
            f"{2 * FEWEST * SHORTEST} tokens or more"
        )
    return Passages(search, check, len(distinct))


def whole(prompts: Sequence[Sequence[int]]) -> Passages:
    """Assigns chat prompts to search and check without cutting them, since a cut prompt lacks the template's end.
    Raises PromptError if the prompts are too few.
    """
    distinct = _distinct(prompts)
    if len(distinct) < 2 * FEWEST:
        raise PromptError(
            f"{counted(len(distinct), 'different chat prompt')} cannot be split into texts for the search and texts "
            f"for the check, since chat prompts are not cut; give {2 * FEWEST} prompts or more, or omit --chat"
        )
    return Passages(tuple(distinct[::2]), tuple(distinct[1::2]), len(distinct))


def _distinct(prompts: Sequence[Sequence[int]]) -> list[Tokens]:
    return list(dict.fromkeys(map(tuple, prompts)))


def _halves(cut: Sequence[Sequence[Tokens]]) -> tuple[tuple[Tokens, ...], tuple[Tokens, ...]]:
    """Passages of all prompts, split in two: the earlier half of the passages of each prompt, and the later half."""
    early = chain.from_iterable(beginnings[: len(beginnings) // 2] for beginnings in cut)
    late = chain.from_iterable(beginnings[len(beginnings) // 2 :] for beginnings in cut)
    return tuple(early), tuple(late)


def _beginnings(prompt: Tokens, wanted: int, apart: int) -> list[Tokens]:
    """`wanted` prefixes of a prompt, whose lengths rise in equal steps up to the whole prompt; fewer prefixes if the
    steps would be shorter than `apart` tokens.
    """
    count = max(1, min(wanted, len(prompt) // max(SHORTEST, apart)))
    return [prompt[: len(prompt) * part // count] for part in range(1, count + 1)]
