"""The library is found for this CPU; without it, torch computes the passes, and says why."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from decoder.forward.compiled import library as libraries
from decoder.forward.compiled.model import CompiledModel
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from tests.decoder.family_models import made


def forget() -> None:
    libraries.library.cache_clear()
    libraries.missing.cache_clear()


@pytest.fixture(autouse=True)
def _searched_anew() -> Iterator[None]:
    forget()
    yield
    forget()


def test_the_package_was_built_for_this_cpu_from_the_present_source() -> None:
    assert libraries.missing() == ""
    assert libraries.library() is not None


def test_native_models_use_it_up_to_float32() -> None:
    forms = {
        dtype: type(LanguageModel.of_module(made("llama", dtype), "llama").runs_by)
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    }
    assert forms == dict.fromkeys(list(forms)[:3], CompiledModel) | {torch.float64: NativeModel}


def test_without_it_torch_computes_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(libraries, "library_path", lambda: tmp_path / "passes-z80.so")
    assert "passes-z80.so is missing" in libraries.missing()
    assert isinstance(LanguageModel.of_module(made("llama"), "llama").runs_by, NativeModel)


def test_a_library_of_another_source_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    changed = tmp_path / "passes.c"
    changed.write_text("int changed;", encoding="utf-8")
    number = libraries.source_number(changed)
    monkeypatch.setattr(libraries, "source_number", lambda: number)
    assert libraries.missing().endswith("was built from another passes.c")
    assert libraries.library() is None
