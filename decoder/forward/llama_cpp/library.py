"""Loads llama.cpp's library, and refuses any release whose layouts are not those of `layouts`."""

import ctypes
import functools
from collections import deque
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from decoder.errors import ConfigError, ModelError
from decoder.forward.llama_cpp.layouts import (
    CONTEXT_DEFAULTS,
    ERROR_LEVEL,
    FUNCTIONS,
    MODEL_DEFAULTS,
    PACKAGE,
    RELEASE,
    VERSION,
    LogCallback,
)

INSTALL = "pip install 'dynatui[gguf]'"
ERRORS_KEPT = 4


class Library:
    """llama.cpp's functions as attributes without their prefix `llama_`, and its latest error messages."""

    def __init__(self, path: Path) -> None:
        """Loads the library at a path and checks its version and its default parameters.

        Raises:
            ModelError: The library cannot be loaded, lacks a function, or has other layouts.
        """
        self._errors: deque[str] = deque(maxlen=ERRORS_KEPT)
        self._log = LogCallback(self._note)
        try:
            loaded = ctypes.CDLL(str(path))
            for name, (result, arguments) in FUNCTIONS.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
                setattr(self, name.removeprefix("llama_"), function)
        except (OSError, AttributeError) as error:
            raise _unfit(str(error)) from error
        self.listen()
        self.backend_init()
        self._check()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"llama_{name} is not among the functions that this program uses")

    def listen(self) -> None:
        """Makes this object the receiver of llama.cpp's log messages; a process has only one receiver."""
        self.log_set(self._log, None)

    def last_error(self) -> str:
        """Returns the latest error messages of llama.cpp in one line, and forgets them."""
        messages, self._errors = list(self._errors), deque(maxlen=ERRORS_KEPT)
        return "; ".join(messages)

    def _note(self, level: int, text: bytes, _data: object) -> None:
        line = text.decode("utf-8", "replace").strip()
        if level == ERROR_LEVEL and line:
            self._errors.append(line.partition(": ")[2] or line)

    def _check(self) -> None:
        if (version := self.version()) != VERSION:
            raise _unfit(f"it is version {version.decode('ascii', 'replace')}, not {VERSION.decode()}")
        for values, expected in (
            (self.model_default_params(), MODEL_DEFAULTS),
            (self.context_default_params(), CONTEXT_DEFAULTS),
        ):
            for name, value in differing(values, expected).items():
                raise _unfit(f"its default of {name} is read as {value!r}, not as {expected[name]!r}")


def differing(values: ctypes.Structure, expected: Mapping[str, object]) -> dict[str, object]:
    """Fields of a struct that do not have the expected values: the actual values, by field name."""
    return {name: value for name, wanted in expected.items() if (value := getattr(values, name)) != wanted}


@functools.cache
def library() -> Library:
    """The library of the extra `gguf`, loaded on first use.

    Raises:
        ConfigError: The package is not installed, or another release of it is installed.
        ModelError: The library cannot be used.
    """
    require_package()
    spec = find_spec(PACKAGE)
    folders = [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []
    paths = [path for folder in folders for path in sorted(folder.glob(f"{PACKAGE}*.so"))]
    if not paths:
        raise _unfit("the package has no library file")
    return Library(paths[0])


def require_package() -> None:
    """Raises ConfigError unless the pinned release of the package is installed."""
    try:
        installed = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        raise ConfigError(f"GGUF files need {PACKAGE}, which is not installed; {INSTALL}") from None
    if installed != RELEASE:
        raise ConfigError(f"GGUF files need {PACKAGE} {RELEASE}, but {installed} is installed; {INSTALL}")


def _unfit(why: str) -> ModelError:
    return ModelError(f"the llama.cpp library of {PACKAGE} {RELEASE} cannot be used: {why}; reinstall it: {INSTALL}")
