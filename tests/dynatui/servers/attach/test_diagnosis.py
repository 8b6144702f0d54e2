"""What is wrong with a server is named by its signature, and a server that keeps its promise is not reported."""

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
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


def claim(state: ServerState, number: int = 0) -> str:
    return state.findings[number].claim


def remedy(state: ServerState) -> str:
    return state.findings[0].remedy


@pytest.mark.parametrize("name", KINDS)
def test_a_server_of_any_kind_that_does_as_promised_keeps_its_promise(name: str) -> None:
    server = StandIn(KINDS[name])
    state = state_after(server, steady(server, 120), PROMISE)
    assert causes(state) == []
    assert verdict(state, final=True).kept


@pytest.mark.parametrize("name", KINDS)
def test_a_server_of_any_kind_that_runs_another_draft_does_not_and_the_draft_is_named_by_its_positions(
    name: str,
) -> None:
    server = StandIn(KINDS[name], OTHER)
    state = state_after(server, steady(server, 120), PROMISE)
    assert causes(state) == ["below"]
    assert ("the rates are those of other" in remedy(state)) == bool(server.kind.accepted_at)
    assert verdict(state, final=True).kept is False


@pytest.mark.parametrize("name", [name for name in KINDS if name != "tgi"])
def test_a_server_that_never_drafts_although_a_draft_is_promised_is_off_if_its_steps_are_no_rounds(name: str) -> None:
    server = StandIn(KINDS[name])
    kind = server.kind

    def pages() -> Iterator[str]:
        yield server.page()
        server.write(TOKENS - 1)
        yield server.page()
        server.write(1)
        yield server.page()

    *_, early, late = pages()
    assert causes(state_after(server, iter([server.page(), early]), PROMISE)) == []
    blank = StandIn(kind).page()
    state = state_after(server, iter([blank, late]), PROMISE)
    assert causes(state) == ["off"]
    assert claim(state) == "speculation is off: 200 tokens were generated, none was drafted"
    assert kind.speculation in remedy(state)
    assert causes(state_after(server, iter([blank, late]))) == []


@pytest.mark.parametrize("known", [True, False])
def test_a_draft_of_which_not_even_the_first_token_is_accepted_is_broken(*, known: bool) -> None:
    server = vllm((0.004, 0.0, 0.0, 0.0, 0.0))
    state = state_after(server, steady(server, 30, 500), PROMISE if known else None)
    assert causes(state) == ["broken"]
    assert claim(state).startswith("the draft is broken: 0% of the first tokens of 15,000 drafts are accepted")
    assert ("promised 75%" in claim(state)) == known


def test_a_draft_without_positions_is_broken_if_rounds_make_one_token() -> None:
    server = StandIn(KINDS["sglang"], (0.01, 0.0, 0.0, 0.0, 0.0))
    assert causes(state_after(server, steady(server), PROMISE)) == ["broken"]


@pytest.mark.parametrize("known", [True, False])
def test_a_head_whose_second_token_fails_is_miswired(*, known: bool) -> None:
    server = vllm((0.73, 0.02, 0.001, 0.0, 0.0))
    state = state_after(server, steady(server), PROMISE if known else None)
    assert causes(state) == ["miswired"]
    first, second = (" (promised 75%)", " (promised 60%)") if known else ("", "")
    told = f"73%{first} of first tokens are accepted, 2%{second} of second ones"
    assert told in claim(state)


def test_a_head_whose_first_token_is_also_worse_is_not_miswired() -> None:
    server = vllm((0.3, 0.02, 0.001, 0.0, 0.0))
    assert causes(state_after(server, steady(server), PROMISE)) == ["below"]


def test_a_server_that_accepts_what_was_never_accepted_before_is_not_judged() -> None:
    nothing = Promise(t=0.0, profile="p", draft="mine", drafts={"mine": chains((0.0,) * 5)})
    server = vllm()
    assert causes(state_after(server, steady(server), nothing)) == []


def test_drafts_that_are_cut_short_are_told_and_the_rates_of_later_positions_are_not_held_against_them() -> None:
    server = vllm((0.75, 0.6, 0.0, 0.0, 0.0), drafted=2)
    state = state_after(server, steady(server), PROMISE)
    assert causes(state) == ["cut short"]
    assert "2.00 tokens a round, not 5.00" in claim(state)


def test_drafts_may_be_as_short_as_is_advised_at_the_load() -> None:
    server = vllm((0.75, 0.6, 0.0, 0.0, 0.0), drafted=2)
    server.running = 40
    by_load = promise(((1, 16, 5), (17, 64, 2)))
    assert causes(state_after(server, steady(server), by_load)) == []
    server = vllm((0.75, 0.6, 0.0, 0.0, 0.0), drafted=2)
    assert causes(state_after(server, steady(server), by_load)) == ["cut short"]


PLAIN = (StepPoint(running=4, k=0, step_s=0.005, steps=100),)


