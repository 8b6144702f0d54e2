"""Reads options from a TOML file and checks each; an error names the file, the line and the remedy.

Knows neither the files nor the meaning of an option.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from decoder.errors import ConfigError, quoted, shortened, with_short_quotes
from dynatui.cli.options import instead
from dynatui.keymap import near

LARGEST_FILE = 2**20
"""Largest size in bytes: options take some fifty lines, and an endless device must not fill the memory."""
_MOST_BITS = 63
KINDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text in quotes",
    list[str]: 'a list such as ["one", "two"]',
}


@dataclass(frozen=True)
class Setting:
    """A value as it was written, and its place."""

    key: str
    value: object
    place: str
    """Name of a variable, or a file and its line."""


def table(path: Path, text: str, anew: str) -> dict[str, Any]:
    """A TOML text as a table; raises ConfigError if it is no TOML, with `anew` as its remedy if no better is known."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = _unquoted(text, str(error)) or anew
        # An error that is not about TOML is about a number too long for Python to convert.
        is_a_number = not isinstance(error, tomllib.TOMLDecodeError | RecursionError)
        why = "a number has thousands of digits" if is_a_number else with_short_quotes(str(error))
        raise ConfigError(f"{shortened(path)}: {why}; {remedy}") from None


def checked(
    path: Path, text: str, given: Mapping[str, Any], known: Mapping[str, Any], unknown: str
) -> dict[str, Setting]:
    """The options of a file, by their names.

    Args:
        path: The file.
        text: Its text.
        given: Its table.
        known: Type of the value of each option.
        unknown: Error message about any other name, with places for that name and for a similar known one.

    Raises:
        ConfigError: An option is unknown, or its value has another type.
    """
    settings = {}
    for key, value in given.items():
        place = f"{shortened(path)}: line {line_of(text, key)}"
        if key not in known:
            hint = near(key.replace("-", "_"), known)
            raise ConfigError(f"{place}: {unknown.format(shortened(key), hint)}")
        _refuse_unusable(key, value, place)
        try:
            msgspec.convert(value, known[key])
        except (msgspec.ValidationError, OverflowError):
            example = f': {key} = "{value}"' if known[key] is str and type(value) in (int, float) else ""
            remedy = instead(key, value) or f"give {KINDS[known[key]]}{example}"
            raise ConfigError(f"{place}: {key} is {quoted(value)}; {remedy}") from None
        settings[key] = Setting(key, value, place)
    return settings


def line_of(text: str, key: str) -> int:
    """Number of the line that sets a top-level key or opens a table of that name; 1 if there is none."""
    match = re.search(rf"^[ \t]*\[*[ \t]*(['\"]?){re.escape(key)}\1[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def toml(value: object) -> str:
    """A value as TOML writes it."""
    match value:
        case bool() | str() | list():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Path():
            return toml(str(value))
        case _:
            return str(value)


def _refuse_unusable(key: str, value: object, place: str) -> None:
    """Raises ConfigError for a number that is too large, and for a null character in a value that may name a file."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ConfigError(f"{place}: {key} is {shortened(value)}; give a smaller number")
    texts = value if isinstance(value, list) else [value]
    if key != "prompt" and any("\0" in text for text in texts if isinstance(text, str)):
        raise ConfigError(f"{place}: {key} holds a null character; leave that out")


def _unquoted(text: str, error: str) -> str:
    """Remedy where the invalid line sets a bare word, such as device = auto; empty otherwise."""
    place = re.search(r"at line (\d+)", error)
    line = text.split("\n")[int(place[1]) - 1] if place else ""
    bare = re.fullmatch(r"\s*([\w-]+)\s*=\s*([A-Za-z][\w.:/,-]*)\s*(#.*)?", line)
    return f'text stands in quotes: {bare[1]} = "{bare[2]}"' if bare else ""
