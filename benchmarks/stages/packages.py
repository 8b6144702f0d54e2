"""Packages that a stage needs and a machine lacks: absent ones, and releases that pyproject.toml excludes.

A machine for measurements may have no network and no installed dynatui, so every missing package is named with the
packages that it needs in turn.
"""

import shlex
import tomllib
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NEEDS: Mapping[str, tuple[str, ...]] = {
    "textual": ("markdown-it-py", "mdit-py-plugins", "linkify-it-py", "platformdirs", "pygments", "rich"),
    "rich": ("markdown-it-py", "pygments"),
    "markdown-it-py": ("mdurl",),
    "loky": ("cloudpickle",),
    "pyte": ("wcwidth",),
    "jaxtyping": ("wadler-lindig",),
    "hypothesis": ("sortedcontainers",),
    "pytest": ("iniconfig", "packaging", "pluggy", "pygments"),
}
"""Direct needs of packages of pure Python that a machine with torch and transformers may lack: the metadata of an
absent package is absent too.
"""


def lacking(names: Iterable[str]) -> list[str]:
    """Requirements of these packages, and of those that they need, which this machine does not meet, in pip's notation,
    such as `click<9,>=8.5`.
    """
    required = requirements()
    every = (required.get(name, Requirement(name)) for name in with_needs(names))
    return sorted(str(requirement) for requirement in every if not _met(requirement))


def with_needs(names: Iterable[str]) -> set[str]:
    """These packages and those that they need in turn."""
    found, waiting = set[str](), [*names]
    while waiting:
        name = waiting.pop()
        waiting += () if name in found else NEEDS.get(name, ())
        found.add(name)
    return found


def remedy(requirements: Iterable[str]) -> str:
    """Commands that bring these packages, the first on a machine that has a network, the second on the other one."""
    wanted = shlex.join(requirements)
    return (
        f"on a machine with a network and the same Python: pip download --no-deps -d wheels {wanted}; here: pip "
        f"install --no-index --no-deps wheels/*.whl"
    )


def requirements() -> dict[str, Requirement]:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    return {each.name: each for each in map(Requirement, project["dependencies"])}


def _met(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False
