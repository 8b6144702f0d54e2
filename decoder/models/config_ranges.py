"""Ranges of the numbers in a config.json, checked in the file itself, since libraries first make lists of such sizes.

Knows no model family: a size is known by its name, at any depth of the file.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

from decoder.errors import PairError, quoted, shortened

LARGEST: Mapping[str, int] = {
    "num_hidden_layers": 1024,
    "num_attention_heads": 4096,
    "num_key_value_heads": 4096,
    "head_dim": 4096,
    "hidden_size": 2**18,
    "intermediate_size": 2**20,
    "vocab_size": 2**24,
    "max_position_embeddings": 2**31,
}
"""Upper bound of each size in a configuration: several times the size in the largest models."""
_KINDS = (
    (re.compile(r"(n|num|encoder|decoder)_(\w+_)?(layers?|blocks?)"), LARGEST["num_hidden_layers"]),
    (re.compile(r"(n|num)_(\w+_)?heads?"), LARGEST["num_attention_heads"]),
    (re.compile(r"(n|num)_(\w+_)?experts?(_\w+)?"), 2**16),
    (re.compile(r"n_embd|d_model"), LARGEST["hidden_size"]),
    (re.compile(r"n_positions|n_ctx|max_seq_len"), LARGEST["max_position_embeddings"]),
)
"""Upper bounds of further sizes, by patterns of their names in other families."""
OTHERS = 2**53
"""Bound of the absolute value of every other whole number."""
FRACTIONS = 3.4e38
"""Bound of the absolute value of every other number: models compute in float32 or less."""


def check_ranges(name: str, content: bytes) -> None:
    """Raises PairError if a number in a config.json is beyond its range; whoever reads it next reports what is not
    JSON.
    """
    try:
        fields = msgspec.json.decode(content)
        large = next(((key, number) for key, number in numbers("", fields) if abs(number) > _most(key, number)), None)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # whoever reads the file next reports what it is
    if large:
        key, number = large
        span = f"1 to {largest(key)}" if isinstance(number, int) else f"between -{FRACTIONS} and {FRACTIONS}"
        raise PairError(
            f"the configuration of {name} says that {shortened(key)} is {quoted(number)}, but it must be {span}; "
            "download the model again"
        )


def largest(key: str) -> int:
    return LARGEST.get(key) or next((most for kind, most in _KINDS if kind.fullmatch(key)), OTHERS)


def _most(key: str, number: float) -> float:
    return largest(key) if isinstance(number, int) else FRACTIONS


def numbers(key: str, value: object) -> Iterator[tuple[str, int | float]]:
    """All numbers in a JSON value, each with the name of its field."""
    match value:
        case bool():
            return
        case int() | float():
            yield key, value
        case dict():
            for inner, each in value.items():
                yield from numbers(inner, each)
        case list():
            for each in value:
                yield from numbers(key, each)
