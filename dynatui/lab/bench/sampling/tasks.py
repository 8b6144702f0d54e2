"""Prompts for the comparison: tasks of Spec-Bench, which replace the paper's data sets.

This module does not depend on models.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
OWN = "prompts"
"""Name of the task that consists of prompts from the command line."""


@dataclass(frozen=True)
class Task:
    """Task: its name and its prompts."""

    name: str
    prompts: tuple[AnyPrompt, ...]


def spec_bench(folder: Path, names: Sequence[str], count: int) -> tuple[Task, ...]:
    """First prompts of the named tasks of Spec-Bench; the first turn of a question is a prompt.

    Args:
        folder: Data folder with the file `FILE`.
        names: Names of the tasks.
        count: Maximum number of prompts per task.

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
    return tuple(Task(name, tuple(prompts[name][:count])) for name in dict.fromkeys(names))


def given(prompts: Sequence[AnyPrompt]) -> tuple[Task, ...]:
    """A single task with the prompts from the command line.

    Raises:
        ConfigError: No prompt was given.
    """
    if not prompts:
        raise ConfigError("there is no prompt; give --prompt or --data")
    return (Task(OWN, tuple(prompts)),)
