"""Every error that a user can cause or meet; each says what was given, why it does not work and what to do."""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

LONGEST_QUOTE = 160
"""Characters of a value in an error line, and about as many of a value that another library quotes."""
_LONG_QUOTE = re.compile(rf"'[^']{{{LONGEST_QUOTE},}}'|\S{{{LONGEST_QUOTE},}}")


class DecoderError(Exception):
    """An error with one clear line for the user: what, why, what to do."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *about: str) -> None:
        """Takes the line, and the options that it is about by their names as settings: draft_dtype."""
        super().__init__(message)
        self.about = about


class ConfigError(DecoderError):
    """A parameter is outside its bounds."""


class PromptError(DecoderError):
    """A prompt is missing, unreadable or too long."""


class RecordingError(DecoderError):
    """A recording cannot be read or written."""


class DatabaseError(DecoderError):
    """A database cannot be reached, read or written, or holds something else."""


class ModelError(DecoderError):
    """A model cannot be loaded or run."""

    exit_code: ClassVar[int] = 3


class PairError(ModelError):
    """Target and draft do not fit each other, or not the engine."""


class DeviceError(ModelError):
    """The device is not there or its memory is full."""


class LostRankError(DeviceError):
    """Another process of the target is gone, or has failed and says why."""

    exit_code: ClassVar[int] = 4


def not_importable(error: ImportError | OSError) -> ModelError:
    """The error for a missing or broken package, or for a machine that cannot run it."""
    why, remedy = with_short_quotes(str(error)), "install dynatui anew, or see dynatui doctor"
    if lacks_temporary_folder(error):
        why, remedy = "no folder for temporary files can be written", "let TMPDIR name one that can"
    return ModelError(f"cannot import what decoding needs: {why}; {remedy}")


def lacks_temporary_folder(error: Exception) -> bool:
    """Whether an import failed because some library looked for the folder of temporary files."""
    return isinstance(error, FileNotFoundError) and "temporary directory" in str(error)


def shortened(value: object) -> str:
    """A user's value for an error line, a long one by its two ends: the remedy behind it must be seen."""
    if isinstance(value, int) and value.bit_length() > LONGEST_QUOTE:  # to write all its digits may be refused
        return f"a number of {math.ceil(value.bit_length() * math.log10(2))} digits"
    text, half = str(value), LONGEST_QUOTE // 2
    return text if len(text) <= LONGEST_QUOTE else f"{text[:half]}…{text[-half:]}"


def quoted(value: object) -> str:
    """The same as Python writes it, which tells a text from a number."""
    if isinstance(value, int):
        return shortened(value)
    try:
        return shortened(repr(value))
    except ValueError:  # a number within it has too many digits
        return f"a {type(value).__name__}"


def with_short_quotes(message: str) -> str:
    """Another library's message with its long quotes shortened."""
    return _LONG_QUOTE.sub(lambda found: shortened(found[0]), message)


def first_line(error: BaseException) -> str:
    """An error's reason without the full stop: its first line, and the next where the first only announces it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return with_short_quotes(" ".join(lines[: 2 if lines[0].endswith(":") else 1]).rstrip(".:"))


def require(holds: bool, message: str, *about: str) -> None:  # noqa: FBT001 - a condition reads well as the first argument
    """Raises ConfigError with `message` about these options unless the condition holds."""
    if not holds:
        raise ConfigError(message, *about)


@contextmanager
def about(*options: str) -> Iterator[None]:
    """Within, an error that names no options is about these."""
    try:
        yield
    except DecoderError as error:
        error.about = error.about or options
        raise
