"""Tests in fresh interpreters: engine and screen stay separate, and light commands do not import torch."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import dynatui
from dynatui.record.recording import Recorder
from tests.dynatui.fake_engine import story

ENGINE_ONLY = {"torch", "transformers", "datasets", "jaxtyping"}
SCREEN_ONLY = {"dynatui", "textual", "rich", "typer"}
LIGHT_MODULES = ("run.config", "errors", "events", "methods", "analysis.metrics", "session.steering")
LIGHT = ["decoder", *(f"decoder.{name}" for name in LIGHT_MODULES)]


def loaded(code: str, cwd: Path) -> set[str]:
    """Top-level packages that are loaded in a fresh interpreter after it has run the code."""
    report = "import sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], cwd=cwd, capture_output=True, text=True, check=True, timeout=120
    )
    *_, last = done.stdout.splitlines()
    return set(last.split())


def after_main(*arguments: str) -> str:
    return f"from dynatui.cli.main import main\nassert main({list(arguments)!r}) == 0"


@pytest.mark.parametrize("module", LIGHT)
def test_the_light_modules_of_the_engine_import_no_torch_and_no_screen(module: str, tmp_path: Path) -> None:
    assert not loaded(f"import {module}", tmp_path) & (ENGINE_ONLY | SCREEN_ONLY)


def test_no_module_of_the_screen_imports_torch(tmp_path: Path) -> None:
    names = [name for _, name, _ in pkgutil.walk_packages(dynatui.__path__, "dynatui.")]
    assert not loaded("import " + ", ".join(names), tmp_path) & ENGINE_ONLY


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("--version",),
        ("replay", "--help"),
        ("doctor", "--help"),
        ("config",),
        ("config", "--print-default"),
    ],
)
def test_help_version_and_config_import_neither_torch_nor_textual(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert not loaded(after_main(*arguments), tmp_path) & (ENGINE_ONLY | {"textual"})


@pytest.mark.parametrize("option", ["--headless", "--json"])
def test_replay_imports_neither_torch_nor_textual(option: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with Recorder(path) as recorder:
        for event in story():
            recorder.write(event)
    assert not loaded(after_main("replay", str(path), option), tmp_path) & (ENGINE_ONLY | {"textual"})
