"""Imports form no cycles between files or between the parts of a folder, the engine never imports the screen, and the
names that `decoder` publishes are documented; a name inside that says it all needs no docstring.

Every import counts: also imports in functions, imports only for type checkers, and modules that a string names. The
implicit import of a package's `__init__` before its modules does not count.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest

import decoder

ROOT = Path(__file__).parents[1]
PACKAGES = ("decoder", "dynatui")
FOLDERS = sorted(
    {path.parent.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
)
MODULE = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)+")
"""Matches a string that names a module of ours; such modules are imported lazily."""
LAB = "dynatui/lab/"
NOT_FOR_THE_ENGINE = {"dynatui", "textual", "rich", "click"}

Imports: TypeAlias = Mapping[str, frozenset[str]]
"""The files that each file imports, as paths from the root."""


@cache
def imported_names(path: Path, root: Path) -> tuple[tuple[str, str], ...]:
    """Every import of a file, as the module and the name imported from it, if any."""
    return tuple(_imported_names(path, root))


def _imported_names(path: Path, root: Path) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = path.relative_to(root).parts[: -node.level] if node.level else ()
            module = ".".join((*parents, *filter(None, (node.module,))))
            yield from ((module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and MODULE.fullmatch(node.value):
            yield node.value, ""


def file_of(module: str, name: str, files: Iterable[str]) -> str | None:
    """The file that an import loads; a submodule of that name takes precedence over a name in the package."""
    folder = module.replace(".", "/")
    tried = (f"{folder}/{name}.py", f"{folder}/{name}/__init__.py", f"{folder}.py", f"{folder}/__init__.py")
    return next((path for path in tried if path in files), None)


def imports_in(package: Path) -> Imports:
    """The files of a package that each of its files imports."""
    root = package.parent
    files = {path.relative_to(root).as_posix(): path for path in package.rglob("*.py")}
    return {
        name: frozenset(
            found
            for module, one in imported_names(path, root)
            if (found := file_of(module, one, files)) and found != name
        )
        for name, path in files.items()
    }


@cache
def imports_of(package: str) -> Imports:
    return imports_in(ROOT / package)


def circle(imports: Imports, folder: str = "") -> str:
    """Describes an import cycle with all imports in it; empty if there is no cycle.

    With a folder, the cycle is between its files and subfolders; without one, between files.
    """
    ties: dict[tuple[str, str], list[str]] = defaultdict(list)
    for importer, imported in imports.items():
        for other in imported:
            ends = child(importer, folder), child(other, folder)
            if "" not in ends and ends[0] != ends[1]:
                ties[ends].append(f"{importer} imports {other}")
    arrows: dict[str, set[str]] = defaultdict(set)
    for start, end in ties:
        arrows[start].add(end)
    try:
        TopologicalSorter(arrows).prepare()
    except CycleError as error:
        round_trip = error.args[1][::-1]
        tied = [f"  {tie}" for ends in pairwise(round_trip) for tie in sorted(ties[ends])]
        return "\n".join([f"circle of imports: {' -> '.join(round_trip)}", *tied])
    return ""


def child(path: str, folder: str) -> str:
    """The direct child of `folder` that contains the file; the file itself if `folder` is empty; empty if outside."""
    if not folder:
        return path
    inside = path.removeprefix(f"{folder}/")
    return inside.partition("/")[0] if inside != path else ""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_files_import_each_other_in_a_circle(package: str) -> None:
    assert not (found := circle(imports_of(package))), found


def test_arrows_between_the_parts_of_a_folder_point_one_way() -> None:
    for folder in FOLDERS:
        found = circle(imports_of(folder.partition("/")[0]), folder)
        assert not found, f"in {folder}/: {found}"


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_the_way_that_the_guide_lists(package: str) -> None:
    guide = (ROOT / "docs" / "how-it-works.md").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"<!-- parts of {package} -->\n```text\n(.*?)```", guide, re.DOTALL)
    line_of = {part: number for number, line in enumerate(listed.splitlines()) for part in line.split()}
    ends = {
        (child(importer, package).removesuffix(".py"), child(imported, package).removesuffix(".py"))
        for importer, all_ in imports_of(package).items()
        for imported in all_
    }
    wrong = [
        f"{one} imports {other}"
        for one, other in ends
        if one != other and one in line_of and line_of[one] <= line_of.get(other, -1)
    ]
    assert not wrong
    assert line_of.keys() <= {one for one, _ in ends} | {other for _, other in ends}


def test_the_engine_imports_nothing_of_the_screen() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): taken
        for path in (ROOT / "decoder").rglob("*.py")
        if (taken := {module.partition(".")[0] for module, _ in imported_names(path, ROOT)} & NOT_FOR_THE_ENGINE)
    }
    assert not found


def test_only_the_command_line_imports_the_laboratory() -> None:
    found = {
        importer
        for package in PACKAGES
        for importer, imported in imports_of(package).items()
        if not importer.startswith(LAB) and any(name.startswith(LAB) for name in imported)
    }
    of_engine = {path for path in (ROOT / "decoder").rglob("*.py") if "dynatui.lab" in path.read_text(encoding="utf-8")}
    assert found == {"dynatui/main.py"}
    assert not of_engine


def test_no_test_module_is_imported() -> None:
    """Helpers that several tests share belong in a module without tests."""
    paths = list((ROOT / "tests").rglob("*.py"))
    tests = {path.stem for path in paths if path.stem.startswith("test_")}
    names = {
        path.relative_to(ROOT).as_posix(): {
            part for module, name in imported_names(path, ROOT) for part in (*module.split("."), name)
        }
        for path in paths
    }
    assert not {path: taken for path, parts in names.items() if (taken := parts & tests)}


def written(root: Path, files: Mapping[str, str]) -> Path:
    package = root / "house"
    for name, code in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(code, encoding="utf-8")
    return package


@pytest.mark.parametrize(
    "code",
    [
        "import house.b",
        "from house import b",
        "from house.b import value",
        "from . import b",
        "from .b import value",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.b import value",
        "def late():\n    from house.b import value",
    ],
)
def test_an_import_of_any_form_closes_a_circle(code: str, tmp_path: Path) -> None:
    found = circle(imports_in(written(tmp_path, {"a.py": code, "b.py": "import house.a"})))
    assert "house/a.py imports house/b.py" in found
    assert "house/b.py imports house/a.py" in found


def test_folders_can_form_a_circle_where_no_files_do(tmp_path: Path) -> None:
    files = {
        "left/a.py": "import house.right.a",
        "right/a.py": "",
        "right/b.py": "import house.left.b",
        "left/b.py": "",
    }
    imports = imports_in(written(tmp_path, files))
    assert not circle(imports)
    assert circle(imports, "house").splitlines()[1:] in (
        ["  house/left/a.py imports house/right/a.py", "  house/right/b.py imports house/left/b.py"],
        ["  house/right/b.py imports house/left/b.py", "  house/left/a.py imports house/right/a.py"],
    )


def test_an_import_that_points_one_way_is_no_circle(tmp_path: Path) -> None:
    imports = imports_in(written(tmp_path, {"a.py": "import house.b\nimport json", "b.py": ""}))
    assert imports["house/a.py"] == {"house/b.py"}
    assert not circle(imports)
    assert not circle(imports, "house")


def test_every_published_name_and_public_method_of_it_is_documented() -> None:
    published = {name: getattr(decoder, name) for name in decoder.__all__}
    methods = {
        f"{name}.{key}": value
        for name, one in published.items()
        if isinstance(one, type)
        for key, value in vars(one).items()
        if not key.startswith("_") and callable(value)
    }
    assert [name for name, one in (published | methods).items() if not one.__doc__] == []


def test_every_module_that_the_docstring_of_a_folder_names_is_in_it() -> None:
    missing = []
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py")):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        named = [path.with_name(name) for name in re.findall(r"`(\w+)`", told)]
        missing += [one for one in named if not (one.with_suffix(".py").is_file() or one.is_dir())]
    assert missing == []
