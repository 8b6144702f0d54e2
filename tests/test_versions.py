"""Releases of the dependencies: caps, how the weekly workflow opens them, and what would break under a new release."""

import itertools
import re
import subprocess
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
SHAPE_OF_NDARRAY = re.compile(r"\b[A-Z]\w+\[NDArray\b[^\"\n]*\"")
"""A shape of jaxtyping with NumPy's `NDArray`, which is no class in NumPy 2.5, so that jaxtyping raises on import."""


def test_shapes_name_the_class_of_the_array() -> None:
    files = [path for package in ("decoder", "dynatui") for path in (ROOT / package).rglob("*.py")]
    assert [path.name for path in files if SHAPE_OF_NDARRAY.search(path.read_text(encoding="utf-8"))] == []


def test_the_weekly_workflow_opens_the_caps_of_what_models_are_computed_with(tmp_path: Path) -> None:
    workflow = (ROOT / ".github/workflows/newest.yml").read_text(encoding="utf-8")
    opening = re.search(r"run: (sed -i .*) pyproject.toml$", workflow, re.MULTILINE)
    assert opening is not None
    copy = tmp_path / "pyproject.toml"
    copy.write_bytes((ROOT / "pyproject.toml").read_bytes())
    before = dependencies(copy)
    subprocess.run(f"{opening[1]} {copy}", shell=True, check=True)  # noqa: S602 - the workflow's own line
    opened = {line for line in before if line not in dependencies(copy)}
    assert {re.split("[<>=]", line)[0] for line in opened} == {"torch", "transformers", "numpy", "datasets"}
    assert all(",<" in line for line in opened)
    assert not any(line.startswith("torch") and "<" in line for line in dependencies(copy))


def test_a_check_takes_a_release_that_users_may_have_and_the_weekly_workflow_the_newest() -> None:
    fixed = [line for line in (ROOT / ".ci/constraints.txt").read_text().splitlines() if not line.startswith("#")]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*project["dependencies"], *itertools.chain.from_iterable(project["optional-dependencies"].values())]
    assert fixed
    for pinned in map(Requirement, fixed):
        (version,) = [each.version for each in pinned.specifier]
        allowed = [each.specifier.contains(version) for each in map(Requirement, lines) if each.name == pinned.name]
        assert allowed
        assert all(allowed)
    assert "run: PIP_CONSTRAINT=/dev/null .ci/run\n" in (ROOT / ".github/workflows/newest.yml").read_text()


def dependencies(project: Path) -> list[str]:
    """The dependencies of a pyproject.toml."""
    listed = tomllib.loads(project.read_text(encoding="utf-8"))["project"]["dependencies"]
    assert isinstance(listed, list)
    return listed
