"""A first ~ of a path is the home folder also where no shell replaces it: after =, in settings and in variables."""

from pathlib import Path

import pytest

from dynatui import main as cli
from dynatui.cli import settings
from tests.dynatui.cli.fake_screen import FakeScreen


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def named(screen: FakeScreen, *arguments: str) -> tuple[str | None, str | None, Path | None]:
    assert cli.main([*arguments]) == 0
    session = screen.sessions[-1]
    return session.models.target, session.models.draft, session.record


def test_a_home_folder_after_an_equals_sign_is_expanded(screen: FakeScreen, home: Path) -> None:
    paths = named(screen, "--target=~/models/t", "--draft=~/models/d", "--record=~/run.jsonl")
    assert paths == (str(home / "models/t"), str(home / "models/d"), home / "run.jsonl")


def test_a_home_folder_in_a_variable_is_expanded(
    screen: FakeScreen, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNATUI_TARGET", "~/models/t")
    monkeypatch.setenv("DYNATUI_DRAFT", "lookup")
    monkeypatch.setenv("DYNATUI_RECORD", "~/run.jsonl")
    assert named(screen, "--methods", "ar,dynatree") == (str(home / "models/t"), "lookup", home / "run.jsonl")


def test_a_home_folder_in_the_settings_file_is_expanded_and_so_is_the_file_s_own(
    screen: FakeScreen, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", "~/my.toml")
    (home / "my.toml").write_text('target = "~/models/t"\ndraft = "~/models/d"\n', encoding="utf-8")
    assert settings.file_path() == home / "my.toml"
    assert named(screen)[:2] == (str(home / "models/t"), str(home / "models/d"))


def test_a_tilde_elsewhere_is_left_as_it_is(screen: FakeScreen) -> None:
    assert named(screen, "--target=a~/t", "--draft=~nobody-of-this-name/d", "--prompt", "~ is a tilde")[:2] == (
        "a~/t",
        "~nobody-of-this-name/d",
    )
    assert screen.sessions[-1].prompts[0] in ("~ is a tilde",)
