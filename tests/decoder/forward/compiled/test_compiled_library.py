"""The library is found for this CPU, and chooses tokens; without it, torch computes the passes, and says why."""

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decoder.forward.compiled import library as libraries
from decoder.forward.compiled.library import PassLibrary, best_tokens, chosen_tokens, library
from decoder.forward.compiled.model import CompiledModel
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from decoder.sampling.noise import Estimate
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


NUMBERS = st.one_of(st.sampled_from([-math.inf, -2.0, 0.0, 1.0, 1.0]), st.floats(-40, 40, width=32))
OFFSETS = st.one_of(st.sampled_from([-96.0, 0.0, 1.0]), st.floats(-4, 40, width=32))


def compiled() -> PassLibrary:
    found = library()
    assert found is not None
    return found


def sorted_tokens(row: torch.Tensor, count: int) -> list[int]:
    """Of equal tokens, the one with the lower id comes first."""
    return sorted(range(len(row)), key=lambda token: (-float(row[token]), token))[:count]


def drawn_rows(data: st.DataObject, numbers: st.SearchStrategy[float], rows: int, width: int) -> torch.Tensor:
    row = st.lists(numbers, min_size=width, max_size=width)
    return torch.tensor(data.draw(st.lists(row, min_size=rows, max_size=rows)))


@given(
    width=st.integers(1, 70), rows=st.integers(1, 3), count=st.integers(1, 5), estimated=st.booleans(), data=st.data()
)
@settings(max_examples=100, deadline=None)
def test_they_are_those_of_a_sort_with_the_logprobs_of_torch(
    *, width: int, rows: int, count: int, estimated: bool, data: st.DataObject
) -> None:
    logits, count, estimate = drawn_rows(data, NUMBERS, rows, width), min(count, width), Estimate([1.0] * rows)
    if estimated:
        factors = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=rows, max_size=rows))
        estimate = Estimate(factors, [*drawn_rows(data, OFFSETS, rows, width)])
    before, scores = logits.clone(), estimate.scores(logits)
    given_estimate = (estimate.offsets, estimate.factors) if estimated else (None, None)
    chosen = best_tokens(compiled(), logits, count, *given_estimate, own=True)
    for row, (tokens, logprobs, owns) in enumerate(zip(*chosen, strict=True)):
        if logits[row].isfinite().any():
            right, own = (each.log_softmax(-1)[tokens] for each in (scores[row], logits[row]))
            possible = sum(map(math.isfinite, logprobs))
            assert tokens[:possible] == sorted_tokens(scores[row], count)[:possible]
            assert possible == min(count, int(logits[row].isfinite().sum()))
            torch.testing.assert_close(torch.tensor(logprobs[:possible]), right[:possible], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(torch.tensor(owns[:possible]), own[:possible], rtol=1e-5, atol=1e-5)
            assert all(logprob == -math.inf for logprob in logprobs[possible:])
        else:
            assert all(map(math.isnan, logprobs))
    assert torch.equal(logits, before)
    assert best_tokens(compiled(), logits, count, *given_estimate)[0] == chosen[0]


@given(width=st.integers(1, 70), rows=st.integers(1, 3), noisy=st.booleans(), data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_row_s_choice_has_the_largest_sum_of_logit_and_offset(
    *, width: int, rows: int, noisy: bool, data: st.DataObject
) -> None:
    logits = drawn_rows(data, NUMBERS, rows, width)
    offsets = drawn_rows(data, OFFSETS, rows, width) if noisy else torch.zeros(rows, width)
    for row, token in enumerate(chosen_tokens(compiled(), logits, [*offsets] if noisy else None)):
        choice = sorted_tokens(logits[row] + offsets[row], 1)[0]
        assert token == (choice if logits[row].isfinite().any() else -1)


@pytest.mark.parametrize("strange", [math.nan, math.inf])
def test_a_row_with_a_number_that_is_none_has_no_logprobs_and_no_choice(strange: float) -> None:
    for place in (0, 20, 33):
        logits = torch.zeros(2, 34)
        logits[1, place] = strange
        _, (good, bad), _ = best_tokens(compiled(), logits, 2)
        assert not any(map(math.isnan, good))
        assert all(map(math.isnan, bad))
        assert chosen_tokens(compiled(), logits) == [0, -1]


def test_rows_may_be_part_of_wider_rows() -> None:
    wide = torch.arange(40.0).reshape(2, 20)
    assert best_tokens(compiled(), wide[:, :7], 2)[0] == [[6, 5], [6, 5]]
    assert chosen_tokens(compiled(), wide[:, :7]) == [6, 6]
