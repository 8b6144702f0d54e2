"""Packages that a stage needs and a machine lacks: absent ones, and releases that pyproject.toml excludes.

A machine for measurements may have no network and no installed dynatui.
"""

import shlex
import tomllib
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lacking(names: Iterable[str]) -> list[str]:
    """Requirements of these packages that this machine does not meet, in pip's notation (`click<9,>=8.5`)."""
    required = requirements()
    every = (required.get(name, Requirement(name)) for name in names)
    return sorted(str(requirement) for requirement in every if not _met(requirement))


def remedy(requirements: Iterable[str]) -> str:
    """Commands that bring these packages, the first on a machine that has a network, the second on the other one."""
    wanted = shlex.join(requirements)
    return (
        f"on a machine with a network and the same Python: pip download -d wheels {wanted}; here: pip install "
        f"--no-index --find-links wheels {wanted}"
    )


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return {each.name: each for each in map(Requirement, project["dependencies"])}


def _met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