def test_rounds_that_cost_more_than_their_tokens_are_slow_and_break_even_is_told() -> None:
    server = vllm()
    state = state_after(server, steady(server), promise(plain=PLAIN))
    assert causes(state) == ["slow"]
    told = "a round takes as long as 4.00 steps without drafts, so break-even is L-bar 4.00, but L-bar is 3.56"
    assert told in claim(state)
    fast = vllm()
    fast.step_s = 0.017
    assert causes(state_after(fast, steady(fast), promise(plain=PLAIN))) == []
    elsewhere = tuple(replace_running(point, 32) for point in PLAIN)
    server = vllm()
    assert causes(state_after(server, steady(server), promise(plain=elsewhere))) == []


def replace_running(point: StepPoint, running: float) -> StepPoint:
    return StepPoint(running=running, k=0, step_s=point.step_s, steps=point.steps)


def growing(server: StandIn, *, cache: float, running: float, last: tuple[float, ...]) -> Iterator[str]:
    """Pages of a server whose acceptance falls half-way, while its load or its cache changes."""
    yield from steady(server, 60, 400)
    server.rates, server.cache, server.running = last, cache, running
    yield from steady(server, 60, 400)


FALLEN = (0.6, 0.4, 0.3, 0.2, 0.15)


@pytest.mark.parametrize(
    ("cache", "running", "found"),
    [(0.5, 4.0, ["context"]), (0.2, 4.0, []), (0.5, 16.0, [])],
    ids=["longer texts", "texts as long", "another load"],
)
def test_a_fall_with_the_length_of_the_texts_is_the_context(cache: float, running: float, found: list[str]) -> None:
    server = vllm()
    state = state_after(server, growing(server, cache=cache, running=running, last=FALLEN))
    assert causes(state) == found
    if found:
        assert "from 3.56 to 2.65 at 4.0 running requests, each with 2.50 times the KV cache" in claim(state)


def test_without_the_size_of_the_cache_a_fall_at_the_same_load_may_be_the_context() -> None:
    server = StandIn(KINDS["llamacpp"])
    state = state_after(server, growing(server, cache=0.0, running=4.0, last=FALLEN))
    assert causes(state) == ["context"]
    assert "KV cache" not in claim(state)


@pytest.mark.parametrize("known", [True, False])
def test_texts_that_repeat_themselves_are_a_loop(*, known: bool) -> None:
    server = vllm((1.0, 1.0, 0.99, 0.99, 0.98))
    state = state_after(server, steady(server), PROMISE if known else None)
    assert causes(state) == ["loop"]
    assert ("98% of drafts are accepted whole (promised 33%)" in claim(state)) == known


def test_acceptance_of_almost_all_tokens_is_no_loop_where_it_is_promised() -> None:
    sure = (0.99, 0.985, 0.98, 0.975, 0.97)
    drafts = {"mine": chains(sure)}
    server = vllm(sure)
    state = state_after(server, steady(server), Promise(t=0.0, profile="p", draft="mine", drafts=drafts))
    assert causes(state) == []


def restarting(server: StandIn, after: StandIn) -> Iterator[str]:
    yield from steady(server, 30, 400)
    yield from steady(after, 30, 400)


@pytest.mark.parametrize(("rates", "found"), [(FALLEN, ["restart"]), (RATES, [])])
def test_a_fall_at_a_restart_is_a_regression(rates: tuple[float, ...], found: list[str]) -> None:
    server = vllm()
    state = state_after(server, restarting(server, vllm(rates)), None)
    assert causes(state) == found
    if found:
        assert claim(state) == "L-bar fell from 3.56 to 2.65 when the server restarted"
        state = state_after(server, restarting(vllm(), vllm(rates)), PROMISE)
        assert causes(state) == ["restart"], "which also explains an acceptance below the promise"


def test_another_number_of_drafted_tokens_than_advised_is_told_with_the_option_that_sets_it() -> None:
    server = vllm()
    state = state_after(server, steady(server), promise(((1, 64, 2),)))
    assert causes(state) == ["length"]
    assert claim(state) == "the server drafts up to 5 tokens a round, 2 are advised"
    assert remedy(state) == "set num_speculative_tokens to 2"
    assert "none pays" in remedy(state_after(server, steady(server), promise(((1, 64, 0),))))
    assert causes(state_after(server, steady(server), promise(()))) == []


def test_more_drafted_tokens_than_advised_at_a_load_are_told() -> None:
    by_load = promise(((1, 8, 5), (9, 64, 2)))
    server = vllm()
    assert causes(state_after(server, steady(server), by_load)) == []
    server = vllm()
    server.running = 24
    state = state_after(server, steady(server), by_load)
    assert causes(state) == ["length"]
    assert claim(state) == "the server drafts 5.0 tokens a round at 24.0 running requests, 2 are advised"


def test_where_drafted_tokens_are_counted_by_position_each_position_is_compared_with_its_own() -> None:
    server = vllm((0.75, 0.6, 0.0, 0.0, 0.0), by_position=True, drafted=2)
    state = state_after(server, steady(server), PROMISE)
    assert causes(state) == ["cut short"]
    assert state.reading
    assert state.reading.session.acceptance_by_position == pytest.approx([0.75, 0.6, None, None, None])


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
    drafts = {"mine": (*(replaced(chain, k) for k in range(1, 4)), chain)}
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


def replaced(chain: PromisedChain, k: int) -> PromisedChain:
    return PromisedChain(
        rates=chain.rates[:k], rounds=chain.rounds, design_effect=chain.design_effect, drafted=float(k)
    )


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
