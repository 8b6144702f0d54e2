"""Errors for users; each message names the given value, the reason for the failure and a remedy."""

import errno
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

LONGEST_QUOTE = 160
"""Length in characters above which a value in an error message is shortened."""
LONGEST_REASON = 400
"""Length in characters above which the error text of another library is shortened."""
LONGEST_MESSAGE = 2000
"""Length in characters above which a whole message is shortened."""
_LONG_QUOTE = re.compile(rf"'[^']{{{LONGEST_QUOTE},}}'|\S{{{LONGEST_QUOTE},}}")

_UNFINISHED = re.compile(r"([:,;]|\b(or|and|of|to|from|with))$")
"""End of a line whose sentence continues on the next line."""


class DecoderError(Exception):
    """Base class of errors for users. A message is one line with the given value, the reason and a remedy."""

    exit_code: ClassVar[int] = 2

    def __init__(self, message: str, *about: str) -> None:
        """`about` names the options that the message concerns, such as draft_dtype."""
        super().__init__(_cut(message, LONGEST_MESSAGE))
        self.about = about


class ConfigError(DecoderError):
    """A parameter or an option has an invalid value."""


class PromptError(DecoderError):
    """A prompt is missing, unreadable or too long."""


class RecordingError(DecoderError):
    """A recording cannot be read or written."""


class DatabaseError(DecoderError):
    """A database cannot be reached, read or written, or has unexpected contents."""


class ModelError(DecoderError):
    """A model cannot be loaded or run."""

    exit_code: ClassVar[int] = 3


class PairError(ModelError):
    """Target and draft are incompatible, or the engine cannot run one of them."""


_TOO_MANY_FILES = "cannot open another file: {}; raise the limit with ulimit -n 256"
_REMEDIES = {
    errno.ENOSPC: "cannot write: {}; send the output to a place with free space",
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
}


def of_system(error: BaseException) -> DecoderError | None:
    """A ConfigError with a remedy if the disk is full or too many files are open; None for any other error."""
    if not isinstance(error, OSError) or error.errno not in _REMEDIES:
        return None
    return ConfigError(_REMEDIES[error.errno].format(error.strerror))


class LogitsError(ModelError):
    """The target has computed logits from which no token can be chosen: NaN, plus infinity, or no finite logit."""

    _REMEDIES: ClassVar = {
        "float16": "choose --dtype bfloat16 or float32, whose range is larger",
        "bfloat16": "choose --dtype float32, or check the model's weights",
    }

    def __init__(self, when: str = "", precision: str = "") -> None:
        """`when` names the round, for example round 3, and `precision` the dtype; both are empty if not known yet."""
        where, computed = f" in {when}" * bool(when), f", computed in {precision}" * bool(precision)
        remedy = self._REMEDIES.get(precision, "check the model's weights, or choose another model")
        super().__init__(f"the target's logits{where} are NaN or infinite{computed}; {remedy}")


class DeviceError(ModelError):
    """The device does not exist, or its memory is full."""


class LostDeviceError(DeviceError):
    """The device has failed, and this process cannot use it any more."""


class LostRankError(DeviceError):
    """Another process of a tensor-parallel target has exited or reported an error."""

    exit_code: ClassVar[int] = 4


def not_importable(error: ImportError | OSError) -> ModelError:
    """The error that replaces an import error: a package is missing or broken, or cannot run on this machine."""
    why, remedy = with_short_quotes(str(error)), "reinstall dynatui, or run dynatui doctor"
    if lacks_temporary_folder(error):
        why, remedy = "no folder for temporary files is writable", "set TMPDIR to a writable folder"
    return ModelError(f"cannot import what decoding needs: {why}; {remedy}")


def lacks_temporary_folder(error: Exception) -> bool:
    """Whether an import failed because a library found no writable folder for temporary files."""
    return isinstance(error, FileNotFoundError) and "temporary directory" in str(error)


def shortened(value: object) -> str:
    """The value as text; a long text is cut in the middle, so that a remedy at its end stays visible."""
    if isinstance(value, int) and value.bit_length() > LONGEST_QUOTE:  # Python refuses to format very large numbers
        return f"a number of {math.ceil(value.bit_length() * math.log10(2))} digits"
    return _cut(str(value), LONGEST_QUOTE)


def quoted(value: object) -> str:
    """The value as text, shortened if long; strings are in quotes, so that they cannot be mistaken for numbers."""
    if isinstance(value, int):
        return shortened(value)
    try:
        return shortened(repr(value))
    except ValueError:  # the value contains a number that is too large for Python to format
        return f"a {type(value).__name__}"


def with_short_quotes(message: str) -> str:
    """The message of another library, with long quotations and long words shortened."""
    return _LONG_QUOTE.sub(lambda match: shortened(match[0]), message)


def first_line(error: BaseException) -> str:
    """First line of an error's message and the lines that complete its sentence, without final punctuation."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    complete = next((place for place, line in enumerate(lines, 1) if not _UNFINISHED.search(line)), len(lines))
    reason = with_short_quotes(" ".join(lines[:complete]).rstrip(".:,;"))
    return _cut(reason, LONGEST_REASON)


def in_one_line(error: BaseException) -> str:
    """An error's message without line ends, which names quoted from a file may contain; shortened if it is long."""
    return _cut(with_short_quotes(" ".join(str(error).split())), LONGEST_REASON)


def _cut(text: str, most: int) -> str:
    half = most // 2
    return text if len(text) <= most else f"{text[:half]}…{text[-half:]}"


def require(holds: bool, message: str, *about: str) -> None:  # noqa: FBT001 - a condition reads well as the first argument
    """Raises ConfigError unless `holds` is true; `about` names the options that the error concerns."""
    if not holds:
        raise ConfigError(message, *about)


@contextmanager
def about(*options: str) -> Iterator[None]:
    """Adds the names `options` to a `DecoderError` that the block raises, unless the error already names options."""
    try:
        yield
    except DecoderError as error:
        error.about = error.about or options
        raise
