"""Tests of pipes in place of files: a pipe with a writer is read; one without a writer is refused in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dynatui import files
from dynatui import main as cli
from tests.dynatui.fake_engine import story
from tests.dynatui.pty_terminal import written

pytestmark = [pytest.mark.skipif(sys.platform == "win32", reason="needs pipes and a shell")]

ROOT = Path(__file__).parents[3]
PROGRAM = """
import sys
import decoder
from dynatui import main as cli
from tests.dynatui.fake_engine import FakeEngine
engine = FakeEngine()
vars(decoder).update(load_pair=engine.load_pair, decode=engine.decode)
code = cli.main(sys.argv[1:])
print(engine.prompts)
sys.exit(code)
"""
"""The program with a fake engine; prints the prompts that the engine received."""


def shell(line: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Runs a line of bash in which `dynatui` is the program."""
    function = 'dynatui() { "$PYTHON" -c "$PROGRAM" "$@"; }; '
    own = {"PYTHON": sys.executable, "PROGRAM": PROGRAM, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        ["bash", "-c", function + line],
        cwd=folder,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        "replay pipe --headless",
        "replay pipe --json",
        "--headless --prompt-file pipe.jsonl",
        "--follow pipe",
        "DYNATUI_CONFIG",
    ],
)
def test_a_pipe_without_a_writer_ends_in_one_line(
    arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(files, "PATIENCE_S", 0.1)
    monkeypatch.chdir(tmp_path)
    for name in ("pipe", "pipe.jsonl"):
        os.mkfifo(tmp_path / name)
    if arguments == "DYNATUI_CONFIG":
        monkeypatch.setenv("DYNATUI_CONFIG", "pipe")
        arguments = "--headless --prompt x"
    assert cli.main(arguments.split()) == 2
    assert_one_line(capsys.readouterr().err)


def test_a_pipe_without_a_writer_does_not_hold_up_the_program(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    done = shell("dynatui --headless --prompt-file pipe", tmp_path)
    assert done.returncode == 2
    assert_one_line(done.stderr)


def assert_one_line(said: str) -> None:
    assert said.startswith("dynatui: cannot ")
    assert "pipe" in said
    assert said.count("\n") == 1


def test_pipes_with_writers_are_prompts_in_their_order(tmp_path: Path) -> None:
    late = "<(sleep 0.5; echo three)"
    line = f"echo one | dynatui --headless --prompt-file - --prompt-file <(echo two) --prompt-file {late}"
    done = shell(f"mkfifo pipe; (sleep 1; echo four > pipe) & {line} --prompt-file pipe", tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "['one', 'two', 'three', 'four']")


@pytest.mark.parametrize(
    "line",
    [
        "echo one | dynatui --headless --prompt-file /dev/stdin",
        "echo one > file; dynatui --headless --prompt-file /dev/stdin < file",
    ],
)
def test_standard_input_is_a_prompt_by_its_path_too(line: str, tmp_path: Path) -> None:
    done = shell(line, tmp_path)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "['one']")


@pytest.mark.parametrize("name", ["/dev/stdin < run.jsonl", "<(sleep 0.5; cat run.jsonl)"])
def test_a_recording_comes_through_a_pipe_too(name: str, tmp_path: Path) -> None:
    written(tmp_path / "run.jsonl", story())
    done = shell(f"dynatui replay --headless {name}", tmp_path)
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "Once upon a time")
