"""A method in one file appears in races, recordings, the command line, settings and the screen without other code."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from decoder import RunConfig, Steering, decode
from decoder.errors import ConfigError
from decoder.events import Event, Knob, Round
from decoder.knobs import KnobInfo
from decoder.methods import METHODS, all_knobs, register
from decoder.methods.auto import Auto
from decoder.methods.linear import Linear
from decoder.methods.method import Method, Option
from dynatui import main as cli
from dynatui.cli import headless
from dynatui.knobs import rules_in_force
from dynatui.prompts import embedded
from dynatui.record.command_line import command_line
from dynatui.record.reader import read_events
from dynatui.record.recording import Recorder
from dynatui.render import drawer, sliders
from dynatui.render.scene import Scene
from dynatui.session import Session
from dynatui.state.run_state import RunState, apply
from tests.decoder import burst
from tests.decoder.burst import Burst
from tests.decoder.makers import Played, TinyModels
from tests.dynatui.scripted_runs import text_of

PROMPT = "The tree grows"


@pytest.fixture(autouse=True)
def _burst() -> Iterator[None]:
    register(burst.METHOD)
    yield
    del METHODS["burst"]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Session]:
    """Sessions started by command lines; they are not run."""
    sessions: list[Session] = []

    def note(session: Session, *_: Any, **__: Any) -> int:
        sessions.append(session)
        return 0

    monkeypatch.setattr(headless, "run", note)
    monkeypatch.setenv("DYNATUI_CONFIG", "/dev/null")
    return sessions


@pytest.fixture
def played(tiny_models: TinyModels) -> Played:
    """A race in which the knob of burst is turned after three rounds."""
    steering, events = Steering(), list[Event]()
    config = RunConfig(("burst", "ar"), 24, burst=Burst(2))
    for event in decode(tiny_models.engine("neox"), PROMPT, config, steering):
        events.append(event)
        if isinstance(event, Round) and (event.method, event.round) == ("burst", 2):
            steering.turn("burst_width", 5)
    return Played(events)


def state(events: list[Event]) -> RunState:
    found = RunState()
    for event in events:
        found = apply(found, event)
    return found


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(arguments) == 0
    return " ".join(capsys.readouterr().out.replace("│", " ").split())


def test_the_method_is_one_file_of_less_than_forty_lines() -> None:
    assert len(Path(burst.__file__).read_text(encoding="utf-8").splitlines()) < 40


def test_it_writes_what_greedy_decoding_writes(tiny_models: TinyModels, played: Played) -> None:
    expected = tiny_models.generate("neox", "float32", PROMPT, 24)
    assert played.tokens("burst") == played.tokens("ar") == expected
    assert played.figures("burst").identical_to_ar
    assert {event.limited_by for event in played.rounds("burst")[:3]} == {"burst_width"}


def test_its_knob_is_turned_while_it_decodes_and_the_turn_is_an_event(played: Played) -> None:
    (knob,) = played.turned("burst", "user")
    assert knob == Knob(method="burst", round=3, name="burst_width", old=2.0, new=5.0, source="user", turn=1)
    assert [len(event.tokens) - 1 for event in played.rounds("burst")][:5] == [2, 2, 2, 5, 5]


def test_a_recording_of_it_is_read_back_and_shown_where_the_method_is_not_known(played: Played, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path, played.events):
        pass
    assert read_events(path) == played.events
    del METHODS["burst"]
    try:
        page = drawer.drawer(Scene(state(list(read_events(path)))), 100, 8)
        sliders = [row for row in map(text_of, page) if "─" in row and "●" in row]
        assert [next(word for word in row.split() if word not in "│▸") for row in sliders] == ["T", "top-p"]
    finally:
        register(burst.METHOD)


def test_the_help_names_it_and_its_options(capsys: pytest.CaptureFixture[str], started: list[Session]) -> None:
    page = shown(capsys, "--help")
    assert "alg1, hf, burst" in page
    assert "--burst-width W Guesses of burst at once." in page
    assert "alg1, burst" in shown(capsys, "bench", "speed", "--help")
    assert not started


def test_its_options_set_its_parameters_and_are_checked(
    capsys: pytest.CaptureFixture[str], started: list[Session]
) -> None:
    assert cli.main(["--headless", "--methods", "burst,ar", "--burst-width", "7"]) == 0
    assert (started[0].config.methods, started[0].config.of(Burst)) == (("burst", "ar"), Burst(7))
    assert cli.main(["--headless", "--burst-width", "99"]) == 2
    assert capsys.readouterr().err == "dynatui: burst's width is 99; give 1 to 16\n"


def test_settings_set_its_parameters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, started: list[Session]
) -> None:
    file = tmp_path / "config.toml"
    file.write_text("burst_width = 4\n", encoding="utf-8")
    monkeypatch.setenv("DYNATUI_CONFIG", str(file))
    assert f"burst_width = 4 # {file}: line 1" in shown(capsys, "config")
    monkeypatch.setenv("DYNATUI_BURST_WIDTH", "6")
    assert cli.main(["--headless"]) == 0
    assert started[0].config.of(Burst) == Burst(6)
    assert "#burst_width = 3" in shown(capsys, "config", "--print-default")


def test_the_copied_command_line_gives_it_again(started: list[Session]) -> None:
    config = RunConfig(("burst", "ar")).turned("burst_width", 9, "burst")
    line = command_line(Session(embedded(), config=config))
    assert line == "dynatui --methods burst,ar --seed 0 --temperature 0 --burst-width 9"
    assert cli.main([*shlex.split(line)[1:], "--headless"]) == 0
    assert started[0].config == config


def test_drawer_and_sliders_show_its_knobs(played: Played) -> None:
    found = state(played.events)
    assert rules_in_force(state(played.events[:1])) == Burst(2)
    assert rules_in_force(found) == Burst(5)
    row = next(row for row in map(text_of, drawer.drawer(Scene(found), 120, 8)) if "guesses at once" in row)
    assert "▸ W" in row
    assert "5 " in row
    assert "1 to 16" in row
    assert "W guesses [ ]" in text_of(sliders.knobs(Scene(found), 120, 5)[1])


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (Method("burst", "again"), "method burst is already in use"),
        (Method("other", "", options=(Option("k", int, "K", "Another."),)), "option k is already in use"),
        (Method("other", "", obeys="nobody"), "other uses the parameters of nobody, which is not a method"),
    ],
)
def test_a_method_cannot_take_what_another_has(method: Method, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        register(method)
    assert "other" not in METHODS


def test_methods_share_knobs_but_no_other_knob_takes_a_name() -> None:
    class Other(Linear):
        knobs = (KnobInfo("k", "k", "another", "whole", lambda _: (1.0, 2.0)),)

    register(Method("like auto", "", Auto()))
    del METHODS["like auto"]
    with pytest.raises(ValueError, match="knob k is already in use"):
        register(Method("other", "", Other()))


def test_a_turn_of_what_is_no_knob_ends_the_run_with_the_names_of_all(tiny_models: TinyModels) -> None:
    steering = Steering()
    steering.turn("burst_with", 2)
    with pytest.raises(ConfigError, match=f"no knob is called burst_with; choose from {', '.join(all_knobs())}"):
        list(decode(tiny_models.engine("neox"), PROMPT, RunConfig(("burst",), 4), steering))
