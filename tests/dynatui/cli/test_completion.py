"""Tests of shell completion: each shell's script asks the program, which answers in that shell's format."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("dynatui")
NAMED = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Environment with the program on the path, no user settings, and the shell named so that it is not detected."""
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DYNATUI_CONFIG": os.devnull, **NAMED}


def run(*command: str, environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("shell", "opening"),
    [("bash", "_dynatui_completion() {"), ("zsh", "#compdef dynatui"), ("fish", "complete --command dynatui")],
)
def test_every_shell_gets_a_script_that_asks_the_program(environment: dict[str, str], shell: str, opening: str) -> None:
    script = run("dynatui", "--show-completion", shell, environment=environment)
    assert script.startswith(opening)
    assert f"_DYNATUI_COMPLETE=complete_{shell}" in script


@pytest.fixture(scope="module")
def script(environment: dict[str, str]) -> str:
    """Completion script for bash."""
    return run("dynatui", "--show-completion", "bash", environment=environment)


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dynatui --meth", "--methods"),
        ("dynatui --methods ar,l", "ar,linear"),
        ("dynatui --selection b", "bfs best"),
        ("dynatui --symbols a", "ascii"),
        ("dynatui do", "doctor"),
        ("dynatui replay --fp", "--fps"),
    ],
)
def test_bash_completes_with_the_script(environment: dict[str, str], script: str, words: str, offered: str) -> None:
    ask = f"""
        eval "$SCRIPT"
        COMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}
        _dynatui_completion dynatui
        echo "${{COMPREPLY[@]}}"
    """
    assert run("bash", "-c", ask, environment=environment | {"SCRIPT": script}) == f"{offered}\n"


def test_zsh_and_fish_get_answers_in_their_own_way(environment: dict[str, str]) -> None:
    asked = environment | {"_TYPER_COMPLETE_ARGS": "dynatui --preset p", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert '"paper"' in run("dynatui", environment=asked | {"_DYNATUI_COMPLETE": "complete_zsh"})
    assert run("dynatui", environment=asked | {"_DYNATUI_COMPLETE": "complete_fish"}).split() == ["paper"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_script_is_installed_where_bash_finds_it(environment: dict[str, str], tmp_path: Path) -> None:
    home = environment | {"HOME": str(tmp_path)}
    run("dynatui", "--install-completion", "bash", environment=home)
    ask = "source ~/.bashrc; complete -p dynatui"
    assert run("bash", "-c", ask, environment=home) == "complete -o default -F _dynatui_completion dynatui\n"
