"""The texts that stand in for the paper's data sets: tasks of Spec-Bench. Knows no models."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from decoder.errors import ConfigError, PromptError, quoted, require, shortened

FILE = Path("spec_bench", "question.jsonl")
"""Within the folder of data."""
STAND_INS = {
    "writing": "LitBench",
    "coding": "LiveCodeBench",
    "translation": "Opus",
    "math_reasoning": "MATH500",
    "math": "OlympiadBench",
}
"""Tasks of Spec-Bench in the order of the paper's columns, each with the data set that it stands in for."""
OWN = "prompts"
"""The task of prompts that belong to none."""


@dataclass(frozen=True)
class Task:
    """Prompts of one kind."""

    name: str
    prompts: tuple[str, ...]


class _Question(msgspec.Struct):
    """What is read of a line of Spec-Bench."""

    category: str
    turns: list[str]


def spec_bench(folder: Path, names: Sequence[str], count: int) -> tuple[Task, ...]:
    """The first prompts of tasks of Spec-Bench, first turns alone.

    Args:
        folder: Of the data; it holds `FILE`.
        names: Of the tasks.
        count: Prompts of each, as far as there are so many.

    Raises:
        ConfigError: There is no such task.
        PromptError: The file cannot be read.
    """
    prompts: dict[str, list[str]] = {}
    for question in _questions(folder / FILE):
        prompts.setdefault(question.category, []).extend(question.turns[:1])
    unknown = [name for name in names if name not in prompts]
    require(not unknown, f"--tasks names {quoted(', '.join(unknown))}; choose from {', '.join(prompts)}")
    return tuple(Task(name, tuple(prompts[name][:count])) for name in dict.fromkeys(names))


def _questions(path: Path) -> list[_Question]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PromptError(
            f"cannot read {shortened(path)}: {error.strerror}; let --data name a folder that holds {FILE}, or give "
            "--prompt-file instead"
        ) from None
    try:
        return [msgspec.json.decode(line, type=_Question) for line in lines if line.strip()]
    except msgspec.DecodeError as error:
        raise PromptError(f"{shortened(path)} is not Spec-Bench's file: {error}; let --data name another") from None


def given(prompts: Sequence[str]) -> tuple[Task, ...]:
    """Prompts that belong to no task.

    Raises:
        ConfigError: There are none.
    """
    if not prompts:
        raise ConfigError("there is no prompt; give --prompt or --data")
    return (Task(OWN, tuple(prompts)),)
