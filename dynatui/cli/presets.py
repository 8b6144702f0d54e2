"""The user's presets: TOML files with values of options. Given options override a preset. Not read by the engine."""

import re
from collections import ChainMap
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from decoder.errors import ConfigError, about, quoted, shortened
from decoder.methods import METHODS
from decoder.methods.dynatree import PRESETS, shipped_preset
from decoder.methods.option import Option
from decoder.run.config import RunConfig
from dynatui.clean import clean_line
from dynatui.cli import settings
from dynatui.cli.settings import Setting, checked, toml
from dynatui.files import write_whole

PRESET = "preset"
METHODS_OF_PRESETS = ("dynatree", "linear")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_REMEDY = "correct the file, or replace it by running dynatui tune"


def folder() -> Path:
    return settings.file_path().parent / "presets"


def names() -> list[str]:
    files = list[str]()
    with suppress(OSError):  # the folder does not exist or cannot be read
        files = sorted(path.stem for path in folder().iterdir() if path.suffix == ".toml")
    return [name for name in files if _NAME.fullmatch(name) and name not in PRESETS]


def layers(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Setting]]:
    """(values of options, settings from the user's preset); no settings if `--preset` does not name a user's preset.

    Given options override the user's preset, and the user's preset overrides a shipped preset. Raises ConfigError if
    the preset does not exist, or its file is unreadable or sets an unknown option.
    """
    given = {name: value for name, value in options.items() if value is not None}
    name = given.get(PRESET)
    if name is None or name in PRESETS:
        return given, {}
    if name not in names():
        raise ConfigError(f"--preset is {quoted(name)}; give one of {', '.join((*PRESETS, *names()))}", PRESET)
    with about(PRESET):
        preset = {key: setting for key, setting in _read(_path(name)).items() if key not in given}
    del given[PRESET]
    values = {key: setting.value for key, setting in preset.items()}
    return ChainMap(given, values, {PRESET: shipped_preset(temperature=0)}), preset


def prepare(name: str, *, force: bool) -> None:
    """Raises ConfigError if the name is invalid, or taken and `force` is false, or if the folder is not writable."""
    if not _NAME.fullmatch(name):
        raise ConfigError(f"--name is {quoted(name)}; give up to 64 letters, digits, - and _, for example mine")
    if name in PRESETS:
        raise ConfigError(f"--name is {name}, a preset that comes with dynatui; give another name")
    try:
        taken = _path(name).exists()
        folder().mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder(), prefix=".", suffix=".new"):
            pass
    except OSError as error:
        raise _not_written(folder(), error) from None
    if taken and not force:
        raise _taken(name)


def write_preset(name: str, run: RunConfig, comments: Sequence[str], *, force: bool) -> Path:
    """Writes a preset completely or not at all; raises ConfigError on failure, or if it exists and `force` is false."""
    path = _path(name)
    values = {option.name: option.value(run.rules(method)) for method, option in _options()}
    lines = [f"# {clean_line(comment)}" for comment in comments]
    lines += [f"{key} = {toml(value)}" for key, value in values.items()]
    try:
        write_whole(path, "".join(f"{line}\n" for line in lines).encode(), replace=force)
    except FileExistsError:
        raise _taken(name) from None
    except OSError as error:
        raise _not_written(path, error) from None
    return path


def _options() -> list[tuple[str, Option]]:
    """The options that a preset may set, each with the name of its method."""
    every = ((method, option) for method in METHODS_OF_PRESETS for option in METHODS[method].options)
    return [(method, option) for method, option in every if option.name != PRESET]


def _read(path: Path) -> dict[str, Setting]:
    known: dict[str, Any] = {option.name: option.kind for _, option in _options()}
    text, content = settings.read_table(path, _REMEDY, "make it readable or remove it")
    others = f"a preset can set {', '.join(known)}"
    return checked(path, text, content, known, f"{{}} is not an option of a preset; {{}}{others}")


def _path(name: str) -> Path:
    return folder() / f"{name}.toml"


def _taken(name: str) -> ConfigError:
    return ConfigError(f"there is a preset {name} already; give another --name, or --force to replace it")


def _not_written(path: Path, error: OSError) -> ConfigError:
    remedy = f"free disk space, or set {settings.FILE_VARIABLE} to a file in a writable folder"
    return ConfigError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}")
