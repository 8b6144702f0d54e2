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
from decoder.errors import ConfigError, PromptError, shortened
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
    return tuple((name, load.from_file(name)) for name in names or ())


def prompts(files: tuple[tuple[str, tuple[str, ...]], ...], texts: list[str] | None) -> tuple[str, ...]:
    """The prompts of files and of the command line, in this order; with neither, our own."""
    given = tuple(chain.from_iterable(held for _, held in files))
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


def run_config(
    *, methods: str | None, max_new_tokens: int | None, seed: int | None, chat: bool | None, rules: Mapping[str, Any]
) -> RunConfig:
    """What a run does with a prompt, as options say; raises a ConfigError for values out of bounds or at odds."""
    names = None if methods is None else method_names(methods)
    given, usual = _given(seed=seed, methods=names, max_new_tokens=max_new_tokens, chat=chat), RunConfig().parameters
    preset = presets.given(rules)
    options = presets.expanded(rules, preset)
    with settings.named(preset):
        sets = {name: _parameters(own, options_of(name), options) for name, own in usual.items()}
        return RunConfig(parameters=sets, drafting=rules.get("drafting"), **given)


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
