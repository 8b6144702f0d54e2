"""Turns the values of options into what a session is made of, and names the option when one cannot be read.

Knows nothing of where the values come from, but that a preset of the user's stands for several. What they mean and
which are possible is decided in `decoder.config`; an option that is None keeps the default there.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from decoder.config import RunConfig
from decoder.errors import ConfigError, PromptError, about, shortened
from decoder.knobs import TunableParameters
from decoder.methods import chosen, options_of
from decoder.methods.option import LARGEST_WHOLE, Option
from dynatui.cli import presets, settings
from dynatui.keymap import Keymap
from dynatui.prompts import load
from dynatui.session import View
from dynatui.terminal import streams


def prompt_files(names: list[str] | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Files by name, each with its prompts."""
    if load.STANDARD_INPUT in (names or ()) and sys.stdin is not None and sys.stdin.isatty():
        streams.say("type the prompt; ctrl+d on a line of its own ends it")
    with about("prompt_file"):
        return tuple((name, load.from_file(name)) for name in names or ())


def prompts(files: tuple[tuple[str, tuple[str, ...]], ...], texts: list[str] | None) -> tuple[str, ...]:
    """The prompts of files and of the command line, in this order; with neither, our own."""
    given = tuple(chain.from_iterable(held for _, held in files))
    with about("prompt"):
        return given + tuple(map(load.from_text, texts or ())) or load.embedded()


def cut(prompts: tuple[str, ...], length: int | None) -> tuple[str, ...]:
    """The beginning of each, without the blanks around the whole: as the DynaTree paper cuts its texts."""
    if length is None:
        return prompts
    beginnings = tuple(prompt.strip()[:length] for prompt in prompts)
    if not all(beginnings):
        raise PromptError("a prompt is empty but for blanks; give one with words")
    return beginnings


def method_names(names: str) -> tuple[str, ...]:
    """Methods by their names, with commas between them; raises a ConfigError where there is none of some name."""
    return tuple(method.name for method in chosen([name.strip() for name in names.split(",")]))


def run_config(given: Mapping[str, Any]) -> RunConfig:
    """What a run does with a prompt, as options by their names say; others are passed over.

    Raises:
        ConfigError: Values are out of bounds or at odds; about the fewest options that make no run for the same reason.
    """
    preset = presets.given(given)
    options = {name: value for name, value in presets.expanded(given, preset).items() if value is not None}
    with settings.named(preset):
        try:
            return _run_config(options)
        except ConfigError as error:
            error.about = _at_fault(options, str(error))
            raise


def _at_fault(options: Mapping[str, Any], why: str) -> tuple[str, ...]:
    """The fewest of these options that make no run for this reason, by their names."""
    left = dict(options)
    for name in options:
        fewer = {other: value for other, value in left.items() if other != name}
        try:
            _run_config(fewer)
        except ConfigError as error:
            left = fewer if str(error) == why else left
    return tuple(left)


def _run_config(options: Mapping[str, Any]) -> RunConfig:
    given = {name: options.get(name) for name in ("seed", "max_new_tokens", "chat")}
    methods = method_names(options["methods"]) if "methods" in options else None
    sets = {name: _parameters(own, options_of(name), options) for name, own in RunConfig().parameters.items()}
    return RunConfig(parameters=sets, drafting=options.get("drafting"), **_given(methods=methods, **given))


def view(given: Mapping[str, Any], keys: Keymap) -> View:
    """How the screen looks; NO_COLOR in the environment counts as the option does."""
    asked = dict(given)
    color = not (asked.pop("no_color") or os.environ.get("NO_COLOR"))
    return View(**asked, color=color, keys=keys)


def _given(**values: object) -> dict[str, Any]:
    """Those options that were given; raises a ConfigError for a whole number that is larger than an event can carry."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            raise ConfigError(f"{name} is {shortened(value)}; give a number up to {LARGEST_WHOLE}")
    return {name: value for name, value in values.items() if value is not None}


def _parameters(usual: TunableParameters, options: Sequence[Option], given: Mapping[str, Any]) -> TunableParameters:
    """A method's parameters as they were given, all at once: one may be possible only beside another."""
    changes = dict[str, Any]()
    for option in options:
        if given.get(option.name) is not None:
            changes |= option.changes(given[option.name])
    return replace(usual, **_given(**changes))
