"""Options that the commands for measurements share, and parsers for lists of names or numbers."""

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from typer.core import TyperOption

from decoder.errors import ConfigError, quoted, require
from dynatui.cli import options
from dynatui.cli.options import MEASUREMENT
from dynatui.cli.parameters import OptionGroup, option
from dynatui.lab.bench.on_pair import OnPair

LARGEST = 1 << 20
"""Largest number in a list; larger than every model's context."""


def names(text: str) -> tuple[str, ...]:
    """Names in a comma-separated list, without duplicates and empty names."""
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def numbers(option: str, text: str, parts: Iterable[str], *, remedy: str) -> tuple[float, ...]:
    """Converts the parts of a list to numbers, without duplicates; raises ConfigError if a part is not a number."""
    with suppress(ValueError):
        return tuple(dict.fromkeys(map(float, parts)))
    raise ConfigError(f"{option} is {quoted(text)}; give {remedy}")


def number_lists(option: str, text: str, *, example: str, probability: bool = False) -> tuple[tuple[Any, ...], ...]:
    """Groups of whole numbers, such as 8x64, in a comma-separated list, without duplicate groups. A group must have as
    many numbers as `example`; with `probability`, a group may have one further number, which need not be whole.
    """
    parts = [part.strip().split("x") for part in text.split(",")]
    count = len(example.split("x"))
    with suppress(ValueError):
        groups = tuple(dict.fromkeys((*map(int, part[:count]), *map(float, part[count:])) for part in parts))
        if all(count <= len(group) <= count + probability for group in groups):
            require(max(map(max, groups)) <= LARGEST, f"{option} is {quoted(text)}; give no number above {LARGEST}")
            return groups
    raise ConfigError(f"{option} is {quoted(text)}; give values such as {example}, with commas between them")


PAIR = OptionGroup("pair", options.PAIR_OPTIONS, OnPair)


def repeats(explained: str, **further: Any) -> TyperOption:
    return option("--repeats R", explained, int, least=1, most=1000, panel=MEASUREMENT, **further)


def json_file(content: str) -> TyperOption:
    return option(
        "--json FILE", f"Append to FILE a line of JSON with {content}.", Path, name="json_file", panel=MEASUREMENT
    )
