"""What the README says is true: its commands run, its keys are the keys, its links lead somewhere."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from dynatui.keymap import table

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
KEYS = re.compile(r"(?<=<!-- keys: from dynatui/keymap\.py -->\n).*(?=<!-- end of keys -->)", re.DOTALL)


class Block(NamedTuple):
    """A fenced block and the comment that stands over it."""

    note: str
    language: str
    code: str


BLOCKS = [Block(*found) for found in re.findall(r"(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)```", README, re.DOTALL)]
QUICK_START = [block.code.strip() for block in BLOCKS if block.code.startswith("python3.11 -m venv")]


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.code.splitlines()[0])
def test_every_block_is_run_or_says_why_not(block: Block) -> None:
    assert re.fullmatch(r"run|not run: .{10,}", block.note)


def test_what_the_readme_runs_runs_in_its_order(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    run = [block for block in BLOCKS if block.note == "run"]
    assert {block.language for block in run} == {"bash", "python"}
    for block in run:
        program = [sys.executable, "-c"] if block.language == "python" else ["bash", "-euo", "pipefail", "-c"]
        done = subprocess.run(
            [*program, block.code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{block.code}\n{done.stderr}"


def test_the_quick_start_is_two_commands_of_one_line_each() -> None:
    watch, test = QUICK_START
    assert "\n" not in watch + test
    assert watch.endswith("/dynatui")
    assert test.endswith("/pytest")


def test_continuous_integration_finds_the_test_command_in_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (pattern,) = re.findall(r"grep -E '(.*?)'", script)
    found = subprocess.run(
        ["grep", "-E", pattern, "README.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert found == [QUICK_START[1]]


def test_the_table_of_keys_is_the_key_map() -> None:
    (written,) = KEYS.findall(README)
    assert written == "\n".join([*table(), ""]), (
        "python -c 'from dynatui.keymap import table; print(*table(), sep=chr(10))'"
    )


def test_every_link_into_the_repository_leads_to_a_file() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)\)", README) if "://" not in link]
    assert links
    assert not [link for link in links if not (ROOT / link).is_file()]
