"""A profile becomes a promise: the deployed draft, the advised numbers by load, and step times without drafts."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from decoder.errors import ConfigError
from dynatui.cli.attach import schedule
from dynatui.servers.advice import advised
from dynatui.servers.attach.events import Promise
from dynatui.servers.attach.expectation import Advised, promises
from dynatui.servers.attach.servers import KINDS
from dynatui.servers.costs import source
from dynatui.servers.engines import ENGINES
from dynatui.servers.profile_file import Costs, Profile, StepPoint, Stopped
from tests.dynatui.servers.attach.stand_in import RATES, StandIn, causes, profile, promised_draft, state_after, steady

PATH = Path("/somewhere/mine.json")


def promised(found: Profile, name: str | None = None, advised: Advised | None = None) -> Promise:
    return promises(PATH, found, name, advised, [])(KINDS["vllm"], 2.0)


def test_the_deployed_draft_has_chains_of_each_length_and_all_drafts_are_kept() -> None:
    only, both = profile(small=promised_draft()), profile(small=promised_draft(), tiny=promised_draft(RATES[:2]))
    found = promised(only)
    assert (found.t, found.profile, found.draft) == (2.0, "mine.json", "small")
    assert [chain.rates for chain in found.drafts["small"]] == [RATES[:k] for k in range(1, 6)]
    assert (promised(both, "tiny").draft, list(promised(both, "tiny").drafts)) == ("tiny", ["small", "tiny"])


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


def test_the_advised_numbers_are_by_default_those_that_follow_from_the_costs_in_the_profile() -> None:
    costs = Costs(source="given", target_s={1: 0.02}, draft_s={"small": 0.001})
    found = replace(profile(small=promised_draft()), costs=costs)
    deployment = advised(found, source(found), ENGINES["vllm"], (1, 64)).deployment
    assert deployment is not None
    assert max(k for _, _, k in promised(found).advised) == deployment.k > 0
    assert promised(found).advised[-1][1] == 2**32
    assert promised(found, advised=((1, 4, 2),)).advised == ((1, 4, 2),)
    assert promises(PATH, found, None, None, [])(KINDS["tgi"], 0.0).advised == ()
    dear = replace(found, costs=replace(costs, draft_s={"small": 1.0}))
    assert promised(dear).advised == promised(profile(small=promised_draft())).advised == ()


def test_with_a_least_probability_the_chains_are_those_that_it_ends() -> None:
    stopped = Stopped(p_min=0.3, rounds=1000, survival=(0.7, 0.5, 0.3, 0.2, 0.1), drafted=2.5)
    found = profile(small=replace(promised_draft(), confidence=(stopped,)))
    chains = promises(PATH, found, None, ((1, 64, 5),), [], 0.3)(KINDS["llamacpp"], 0.0).drafts["small"]
    assert (chains[-1].rates, chains[-1].drafted) == (stopped.survival, 2.5)
    assert (chains[2].rates, chains[2].drafted) == (stopped.survival[:3], 1.5)
    with pytest.raises(ConfigError, match=r"--p-min is 0\.5; the profile has 0\.3"):
        promises(PATH, found, None, None, [], 0.5)
    server = StandIn(KINDS["llamacpp"], stopped.survival, 2)
    told = promises(PATH, found, None, ((1, 64, 5),), [], 0.3)(server.kind, 0.0)
    assert causes(state_after(server, steady(server), told)) == []


def test_step_times_without_drafts_are_medians_by_load() -> None:
    points = [StepPoint(running=running, k=0, step_s=s, steps=10) for running, s in ((4, 1), (4, 3), (4, 2), (64, 9))]
    found = promises(PATH, profile(small=promised_draft()), None, None, points)(KINDS["vllm"], 0.0)
    assert [(point.running, point.step_s, point.steps) for point in found.plain] == [(4, 2, 30), (64, 9, 10)]
