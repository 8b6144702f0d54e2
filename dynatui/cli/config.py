"""`dynatui config`: prints all settings with their sources, or a template; both outputs are valid settings files."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import click

from decoder.methods import METHODS, defaults
from decoder.run.config import RunConfig
from dynatui.cli import request, settings
from dynatui.cli.parameters import CONTEXT, Declared, Option, switch
from dynatui.cli.settings import KEYS, KINDS, PRESET, Setting, key_of, kinds, options_of, toml
from dynatui.keymap import KEYMAP
from dynatui.terminal import streams

_WIDEST = 40
_HEAD = """\
# Settings of dynatui. Remove the # before a name to set the option.
# Precedence: a flag (--tau-h 0.8), a variable (DYNATUI_TAU_H=0.8), this file, the default shown here.
# The preset and DynaTree's knobs have other defaults if the temperature is above 0.
"""


PARAMETERS: Declared = (
    CONTEXT,
    switch("--path", "Print only the path of the settings file, whether or not the file exists."),
    switch("--print-default", "Print a template of the settings file, with every line explained."),
)


def config(context: click.Context, *, path: bool, print_default: bool) -> int:
    """Show the settings in force, and where each is set: in the settings file or by a variable."""
    out, _ = streams.for_printing()
    live = context.find_root()
    if path:
        streams.show(f"{settings.file_path()}\n", out)
    elif print_default:
        streams.show(_HEAD + "".join((*_explained(live.command), *_explained_keys())), out)
    else:
        streams.show(in_force(live), out)
        for name in settings.strange_variables(live.command):
            streams.say(f"the variable {name} sets no option; dynatui config --print-default lists all settings")
    return 0


_OF_THE_SCREEN = ("seed",)
"""Fields of `RunConfig` whose default for the embedded pair depends on whether there is a screen: shown as not set."""


def in_force(live: Any) -> str:
    """Text of a settings file with every setting and its source. Defaults that depend on the temperature are comments.

    Raises ConfigError if a setting is invalid.
    """
    set_values = settings.applied(live)
    with settings.named(set_values):
        given = live.params | settings.fill(live, set_values)
        run = request.run_config(given)
    settled = list[tuple[str, str]]()
    for key, option in options_of(live.command).items():
        value = _effective(key, given.get(option.name), run)
        source = _source(key, set_values.get(option.name), given.get(PRESET), run)
        mark = "# " if source == _by_temperature(run) else ""
        settled.append((f"# {key} is not set", "") if value is None else (f"{mark}{key} = {toml(value)}", source))
    width = min(_WIDEST, max(len(line) for line, source in settled if source))
    lines = "".join(f"{line.ljust(width)}  # {source}\n" if source else f"{line}\n" for line, source in settled)
    usual = KEYMAP.settings()
    bound = [f"{name} = {_caps(caps)}\n" for name, caps in settings.keymap().settings().items() if caps != usual[name]]
    return lines + (f"\n[{KEYS}]\n{''.join(bound)}" if bound else f"# no key of the table [{KEYS}] is set\n")


def default(option: Option) -> object:
    return None if option.required else _effective(key_of(option), option.default, RunConfig())


def _explained(live: Any) -> Iterator[str]:
    known = kinds(live)
    for panel, group in groupby(options_of(live).items(), lambda pair: pair[1].panel):
        yield f"\n# --- {panel} ---\n"
        for key, each in group:
            value = default(each)
            yield f"\n# {each.help}\n"
            yield f"# {key}: {KINDS[known[key]]}; not set\n" if value is None else f"#{key} = {toml(value)}\n"


def _explained_keys() -> Iterator[str]:
    yield "\n# --- Keys ---\n"
    yield '\n# Each line gives an action its keys: "f5", ["p", "ctrl+s"], or [] for no key. ctrl+c always quits.\n'
    yield "# Set options above this line: all lines below belong to the table of keys.\n"
    yield f"[{KEYS}]\n"
    explained = {name: key.help for key in KEYMAP.every for name in key.settings}
    for name, caps in KEYMAP.settings().items():
        yield f"#{name} = {_caps(caps)}  # {explained[name]}\n"


def _caps(caps: Sequence[str]) -> str:
    return toml(caps[0] if len(caps) == 1 else list(caps))


def _source(key: str, setting: Setting | None, preset: str | None, run: RunConfig) -> str:
    if setting is not None:
        return setting.place
    if not any(method.presets and option.name == key for method in METHODS.values() for option in method.options):
        return "default"
    return _by_temperature(run) if preset is None else f"preset {preset}"


def _by_temperature(run: RunConfig) -> str:
    return f"default at temperature {run.sampling.temperature:g}"


def _effective(key: str, given: object, config: RunConfig) -> object:
    owners = [(name, each) for name, method in METHODS.items() for each in method.options if each.name == key]
    missing = given is None or given in ([], ())
    if not owners:
        if missing and key in _OF_THE_SCREEN:
            return None
        value = getattr(config, key, None) if missing else given
        return ",".join(value) if isinstance(value, tuple) else value
    owner, option = owners[0]
    if option.selects_preset:
        return option.value(defaults(config.sampling.temperature)[owner]) if missing else given
    # A given value may set only some of the option's parameters; the value from the configuration has all of them.
    if option.write:
        return option.value(config.rules(owner)) or None
    return option.value(config.rules(owner)) if missing else given
