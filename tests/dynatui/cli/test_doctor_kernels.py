"""The doctor tells beforehand what Triton lacks to build kernels, each need in one line with its remedy."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from dynatui.cli import doctor_machine
from dynatui.cli.doctor_machine import lacking
from dynatui.session import Models
from tests.dynatui.cli.doctor_case import found


@pytest.fixture
def whole(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine that has all that Triton needs."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    programs.mkdir()
    home.mkdir()
    for name in ("gcc", "mycc"):
        (programs / name).touch(0o755)
    (tmp_path / "Python.h").touch()
    return {"PATH": str(programs), "HOME": str(home)}


def said(environment: Mapping[str, str], headers: Path) -> list[str]:
    needs = list(lacking(environment, headers))
    assert all(need.verdict == "note" and "or give --no-kernels" in need.remedy for need in needs)
    assert not any("\n" in need.text + need.remedy for need in needs)
    return [f"{need.text}; {need.remedy}" for need in needs]


def test_where_all_is_there_nothing_is_lacking(whole: dict[str, str], tmp_path: Path) -> None:
    assert not said(whole, tmp_path)
    assert not said(whole | {"CC": "mycc"}, tmp_path)


def test_a_missing_compiler_is_told_with_the_packages_that_have_one(whole: dict[str, str], tmp_path: Path) -> None:
    (text,) = said(whole | {"PATH": str(tmp_path / "none")}, tmp_path)
    assert text.startswith("Triton needs a C compiler, but there is no gcc or clang; install gcc, ")
    (text,) = said(whole | {"CC": "othercc"}, tmp_path)
    assert "but CC names othercc, which is not there" in text


def test_missing_headers_are_told_with_their_folder_and_their_package(whole: dict[str, str], tmp_path: Path) -> None:
    (text,) = said(whole, tmp_path / "include")
    assert f"{tmp_path / 'include'} has no Python.h" in text
    assert "apt install python3." in text


@pytest.mark.parametrize("name", ["TRITON_CACHE_DIR", "TRITON_HOME", "HOME"])
def test_a_cache_that_cannot_be_written_is_told_by_its_folder(whole: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (text,) = said(whole | {name: str(tmp_path / "file")}, tmp_path)
    assert str(tmp_path / "file") in text
    assert "set TRITON_CACHE_DIR to a folder that can be written" in text


def test_a_cache_that_is_not_made_yet_needs_a_folder_above_it_that_can_be_written(
    whole: dict[str, str], tmp_path: Path
) -> None:
    assert not said(whole | {"TRITON_CACHE_DIR": str(tmp_path / "a" / "b")}, tmp_path)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("models", "device", "examined"),
    [
        (Models(), "cuda:0", True),
        (Models(kernels=False), "cuda:0", False),
        (Models(exact=True), "cuda:0", False),
        (Models(), "cpu", False),
    ],
)
def test_only_where_kernels_would_be_built_are_their_needs_examined(
    models: Models, device: str, monkeypatch: pytest.MonkeyPatch, *, examined: bool
) -> None:
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device(device))
    monkeypatch.setattr(doctor_machine, "find_spec", lambda _: True)
    assert bool(found("kernels", models=models)) == examined


def test_without_triton_that_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("decoder.system.device.choose_device", lambda _: torch.device("cuda:0"))
    monkeypatch.setattr(doctor_machine, "find_spec", lambda _: None)
    (finding,) = found("kernels")
    assert (finding.verdict, finding.text) == ("note", "Triton is not installed")
