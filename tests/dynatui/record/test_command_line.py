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
from decoder.prompts.prompt import ChatMessage, Prompt
from decoder.run.config import RunConfig
from decoder.sampling.settings import SAMPLING
from dynatui import main as cli
from dynatui.clean import clean_line
from dynatui.cli import headless
from dynatui.prompts import load
from dynatui.record.command_line import LONGEST_ARGUMENT, command_line, quoted
from dynatui.session import Models, Session

OWN = load.embedded()
PAIR = Models("big", "small")
_CHARACTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\0")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Session]:
    """Sessions that command lines start; none is run."""
    sessions: list[Session] = []

    def note(session: Session, *_: Any, **__: Any) -> int:
        sessions.append(session)
        return 0

    monkeypatch.setattr(headless, "run", note)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return sessions


def _again(line: str, started: list[Session]) -> Session:
    """Session that a command line starts without a screen."""
    program, *arguments = _words(line)
    assert program == "dynatui"
    assert cli.main([*arguments, "--headless"]) == 0
    return started.pop()


def _words(line: str) -> list[str]:
    """Words of a command line as a real shell splits them."""
    if "$'" not in line:
        return shlex.split(line, comments=True)
    script = f"for word in {line}; do printf '%s\\0' \"$word\"; done"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]


@st.composite
def _configs(draw: st.DrawFn) -> RunConfig:
    """Generated configuration of a run, with knobs turned as by a user."""
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


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    config=_configs(),
    prompts=st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1), max_size=3
    ),
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


def test_the_defaults_need_no_option() -> None:
    assert command_line(Session(OWN, PAIR)) == "dynatui --target big --draft small"


def test_seed_and_temperature_of_the_embedded_pair_are_always_written_for_the_screen_has_others_than_the_rest() -> None:
    assert command_line(Session(OWN)) == "dynatui --seed 0 --temperature 0"
    warm = RunConfig(temperature=0.6, top_k=40, top_p=0.9)
    assert command_line(Session(OWN, config=warm)) == "dynatui --seed 0 --temperature 0.6 --top-k 40 --top-p 0.9"
    assert command_line(Session(OWN, PAIR, warm)).endswith("small --temperature 0.6 --top-k 40 --top-p 0.9")


@pytest.mark.parametrize(
    ("begun", "turned", "words"),
    [
        (0.0, 0.0, ""),
        (0.6, 0.6, " --temperature 0.6"),
        (0.0, 0.6, " --temperature 0.6 --preset tuned"),
        (0.6, 0.0, " --preset sampled"),
    ],
)
def test_the_preset_is_written_if_another_one_is_the_default_at_the_present_temperature(
    started: list[Session], begun: float, turned: float, words: str
) -> None:
    config = RunConfig(temperature=begun).turned("temperature", turned, SAMPLING)
    line = command_line(Session(OWN, PAIR, config))
    assert line == f"dynatui --target big --draft small{words}"
    assert _again(line, started).config == config


def test_only_what_differs_is_written() -> None:
    config = RunConfig(dynatree=replace(PRESETS["tuned"], tau_h=0.85, d0=6.0, branching=(1, 2, 4), history=True))
    assert command_line(Session(("Once upon",), config=config)) == (
        "dynatui --prompt 'Once upon' --seed 0 --temperature 0 --tau-h 0.85 --d0 6 --history --branching 1,2,4"
    )


