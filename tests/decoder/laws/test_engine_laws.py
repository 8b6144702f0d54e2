"""Texts of independent sampling follow the target's distribution, and engines with a mistake are rejected.

Short tests run by default; the full runs of all cases are marked `statistical`.
"""

import os
from collections import Counter

import pytest

from tests.decoder.laws.case import Case
from tests.decoder.laws.cases import GROUPS, SETTINGS
from tests.decoder.laws.joint_law import compare
from tests.decoder.laws.mistakes import MISTAKES
from tests.decoder.laws.toy import texts

SHORT = (
    "block, iid (1, 0, 3), T 1, top-p 1, neox",
    "traversal, delayed (2, 1, 1), T 1, top-p 0.9, neox",
    "nss, dynatree, T 1, top-p 1, neox",
)
TEXTS = 250
"""Number of texts of each of `SHORT`, enough to reveal every mistake of `SEEN_SOON`."""
SEEN_SOON = {
    "coins: the draft's": 200,
    "target rows: those of the parents": 200,
    "target rows: no top-p": 60,
    "mask: siblings see each other": 100,
    "cache: refused rows kept": 80,
}
"""Number of texts for mistakes that few texts reveal."""
ALL = [pytest.param(case, id=f"{group.title}: {case.name}") for group in GROUPS for case in group.cases]


@pytest.mark.parametrize("name", SHORT)
def test_first_tokens_are_distributed_as_the_target_s(name: str) -> None:
    setting = SETTINGS[name]
    assert compare(texts(setting, range(TEXTS)), setting.law).fits


@pytest.mark.parametrize("name", SEEN_SOON)
def test_a_mistake_is_found_out(name: str) -> None:
    (mistake,) = (each for each in MISTAKES if each.name == name)
    with mistake.change():
        counts = texts(mistake.setting, range(SEEN_SOON[name]))
    assert not compare(counts, mistake.setting.law).fits


@pytest.mark.statistical
@pytest.mark.parametrize("case", ALL)
def test_at_length(case: Case) -> None:
    if "embedded" in case.name and not os.environ.get("DYNATUI_DATA"):
        pytest.skip("DYNATUI_DATA names no folder with books_test/")
    counts: Counter[str] = Counter()
    for begin in range(0, case.units, case.block):
        counts.update(case.count(range(begin, min(begin + case.block, case.units))))
    verdict = case.judge(counts)
    assert verdict.right, verdict.figures
