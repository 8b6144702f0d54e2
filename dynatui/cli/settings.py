"""The user's settings and presets: TOML files with values of options, which the engine does not read.

Order of precedence of settings: flag, DYNATUI_* variable, settings file, default. Given options override a preset.
"""

import json
import os
import re
import tomllib
from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click
import msgspec

from decoder.errors import ConfigError, DecoderError, about, quoted, require, shortened, with_short_quotes
from decoder.methods import METHODS
from decoder.methods.dynatree import PRESETS, shipped_preset
from decoder.methods.method import Option as MethodOption
from decoder.run.config import RunConfig
from dynatui.clean import clean_line
from dynatui.cli.options import instead
from dynatui.cli.parameters import Option
from dynatui.files import opened, text_of, write_whole
from dynatui.keymap import KEYMAP, Keymap, near

LARGEST_FILE = 2**20
"""Largest allowed file, in bytes; without a limit, reading a device such as /dev/zero would fill the memory."""
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
    """Where the setting is made: an environment variable, or a file and a line."""


def read_table(path: Path, usual_remedy: str, unreadable: str) -> tuple[str, dict[str, Any]]:
    """Text and parsed content of a TOML file; ConfigErrors end in one of the two remedies."""
    try:
        with opened(path) as file:
            text = text_of(file, shortened(path), LARGEST_FILE, too_large="which is too large for a file of settings")
    except OSError as error:
        raise ConfigError(f"cannot read {shortened(path)}: {error.strerror}; {unreadable}") from error
    try:
        return text, tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        remedy = _unquoted(text, str(error)) or usual_remedy
        # A ValueError that is not a TOMLDecodeError means that a number has too many digits for Python to convert.
        is_a_number = not isinstance(error, tomllib.TOMLDecodeError | RecursionError)
        why = "a number has thousands of digits" if is_a_number else with_short_quotes(str(error))
        raise ConfigError(f"{shortened(path)}: {why}; {remedy}") from None


def checked(
    path: Path, text: str, given: Mapping[str, Any], known: Mapping[str, Any], unknown: str
) -> dict[str, Setting]:
    """The options that a file sets, by name; `given` is the file's parsed content, `text` the content before parsing.

    `unknown` is the message for an unknown name, with one {} for the name and one {} for a hint at a similar name.
    Raises ConfigError if an option is unknown or its value has the wrong type.
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
    """Number of the line that sets a top-level key or opens the table of this name; 1 if there is no such line."""
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


PREFIX = "DYNATUI_"
FILE_VARIABLE = "DYNATUI_CONFIG"
OTHER_VARIABLES = frozenset({FILE_VARIABLE, "DYNATUI_DATA", "DYNATUI_ATTACH_TOKEN"})
KEYS = "keys"
_NEWLINE = "\n"


def file_path() -> Path:
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(os.path.expanduser(named))  # noqa: PTH111 - leaves the text as it is if there is no such user
    from platformdirs import user_config_path  # noqa: PLC0415 - not needed if the variable names a file

    return user_config_path("dynatui") / "config.toml"


def options_of(command: Any) -> dict[str, Option]:
    return {
        key_of(option): option
        for option in command.params
        if isinstance(option, Option) and option.expose_value and not option.is_eager
    }


def key_of(option: Option) -> str:
    return option.opts[0].lstrip("-").replace("-", "_")


def typed(context: click.Context) -> dict[str, Any]:
    sources = {each: context.get_parameter_source(each.name) for each in context.command.params}
    return {each.name: each for each, source in sources.items() if source and source.name == "COMMANDLINE"}


def refuse(context: click.Context, idle: Mapping[str, str]) -> None:
    """Raises ConfigError if an option without effect was given; `idle` maps parameters without effect to reasons."""
    for name, option in typed(context).items():
        require(name not in idle, f"{option.opts[0]} has no effect {idle.get(name)}; leave {option.opts[0]} out")


def read_settings(live: Any) -> dict[str, Setting]:
    path, types = file_path(), kinds(live)
    content, given = _table(path)
    _keymap(path, content, given, types)
    given.pop(KEYS, None)
    unknown = "there is no setting {}; {}dynatui config --print-default lists all settings"
    values = checked(path, content, given, types, unknown)
    for key, option in options_of(live).items():
        name = PREFIX + key.upper()
        if text := os.environ.get(name):
            values[key] = Setting(key, [text] if option.multiple else text, name)
    return values


def keymap() -> Keymap:
    return _keymap(file_path(), *_table(file_path()), ())


def strange_variables(live: Any) -> list[str]:
    known = {PREFIX + key.upper() for key in options_of(live)} | OTHER_VARIABLES
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def applied(context: click.Context) -> dict[str, Setting]:
    """Settings that apply to this command, by parameter name: settings of options that were not typed.

    The options must also have the same help text as in the root command: `--speed` of a replay has other bounds.
    """
    live = context.find_root().command
    known, flags = options_of(live), typed(context)
    names = {
        key: option.name
        for key, option in options_of(context.command).items()
        if option.name not in flags and key in known and option.help == known[key].help
    }
    return {names[key]: setting for key, setting in read_settings(live).items() if key in names}


def fill(context: click.Context, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Makes settings the defaults of a command; returns values by parameter. A ConfigError names a setting's place."""
    context.default_map = {name: setting.value for name, setting in settings.items()}
    options = {option.name: option for option in context.command.params}
    for name, setting in settings.items():
        try:
            with about(setting.key):
                options[name].handle_parse_result(context, {}, [])
        except click.BadParameter as error:
            why = with_short_quotes(error.message.partition(". ")[0].rstrip("."))
            fault = f"{setting.place}: {setting.key} is {quoted(setting.value)}; {why[:1].lower()}{why[1:]}"
            raise ConfigError(fault) from None
    return {name: context.params[name] for name in settings}


