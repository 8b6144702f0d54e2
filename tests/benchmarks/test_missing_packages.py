"""Tests of missing packages: releases count, and what a missing package needs is named with it."""

from importlib import metadata

import pytest
from packaging.requirements import Requirement

from benchmarks.stages.packages import NEEDS, lacking, remedy, requirements, with_needs
from benchmarks.stages.plan import STAGES


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Releases by package name, which a test fills; other packages are absent."""
    found = {name: "99" for needs in NEEDS.values() for name in needs}

    def version(name: str) -> str:
        if name not in found:
            raise metadata.PackageNotFoundError(name)
        return found[name]

    monkeypatch.setattr(metadata, "version", version)
    return found


def test_nothing_is_lacking_where_all_is_installed() -> None:
    assert lacking(name for stage in STAGES for name in stage.packages) == []


def test_an_older_release_than_pyproject_allows_is_lacking(installed: dict[str, str]) -> None:
    installed |= {"typer": "0.28.0", "rich": "15.0.0", "torch": "2.11.0+cu130"}
    assert lacking(["typer", "torch"]) == [str(requirements()["typer"])]
    installed["typer"] = "0.29.2"
    assert lacking(["typer"]) == []


def test_what_a_missing_package_needs_in_turn_is_named_with_it(installed: dict[str, str]) -> None:
    installed |= {"typer": "0.28.0", "rich": "15.0.0"}
    for name in ("pydantic", "pydantic-core", "annotated-types", "typing-inspection"):
        del installed[name]
    names = [Requirement(each).name for each in lacking(["typer"])]
    assert names == ["annotated-types", "pydantic", "pydantic-core", "typer", "typing-inspection"]
    installed |= {"typer": "0.29.2"} | dict.fromkeys(("pydantic", "annotated-types", "typing-inspection"), "99")
    assert lacking(["typer"]) == ["pydantic-core"]


def test_the_remedy_is_two_commands_that_a_shell_understands() -> None:
    text = remedy(["typer<0.30,>=0.29", "pyte"])
    assert "pip download --no-deps -d wheels 'typer<0.30,>=0.29' pyte;" in text
    assert text.endswith("pip install --no-index --no-deps wheels/*.whl")


@pytest.mark.parametrize("name", NEEDS)
def test_needs_are_those_of_the_installed_releases(name: str) -> None:
    def needs(package: str, extras: tuple[str, ...] = ("",)) -> set[str]:
        every = map(Requirement, metadata.requires(package) or ())
        wanted = [
            each for each in every if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras)
        ]
        own = {each.name.lower().replace("_", "-") for each in wanted}
        return own.union(*(needs(each.name, tuple(each.extras)) for each in wanted if each.extras), set())

    known = needs(name) - {"click", "typing-extensions", "attrs", "exceptiongroup", "tomli", "colorama"}
    assert known <= with_needs([name])
