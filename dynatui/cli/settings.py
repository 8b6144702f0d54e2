"""What the user has set for good: in a TOML file, or for this shell in the environment.

A flag comes before a DYNATUI_* variable, that before the file, that before the default. Names, kinds and bounds of
settings are read off the options of the live command. Knows nothing of what a setting means.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperOption

from decoder.errors import ConfigError, DecoderError, about, quoted, require, shortened, with_short_quotes
from dynatui.cli.toml_file import KINDS, LARGEST_FILE, Setting, checked, line_of, table
from dynatui.files import opened, text_of
from dynatui.keymap import KEYMAP, Keymap

PREFIX = "DYNATUI_"
FILE_VARIABLE = "DYNATUI_CONFIG"
OTHER_VARIABLES = frozenset({FILE_VARIABLE, "DYNATUI_DATA", "DYNATUI_ATTACH_TOKEN"})
"""Variables that begin like a setting and are none."""
KEYS = "keys"
"""The table of keys in the file."""
_NEWLINE = "\n"


def file_path() -> Path:
    """The user's file, whether it exists or not."""
    named = os.environ.get(FILE_VARIABLE)
    if named:
        return Path(named)
    from platformdirs import user_config_path  # noqa: PLC0415 - whoever names a file can do without

    return user_config_path("dynatui") / "config.toml"


def options_of(command: Any) -> dict[str, TyperOption]:
    """The options of a command that take a setting, by the setting's name."""
    return {
        key_of(option): option
        for option in command.params
        if isinstance(option, TyperOption) and option.expose_value and not option.is_eager
    }


def key_of(option: TyperOption) -> str:
    """What a setting is called: as the option, with underscores."""
    return option.opts[0].lstrip("-").replace("-", "_")


def typed(context: typer.Context) -> dict[str, Any]:
    """The parameters that were given on the command line, by their names."""
    sources = {each: context.get_parameter_source(each.name) for each in context.command.params}
    return {each.name: each for each, source in sources.items() if source and source.name == "COMMANDLINE"}


def refuse(context: typer.Context, idle: Mapping[str, str]) -> None:
    """Refuses options of the command line that have no effect, by the names of parameters, each with the reason."""
    for name, option in typed(context).items():
        require(name not in idle, f"{option.opts[0]} has no effect {idle.get(name)}; leave it out")


def read(live: Any) -> dict[str, Setting]:
    """All that is set, for the options of the live command; raises a ConfigError for what cannot be read or set."""
    known = options_of(live)
    found = _from_file(file_path(), kinds(live))
    for key, option in known.items():
        name = PREFIX + key.upper()
        if text := os.environ.get(name):
            found[key] = Setting(key, [text] if option.multiple else text, name)
    return found


def keymap() -> Keymap:
    """The keys, with those that the user's file binds anew; raises a ConfigError where that makes no sense."""
    path = file_path()
    return _keymap(path, *_table(path), ())


def strange_variables(live: Any) -> list[str]:
    """Names of variables that look like settings but set nothing."""
    known = {PREFIX + key.upper() for key in options_of(live)} | OTHER_VARIABLES
    return sorted(name for name in os.environ if name.startswith(PREFIX) and name not in known)


def applied(context: typer.Context) -> dict[str, Setting]:
    """The settings that hold for this command, by the names of its parameters; a flag that was given comes first.

    Another command shares the live command's settings for the options that it shares, and these alone: `--speed` of a
    replay has its name in common with that of a live run, but neither its bounds nor its meaning.
    """
    live = context.find_root().command
    known = options_of(live)
    mine = options_of(context.command)
    shared = {key: option for key, option in mine.items() if key in known and option.help == known[key].help}
    flags = typed(context)
    names = {key: option.name for key, option in shared.items() if option.name not in flags}
    return {names[key]: setting for key, setting in read(live).items() if key in names}


