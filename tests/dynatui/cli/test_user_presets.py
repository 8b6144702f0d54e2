"""Tests of user presets: usable by name like built-in ones, written atomically, and never over an existing preset."""

import errno
import os
import stat
from dataclasses import replace
from pathlib import Path

import click
import pytest

from decoder.errors import ConfigError
from decoder.methods.dynatree import PRESETS, DynaTree
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from dynatui import main as cli
from dynatui.cli import settings
from dynatui.record.command_line import command_line
from tests.dynatui.cli.fake_screen import Asked, Printed, Refused

OWN = DynaTree(d0=3.0, d_max=6, branching=(1, 1, 2), tau_h=0.8, tau_l=0.2, rho_stop=0.01, rho_deep=0.2, tau=0, n_max=7)
RUN = RunConfig(dynatree=OWN, linear=Linear(4))


@pytest.fixture(autouse=True)
def _config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", str(tmp_path / "config.toml"))
    (tmp_path / "config.toml").touch()


def write(name: str = "mine", *, force: bool = False, run: RunConfig = RUN) -> Path:
    settings.prepare_preset(name, force=force)
    return settings.write_preset(name, run, ["Found somewhere\nd0 = 9"], force=force)


def by_hand(content: str | bytes, name: str = "mine") -> Path:
    settings.preset_folder().mkdir(exist_ok=True)
    path = settings.preset_folder() / f"{name}.toml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_a_preset_that_was_written_is_named_like_any_other_and_options_come_before_it(asked: Asked) -> None:
    write()
    found = asked("--preset", "mine").config
    assert (found.of(DynaTree), found.of(Linear)) == (OWN, Linear(4))
    found = asked("--preset", "mine", "--n-max", "30", "--no-history", "--k", "9").config
    assert (found.of(DynaTree), found.of(Linear)) == (replace(OWN, n_max=30, history=False), Linear(9))


def test_a_file_may_name_a_preset_of_the_user_s_for_good(tmp_path: Path, asked: Asked, printed: Printed) -> None:
    write()
    (tmp_path / "config.toml").write_text('preset = "mine"\n', encoding="utf-8")
    assert asked().config.of(DynaTree) == OWN
    assert asked("--preset", "paper").config.of(DynaTree) == PRESETS["paper"]
    shown = printed("config")
    assert all(line in shown for line in ('preset = "mine"', "n_max = 7"))


def test_a_file_with_the_name_of_a_built_in_preset_is_none(asked: Asked) -> None:
    by_hand("d0 = 4\n", "paper")
    assert settings.preset_names() == []
    assert asked("--preset", "paper").config.of(DynaTree) == PRESETS["paper"]


@pytest.mark.parametrize("temperature", ["0", "0.6"])
def test_what_a_preset_leaves_open_is_as_in_tuned_at_any_temperature(temperature: str, asked: Asked) -> None:
    by_hand("d0 = 4\n")
    found = asked("--preset", "mine", "--temperature", temperature).config
    assert found.of(DynaTree) == PRESETS["tuned"].turned("d0", 4)


def test_a_command_line_writes_the_parameters_out_and_not_the_name(asked: Asked) -> None:
    write()
    line = command_line(asked("--preset", "mine", "--methods", "dynatree,linear"))
    assert "mine" not in line
    for path in settings.preset_folder().iterdir():
        path.unlink()
    again = asked(*line.split()[1:]).config
    assert (again.of(DynaTree), again.of(Linear)) == (OWN, Linear(4))


@pytest.mark.parametrize("name", ["noon", "../config", "day.toml", "", "/etc/passwd"])
def test_an_unknown_name_lists_all_that_there_are_and_is_no_path(name: str, refused: Refused) -> None:
    write("night")
    write("day")
    assert refused("--preset", name) == f"--preset is {name!r}; give one of tuned, paper, sampled, day, night"


