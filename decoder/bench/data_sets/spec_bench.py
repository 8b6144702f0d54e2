"""Questions of Spec-Bench (Xia et al. 2024) by task; the first turn of each question is a prompt."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from decoder.errors import PromptError, shortened

FILE = Path("spec_bench", "question.jsonl")
"""Path of the questions file within a data folder."""
TASKS = (
    "writing",
    "roleplay",
    "reasoning",
    "math",
    "coding",
    "extraction",
    "stem",
    "humanities",
    "translation",
    "summarization",
    "qa",
    "math_reasoning",
    "rag",
)
"""Names of the tasks, in the order of the file; in the file, a task is called a category."""


class _Question(msgspec.Struct):
    """Line of the questions file, with only the fields that are used here."""

    category: str
    turns: list[str]


def first_turns(path: Path) -> dict[str, list[str]]:
    """Prompts of all tasks, by task name.

    Raises:
        PromptError: The file cannot be read, or is not the questions file of Spec-Bench.
    """
    prompts: dict[str, list[str]] = {}
    for question in _questions(path):
        prompts.setdefault(question.category, []).extend(question.turns[:1])
    if not prompts:
        raise PromptError(f"{shortened(path)} is empty; set --data to another folder")
    return prompts


def of_task(task: str, path: Path) -> Iterator[str]:
    """Prompts of one task.

    Raises:
        PromptError: The file cannot be read, is not the questions file of Spec-Bench, or has no prompt of the task.
    """
    prompts = first_turns(path)
    if task not in prompts:
        raise PromptError(f"{shortened(path)} has no task {task}, only {shortened(', '.join(prompts))}")
    yield from prompts[task]


def _questions(path: Path) -> list[_Question]:
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise PromptError(
            f"cannot read {shortened(path)}: {error.strerror}; set --data to a folder that holds {FILE}"
        ) from None
    return [_question(line, f"{shortened(path)}, line {at}") for at, line in enumerate(lines, 1) if line.strip()]


def _question(line: bytes, place: str) -> _Question:
    try:
        return msgspec.json.decode(line, type=_Question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PromptError(f"{place}, is not a question of Spec-Bench: {error}; set --data to another folder") from None
