"""Converts values of options to prompts, run configurations and views; `decoder` checks the bounds of most values."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from msgspec import structs

from decoder.errors import ConfigError, PromptError, about, shortened
from decoder.knobs import TunableParameters
from decoder.methods import options_of
from decoder.methods.method import LARGEST_WHOLE, Option
from decoder.prompt import AnyPrompt, as_prompt, plainest
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING, Sampling
from dynatui.cli import options, settings
from dynatui.cli.parameters import OptionGroup
from dynatui.keymap import Keymap
from dynatui.prompts import STANDARD_INPUT, PromptFile, embedded, from_file, from_text
from dynatui.session import Models, View
from dynatui.terminal import streams


@dataclass(frozen=True)
class Prompts:
    prompt_files: Sequence[str] | None = None
    prompt_field: str | None = None
    prompt_texts: Sequence[str] | None = None
    prompt_chars: int | None = None

    @property
    def given(self) -> bool:
        return bool(self.prompt_files or self.prompt_texts)

    def of_files(self) -> tuple[PromptFile, ...]:
        names = self.prompt_files or ()
        if STANDARD_INPUT in names and sys.stdin is not None and sys.stdin.isatty():
            streams.say("type the prompt, and end it with ctrl+d on a line of its own")
        with about("prompt_file"):
            return tuple(from_file(name, self.prompt_field) for name in names)

    def beside(self, files: Sequence[PromptFile]) -> tuple[AnyPrompt, ...]:
        read = tuple(chain.from_iterable(file.prompts for file in files))
        with about("prompt"):
            return read + tuple(map(from_text, self.prompt_texts or ())) or embedded()

    def read(self, chat: bool | None = None) -> tuple[AnyPrompt, ...]:  # noqa: FBT001 - a setting of the run
        """All prompts, cut to `prompt_chars` characters if given, as in the DynaTree paper; prints notes on files."""
        files = self.of_files()
        for note in notes(files, chat):
            streams.say(note)
        prompts = self.beside(files)
        return prompts if self.prompt_chars is None else tuple(_cut(each, self.prompt_chars) for each in prompts)


def notes(files: Sequence[PromptFile], chat: bool | None) -> tuple[str, ...]:  # noqa: FBT001 - a setting of the run
    return tuple(filter(None, (file.said(chat) for file in files)))


def _cut(prompt: AnyPrompt, characters: int) -> AnyPrompt:
    whole = as_prompt(prompt)
    if whole.earlier is not None:
        raise PromptError("a prompt is a conversation, which --prompt-chars does not cut; leave --prompt-chars out")
    if not (beginning := whole.text.strip()[:characters]):
        raise PromptError("a prompt contains only blanks; give a prompt with words")
    return plainest(structs.replace(whole, text=beginning))


PROMPTS = OptionGroup("prompts", options.PROMPT_OPTIONS, Prompts)
CUT_PROMPTS = OptionGroup("prompts", options.CUT_PROMPT_OPTIONS, Prompts)
MODELS = OptionGroup("models", options.MODEL_OPTIONS, Models)


def run_config(given: Mapping[str, Any]) -> RunConfig:
    """Run configuration from values of options; unrelated options are ignored. `ConfigError.about`: invalid options."""
    values, preset = settings.preset_layers(given)
    with settings.named(preset):
        own = _given(**{name: values.get(name) for name in ("methods", "seed", "max_new_tokens", "chat")})
        sampling = _parameters(Sampling(), options_of(SAMPLING), values)
        usual = RunConfig(parameters={SAMPLING: sampling}).parameters
        sets = {name: _parameters(rules, options_of(name), values) for name, rules in usual.items()}
        return RunConfig(parameters=sets, drafting=values.get("drafting"), **own)


def view(given: Mapping[str, Any], keys: Keymap) -> View:
    values = dict(given)
    color = not (values.pop("no_color") or os.environ.get("NO_COLOR"))
    return View(**values, color=color, keys=keys)


def _given(**values: object) -> dict[str, Any]:
    """The values that are not None; raises ConfigError for an integer too large to store in an event."""
    for name, value in values.items():
        if isinstance(value, int) and abs(value) > LARGEST_WHOLE:
            raise ConfigError(f"{name} is {shortened(value)}; give a number up to {LARGEST_WHOLE}", name)
    return {name: value for name, value in values.items() if value is not None}


def _parameters(usual: TunableParameters, known: Sequence[Option], given: Mapping[str, Any]) -> TunableParameters:
    """`usual` with the given values set at once: some are valid only together. `ConfigError.about`: invalid options."""
    changes, options = dict[str, Any](), dict[str, str]()
    for option in known:
        if given.get(option.name) is not None:
            with about(option.name):
                changed = option.changes(given[option.name])
            changes |= changed
            options |= dict.fromkeys(changed, option.name)
    try:
        return replace(usual, **_given(**changes))
    except ConfigError as error:
        named = [name for name in error.about if name in changes] or changes
        at_fault = [name for name in named if changes[name] != getattr(usual, name)]
        error.about = tuple(dict.fromkeys(options[name] for name in at_fault))
        raise
