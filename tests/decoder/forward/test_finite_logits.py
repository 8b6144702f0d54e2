"""A row of logits leaves a choice unless it has NaN, plus infinity, or no finite logit; the error says what to do."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decoder.errors import LogitsError
from decoder.forward import finite_logits
from decoder.forward.finite_logits import choices, require_choices
from tests.decoder.property_settings import examples

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LOGITS = st.one_of(st.floats(-6e4, 6e4), st.sampled_from((math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324)))


@examples(200)
@given(rows=st.integers(1, 6).flatmap(lambda v: st.lists(st.lists(LOGITS, min_size=v, max_size=v), min_size=1)),
       dtype=st.sampled_from(DTYPES))  # fmt: skip
def test_rows_leave_a_choice_if_each_has_a_finite_logit_and_none_has_nan_or_plus_infinity(
    rows: list[list[float]], dtype: torch.dtype
) -> None:
    logits = torch.tensor(rows, dtype=dtype)
    bad = logits.isnan() | (logits == math.inf)
    if bool(bad.any()) or bool((logits == -math.inf).all(-1).any()):
        for choose in (require_choices, choices):
            with pytest.raises(LogitsError):
                choose(logits)
    else:
        require_choices(logits)
        assert choices(logits) == logits.float().argmax(-1).tolist()


@pytest.mark.parametrize("missing", [False, True], ids=["library", "no library"])
def test_choices_count_the_offsets_with_and_without_the_compiled_library(
    monkeypatch: pytest.MonkeyPatch, *, missing: bool
) -> None:
    if missing:
        monkeypatch.setattr(finite_logits, "library", lambda: None)
    logits = torch.tensor([[0.0, 1.0, 1.0], [0.0, 1.0, -math.inf]])
    assert choices(logits) == [1, 1]
    assert choices(logits, [torch.tensor([0.0, 0.0, 0.5]), torch.tensor([2.0, 0.0, 40.0])]) == [2, 0]
    with pytest.raises(LogitsError):
        choices(torch.tensor([[1.0, 2.0], [math.nan, 0.0]]), [torch.zeros(2)] * 2)


@pytest.mark.parametrize(
    ("precision", "remedy"),
    [
        ("float16", "choose --dtype bfloat16 or float32, whose range is larger"),
        ("bfloat16", "choose --dtype float32, or check the model's weights"),
        ("float32", "check the model's weights, or choose another model"),
        ("GGUF Q8_0", "check the model's weights, or choose another model"),
    ],
)
def test_the_error_names_the_round_the_dtype_and_a_remedy_that_is_no_dtype_in_use(precision: str, remedy: str) -> None:
    error = LogitsError("round 7", precision)
    assert str(error) == f"the target's logits in round 7 are NaN or infinite, computed in {precision}; {remedy}"
    assert error.exit_code == 3
