"""Where texts begin: on some of these beginnings settings are searched, on others what was found is checked.

A search that tries many settings finds some that were lucky on its texts. What it found is therefore judged on texts
that it has not seen: other prompts where there are many, else later passages of the same ones. Knows only token ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from decoder.errors import PromptError

FEWEST = 6
"""Beginnings for each of both purposes: with fewer, an interval over them tells nothing."""
WANTED = 16
"""As many are cut from prompts for each, where these are long enough."""
SHORTEST = 8
"""Tokens of a beginning, and between two beginnings of one prompt."""

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Passages:
    """Token ids of beginnings, none of which serves both purposes."""

    search: tuple[Tokens, ...]
    check: tuple[Tokens, ...]


def split(prompts: Sequence[Sequence[int]]) -> Passages:
    """Beginnings for the search and for the check.

    Raises:
        PromptError: The prompts are too few or too short.
    """
    distinct = list(dict.fromkeys(map(tuple, prompts)))
    if len(distinct) >= 2 * FEWEST:
        found = Passages(*(_beginnings_of(each, WANTED) for each in (distinct[::2], distinct[1::2])))
    else:
        wanted = max(2 * FEWEST, -(-2 * WANTED // len(distinct)))
        cut = [_beginnings(prompt, wanted) for prompt in distinct]
        early = chain.from_iterable(beginnings[: len(beginnings) // 2] for beginnings in cut)
        late = chain.from_iterable(beginnings[len(beginnings) // 2 :] for beginnings in cut)
        found = Passages(tuple(early), tuple(late))
    if min(len(found.search), len(found.check)) < FEWEST:
        raise PromptError(
            f"{_counted(len(distinct), 'different prompt')} of {sum(map(len, distinct))} tokens in all cannot be split "
            f"into texts to search on and texts to check on; give {2 * FEWEST} prompts or more, or one of "
            f"{2 * FEWEST * SHORTEST} tokens or more"
        )
    return found


def _beginnings_of(prompts: Sequence[Tokens], wanted: int) -> tuple[Tokens, ...]:
    return tuple(chain.from_iterable(_beginnings(prompt, -(-wanted // len(prompts))) for prompt in prompts))


def _beginnings(prompt: Tokens, wanted: int) -> list[Tokens]:
    """The prompt cut at so many places at even distances, the last of them its end; fewer where it is short."""
    count = max(1, min(wanted, len(prompt) // SHORTEST))
    return [prompt[: len(prompt) * part // count] for part in range(1, count + 1)]


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"
