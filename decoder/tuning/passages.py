"""Where texts begin: on some of these beginnings settings are searched, on others what was found is checked.

A search that tries many settings finds some that were lucky on its texts. What it found is therefore judged on texts
that it has not seen: other prompts where there are many, else later passages of the same ones. Knows only token ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from decoder.errors import PromptError
from decoder.tables.text import counted

FEWEST = 6
"""Beginnings for each of both purposes: with fewer, an interval over them tells nothing."""
WANTED = 16
"""As many are cut from prompts for each, where these are long enough."""
SHORTEST = 8
"""Tokens of a beginning, and at least as many between two beginnings of one prompt."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Passages:
    """Token ids of beginnings, none of which serves both purposes."""

    search: tuple[Tokens, ...]
    check: tuple[Tokens, ...]
    prompts: int
    """Different prompts that they are the beginnings of. Those of one prompt are alike, which intervals cannot know."""


def split(prompts: Sequence[Sequence[int]], length: int) -> Passages:
    """Beginnings for the search and for the check.

    Args:
        prompts: Token ids.
        length: Tokens that are decoded after each beginning; where prompts are long enough, two beginnings of one
            prompt are as far apart.

    Raises:
        PromptError: The prompts are too few or too short.
    """
    distinct = _distinct(prompts)
    if len(distinct) >= 2 * FEWEST:
        search, check = (_beginnings_of(each, WANTED, length) for each in (distinct[::2], distinct[1::2]))
        return Passages(search, check, len(distinct))
    wanted = max(2 * FEWEST, -(-2 * WANTED // len(distinct)))
    cut = [_beginnings(prompt, wanted, length) for prompt in distinct]
    if min(map(len, _halves(cut))) < FEWEST:
        cut = [_beginnings(prompt, 2 * FEWEST, SHORTEST) for prompt in distinct]
    search, check = _halves(cut)
    if min(len(search), len(check)) < FEWEST:
        raise PromptError(
            f"{counted(len(distinct), 'different prompt')} of {sum(map(len, distinct))} tokens in all cannot be split "
            f"into texts to search on and texts to check on; give {2 * FEWEST} prompts or more, or one of "
            f"{2 * FEWEST * SHORTEST} tokens or more"
        )
    return Passages(search, check, len(distinct))


def whole(prompts: Sequence[Sequence[int]]) -> Passages:
    """The same of prompts that end where they have to end, as a chat template's do: none is cut.

    Raises:
        PromptError: The prompts are too few.
    """
    distinct = _distinct(prompts)
    if len(distinct) < 2 * FEWEST:
        raise PromptError(
            f"{counted(len(distinct), 'different chat prompt')}, which end with the template and are not cut, cannot "
            f"be split into texts to search on and texts to check on; give {2 * FEWEST} or more, or leave out --chat"
        )
    return Passages(tuple(distinct[::2]), tuple(distinct[1::2]), len(distinct))


def _distinct(prompts: Sequence[Sequence[int]]) -> list[Tokens]:
    return list(dict.fromkeys(map(tuple, prompts)))


def _halves(cut: Sequence[Sequence[Tokens]]) -> tuple[tuple[Tokens, ...], tuple[Tokens, ...]]:
    """The earlier beginnings of all prompts, and the later ones."""
    early = chain.from_iterable(beginnings[: len(beginnings) // 2] for beginnings in cut)
    late = chain.from_iterable(beginnings[len(beginnings) // 2 :] for beginnings in cut)
    return tuple(early), tuple(late)


def _beginnings_of(prompts: Sequence[Tokens], wanted: int, apart: int) -> tuple[Tokens, ...]:
    return tuple(chain.from_iterable(_beginnings(prompt, -(-wanted // len(prompts)), apart) for prompt in prompts))


def _beginnings(prompt: Tokens, wanted: int, apart: int) -> list[Tokens]:
    """The prompt cut at so many places at even distances, the last of them its end; fewer where it is short."""
    count = max(1, min(wanted, len(prompt) // max(SHORTEST, apart)))
    return [prompt[: len(prompt) * part // count] for part in range(1, count + 1)]
