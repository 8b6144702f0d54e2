"""Tests in fresh interpreters: engine and screen stay separate, and light commands do not import torch."""

import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path

import dynatui
from tests.dynatui.fake_engine import story
from tests.dynatui.pty_terminal import written

ENGINE_ONLY = {"torch", "transformers", "datasets", "jaxtyping"}
SCREEN_ONLY = {"dynatui", "textual", "rich", "click"}
LIGHT_MODULES = ("run.config", "errors", "events", "methods", "analysis.metrics", "session.steering")
OF_MODELS = "dynatui.cli.doctor_models"
"""Imported by the doctor's checks of models alone."""
LIGHT = ["decoder", *(f"decoder.{name}" for name in LIGHT_MODULES)]


def loaded(code: str, cwd: Path) -> set[str]:
    """Top-level packages that are loaded in a fresh interpreter after it has run the code."""
    report = "import sys; print('LOADED', *{name.partition('.')[0] for name in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"], cwd=cwd, capture_output=True, text=True, check=True, timeout=120
    )
    *_, last = done.stdout.splitlines()
    return set(last.split())


def after(*commands: str) -> str:
    calls = (f"assert main({command.split()!r}) == 0" for command in commands)
    return "\n".join(("from dynatui.main import main", *calls))


def test_the_light_modules_and_names_of_the_engine_import_no_torch_and_no_screen(tmp_path: Path) -> None:
    names = "from decoder import DecoderError, DynaTree, RunConfig, Stage, Steering, bounds"
    assert not loaded(f"import {', '.join(LIGHT)}; {names}", tmp_path) & (ENGINE_ONLY | SCREEN_ONLY)


def test_no_module_of_the_screen_imports_torch(tmp_path: Path) -> None:
    names = {name for _, name, _ in pkgutil.walk_packages(dynatui.__path__, "dynatui.") if ".lab" not in name}
    assert not loaded("import " + ", ".join(names - {OF_MODELS}), tmp_path) & ENGINE_ONLY


def test_help_version_config_and_replay_import_neither_torch_nor_textual(tmp_path: Path) -> None:
    written(tmp_path / "run.jsonl", story())
    helps = ("--help", "--version", "replay --help", "doctor --help", "config", "config --print-default")
    code = after(*helps, "replay run.jsonl --headless", "replay run.jsonl --json")
    assert not loaded(code, tmp_path) & (ENGINE_ONLY | {"textual"})


def test_without_the_laboratory_its_commands_are_not_listed(tmp_path: Path) -> None:
    shutil.copytree(Path(dynatui.__file__).parent, tmp_path / "dynatui", ignore=shutil.ignore_patterns("lab"))
    asked = [sys.executable, "-m", "dynatui", "--help"]
    listed = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "replay" in listed
    assert "bench" not in listed
