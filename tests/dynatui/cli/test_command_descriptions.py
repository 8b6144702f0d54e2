"""Tests of what describes commands: click's objects and the values they give, shell completion, and the manual page."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from click.types import FuncParamType

from decoder.errors import ConfigError
from dynatui import main as cli
from dynatui.cli import parameters, settings
from dynatui.cli.parameters import Declared, Option, OptionGroup, argument, command, in_panel, option, switch
from dynatui.keymap import GROUPS
from man.make import PAGE, _text, page

Made = list[tuple[Callable[..., Any], Declared]]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Made:
    pairs = Made()

    def recorded(maker: Callable[..., Any], *given: Any, **further: Any) -> Any:
        pairs.append(given[1:3])
        return maker(*given, **further)

    for name in ("command", "group"):
        monkeypatch.setattr(parameters, name, partial(recorded, getattr(parameters, name)))
    cli.command()
    return pairs


def visible(declared: Declared) -> list[OptionGroup | Option | click.Argument]:
    return [each for each in declared if isinstance(each, OptionGroup) or each.expose_value]


def test_every_function_takes_what_its_command_declares_with_its_type(made: Made) -> None:
    assert len(made) == 19
    for run, declared in made:
        assert set(signature(run).parameters) == {each.name for each in visible(declared)}, run
    for run, declared in made:
        hints = get_type_hints(run)
        for each in visible(declared):
            if isinstance(each, Option) and (each.kind is Path or not isinstance(each.type, FuncParamType)):
                optional = not each.required and (each.default is None or each.multiple)
                assert hints[str(each.name)] == (each.kind | None if optional else each.kind), each.name


def values(*declared: OptionGroup | Option | click.Argument, line: str) -> dict[str, Any]:
    got = dict[str, Any]()

    def run(**given: Any) -> int:
        got.update(given)
        return 0

    command("x", run, declared).main(line.split(), standalone_mode=False)
    return got


def test_a_group_makes_one_argument_of_the_values_of_its_options() -> None:
    pair = OptionGroup("pair", (option("--a N", "", int), option("--b N", "", int, default=3)), lambda a, b: (a, b))
    assert values(pair, switch("--c", ""), line="--a 2") == {"pair": (2, 3), "c": False}


def test_an_option_is_parsed_once_has_a_value_if_not_given_and_the_panel_of_its_group() -> None:
    split = option("--names NAMES", "", parse=lambda text: text.split(","), default="a,b")
    assert values(split, line="") == {"names": ["a", "b"]}
    assert values(split, line="--names c") == {"names": ["c"]}
    assert values(argument("names", "NAMES", "", parse=len), line="four") == {"names": 4}
    assert values(option("--one N", "", int), option("--all N", "", list[str]), line="") == {"one": None, "all": []}
    assert [each.panel for each in in_panel("P", option("--a N", ""), switch("--b", ""))] == ["P", "P"]


def test_an_error_of_a_parser_reaches_the_caller() -> None:
    def refuse(text: str) -> int:
        raise ConfigError(text)

    with pytest.raises(ConfigError, match=r"^no$"):
        values(option("--one N", "", parse=refuse), line="--one no")


PROGRAM = Path(sys.executable).with_name("dynatui")


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """Environment with the program on the path, no user settings, and the shell named so that it is not detected."""
    path = f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DYNATUI_CONFIG": os.devnull}


def run(*command: str, environment: dict[str, str]) -> str:
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("shell", "opening"),
    [("bash", "_dynatui_completion() {"), ("zsh", "autoload -Uz compinit"), ("fish", "function _dynatui_completion;")],
)
def test_every_shell_gets_a_script_that_asks_the_program(
    shell: str, opening: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--show-completion", shell]) == 0
    script = capsys.readouterr().out
    assert script.startswith(opening)
    assert f"_DYNATUI_COMPLETE={shell}_complete" in script


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--install-completion", "tcsh"]) == 2
    assert capsys.readouterr().err == "dynatui: there is no completion for tcsh; give bash, zsh, fish\n"


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_where_the_script_is_installed(environment: dict[str, str], tmp_path: Path) -> None:
    home = environment | {"HOME": str(tmp_path), "SHELL": "/bin/bash"}
    for _ in range(2):
        run("dynatui", "--install-completion", environment=home)
    assert (tmp_path / ".bashrc").read_text(encoding="utf-8").count("_DYNATUI_COMPLETE=") == 1
    ask = """
        source ~/.bashrc
        COMP_WORDS=(dynatui --methods ar,l); COMP_CWORD=2
        _dynatui_completion dynatui
        echo "${COMPREPLY[@]}"
    """
    assert run("bash", "-c", ask, environment=home) == "ar,linear\n"


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
def test_a_word_that_has_been_begun_is_completed(
    words: str, offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(len(words.split()) - 1)
    for name, value in {"_DYNATUI_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": place}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main([])
    assert [line.removeprefix("plain,") for line in capsys.readouterr().out.splitlines()] == offered


ROOT = Path(__file__).parents[3]


def shown() -> str:
    """The page as a reader sees it, on one line and without hyphenation."""
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-P-cbou", "-rHY=0", "-rLL=500n"],
        input=page().encode("ascii"),
        capture_output=True,
        check=True,
    )
    return " ".join(done.stdout.decode().split())


needs_groff = pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")


def test_the_page_is_current_escaped_and_installed_where_man_looks() -> None:
    assert PAGE.read_text(encoding="ascii") == page(), "python man/make.py writes it anew"
    assert _text(".SH \\fB'`~^\"-τ") == r"\&.SH \efB\(aq\(ga\(ti\(ha\(dq\-\[u03C4]"
    assert '"man/dynatui.1" = "share/man/man1/dynatui.1"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


@needs_groff
def test_groff_has_nothing_to_complain_about() -> None:
    done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-z", PAGE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@needs_groff
def test_options_with_their_defaults_commands_and_keys_are_shown() -> None:
    text = shown()
    live = cli.command()
    for key, each in settings.options_of(live).items():
        assert f"--{key.replace('_', '-')}" in text
        assert " ".join(str(each.help).split()) in text
    assert all(f"dynatui {name}" in text for name in live.commands)
    assert "--tau-h P The draft is confident if its best guess is at least this probable. Default: 0.4." in text
    assert "--seed S Seed of everything that is random. Default: 0." in text
    assert "Default: dynatree,auto,ar,linear,fixed." in text
    assert re.search(r"--history, --no-history [^.]*\. Default: --no-history\.", text)
    assert "Without either option, only conversations are wrapped" in text
    assert all(" ".join(key.help.split()) in text for group in GROUPS for key in group.keys)
