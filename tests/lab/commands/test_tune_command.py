"""Tests of the command `dynatui tune`: printed output, written presets and interruptions."""

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from decoder.methods.dynatree import DynaTree
from decoder.methods.linear import Linear
from dynatui.cli import settings
from dynatui.lab.bench import Progress
from dynatui.lab.tuning import job as module
from dynatui.lab.tuning.job import OnPrompts
from dynatui.lab.tuning.outcome import Tuned
from dynatui.main import main
from dynatui.terminal import streams
from tests.dynatui.cli.fake_screen import FakeScreen, Refused
from tests.lab.commands.made_tuning import TREE_FOUND, tuned


@pytest.fixture(autouse=True)
def _config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()


class Tuner:
    """Stands in for tuning: keeps the jobs, calls the test's functions midway, and returns a made-up result."""

    def __init__(self) -> None:
        self.jobs: list[OnPrompts] = []
        self.found = tuned(1.2)
        self.during: dict[str, Callable[[], object]] = {}
        self.stopped: list[bool] = []

    @contextmanager
    def __call__(self, job: OnPrompts, _note: Any) -> Iterator["Tuner"]:
        self.jobs.append(job)
        yield self

    def searching(self, stopped: Callable[[], bool]) -> Iterator[Progress]:
        yield from self.checking("search")
        self.stopped.append(stopped())

    def checking(self, phase: str = "check") -> Iterator[Progress]:
        yield Progress(phase, 0.5)
        self.during.get(phase, lambda: None)()

    def result(self) -> Tuned:
        return self.found


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Tuner:
    found = Tuner()
    monkeypatch.setattr(module, "opened", found)
    return found


@pytest.mark.parametrize(("name", "imported"), [("optuna", "optuna"), ("scikit-learn", "sklearn")])
def test_without_optuna_one_line_names_the_extra(
    name: str, imported: str, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setitem(sys.modules, imported, None)
    assert refused("tune") == f"tuning needs {name}, which is not installed; pip install 'dynatui[bench]'"


def test_what_was_found_is_said_and_kept_and_can_be_used(
    tuner: Tuner, screen: FakeScreen, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--prompt", "Once", "--minutes", "2", "--temperature", "0.6", "--seed", "3"]) == 0
    (job,) = tuner.jobs
    assert (job.prompts, job.minutes, job.config.seed, job.config.sampling.temperature) == (("Once",), 2.0, 3, 0.6)
    captured = capsys.readouterr()
    path = settings.preset_folder() / "mine.toml"
    assert "mine is faster than the preset tuned" in captured.out
    assert captured.err.endswith(f"dynatui: {path} is written; dynatui --preset mine uses it\n")
    assert path.read_text(encoding="utf-8").startswith("# Found by dynatui tune ")
    assert main(["--preset", "mine"]) == 0
    assert screen.sessions[-1].config.of(DynaTree) == TREE_FOUND
    assert screen.sessions[-1].config.of(Linear) == Linear(4)


@pytest.mark.parametrize("found", [tuned(None), tuned(0.9)])
def test_what_is_not_worth_keeping_is_not_written(tuner: Tuner, found: Tuned) -> None:
    tuner.found = found
    assert main(["tune"]) == 0
    assert list(settings.preset_folder().iterdir()) == []


def test_a_preset_that_is_there_is_refused_before_anything_is_measured(tuner: Tuner, refused: Refused) -> None:
    line = "there is a preset mine already; give another --name, or --force to replace it"
    settings.preset_folder().mkdir()
    (settings.preset_folder() / "mine.toml").write_text("d0 = 4\n", encoding="utf-8")
    assert (refused("tune"), tuner.jobs) == (line, [])
    assert main(["tune", "--force"]) == 0
    assert len(tuner.jobs) == 1


def test_a_preset_that_cannot_be_kept_is_one_line_after_the_result(
    tuner: Tuner, capsys: pytest.CaptureFixture[str]
) -> None:
    def meanwhile() -> None:
        (settings.preset_folder() / "mine.toml").write_text("d0 = 4\n", encoding="utf-8")

    tuner.during["check"] = meanwhile
    assert main(["tune"]) == 2
    captured = capsys.readouterr()
    assert "mine: --tau-l 0.1 --d0 3" in captured.out
    assert captured.err.splitlines()[-1] == (
        "dynatui: there is a preset mine already; give another --name, or --force to replace it"
    )
    assert (settings.preset_folder() / "mine.toml").read_text(encoding="utf-8") == "d0 = 4\n"


def test_a_reader_who_left_does_not_keep_the_preset_from_being_written(
    tuner: Tuner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left(*_: object) -> None:
        raise streams.ReaderLeftError

    monkeypatch.setattr(streams, "show", left)
    monkeypatch.setattr(streams, "discard_output", lambda: None)
    assert main(["tune"]) == 0
    assert tuner.jobs
    assert settings.preset_names() == ["mine"]


def test_a_tiny_pair_is_tuned_from_the_command_line(
    models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = [word for number in range(12) for word in ("--prompt", f"{number} The tree grows where")]
    storage = ["--storage", f"sqlite:///{tmp_path / 'tuning.db'}"]
    assert main(["tune", *models, *prompts, *storage, "--minutes", "0.03", "--max-new-tokens", "6"]) == 0
    captured = capsys.readouterr()
    assert "x tuned" in captured.out
    assert "other texts; all texts are cut from 12 prompts." in " ".join(captured.out.split())
    assert (tmp_path / "tuning.db").exists()


QUIT = "dynatui: interrupted; nothing was written\n"


def raised(number: signal.Signals | None) -> None:
    if number:
        signal.raise_signal(number)


@pytest.mark.parametrize(
    ("searching", "checking", "code", "stopped"),
    [
        pytest.param(signal.SIGINT, None, 0, [True], id="Ctrl-C ends the search and leaves the check"),
        pytest.param(signal.SIGINT, signal.SIGINT, 130, [True], id="Ctrl-C again quits"),
        pytest.param(None, signal.SIGINT, 130, [False], id="Ctrl-C during the check quits"),
        pytest.param(signal.SIGTERM, None, 130, [], id="another signal quits at once"),
    ],
)
def test_a_signal_ends_the_search_or_quits_and_says_that_nothing_was_written(
    searching: signal.Signals | None,
    checking: signal.Signals | None,
    code: int,
    stopped: list[bool],
    tuner: Tuner,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tuner.during = {"search": partial(raised, searching), "check": partial(raised, checking)}
    assert main(["tune"]) == code
    captured = capsys.readouterr()
    assert (tuner.stopped, settings.preset_names()) == (stopped, [] if code else ["mine"])
    assert (captured.out == "", captured.err.endswith(QUIT)) == (bool(code), bool(code))