def test_shells_complete_the_user_s_presets_too() -> None:
    write("night")
    live = cli.command()
    (option,) = [each for each in live.params if each.name == "preset"]
    offered = option.shell_complete(click.Context(live), "")
    assert [item.value for item in offered] == ["tuned", "paper", "sampled", "night"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (
            "d0 = \n",
            "PATH: Invalid value (at line 1, column 6); correct the file, or replace it by running dynatui tune",
        ),
        ("\nd0 = deep", 'PATH: Invalid value (at line 2, column 6); put text in quotes: d0 = "deep"'),
        ("n_maxx = 1", "PATH: line 1: n_maxx is not an option of a preset; did you mean n_max? a preset can set tau_h"),
        ("temperature = 1", "PATH: line 1: temperature is not an option of a preset; a preset can set tau_h"),
        ("preset = 'paper'", "PATH: line 1: preset is not an option of a preset; "),
        ("d0 = 1\ntau_h = 3.0", "tau_l is 0.3 and tau_h is 3; give 0 < tau_l < tau_h <= 1 (tau_h from PATH: line 2)"),
        (
            "branching = '3'",
            "--branching is '3'; give 3 whole numbers, for example 1,2,3 (branching from PATH: line 1)",
        ),
        ("k = 0", "K is 0; give 1 or more (k from PATH: line 1)"),
        (b"#" * (2**20 + 1), "PATH is larger than 1 MiB"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_broken_file_is_one_line_with_file_line_and_remedy(content: str | bytes, line: str, refused: Refused) -> None:
    path = by_hand(content)
    assert refused("--preset", "mine").startswith(line.replace("PATH", str(path)))
    path.unlink()
    path.mkdir()
    assert refused("--preset", "mine").endswith("Is a directory; make it readable or remove it")


def test_a_comment_cannot_become_a_setting_and_a_preset_has_the_rights_of_any_file() -> None:
    umask = os.umask(0o022)
    try:
        path = write()
    finally:
        os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert path.read_text(encoding="utf-8").splitlines()[0] == "# Found somewhere␊d0 = 9"


def test_another_preset_is_not_written_over_unless_that_is_asked_for() -> None:
    path = write()
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=r"there is a preset mine already; give another --name, or --force"):
        settings.prepare_preset("mine", force=False)
    with pytest.raises(ConfigError, match=r"there is a preset mine already"):
        settings.write_preset("mine", RunConfig(), [], force=False)
    assert path.read_bytes() == before
    write(force=True, run=RunConfig())
    assert path.read_bytes() != before
    assert os.listdir(settings.preset_folder()) == ["mine.toml"]  # noqa: PTH208 - hidden files count


NAMELESS = r"^--name is .*; give up to 64 letters, digits, - and _, for example mine$"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *((name, NAMELESS) for name in ("a/b", "..", ".hidden", "a b", "", "x" * 65, "a,b", "ü", "a\nb")),
        *((name, f"--name is {name}, a preset that comes with dynatui; give another name") for name in PRESETS),
    ],
)
def test_what_is_no_name_or_a_built_in_one_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        settings.prepare_preset(name, force=True)
    assert not settings.preset_folder().exists()


def test_a_place_that_cannot_be_written_to_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DYNATUI_CONFIG", "/dev/null/config.toml")
    with pytest.raises(
        ConfigError, match=r"^cannot write /dev/null/presets: Not a directory; free disk space, or set DYNATUI"
    ):
        settings.prepare_preset("mine", force=False)


def test_a_full_disk_is_one_line_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    path = write()
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for name in ("mine", "other"):
        with pytest.raises(
            ConfigError, match=rf"cannot write .*{name}\.toml: No space left on device; free disk space"
        ):
            settings.write_preset(name, RunConfig(), [], force=True)
    assert path.read_bytes() == before
    assert os.listdir(settings.preset_folder()) == ["mine.toml"]  # noqa: PTH208 - hidden files count
