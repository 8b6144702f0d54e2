"""Tests of the command line that the screen shows: a shell and the program read it back to the same session."""

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decoder.knobs import KnobName, RulesName
from decoder.methods import METHODS, all_knobs
from decoder.methods.auto import Auto
from decoder.methods.dynatree import PRESETS
from decoder.prompt import AnyPrompt, ChatMessage, Prompt
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING
from dynatui import main as cli
from dynatui.clean import clean_line
from dynatui.cli import headless
from dynatui.prompts import embedded
from dynatui.record.command_line import LONGEST_ARGUMENT, command_line, quoted
from dynatui.session import Models, Session

OWN = embedded()
PAIR = Models("big", "small")
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Session]:
    sessions: list[Session] = []

    def note(session: Session, *_: Any, **__: Any) -> int:
        sessions.append(session)
        return 0

    monkeypatch.setattr(headless, "run", note)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return sessions


def _again(line: str, started: list[Session]) -> Session:
    program, *arguments = _words(line)
    assert program == "dynatui"
    assert cli.main([*arguments, "--headless"]) == 0
    return started.pop()


def _words(line: str) -> list[str]:
    if "$'" not in line:
        return shlex.split(line, comments=True)
    script = f"for word in {line}; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@st.composite
def _configs(draw: st.DrawFn) -> RunConfig:
    config = RunConfig(
        methods=tuple(draw(st.lists(st.sampled_from(sorted(METHODS)), min_size=1, unique=True))),
        max_new_tokens=draw(st.sampled_from([1, 256, 1000])),
        seed=draw(st.sampled_from([0, 7])),
        chat=draw(st.sampled_from([None, False, True])),
    )
    config = config.with_rules("dynatree", draw(st.sampled_from(list(PRESETS.values()))))
    turns: list[tuple[RulesName, KnobName, float]] = draw(
        st.lists(
            st.tuples(
                st.sampled_from(list(config.parameters)),
                st.sampled_from(list(all_knobs())),
                st.floats(0, 1) | st.floats(0, 40),
            ),
            max_size=9,
        )
    )
    for of, name, value in turns:
        if config.rules(of).has(name):
            config = config.turned(name, value, of)
    return config


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    config=_configs(),
    prompts=st.lists(st.text(_CHARACTERS, min_size=1), max_size=3),
    models=st.builds(
        lambda pair, **others: Models(*pair, **others),
        pair=st.just(()) | st.tuples(st.sampled_from(["org/name", "./a folder", "it's", "./~m"]), st.just("-d")),
        device=st.sampled_from(["auto", "cuda:1"]),
        dtype=st.sampled_from(["auto", "float32"]),
        exact=st.booleans(),
        compiled=st.booleans(),
        kernels=st.booleans(),
        gpu_layers=st.sampled_from([None, 0, 12]),
        inflate=st.sampled_from([None, "2.8B"]),
    ),
)
def test_every_session_is_started_again_by_its_line(
    started: list[Session], config: RunConfig, prompts: list[str], models: Models
) -> None:
    session = Session(tuple(prompts) or OWN, models, config)
    line = command_line(session)
    assert "--n-max 0" not in line
    again = _again(line, started)
    assert (again.prompts, again.models, again.config) == (session.prompts, session.models, session.config)


ALWAYS = "--seed 0 --temperature 0"
"""Written for the embedded pair, for which the screen has other defaults than the rest of the program."""
NAMED = "--target big --draft small"
WARM = RunConfig(temperature=0.6, top_k=40, top_p=0.9)
TUNED, PAPER = PRESETS["tuned"], RunConfig(dynatree=PRESETS["paper"])
OTHER = RunConfig(dynatree=replace(TUNED, tau_h=0.85, d0=6.0, branching=(1, 2, 4), history=True))


@pytest.mark.parametrize(
    ("models", "config", "words"),
    [
        (PAIR, RunConfig(), NAMED),
        (Models(), RunConfig(), ALWAYS),
        (Models("org/name", "lookup"), RunConfig(), "--target org/name --draft lookup"),
        (Models(), WARM, "--seed 0 --temperature 0.6 --top-k 40 --top-p 0.9"),
        (PAIR, WARM, f"{NAMED} --temperature 0.6 --top-k 40 --top-p 0.9"),
        # the preset is written if another one is the default at the present temperature
        (PAIR, RunConfig(temperature=0.6).turned("temperature", 0.6, SAMPLING), f"{NAMED} --temperature 0.6"),
        (PAIR, RunConfig().turned("temperature", 0.6, SAMPLING), f"{NAMED} --temperature 0.6 --preset tuned"),
        (PAIR, RunConfig(temperature=0.6).turned("temperature", 0.0, SAMPLING), f"{NAMED} --preset sampled"),
        # only what differs is written
        (Models(), OTHER, f"{ALWAYS} --tau-h 0.85 --d0 6 --history --branching 1,2,4"),
        (Models(), PAPER, f"{ALWAYS} --preset paper"),
        (Models(), PAPER.turned("d0", 4, "dynatree"), f"{ALWAYS} --preset paper --d0 4"),
        (
            Models(),
            RunConfig().turned("n_max", 64, "dynatree").turned("d0", 5, "dynatree"),
            f"{ALWAYS} --d0 5 --n-max 64",
        ),
        (Models(), RunConfig().turned("selection", 0, "dynatree"), f"{ALWAYS} --selection bfs"),
        (Models(), RunConfig().turned("history", 1, "dynatree"), f"{ALWAYS} --history"),
        (Models(), RunConfig().turned("k", 7, "linear"), f"{ALWAYS} --k 7"),
        (Models(), RunConfig().turned("fixed_tau", 0.2, "fixed"), f"{ALWAYS} --fixed 5,2,0.2"),
        (Models(), RunConfig().turned("n_max", 64, "fixed"), f"{ALWAYS} --fixed 5,2,0.05,64"),
        (
            Models(),
            RunConfig().turned("d0", 6.5, "auto").turned("b_max", 5, "auto"),
            f"{ALWAYS} --auto d0=6.5,b_max=5",
        ),
        (Models(), RunConfig().turned("history", 1, "auto"), f"{ALWAYS} --auto history=on"),
    ],
)
def test_what_differs_is_written(started: list[Session], models: Models, config: RunConfig, words: str) -> None:
    line = command_line(Session(OWN, models, config))
    assert line == f"dynatui {words}"
    again = _again(line, started)
    assert (again.models, again.config) == (models, config)


