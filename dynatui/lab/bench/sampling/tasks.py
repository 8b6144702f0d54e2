"""Prompts for the comparison: tasks of Spec-Bench, which replace the paper's data sets.

This module does not depend on models.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from decoder.errors import ConfigError, PromptError, quoted, require
from decoder.prompts.prompt import AnyPrompt
from dynatui.lab.bench.data_sets.spec_bench import FILE, first_turns

STAND_INS = {
    "writing": "LitBench",
    "coding": "LiveCodeBench",
    "translation": "Opus",
    "math_reasoning": "MATH500",
    "math": "OlympiadBench",
}
"""Data set of the paper that each task of Spec-Bench replaces, in the order of the paper's columns."""
Tasks: TypeAlias = dict[str, tuple[AnyPrompt, ...]]
OWN = "prompts"
"""Name of the task that consists of prompts from the command line."""


def spec_bench(folder: Path, names: Sequence[str], count: int) -> Tasks:
    """First `count` prompts of the named tasks; the first turn of a question is a prompt.

    Raises:
        ConfigError: A task is unknown.
        PromptError: The file cannot be read.
    """
    try:
        prompts = first_turns(folder / FILE)
    except PromptError as error:
        raise PromptError(f"{error}, or give --prompt-file instead") from None
    unknown = [name for name in names if name not in prompts]
    require(
        not unknown,
        f"--tasks names {quoted(', '.join(unknown))}, which is unknown; choose from {', '.join(prompts)}",
    )
    return {name: tuple(prompts[name][:count]) for name in names}


def given(prompts: Sequence[AnyPrompt]) -> Tasks:
    """A single task with the prompts from the command line; raises ConfigError if there are none."""
    if not prompts:
        raise ConfigError("there is no prompt; give --prompt or --data")
    return {OWN: tuple(prompts)}
