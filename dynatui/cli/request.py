"""Converts values of options to prompts, parameters and views; error messages name the option.

Does not know where a value comes from, except that a user's preset gives values for several options. Meaning and bounds
of values are defined in `decoder.run.config`; an option that is None keeps the default defined there.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from decoder.bench.on_pair import OnPair
from decoder.errors import ConfigError, PromptError, about, shortened
from decoder.knobs import TunableParameters
from decoder.methods import options_of
from decoder.methods.option import LARGEST_WHOLE, Option
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.cli import options, presets, settings
from dynatui.cli.parameters import Group
from dynatui.keymap import Keymap
from dynatui.prompts import load
from dynatui.session import Models, View
from dynatui.terminal import streams

PromptsOfFiles = tuple[tuple[str, tuple[str, ...]], ...]
"""Pairs of a file name and the prompts that the file contains."""


@dataclass(frozen=True)
class Prompts:
    """The sources of prompts, as given by options."""

    prompt_files: Sequence[str] | None = None
    prompt_texts: Sequence[str] | None = None
    prompt_chars: int | None = None
    """Number of characters to which each prompt is cut; None: prompts are not cut."""

    @property
    def given(self) -> bool:
        """Whether the user gave any prompt."""
        return bool(self.prompt_files or self.prompt_texts)

    def of_files(self) -> PromptsOfFiles:
        """Reads the prompt files; raises PromptError for a file that contains no prompt."""
        names = self.prompt_files or ()
        if load.STANDARD_INPUT in names and sys.stdin is not None and sys.stdin.isatty():
            streams.say("type the prompt, and end it with ctrl+d on a line of its own")
        with about("prompt_file"):
            return tuple((name, load.from_file(name)) for name in names)

    def beside(self, files: PromptsOfFiles) -> tuple[str, ...]:
        """The prompts of `files`, then the prompts given as options; if there are no prompts, the embedded prompts."""
        read = tuple(chain.from_iterable(prompts for _, prompts in files))
        with about("prompt"):
            return read + tuple(map(load.from_text, self.prompt_texts or ())) or load.embedded()

    def read(self) -> tuple[str, ...]:
        """All prompts, cut as in the DynaTree paper; raises PromptError for a prompt without words."""
        prompts = self.beside(self.of_files())
        if self.prompt_chars is None:
            return prompts
        beginnings = tuple(prompt.strip()[: self.prompt_chars] for prompt in prompts)
        if not all(beginnings):
            raise PromptError("a prompt contains only blanks; give a prompt with words")
        return beginnings


PROMPTS = Group("prompts", options.PROMPT_OPTIONS, Prompts)
CUT_PROMPTS = Group("prompts", options.CUT_PROMPT_OPTIONS, Prompts)
MODELS = Group("models", options.MODEL_OPTIONS, Models)
PAIR = Group("pair", options.PAIR_OPTIONS, OnPair)


def run_config(given: Mapping[str, Any]) -> RunConfig:
    """The configuration of a run, from the values of options by name; options that do not concern a run are ignored.

    Raises:
        ConfigError: Values are out of bounds or contradict each other; the error's `about` names the options at fault.
    """
    preset = presets.given(given)
    values = {name: value for name, value in presets.expanded(given, preset).items() if value is not None}
    with settings.named(preset):
        try:
            return _run_config(values)
        except ConfigError as error:
            error.about = _at_fault(values, str(error))
            raise


def _at_fault(values: Mapping[str, Any], why: str) -> tuple[str, ...]:
    """Names of the options whose values together cause the error with message `why`. A part of these options would not
    cause this error.
    """
    left = dict(values)
    for name in values:
        fewer = {other: value for other, value in left.items() if other != name}
        try:
            _run_config(fewer)
        except ConfigError as error:
            left = fewer if str(error) == why else left
    return tuple(left)


def _run_config(values: Mapping[str, Any]) -> RunConfig:
    given = {name: values.get(name) for name in ("methods", "seed", "max_new_tokens", "chat")}
    sampling = _parameters(Sampling(), options_of(SAMPLING), values)
    usual = RunConfig(parameters={SAMPLING: sampling}).parameters
    sets = {name: _parameters(rules, options_of(name), values) for name, rules in usual.items()}
    return RunConfig(parameters=sets, drafting=values.get("drafting"), **_given(**given))


def view(given: Mapping[str, Any], keys: Keymap) -> View:
    """Settings of the screen; NO_COLOR in the environment has the effect of the option --no-color."""
    values = dict(given)
    color = not (values.pop("no_color") or os.environ.get("NO_COLOR"))
    return View(**values, color=color, keys=keys)


def _given(**values: object) -> dict[str, Any]:
    """The values that were given, without None; raises ConfigError for an integer too large to store in an event."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            raise ConfigError(f"{name} is {shortened(value)}; give a number up to {LARGEST_WHOLE}")
    return {name: value for name, value in values.items() if value is not None}


def _parameters(usual: TunableParameters, known: Sequence[Option], given: Mapping[str, Any]) -> TunableParameters:
    """A method's parameters with all given values. All are set at once, since some values are valid only together."""
    changes = dict[str, Any]()
    for option in known:
        if given.get(option.name) is not None:
            changes |= option.changes(given[option.name])
    return replace(usual, **_given(**changes))