@contextmanager
def fallback(context: click.Context) -> Iterator[None]:
    if context.invoked_subcommand is not None:
        yield
        return
    settings = applied(context)
    with named(settings):
        fill(context, settings)
        yield


@contextmanager
def named(settings: Mapping[str, Setting]) -> Iterator[None]:
    """Adds the place of a setting to an error about that setting."""
    try:
        yield
    except DecoderError as error:
        for setting in settings.values():
            if setting.key in error.about:
                error.add_note(f"{setting.key} from {setting.place}")
        raise


def with_places(error: DecoderError) -> str:
    places = ", ".join(getattr(error, "__notes__", ()))
    return f"{error} ({places})" if places else str(error)


def _table(path: Path) -> tuple[str, dict[str, Any]]:
    """Text and parsed content of the settings file; both are empty if the default file does not exist."""
    named = os.environ.get(FILE_VARIABLE)
    unreadable = f"set {FILE_VARIABLE} to a file that can be read" if named else "make it readable or remove it"
    invalid = "correct the file, or start from the output of dynatui config --print-default"
    try:
        return read_table(path, invalid, unreadable)
    except ConfigError as error:
        if named or not isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
            raise
    return "", {}


def _keymap(path: Path, text: str, table: Mapping[str, Any], known: Collection[str]) -> Keymap:
    bindings = table.get(KEYS, {})
    begin = line_of(text, KEYS)
    if not isinstance(bindings, dict):
        remedy = 'write a table: [keys], and below it pause = "f5"'
        raise ConfigError(f"{shortened(path)}: line {begin}: keys is {quoted(bindings)}; {remedy}")
    for name, caps in bindings.items():
        place = f"{shortened(path)}: line {begin - 1 + line_of(text.split(_NEWLINE, begin - 1)[-1], name)}"
        if name in known and name not in KEYMAP.settings():
            remedy = f"write {name} above [keys]"
            raise ConfigError(f"{place}: {name} is below [keys], but is not an action with keys; {remedy}")
        if not (isinstance(caps, str) or (isinstance(caps, list) and all(isinstance(cap, str) for cap in caps))):
            remedy = "give a key in quotes, or a list of such keys"
            raise ConfigError(f"{place}: {shortened(name)} is {quoted(caps)}; {remedy}")
    try:
        return KEYMAP.rebound({name: [caps] if isinstance(caps, str) else caps for name, caps in bindings.items()})
    except ConfigError as error:
        raise ConfigError(f"{shortened(path)}: line {begin}: {error}") from None


