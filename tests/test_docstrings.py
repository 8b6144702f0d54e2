"""A public method has a docstring, unless it implements a documented method of the same name of a protocol or base."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_method_without_a_docstring_has_a_documented_namesake() -> None:
    documented, bare = set[str](), dict[str, str]()
    for path in (path for package in ("decoder", "dynatui") for path in (ROOT / package).rglob("*.py")):
        for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(owner, ast.ClassDef) or owner.name.startswith("_"):
                continue
            for method in owner.body:
                if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and not method.name.startswith("_"):
                    if ast.get_docstring(method):
                        documented.add(method.name)
                    else:
                        bare[method.name] = f"{path.relative_to(ROOT)}:{method.lineno}"
    assert not {name: place for name, place in bare.items() if name not in documented}
