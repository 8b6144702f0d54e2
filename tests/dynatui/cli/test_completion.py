"""Tests of shell completion: each shell's script asks the program, which answers in that shell's format."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from dynatui import main as cli

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
def test_every_shell_gets_a_script_that_asks_the_program(
    shell: str, opening: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in NAMED.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(["--show-completion", shell])
    script = capsys.readouterr().out
    assert script.startswith(opening)
    assert f"_DYNATUI_COMPLETE=complete_{shell}" in script


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script_also_where_it_is_installed(environment: dict[str, str], tmp_path: Path) -> None:
    ask = """
        eval "$(dynatui --show-completion bash)"
        COMP_WORDS=(dynatui --methods ar,l); COMP_CWORD=2
        _dynatui_completion dynatui
        echo "${COMPREPLY[@]}"
    """
    assert run("bash", "-c", ask, environment=environment) == "ar,linear\n"
    home = environment | {"HOME": str(tmp_path)}
    run("dynatui", "--install-completion", "bash", environment=home)
    ask = "source ~/.bashrc; complete -p dynatui"
    assert run("bash", "-c", ask, environment=home) == "complete -o default -F _dynatui_completion dynatui\n"


Ask: TypeAlias = Callable[..., list[str]]
"""Function from a shell's name and environment variables to the words that the program offers."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Asks the program in this process, as the shell's script does."""

    def asked(shell: str, **variables: str) -> list[str]:
        for name, value in {**NAMED, "_DYNATUI_COMPLETE": f"complete_{shell}", **variables}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main([])
        return capsys.readouterr().out.split()

    return asked


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("dynatui --meth", ["--methods"]),
        ("dynatui --methods ar,l", ["ar,linear"]),
        ("dynatui --device c", ["cpu", "cuda"]),
        ("dynatui re", ["replay", "report"]),
        ("dynatui --selection b", ["bfs", "best"]),
        ("dynatui --symbols a", ["ascii"]),
        ("dynatui do", ["doctor"]),
        ("dynatui replay --fp", ["--fps"]),
    ],
)
def test_a_word_that_has_been_begun_is_completed(ask: Ask, words: str, offered: list[str]) -> None:
    assert ask("bash", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)) == offered


def test_zsh_and_fish_get_answers_in_their_own_way(ask: Ask) -> None:
    begun = {"_TYPER_COMPLETE_ARGS": "dynatui --preset p", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert '"paper"' in " ".join(ask("zsh", **begun))
    assert ask("fish", **begun) == ["paper"]
