"""A profile becomes a promise: the deployed draft, the advised numbers by load, and step times without drafts."""

from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.servers.attach.events import Promise
from dynatui.servers.attach.expectation import Advised, promises, schedule
from dynatui.servers.attach.servers import KINDS
from dynatui.servers.profile_file import Profile, StepPoint
from tests.dynatui.servers.attach.stand_in import RATES, profile, promised_draft

PATH = Path("/somewhere/mine.json")


def promised(found: Profile, name: str | None = None, advised: Advised | None = None) -> Promise:
    return promises(PATH, found, name, advised, [])(KINDS["vllm"], 2.0)


def test_the_only_draft_is_the_deployed_one_with_chains_of_each_length() -> None:
    found = promised(profile(small=promised_draft()))
    assert (found.t, found.profile, found.draft) == (2.0, "mine.json", "small")
    assert [len(chain.rates) for chain in found.drafts["small"]] == [1, 2, 3, 4, 5]
    assert found.drafts["small"][2].rates == RATES[:3]


def test_of_several_drafts_the_deployed_one_is_named_and_all_are_kept() -> None:
    both = profile(small=promised_draft(), tiny=promised_draft(RATES[:2]))
    found = promised(both, "tiny")
    assert (found.draft, list(found.drafts)) == ("tiny", ["small", "tiny"])


@pytest.mark.parametrize(
    ("found", "name", "why"),
    [
        (profile(), None, "mine.json has no draft"),
        (profile(small=promised_draft()), "other", "--deployed is 'other'; give one of the profile's drafts: small"),
        (
            profile(small=promised_draft(), tiny=promised_draft()),
            None,
            "several drafts; name the server's with --deployed NAME: small, tiny",
        ),
    ],
)
def test_a_draft_that_is_not_there_or_not_named_is_refused(found: Profile, name: str | None, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        promised(found, name)


@pytest.mark.parametrize(
    ("text", "bands"),
    [
        ("5", ((1, 2**32, 5),)),
        ("1-16:5,17-64:3", ((1, 16, 5), (17, 64, 3))),
        ("1-16:5, 17:4, 18-:0", ((1, 16, 5), (17, 17, 4), (18, 2**32, 0))),
    ],
)
def test_numbers_by_load_are_read(text: str, bands: Advised) -> None:
    assert schedule(text) == bands


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.5", "5:", "3-1:5", "1-16:5,9-20:3", "1-4:5;5-8:3", "9" * 30, "0-2:5"]
)
def test_what_is_no_number_by_load_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--draft-tokens is .*; give drafted tokens"):
        schedule(text)


def test_step_times_without_drafts_are_medians_by_load() -> None:
    points = [StepPoint(running=running, k=0, step_s=s, steps=10) for running, s in ((4, 1), (4, 3), (4, 2), (64, 9))]
    found = promises(PATH, profile(small=promised_draft()), None, None, points)(KINDS["vllm"], 0.0)
    assert [(point.running, point.step_s, point.steps) for point in found.plain] == [(4, 2, 30), (64, 9, 10)]
