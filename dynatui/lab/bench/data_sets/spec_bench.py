"""Questions of Spec-Bench (Xia et al. 2024) by task; the first turn of each question is a prompt."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from decoder.errors import PromptError, shortened
from decoder.prompts.json_objects import MalformedError, Window, objects
from decoder.prompts.prompt import FieldError, Prompt, prompt_in
from decoder.prompts.text_chunks import text_chunks

FILE = Path("spec_bench", "question.jsonl")
"""Within a data folder."""
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
"""In the order of the file, in which a task is called a category."""


def first_turns(path: Path) -> dict[str, list[str]]:
    """Prompts of all tasks, by task name; raises PromptError if this is not the questions file of Spec-Bench."""
    prompts: dict[str, list[str]] = {}
    for question in _questions(path):
        prompts.setdefault(question.category, []).append(question.text)
    if not prompts:
        raise PromptError(f"{shortened(path)} is empty; set --data to another folder")
    return prompts


def of_task(task: str, path: Path) -> Iterator[str]:
    """Prompts of one task; raises PromptError if the file has none."""
    prompts = first_turns(path)
    if task not in prompts:
        raise PromptError(f"{shortened(path)} has no task {task}, only {shortened(', '.join(prompts))}")
    yield from prompts[task]


def _questions(path: Path) -> Iterator[Prompt]:
    shown = shortened(path)
    try:
        with path.open("rb") as file:
            for line, record in objects(Window(text_chunks(file, shown))):
                yield _question(record, f"{shown}, line {line}")
    except OSError as error:
        raise PromptError(f"cannot read {shown}: {error.strerror}; set --data to a folder that holds {FILE}") from None
    except MalformedError as error:
        raise _foreign(f"{shown}, line {error.line}", error) from None


def _question(record: Mapping[str, Any], place: str) -> Prompt:
    try:
        found = prompt_in(record, "turns").prompt
    except FieldError as error:
        raise _foreign(place, error) from None
    if not (isinstance(found, Prompt) and found.category):
        raise _foreign(place, FieldError('the object has no field "category"'))
    return found


def _foreign(place: str, why: ValueError) -> PromptError:
    return PromptError(f"{place}, is not a question of Spec-Bench: {why}; set --data to another folder")
