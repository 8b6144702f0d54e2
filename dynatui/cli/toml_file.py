"""Options in a TOML file, read and checked one by one: each fault is a line with the file, its line and the remedy.

Knows neither which files there are nor what an option means.
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
"""Bytes; options are some fifty lines, and an endless device must not fill the memory."""
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
    """One value as it was written down, and where."""

    key: str
    value: object
    place: str
    """A variable, or a file and a line of it."""


def table(path: Path, text: str, anew: str) -> dict[str, Any]:
    """What a text says; raises a ConfigError where it is not TOML, which says in `anew` what may be done then."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = _unquoted(text, str(error)) or anew
        # What is no fault of the TOML is a number that Python does not convert.
        is_a_number = not isinstance(error, tomllib.TOMLDecodeError | RecursionError)
        why = "a number has thousands of digits" if is_a_number else with_short_quotes(str(error))
        raise ConfigError(f"{shortened(path)}: {why}; {remedy}") from None


def checked(
    path: Path, text: str, given: Mapping[str, Any], known: Mapping[str, Any], unknown: str
) -> dict[str, Setting]:
    """The options that a file gives, by their names.

    Args:
        path: The file.
        text: What it holds.
        given: The same as a table.
        known: The options that there are, each with the type of its value.
        unknown: What to say of any other, with places for its name and for what may have been meant.

    Raises:
        ConfigError: There is no such option, or its value is of another kind.
    """
    found = {}
    for key, value in given.items():
        place = f"{shortened(path)}: line {line_of(text, key)}"
        if key not in known:
            hint = near(key.replace("-", "_"), known)
            raise ConfigError(f"{place}: {unknown.format(shortened(key), hint)}")
        _refuse_what_nothing_takes(key, value, place)
        try:
            msgspec.convert(value, known[key])
        except (msgspec.ValidationError, OverflowError):
            example = f': {key} = "{value}"' if known[key] is str and type(value) in (int, float) else ""
            remedy = instead(key, value) or f"give {KINDS[known[key]]}{example}"
            raise ConfigError(f"{place}: {key} is {quoted(value)}; {remedy}") from None
        found[key] = Setting(key, value, place)
    return found


def line_of(text: str, key: str) -> int:
    """The line that sets a key at the top of the file, or opens a table of that name."""
    found = re.search(rf"^[ \t]*\[*[ \t]*(['\"]?){re.escape(key)}\1[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1


def toml(value: object) -> str:
    """A value as TOML writes it."""
    match value:
        case bool() | str() | list():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Path():
            return toml(str(value))
        case _:
            return str(value)


def _refuse_what_nothing_takes(key: str, value: object, place: str) -> None:
    """Numbers that are too large to be written down, and null characters in what may name a file."""
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ConfigError(f"{place}: {key} is {shortened(value)}; give a smaller number")
    texts = value if isinstance(value, list) else [value]
    if key != "prompt" and any("\0" in text for text in texts if isinstance(text, str)):
        raise ConfigError(f"{place}: {key} holds a null character; leave that out")


def _unquoted(text: str, error: str) -> str:
    """What to write instead, where the line that is no TOML sets a bare word, such as device = auto."""
    place = re.search(r"at line (\d+)", error)
    line = text.split("\n")[int(place[1]) - 1] if place else ""
    bare = re.fullmatch(r"\s*([\w-]+)\s*=\s*([A-Za-z][\w.:/,-]*)\s*(#.*)?", line)
    return f'text stands in quotes: {bare[1]} = "{bare[2]}"' if bare else ""
