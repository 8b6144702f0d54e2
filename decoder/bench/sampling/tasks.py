"""Prompts in place of the paper's data sets: tasks of Spec-Bench. Knows no models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decoder.bench.data_sets.spec_bench import FILE, first_turns
from decoder.errors import ConfigError, PromptError, quoted, require

STAND_INS = {
    "writing": "LitBench",
    "coding": "LiveCodeBench",
    "translation": "Opus",
    "math_reasoning": "MATH500",
    "math": "OlympiadBench",
}
"""Tasks of Spec-Bench in the order of the paper's columns, by the data set that each stands in for."""
OWN = "prompts"
"""Task of prompts from the command line."""


@dataclass(frozen=True)
class Task:
    """Prompts of one task."""

    name: str
    prompts: tuple[str, ...]


def spec_bench(folder: Path, names: Sequence[str], count: int) -> tuple[Task, ...]:
    """First prompts of tasks of Spec-Bench, first turns only.

    Args:
        folder: Folder of data with the file `FILE`.
        names: Names of the tasks.
        count: Most prompts of each task.

    Raises:
        ConfigError: A task is unknown.
        PromptError: The file cannot be read.
    """
    try:
        prompts = first_turns(folder / FILE)
    except PromptError as error:
        raise PromptError(f"{error}, or give --prompt-file instead") from None
    unknown = [name for name in names if name not in prompts]
    require(not unknown, f"--tasks names {quoted(', '.join(unknown))}; choose from {', '.join(prompts)}")
    return tuple(Task(name, tuple(prompts[name][:count])) for name in dict.fromkeys(names))


def given(prompts: Sequence[str]) -> tuple[Task, ...]:
    """Prompts from the command line as a task.

    Raises:
        ConfigError: There are none.
    """
    if not prompts:
        raise ConfigError("there is no prompt; give --prompt or --data")
    return (Task(OWN, tuple(prompts)),)
