"""The reader of Spec-Bench's file: first turns of the questions, by task."""

from pathlib import Path

import pytest

from decoder.errors import PromptError
from dynatui.lab.bench.data_sets.sources import first_turns, of_task
from tests.lab.bench.data_sets.makers import questions, written


def test_prompts_are_first_turns_by_task_in_the_file_s_order(tmp_path: Path) -> None:
    path = written(tmp_path / "question.jsonl", questions("math", "coding", "math") + b"\n")
    assert first_turns(path) == {"math": ["math 0", "math 2"], "coding": ["coding 1"]}
    assert list(of_task("math", path)) == ["math 0", "math 2"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (questions("math") + b"no json", "question.jsonl, line 2, is not a question of Spec-Bench: Expecting value"),
        (b'{"question_id": 1}', "line 1, is not a question of Spec-Bench: the object has no field 'turns'"),
        (
            b'{"category": "math", "turns": "x"}',
            "line 1, is not a question of Spec-Bench: \"turns\" is 'x', which is no",
        ),
        (b'{"category": "\xff", "turns": []}', r"question.jsonl is not UTF-8 text \(line 1, byte 15\)"),
        (b'{"x": ' + b"[" * 100_000, "line 1, is not a question of Spec-Bench: maximum recursion depth"),
        (b"\n", "question.jsonl is empty; set --data to another folder"),
        (questions("math", "qa"), "question.jsonl has no task coding, only math, qa"),
    ],
)
def test_what_is_not_its_file_is_one_line(content: bytes, why: str, tmp_path: Path) -> None:
    with pytest.raises(PromptError, match=why):
        list(of_task("coding", written(tmp_path / "question.jsonl", content)))