def fill(context: typer.Context, settings: Mapping[str, Setting]) -> dict[str, Any]:
    """Makes settings the defaults of a command; returns what its parameters are then.

    Raises:
        ConfigError: A value is wrong, and where it stands.
    """
    context.default_map = {name: setting.value for name, setting in settings.items()}
    options = {option.name: option for option in context.command.params}
    for name, setting in settings.items():
        try:
            with about(setting.key):
                options[name].handle_parse_result(context, {}, [])
        except typer.BadParameter as error:
            why = with_short_quotes(error.message.removeprefix("Value error, ").rstrip("."))
            fault = f"{setting.place}: {setting.key} is {quoted(setting.value)}; {why[:1].lower()}{why[1:]}"
            raise ConfigError(fault) from None
    return {name: context.params[name] for name in settings}


def configured(command: Callable[..., int]) -> Callable[..., int]:
    """Lets a command's options fall back to the settings."""

    @wraps(command)
    def run(context: typer.Context, **given: Any) -> int:
        if context.invoked_subcommand is not None:
            return command(context=context, **given)
        settings = applied(context)
        with named(settings):
            return command(context=context, **given | fill(context, settings))

    return run


@contextmanager
def named(settings: Mapping[str, Setting]) -> Iterator[None]:
    """Within, an error about a setting says where that stands."""
    try:
        yield
    except DecoderError as error:
        for setting in settings.values():
            if setting.key in error.about:
                error.add_note(f"{setting.key} from {setting.place}")
        raise


def with_places(error: DecoderError) -> str:
    """The error's line, with the places of the settings that it is about."""
    places = ", ".join(getattr(error, "__notes__", ()))
    return f"{error} ({places})" if places else str(error)


def _table(path: Path) -> tuple[str, dict[str, Any]]:
    """The file as text and as what that says; raises a ConfigError where it cannot be read or is not TOML."""
    text = _text(path)
    return text, table(path, text, "correct it, or begin anew from dynatui config --print-default")


def _from_file(path: Path, known: Mapping[str, Any]) -> dict[str, Setting]:
    text, found = _table(path)
    _keymap(path, text, found, known)
    found.pop(KEYS, None)
    return checked(path, text, found, known, "there is no setting {}; {}dynatui config --print-default lists all")


def _keymap(path: Path, text: str, table: Mapping[str, Any], known: Collection[str]) -> Keymap:
    """The keys as the table of that name binds them: a name, and a key or a list of keys."""
    found = table.get(KEYS, {})
    begin = line_of(text, KEYS)
    if not isinstance(found, dict):
        raise ConfigError(
            f"{shortened(path)}: line {begin}: keys is {quoted(found)}; "
            'write a table: [keys], and below it pause = "f5"'
        )
    for name, caps in found.items():
        place = f"{shortened(path)}: line {begin - 1 + line_of(text.split(_NEWLINE, begin - 1)[-1], name)}"
        if name in known and name not in KEYMAP.settings():
            raise ConfigError(f"{place}: {name} stands below [keys] and is no key; write it above that line")
        if not (isinstance(caps, str) or (isinstance(caps, list) and all(isinstance(cap, str) for cap in caps))):
            raise ConfigError(
                f"{place}: {shortened(name)} is {quoted(caps)}; give a key in quotes, or a list of such keys"
            )
    try:
        return KEYMAP.rebound({name: [caps] if isinstance(caps, str) else caps for name, caps in found.items()})
    except ConfigError as error:
        raise ConfigError(f"{shortened(path)}: line {begin}: {error}") from None


def _text(path: Path) -> str:
    named = os.environ.get(FILE_VARIABLE)
    too_large = "so it holds no settings; name another file"
    try:
        with opened(path) as file:
            return text_of(file, shortened(path), LARGEST_FILE, too_large=too_large, fault=ConfigError)
    except OSError as error:
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not named:
            return ""
        remedy = f"let {FILE_VARIABLE} name a file" if named else "make it readable or remove it"
        raise ConfigError(f"cannot read {shortened(path)}: {error.strerror}; {remedy}") from None


def kinds(live: Any) -> dict[str, Any]:
    """What type each setting has in a file: what is typed into an option as text is text there."""
    types = {key: option.type_descriptor.annotation for key, option in options_of(live).items()}
    return {key: kind if kind in KINDS else str for key, kind in types.items()}