def test_what_a_settings_file_says_otherwise_is_written_out() -> None:
    always = {"tau_h", "chat", "device", "exact", "compile", "branching", "history", "seed", "fixed", "auto", "k"}
    line = command_line(Session(OWN, config=RunConfig(chat=False)), always=always)
    assert line == (
        "dynatui --device auto --no-exact --no-compile --no-chat --seed 0 --temperature 0 --tau-h 0.4 --no-history "
        "--branching 1,2,3 --k 5 --fixed 5,2,0.05 --auto ''"
    )


def test_bounds_that_are_possible_only_together_are_taken_together(started: list[Session]) -> None:
    session = _again("dynatui --auto d0=15,d_max=20,b_max=1,b_mid=1", started)
    assert session.config.of(Auto) == Auto(d0=15, d_max=20, branching=(1, 1, 1))


def test_prompts_of_a_known_file_are_named_by_it_and_its_field(started: list[Session], tmp_path: Path) -> None:
    path = tmp_path / "two prompts.jsonl"
    path.write_text('{"prompt": "One"}\n{"prompt": "Two"}\n', encoding="utf-8")
    session = Session(("One", "Two", "Three"))
    line = command_line(session, files={str(path): ("One", "Two")})
    assert line == f"dynatui --prompt-file {shlex.quote(str(path))} --prompt Three --seed 0 --temperature 0"
    assert _again(line, started).prompts == session.prompts
    path = tmp_path / "p.jsonl"
    path.write_text('{"query": "a"}\n{"query": "b", "tag": "x"}', encoding="utf-8")
    assert cli.main(["--prompt-file", str(path), "--prompt-field", "query", "--headless"]) == 0
    session = started.pop()
    line = command_line(session, files=dict(session.files))
    assert f"--prompt-file {path} --prompt-field query" in line
    assert _again(line, started).prompts == session.prompts == ("a", Prompt("b", category="x"))


@pytest.mark.parametrize("files", [{"-": ("One",)}, {"a.txt": ("Eins",)}, {"a.txt": ("One", "Two")}])
def test_a_prompt_that_is_not_the_files_any_more_is_written_out(files: dict[str, tuple[str, ...]]) -> None:
    assert command_line(Session(("One",)), files=files) == "dynatui --prompt One --seed 0 --temperature 0"


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("\0", "--prompt-file PROMPT-2.txt --seed 0 --temperature 0 # save prompt 2 as "),
        ("x" * (LONGEST_ARGUMENT + 1), "--prompt-file PROMPT-2.txt --seed 0 --temperature 0 # save prompt 2 as "),
        (
            Prompt("a", (ChatMessage("system", "b"),)),
            "--prompt-file PROMPT-2.json --seed 0 --temperature 0 # save prompt 2 as PROMPT-2.json first: the prompt "
            "is a conversation",
        ),
    ],
    ids=["null", "long", "conversation"],
)
def test_a_prompt_that_no_argument_can_be_is_asked_for_as_a_file(prompt: AnyPrompt, words: str) -> None:
    line = command_line(Session(("Once", prompt)))
    assert line.startswith(f"dynatui --prompt Once {words}")
    assert len(line) < 200


@pytest.mark.parametrize(
    "word",
    ["a\nb", "\x1b]0;x\x07", "it's\ttabbed!", "\x9b31m", "\u202eright", "$(rm -rf /)\r`x`\\", "\udcff.txt", "a\x01f"],
)
def test_a_shell_reads_back_what_no_terminal_should_be_sent(word: str) -> None:
    written = quoted(word)
    assert clean_line(written) == written
    assert _words(f"x {written} y $''") == ["x", word, "y", ""]
    assert quoted("a\ud800") == "$'a\\xef\\xbf\\xbd'"  # half a character, which no file name has, is lost