def test_what_a_settings_file_says_otherwise_is_written_out() -> None:
    always = {"tau_h", "chat", "device", "exact", "compile", "branching", "history", "seed", "fixed", "auto", "k"}
    line = command_line(Session(OWN, config=RunConfig(chat=False)), always=always)
    assert line == (
        "dynatui --device auto --no-exact --no-compile --no-chat --seed 0 --temperature 0 --tau-h 0.3 --no-history "
        "--branching 1,2,3 --k 5 --fixed 5,2,0.05 --auto ''"
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (RunConfig(dynatree=PRESETS["paper"]), "--preset paper"),
        (RunConfig(dynatree=PRESETS["paper"]).turned("d0", 4, "dynatree"), "--preset paper --d0 4"),
        (RunConfig().turned("n_max", 64, "dynatree").turned("d0", 4, "dynatree"), "--d0 4 --n-max 64"),
        (RunConfig().turned("selection", 0, "dynatree"), "--selection bfs"),
        (RunConfig().turned("history", 1, "dynatree"), "--history"),
        (RunConfig().turned("k", 7, "linear"), "--k 7"),
        (RunConfig().turned("fixed_tau", 0.2, "fixed"), "--fixed 5,2,0.2"),
        (RunConfig().turned("n_max", 64, "fixed"), "--fixed 5,2,0.05,64"),
        (RunConfig().turned("d0", 6.5, "auto").turned("b_max", 5, "auto"), "--auto d0=6.5,b_max=5"),
        (RunConfig().turned("history", 1, "auto"), "--auto history=on"),
    ],
)
def test_what_differs_from_a_preset_is_written(started: list[Session], config: RunConfig, words: str) -> None:
    line = command_line(Session(OWN, config=config))
    assert line == f"dynatui --seed 0 --temperature 0 {words}"
    assert _again(line, started).config == config


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            "n_max=9",
            "--auto has 'n_max=9', which names no knob of auto; give knobs and values such as d0=6; the knobs are ",
        ),
        ("d0", "--auto has 'd0'; give d0 as a number"),
        ("d_max=2.5", "--auto has 'd_max=2.5'; give d_max as a whole number"),
        ("history=maybe", "--auto has 'history=maybe'; give history=on or history=off"),
        ("d0=99", "D0 is 99; give 1 to 11 (D_max - 1)"),
        ("b_max=1", "branching is 1,2,1; give three ascending numbers, each 1 or more"),
    ],
)
def test_bounds_of_auto_that_cannot_be_are_one_line(capsys: pytest.CaptureFixture[str], value: str, said: str) -> None:
    assert cli.main(["--auto", value, "--headless"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_bounds_that_are_possible_only_together_are_taken_together(started: list[Session]) -> None:
    session = _again("dynatui --auto d0=15,d_max=20,b_max=1,b_mid=1", started)
    assert session.config.of(Auto) == Auto(d0=15, d_max=20, branching=(1, 1, 1))


def test_prompts_of_a_known_file_are_named_by_it(started: list[Session], tmp_path: Path) -> None:
    path = tmp_path / "two prompts.jsonl"
    path.write_text('{"prompt": "One"}\n{"prompt": "Two"}\n', encoding="utf-8")
    session = Session(("One", "Two", "Three"))
    line = command_line(session, files={str(path): ("One", "Two")})
    assert line == f"dynatui --prompt-file {shlex.quote(str(path))} --prompt Three --seed 0 --temperature 0"
    assert _again(line, started).prompts == session.prompts


@pytest.mark.parametrize("files", [{"-": ("One",)}, {"a.txt": ("Eins",)}, {"a.txt": ("One", "Two")}])
def test_a_prompt_that_is_not_the_files_any_more_is_written_out(files: dict[str, tuple[str, ...]]) -> None:
    assert command_line(Session(("One",)), files=files) == "dynatui --prompt One --seed 0 --temperature 0"


@pytest.mark.parametrize("text", ["\0", "x" * (LONGEST_ARGUMENT + 1)], ids=["null", "long"])
def test_a_prompt_that_no_argument_can_be_is_asked_for_as_a_file(text: str) -> None:
    line = command_line(Session(("Once", text)))
    assert line.startswith(
        "dynatui --prompt Once --prompt-file PROMPT-2.txt --seed 0 --temperature 0 # save prompt 2 as "
    )
    assert len(line) < 200


@pytest.mark.parametrize(
    "word",
    ["a\nb", "\x1b]0;x\x07", "it's\ttabbed!", "\x9b31m", "\u202eright", "$(rm -rf /)\r`x`\\", "\udcff.txt", "a\x01f"],
)
def test_a_shell_reads_back_what_no_terminal_should_be_sent(word: str) -> None:
    written = quoted(word)
    assert clean_line(written) == written
    assert _words(f"x {written} y $''") == ["x", word, "y", ""]


def test_half_a_character_that_no_file_name_has_is_lost_and_not_fatal() -> None:
    assert quoted("a\ud800") == "$'a\\xef\\xbf\\xbd'"


def test_a_session_of_lookups_names_them_instead_of_a_draft(started: list[Session]) -> None:
    session = Session(OWN, Models("org/name", "lookup"))
    assert "--target org/name --draft lookup" in command_line(session)
    assert _again(command_line(session), started).models == session.models


def test_the_field_of_prompts_is_written_beside_their_file(started: list[Session], tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"query": "a"}\n{"query": "b", "tag": "x"}', encoding="utf-8")
    assert cli.main(["--prompt-file", str(path), "--prompt-field", "query", "--headless"]) == 0
    session = started.pop()
    line = command_line(session, files=dict(session.files))
    assert f"--prompt-file {path} --prompt-field query" in line
    assert _again(line, started).prompts == session.prompts == ("a", Prompt("b", category="x"))


def test_a_conversation_is_saved_first() -> None:
    line = command_line(Session((Prompt("a", (ChatMessage("system", "b"),)), "c"), PAIR))
    assert line.endswith(
        "--prompt-file PROMPT-1.json --prompt c # save prompt 1 as PROMPT-1.json first: the prompt is a conversation"
    )
