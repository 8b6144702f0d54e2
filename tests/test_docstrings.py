"""The names that `decoder` publishes are documented; a name inside that says it all needs no docstring.

A folder's docstring names only modules that are there.
"""

import ast
import re
from pathlib import Path

import decoder

ROOT = Path(__file__).parents[1]


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
    for path in (path for package in ("decoder", "dynatui") for path in (ROOT / package).rglob("__init__.py")):
        told = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        named = [path.with_name(name) for name in re.findall(r"`(\w+)`", told)]
        missing += [one for one in named if not (one.with_suffix(".py").is_file() or one.is_dir())]
    assert missing == []
