"""Errors for users; each message names the given value, the reason of the failure and a remedy."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

LONGEST_QUOTE = 160
"""Most characters of a value in an error line, and roughly of a value that another library quotes."""
_LONG_QUOTE = re.compile(rf"'[^']{{{LONGEST_QUOTE},}}'|\S{{{LONGEST_QUOTE},}}")


class DecoderError(Exception):
    """An error with one line for the user: value, reason and remedy."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *about: str) -> None:
        """Takes the line, and the names of the options that it concerns, as in settings: draft_dtype."""
        super().__init__(message)
        self.about = about


class ConfigError(DecoderError):
    """A parameter is outside its bounds."""


class PromptError(DecoderError):
    """A prompt is missing, unreadable or too long."""


class RecordingError(DecoderError):
    """A recording cannot be read or written."""


class DatabaseError(DecoderError):
    """A database cannot be reached, read or written, or has other contents."""


class ModelError(DecoderError):
    """A model cannot be loaded or run."""

    exit_code: ClassVar[int] = 3


class PairError(ModelError):
    """Target and draft do not fit each other, or the engine cannot run one of them."""


class DeviceError(ModelError):
    """The device does not exist, or its memory is full."""


class LostRankError(DeviceError):
    """Another process of the target ended, or failed with a reason."""

    exit_code: ClassVar[int] = 4


def not_importable(error: ImportError | OSError) -> ModelError:
    """The error for a missing or broken package, or for a machine that cannot run it."""
    why, remedy = with_short_quotes(str(error)), "install dynatui anew, or see dynatui doctor"
    if lacks_temporary_folder(error):
        why, remedy = "no folder for temporary files can be written", "let TMPDIR name one that can"
    return ModelError(f"cannot import what decoding needs: {why}; {remedy}")


def lacks_temporary_folder(error: Exception) -> bool:
    """Whether an import failed because a library found no folder for temporary files."""
    return isinstance(error, FileNotFoundError) and "temporary directory" in str(error)


def shortened(value: object) -> str:
    """A user's value for an error line; the middle of a long one is left out, so that the remedy stays visible."""
    if isinstance(value, int) and value.bit_length() > LONGEST_QUOTE:  # Python refuses to write that many digits
        return f"a number of {math.ceil(value.bit_length() * math.log10(2))} digits"
    text, half = str(value), LONGEST_QUOTE // 2
    return text if len(text) <= LONGEST_QUOTE else f"{text[:half]}…{text[-half:]}"


def quoted(value: object) -> str:
    """A user's value as by `repr`, shortened; quotes distinguish a text from a number."""
    if isinstance(value, int):
        return shortened(value)
    try:
        return shortened(repr(value))
    except ValueError:  # a number within the value has too many digits
        return f"a {type(value).__name__}"


def with_short_quotes(message: str) -> str:
    """Message of another library with long quotes shortened."""
    return _LONG_QUOTE.sub(lambda match: shortened(match[0]), message)


def first_line(error: BaseException) -> str:
    """Reason of an error without the full stop: its first line, and the second too after a colon at its end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return with_short_quotes(" ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".:"))


def require(holds: bool, message: str, *about: str) -> None:  # noqa: FBT001 - a condition reads well as the first argument
    """Raises ConfigError with `message`, for the options `about`, unless the condition holds."""
    if not holds:
        raise ConfigError(message, *about)


@contextmanager
def about(*options: str) -> Iterator[None]:
    """Context in which errors without options get these options."""
    try:
        yield
    except DecoderError as error:
        error.about = error.about or options
        raise
