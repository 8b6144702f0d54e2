"""Reads and checks options in a TOML file; an error names the file, the line and the remedy."""

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
"""Limits an endless device, which would fill the memory; usual files have about fifty lines."""
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
    key: str
    value: object
    place: str
    """The environment variable, or the file and the line."""


def table(path: Path, text: str, usual_remedy: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = _unquoted(text, str(error)) or usual_remedy
        # A ValueError that is not a TOMLDecodeError means that a number has too many digits for Python to convert.
        is_a_number = not isinstance(error, tomllib.TOMLDecodeError | RecursionError)
        why = "a number has thousands of digits" if is_a_number else with_short_quotes(str(error))
        raise ConfigError(f"{shortened(path)}: {why}; {remedy}") from None


def checked(
    path: Path, text: str, given: Mapping[str, Any], known: Mapping[str, Any], unknown: str
) -> dict[str, Setting]:
    """The options set in a file, by name.

    `text` is `given` before parsing, for the numbers of lines; `unknown` is the error for an unknown name, with {} for
    the name and {} for a similar one. Raises ConfigError if an option is unknown or its value has the wrong type.
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
    """The line that sets a top-level key or opens the table of that name; 1 if there is none."""
    match = re.search(rf"^[ \t]*\[*[ \t]*(['\"]?){re.escape(key)}\1[ \t]*[=.\]]", text, re.MULTILINE)
    return text.count("\n", 0, match.start()) + 1 if match else 1


def toml(value: object) -> str:
    match value:
        case bool() | str() | list():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Path():
            return toml(str(value))
        case _:
            return str(value)


def _refuse_unusable(key: str, value: object, place: str) -> None:
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        raise ConfigError(f"{place}: {key} is {shortened(value)}; give a smaller number")
    texts = value if isinstance(value, list) else [value]
    if key != "prompt" and any("\0" in text for text in texts if isinstance(text, str)):
        raise ConfigError(f"{place}: {key} holds a null character; leave the character out")


def _unquoted(text: str, error: str) -> str:
    """Remedy for a word that lacks quotes, such as device = auto; empty for other errors."""
    place = re.search(r"at line (\d+)", error)
    line = text.split("\n")[int(place[1]) - 1] if place else ""
    bare = re.fullmatch(r"\s*([\w-]+)\s*=\s*([A-Za-z][\w.:/,-]*)\s*(#.*)?", line)
    return f'put text in quotes: {bare[1]} = "{bare[2]}"' if bare else ""