def kinds(live: Any) -> dict[str, Any]:
    """Type of each setting in a file; `str` for an option that converts a text."""
    return {key: option.kind if option.kind in KINDS else str for key, option in options_of(live).items()}


PRESET = "preset"
METHODS_OF_PRESETS = ("dynatree", "linear")
_PRESET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_PRESET_REMEDY = "correct the file, or replace it by running dynatui tune"


def preset_folder() -> Path:
    return file_path().parent / "presets"


def preset_names() -> list[str]:
    files = list[str]()
    with suppress(OSError):  # the folder does not exist or cannot be read
        files = sorted(path.stem for path in preset_folder().iterdir() if path.suffix == ".toml")
    return [name for name in files if _PRESET_NAME.fullmatch(name) and name not in PRESETS]


def preset_layers(options: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Setting]]:
    """(values of options, settings from the user's preset); no settings if `--preset` does not name a user's preset.

    Given options override the user's preset, and the user's preset overrides a shipped preset. Raises ConfigError if
    the preset does not exist, or its file is unreadable or sets an unknown option.
    """
    given = {name: value for name, value in options.items() if value is not None}
    name = given.get(PRESET)
    if name is None or name in PRESETS:
        return given, {}
    if name not in preset_names():
        raise ConfigError(f"--preset is {quoted(name)}; give one of {', '.join((*PRESETS, *preset_names()))}", PRESET)
    with about(PRESET):
        preset = {key: setting for key, setting in _read_preset(_preset_path(name)).items() if key not in given}
    del given[PRESET]
    values = {key: setting.value for key, setting in preset.items()}
    return ChainMap(given, values, {PRESET: shipped_preset(temperature=0)}), preset


def prepare_preset(name: str, *, force: bool) -> None:
    """Raises ConfigError if the name is invalid, or taken and `force` is false, or if the folder is not writable."""
    if not _PRESET_NAME.fullmatch(name):
        raise ConfigError(f"--name is {quoted(name)}; give up to 64 letters, digits, - and _, for example mine")
    if name in PRESETS:
        raise ConfigError(f"--name is {name}, a preset that comes with dynatui; give another name")
    try:
        taken = _preset_path(name).exists()
        preset_folder().mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=preset_folder(), prefix=".", suffix=".new"):
            pass
    except OSError as error:
        raise _not_written(preset_folder(), error) from None
    if taken and not force:
        raise _taken(name)


def write_preset(name: str, run: RunConfig, comments: Sequence[str], *, force: bool) -> Path:
    """Writes a preset completely or not at all; raises ConfigError on failure, or if it exists and `force` is false."""
    path = _preset_path(name)
    values = {option.name: option.value(run.rules(method)) for method, option in _preset_options()}
    lines = [f"# {clean_line(comment)}" for comment in comments]
    lines += [f"{key} = {toml(value)}" for key, value in values.items()]
    try:
        write_whole(path, "".join(f"{line}\n" for line in lines).encode(), replace=force)
    except FileExistsError:
        raise _taken(name) from None
    except OSError as error:
        raise _not_written(path, error) from None
    return path


def _preset_options() -> list[tuple[str, MethodOption]]:
    """The options that a preset may set, each with the name of its method."""
    every = ((method, option) for method in METHODS_OF_PRESETS for option in METHODS[method].options)
    return [(method, option) for method, option in every if option.name != PRESET]


def _read_preset(path: Path) -> dict[str, Setting]:
    known: dict[str, Any] = {option.name: option.kind for _, option in _preset_options()}
    text, content = read_table(path, _PRESET_REMEDY, "make it readable or remove it")
    others = f"a preset can set {', '.join(known)}"
    return checked(path, text, content, known, f"{{}} is not an option of a preset; {{}}{others}")


def _preset_path(name: str) -> Path:
    return preset_folder() / f"{name}.toml"


def _taken(name: str) -> ConfigError:
    return ConfigError(f"there is a preset {name} already; give another --name, or --force to replace it")


def _not_written(path: Path, error: OSError) -> ConfigError:
    remedy = f"free disk space, or set {FILE_VARIABLE} to a file in a writable folder"
    return ConfigError(f"cannot write {shortened(path)}: {error.strerror}; {remedy}")
