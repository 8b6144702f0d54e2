"""What is wrong with a server is named by its signature, and a server that keeps its promise is not reported."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from dynatui.servers.attach.course import Course, Span
from dynatui.servers.attach.diagnosis import ROUNDS, TOKENS, Seen, differing, findings
from dynatui.servers.attach.events import Promise, PromisedChain
from dynatui.servers.attach.expectation import promised_chain
from dynatui.servers.attach.servers import KINDS
from dynatui.servers.profile_file import Chain, StepPoint
from dynatui.state.server_state import ServerState, verdict
from tests.dynatui.servers.attach.scripted_session import GAP, OPENING
from tests.dynatui.servers.attach.stand_in import (
    OTHER,
    RATES,
    StandIn,
    causes,
    chains,
    promise,
    state_after,
    steady,
    vllm,
)

PROMISE = promise()
PLAIN = StepPoint(running=4, k=0, step_s=0.005, steps=100)
BY_LOAD = promise(((1, 8, 5), (9, 64, 2)))
BROKEN, MISWIRED, SHORT = (0.004, 0.0, 0.0, 0.0, 0.0), (0.73, 0.02, 0.001, 0.0, 0.0), (0.75, 0.6, 0.0, 0.0, 0.0)
REPEATING, SURE = (1.0, 1.0, 0.99, 0.99, 0.98), (0.99, 0.985, 0.98, 0.975, 0.97)
FALLEN = (0.6, 0.4, 0.3, 0.2, 0.15)


def promising(rates: tuple[float, ...]) -> Promise:
    return Promise(t=0.0, profile="p", draft="mine", drafts={"mine": chains(rates)})


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("rates", [RATES, OTHER], ids=["as promised", "another draft"])
def test_a_server_of_any_kind_keeps_its_promise_unless_it_runs_another_draft_which_its_positions_name(
    name: str, rates: tuple[float, ...]
) -> None:
    server = StandIn(KINDS[name], rates)
    state = state_after(server, steady(server, 120), PROMISE)
    assert causes(state) == ([] if rates == RATES else ["below"])
    assert verdict(state, final=True).kept is (rates == RATES)
    if state.findings:
        named = "the rates are those of other" in state.findings[0].remedy
        assert named == bool(server.kind.accepted_at)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "tgi"])
def test_a_server_that_never_drafts_although_a_draft_is_promised_is_off_if_its_steps_are_no_rounds(name: str) -> None:
    server = StandIn(KINDS[name])
    pages = [server.page()]
    for tokens in (TOKENS - 1, 1):
        server.write(tokens)
        pages.append(server.page())
    assert causes(state_after(server, iter(pages[:2]), PROMISE)) == []
    assert causes(state_after(server, iter(pages))) == []
    (found,) = state_after(server, iter(pages), PROMISE).findings
    assert (found.cause, found.claim) == ("off", "speculation is off: 200 tokens were generated, none was drafted")
    assert server.kind.speculation in found.remedy


CASES: dict[str, tuple[StandIn, Promise | None, str, str]] = {
    "no first token": (
        *(vllm(BROKEN), PROMISE, "broken"),
        "the draft is broken: 0% of the first tokens of 3,000 drafts are accepted (promised 75%)",
    ),
    "no first token, without a promise": (vllm(BROKEN), None, "broken", "3,000 drafts are accepted; check"),
    "rounds of one token": (StandIn(KINDS["sglang"], (0.01, 0.0, 0.0, 0.0, 0.0)), PROMISE, "broken", ""),
    "no second token": (
        *(vllm(MISWIRED), PROMISE, "miswired"),
        "73% (promised 75%) of first tokens are accepted, 2% (promised 60%) of second ones",
    ),
    "no second token, without a promise": (
        *(vllm(MISWIRED), None, "miswired"),
        "73% of first tokens are accepted, 2% of second ones",
    ),
    "few first and no second tokens": (vllm((0.3, 0.02, 0.001, 0.0, 0.0)), PROMISE, "below", "position 1 (promised"),
    "nothing was accepted before": (vllm(), promising((0.0,) * 5), "", ""),
    "cut short": (vllm(SHORT, drafted=2), PROMISE, "cut short", "2.00 tokens a round, not 5.00"),
    "cut short, by position": (vllm(SHORT, drafted=2, by_position=True), PROMISE, "cut short", ""),
    "short as advised at its load": (replace(vllm(SHORT, drafted=2), running=40), BY_LOAD, "", ""),
    "short at a load for longer drafts": (vllm(SHORT, drafted=2), BY_LOAD, "cut short", ""),
    "slow": (
        *(vllm(), promise(plain=(PLAIN,)), "slow"),
        "a round takes as long as 4.00 steps without drafts, so break-even is L-bar 4.00, but L-bar is 3.56",
    ),
    "fast": (replace(vllm(), step_s=0.017), promise(plain=(PLAIN,)), "", ""),
    "plain steps at another load": (vllm(), promise(plain=(structs.replace(PLAIN, running=32),)), "", ""),
    "repeating": (vllm(REPEATING), PROMISE, "loop", "98% of drafts are accepted whole (promised 33%)"),
    "repeating, without a promise": (vllm(REPEATING), None, "loop", "98% of drafts are accepted whole: the texts"),
    "sure as promised": (vllm(SURE), promising(SURE), "", ""),
    "longer than advised": (
        *(vllm(), promise(((1, 64, 2),)), "length"),
        "the server drafts up to 5 tokens a round, 2 are advised; set num_speculative_tokens to 2",
    ),
    "no drafts advised": (vllm(), promise(((1, 64, 0),)), "length", "none pays"),
    "nothing advised": (vllm(), promise(()), "", ""),
    "as advised at its load": (vllm(), BY_LOAD, "", ""),
    "longer than advised at its load": (
        *(replace(vllm(), running=24), BY_LOAD, "length"),
        "the server drafts 5.0 tokens a round at 24.0 running requests, 2 are advised",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_wrong_is_named_with_its_figures(case: tuple[StandIn, Promise | None, str, str]) -> None:
    made, promised, cause, told = case
    server = replace(made)
    state = state_after(server, steady(server), promised)
    assert causes(state) == ([cause] if cause else [])
    assert told in "; ".join(f"{finding.claim}; {finding.remedy}" for finding in state.findings)


def changing(server: StandIn, **after: Any) -> Iterator[str]:
    """Pages of a server that changes half-way."""
    yield from steady(server, 60, 400)
    for name, value in after.items():
        setattr(server, name, value)
    yield from steady(server, 60, 400)


@pytest.mark.parametrize(
    ("name", "after", "told"),
    [
        (
            *("vllm", {"cache": 0.5}),
            "from 3.56 to 2.65 at 4.0 running requests, each with 2.50 times the KV cache",
        ),
        ("vllm", {}, ""),
        ("vllm", {"cache": 0.5, "running": 16.0}, ""),
        ("llamacpp", {}, "from 3.56 to 2.65 at 4.0 running requests"),
    ],
    ids=["longer texts", "texts as long", "another load", "a cache of unknown size"],
)
def test_a_fall_with_the_length_of_the_texts_is_the_context(name: str, after: dict[str, float], told: str) -> None:
    server = StandIn(KINDS[name])
    found = state_after(server, changing(server, rates=FALLEN, **after)).findings
    assert [(each.cause, each.claim) for each in found] == (
        [("context", f"L-bar falls while the load stays: {told}")] if told else []
    )


@pytest.mark.parametrize(
    ("rates", "promised", "found"),
    [(FALLEN, None, ["restart"]), (RATES, None, []), (FALLEN, PROMISE, ["restart"])],
    ids=["worse", "as before", "which also explains an acceptance below the promise"],
)
def test_a_fall_at_a_restart_is_a_regression(
    rates: tuple[float, ...], promised: Promise | None, found: list[str]
) -> None:
    server, restarted = vllm(), vllm(rates)
    pages = [*steady(server, 30, 400), *steady(restarted, 30, 400)]
    state = state_after(server, iter(pages), promised)
    assert causes(state) == found
    if found:
        assert state.findings[0].claim == "L-bar fell from 3.56 to 2.65 when the server restarted"


@pytest.mark.parametrize(
    ("drafted", "least"),
    [(500, (100, 100, 100, 100, 100)), (480, (100, 95, 93 + 1 / 3, 90, 80)), (200, (100, 25, 0, 0, 0))],
)
def test_how_often_a_position_was_surely_drafted_follows_from_the_sum(drafted: int, least: tuple[float, ...]) -> None:
    span = Span(rounds=100, drafted=drafted, accepted_at=(1, 1, 1, 1, 1))
    assert [span.surely_drafted(place) for place in range(5)] == pytest.approx(least)


def test_too_few_rounds_a_server_without_figures_and_one_that_never_answers_leave_the_promise_unchecked() -> None:
    server = vllm()
    state = state_after(server, steady(server, 1, ROUNDS - 1), PROMISE)
    (found,) = verdict(state, final=True).findings
    assert (found.cause, verdict(state, final=True).kept) == ("unchecked", None)
    assert "99 rounds were drafted, 100 are needed" in found.claim
    tgi = StandIn(KINDS["tgi"])
    (found,) = verdict(state_after(tgi, steady(tgi), promise(())), final=True).findings
    assert "TGI does not report how many tokens it drafts a round" in found.claim
    assert "--draft-tokens" in found.remedy
    (found,) = verdict(ServerState(opening=OPENING, past=(GAP,)), final=True).findings
    assert GAP.reason in found.claim
    assert not verdict(state, final=False).findings


def test_the_evidence_that_two_shares_differ() -> None:
    assert differing(0.5, 100, 0.5, 900) == pytest.approx(-math.log(4 * 300))
    assert differing(0.2, 0, 0.5, 900) == 0
    by_hand = 100 * (0.2 * math.log(0.2 / 0.4) + 0.8 * math.log(0.8 / 0.6)) + 200 * (
        0.5 * math.log(0.5 / 0.4) + 0.5 * math.log(0.5 / 0.6)
    )
    assert differing(0.2, 100, 0.5, 200) == pytest.approx(by_hand - math.log(4 * math.sqrt(100 * 200)))
    assert differing(0.0, 100, 1.0, 100) == pytest.approx(200 * math.log(2) - math.log(400))


PROMPTS, REQUEST = 80, 30
"""Prompts of the profile; rounds of a prompt, and of a request."""


def rounds_of(requests: int, random: np.random.Generator, skill: float) -> NDArray[np.int64]:
    """Accepted tokens of each round, of shape (requests, rounds), where requests differ in difficulty."""
    ease = skill + random.normal(0.0, 0.7, (requests, 1, 1))
    drawn = random.random((requests, REQUEST, 4)) < 1 / (1 + np.exp(-ease))
    accepted: NDArray[np.int64] = np.cumprod(drawn, axis=2).sum(axis=2)
    return accepted


def profiled(random: np.random.Generator) -> PromisedChain:
    accepted = rounds_of(PROMPTS, random, 1.0)
    lengths = 1 + accepted.mean(axis=1)
    half = 1.96 * float(lengths.std(ddof=1)) / math.sqrt(PROMPTS)
    mean = float(lengths.mean())
    survival = tuple(float((accepted >= place).mean()) for place in range(1, 5))
    return promised_chain(Chain(rounds=accepted.size, survival=survival, length_interval=(mean - half, mean + half)))


def session(random: np.random.Generator, skill: float, polls: int) -> list[list[str]]:
    """Causes that are found after each poll, of two requests each."""
    chain = profiled(random)
    drafts = {"mine": tuple(structs.replace(chain, rates=chain.rates[:k], drafted=float(k)) for k in range(1, 5))}
    promised = Promise(t=0.0, profile="p", draft="mine", drafts=drafts, advised=((1, 64, 4),))
    course, told = Course(k=4), list[list[str]]()
    for _ in range(polls):
        accepted = rounds_of(2, random, skill)
        counts = tuple(int((accepted >= place).sum()) for place in range(1, 5))
        rounds = accepted.size
        span = Span(rounds + sum(counts), rounds, 4 * rounds, sum(counts), counts)
        course = replace(course, life=course.life.plus(span))
        told.append([finding.cause for finding in findings(Seen(KINDS["vllm"], course, promised))])
    return told


def test_looking_again_and_again_reports_no_server_that_serves_such_prompts_as_were_profiled() -> None:
    random = np.random.default_rng(5)
    alarms = sum(any(session(random, 1.0, 100)) for _ in range(60))
    assert alarms == 0


def test_a_worse_draft_is_found_soon() -> None:
    random = np.random.default_rng(6)
    found = [session(random, 0.3, 150) for _ in range(10)]
    assert all(told[-1] == ["below"] for told in found)


def test_rounds_that_are_alike_within_a_prompt_count_less() -> None:
    random = np.random.default_rng(7)
    assert 2 < profiled(random).design_effect < 15
    flat = Chain(rounds=1000, survival=(0.5,), length_interval=(1.5 - 0.031, 1.5 + 0.031))
    assert promised_chain(flat).design_effect == pytest.approx(1.0, abs=0.01)
    assert promised_chain(Chain(rounds=1000, survival=(0.5,))).design_effect == 10


def test_rates_are_those_of_rounds_that_draft_as_servers_count_them() -> None:
    lookup = promised_chain(Chain(rounds=1000, survival=(0.3, 0.2), drafted=(0.5, 0.4)))
    assert lookup.rates == pytest.approx((0.6, 0.4))
    assert lookup.drafted == pytest.approx(1.8)
    assert lookup.rounds * lookup.design_effect == pytest.approx(500)
