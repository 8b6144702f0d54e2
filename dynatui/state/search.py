"""Where words stand in a text of tokens. Knows no screen."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


def hits(query: str, texts: Sequence[str]) -> tuple[range, ...]:
    """The tokens of each place where the words stand, from the beginning on, without overlap.

    A blank stands for any run of blanks and line ends. Without a capital letter, capitals do not matter.

    Args:
        query: The words; nothing is found for blanks alone.
        texts: The text in its tokens.
    """
    words = query.split()
    if not words:
        return ()
    starts = [0, *accumulate(map(len, texts))]
    ignore = re.NOFLAG if any(letter.isupper() for letter in query) else re.IGNORECASE
    found = re.finditer(r"\s+".join(map(re.escape, words)), "".join(texts), ignore)
    return tuple(range(bisect_right(starts, each.start()) - 1, bisect_right(starts, each.end() - 1)) for each in found)
