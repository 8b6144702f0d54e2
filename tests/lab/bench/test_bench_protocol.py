"""The order of turns on a fake clock, contenders that fail, and cuts of a run, which equal shorter runs."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.engine import Engine
from decoder.errors import DeviceError, PairError
from decoder.events import Round
from decoder.methods import WHOLE
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.session.protocol import Outcome
from decoder.tree import TokenTree
from decoder.tree_rules import Rules
from dynatui.lab.bench.baselines import baselines
from dynatui.lab.bench.contenders import Contender, DecodedText, as_round, own
from dynatui.lab.bench.protocol import Experiment, Sample, cut, measured, mixed, schedule, totals_at, warmed_up
from dynatui.lab.bench.summary import Samples
from tests.decoder.makers import TinyModels

ENGINE: Any = SimpleNamespace(pair=SimpleNamespace(target=SimpleNamespace(device=torch.device("cpu")), device="cpu"))
PROMPTS = [[1], [2], [3]]


def contender(name: str, run: Callable[[list[int]], Tally], *, foreign: bool = False) -> Contender:
    return Contender(name, name, lambda _pair, ids: DecodedText(run(list(ids))), {}, foreign=foreign)


def warm(contenders: Sequence[Contender], prompts: Sequence[Sequence[int]], note: Callable[[str], None]) -> Experiment:
    return warmed_up(ENGINE, Experiment(contenders, PROMPTS, prompts, repeats=2), note)


def sampled(contenders: Sequence[Contender], prompts: Sequence[Sequence[int]], repeats: int = 1) -> list[Sample]:
    plan = Experiment(contenders, prompts, (), repeats)
    return list(measured(ENGINE, plan, plan.turns()))


def took(decode_s: float) -> Tally:
    """A tally of four tokens in four rounds."""
    return Tally(rounds=4, timed_tokens=4, log=TokenLog().plus((1, 2, 3, 4)), decode_s=decode_s)


def test_everyone_decodes_a_prompt_before_the_next_in_an_order_that_hangs_on_the_seed_alone() -> None:
    found = list(schedule(contenders=4, prompts=3, repeats=2, seed=0))
    blocks = [{(turn.repeat, turn.prompt) for turn in found[start : start + 4]} for start in range(0, 24, 4)]
    assert blocks == [{(repeat, prompt)} for repeat in range(2) for prompt in range(3)]
    assert all(sorted(turn.contender for turn in found[start : start + 4]) == [0, 1, 2, 3] for start in range(0, 24, 4))
    first, again, other = (list(schedule(5, 4, 2, seed)) for seed in (1, 1, 2))
    assert first == again != other
    many = schedule(contenders=5, prompts=10, repeats=3, seed=0)
    followers = Counter(after.contender for before, after in pairwise(many) if before.contender == 0)
    assert len(followers) == 5
    assert max(followers.values()) < 15


def test_blocks_that_are_measured_are_left_out_and_the_others_keep_their_order() -> None:
    plan = Experiment([contender("ar", refuses)] * 3, PROMPTS, (), repeats=2)
    done = {(0, 1), (1, 2)}
    assert plan.turns(done) == [turn for turn in plan.turns() if (turn.repeat, turn.prompt) not in done]
    assert {(turn.repeat, turn.prompt) for turn in plan.turns(done)} == {(0, 0), (0, 2), (1, 0), (1, 1)}


def test_where_prompts_are_compared_turns_on_all_of_them_are_mixed_within_a_repeat() -> None:
    found = list(mixed(contenders=4, prompts=3, repeats=20, seed=0))
    repeats = [found[start : start + 12] for start in range(0, 240, 12)]
    everyone = sorted((prompt, contender) for prompt in range(3) for contender in range(4))
    for repeat, turns in enumerate(repeats):
        assert {turn.repeat for turn in turns} == {repeat}
        assert sorted((turn.prompt, turn.contender) for turn in turns) == everyone
    first_prompts = Counter(turn.prompt for turns in repeats for turn in turns[:4])
    assert all(first_prompts[prompt] > 10 for prompt in range(3))


@pytest.fixture
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """No turn is disturbed; on a busy machine, turns would be repeated."""
    monkeypatch.setattr("dynatui.lab.bench.protocol.waited_s", lambda: 0.0)


@pytest.mark.usefixtures("_quiet")
def test_drift_of_the_machine_does_not_reach_the_ratios() -> None:
    """The machine slows down a hundredfold; one contender stays three times as fast as the other."""
    slowness = iter(1.01**step for step in range(1000))
    ar = contender("ar", lambda _: took(3.0 * next(slowness)))
    fast = contender("fast", lambda _: took(1.0 * next(slowness)))
    samples = Samples(sampled([ar, fast], [[1]] * 25, repeats=9), [ar, fast])
    ratio: Any = samples.ratio("fast", "ar", seed=0)
    assert 2.95 < ratio.low <= ratio.high < 3.05


@pytest.mark.usefixtures("_quiet")
def test_the_warm_up_is_no_sample() -> None:
    calls: list[list[int]] = []

    def run(ids: list[int]) -> Tally:
        calls.append(ids)
        return took(100.0 if len(calls) <= 3 else 1.0)

    ready = warm([contender("ar", run)], PROMPTS, pytest.fail)
    assert calls == PROMPTS
    samples = list(measured(ENGINE, ready, ready.turns()))
    assert len(calls) == 9
    assert [sample.tally.decode_s for sample in samples] == [1.0] * 6
    assert [(sample.repeat, sample.prompt) for sample in samples] == [(r, p) for r in range(2) for p in range(3)]


def refuses(_ids: list[int]) -> Tally:
    raise ValueError("no static cache for this model\nand more")


def unfit(_ids: list[int]) -> Tally:
    raise PairError("the positions of tiny are not rotary")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (contender("generate static", refuses, foreign=True), "no static cache for this model"),
        (contender("streaming", unfit), "the positions of tiny are not rotary"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_a_foreign_contender_that_fails_or_one_that_the_pair_does_not_fit_is_left_out_and_named(
    other: Contender, why: str
) -> None:
    told: list[str] = []
    both = [contender("ar", lambda _: took(1.0)), other]
    assert [one.name for one in warm(both, PROMPTS[:1], told.append).contenders] == ["ar"]
    assert told == [f"{other.name} is left out: {why}"]


def test_a_method_of_our_own_that_fails_fails_the_measurement() -> None:
    with pytest.raises(ValueError, match="no static cache"):
        warm([contender("ar", refuses)], PROMPTS[:1], pytest.fail)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError(), MemoryError()], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("foreign", [True, False])
def test_full_memory_is_told_as_such(foreign: bool, error: Exception) -> None:  # noqa: FBT001 - a parameter of the test
    def overflow(_ids: list[int]) -> Tally:
        raise error

    with pytest.raises(DeviceError, match="memory of cpu is full; choose smaller models"):
        warm([contender("ar", overflow, foreign=foreign)], PROMPTS[:1], pytest.fail)


@pytest.mark.parametrize(
    ("waits", "turn", "waited"),
    [
        pytest.param((0.5, 0.01), 2.0, 0.01, id="a disturbed turn is taken again"),
        pytest.param((0.5, 0.2, 0.4), 2.0, 0.2, id="without quiet, the least disturbed turn counts"),
        pytest.param((None,), 1.0, None, id="every turn counts where the system tells no waits"),
    ],
)
def test_a_turn_counts_by_how_long_it_waited_for_a_processor(
    waits: tuple[float | None, ...], turn: float, waited: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn takes a second, in some of which it waits."""
    clock, total, reports = iter(range(100)), 0.0, list[float | None]()
    for wait in waits:
        reports += [total, None if wait is None else total + wait]
        total += wait or 0.0
    ticks, decode_s = iter(reports), iter(float(number) for number in range(1, 100))
    monkeypatch.setattr("dynatui.lab.bench.protocol.waited_s", lambda: next(ticks))
    monkeypatch.setattr("dynatui.lab.bench.protocol.time.perf_counter", lambda: float(next(clock)))
    (sample,) = sampled([contender("ar", lambda _: took(next(decode_s)))], [[1]])
    assert (sample.tally.decode_s, sample.waited) == (turn, waited and pytest.approx(waited))
    assert (sample.tally.peak_bytes or 0) > 10_000_000


def test_a_sample_knows_how_much_of_its_text_must_be_ars() -> None:
    ar = contender("ar", lambda _: took(1.0))
    streaming = replace(contender("streaming", lambda _: took(1.0)), settings={"sinks": 1, "window": 4})
    found = sampled([ar, streaming], [[1], [1, 2, 3]])
    expected = {("ar", 0): WHOLE, ("ar", 1): WHOLE, ("streaming", 0): 5, ("streaming", 1): 3}
    assert {(sample.contender, sample.prompt): sample.same_until for sample in found} == expected


PROMPT = [5, 9, 17, 40, 3, 8, 61, 22]
T = 16
TIMES = ("prefill_s", "first_round_s", "decode_s", "draft_s", "verify_s", "commit_s")
TREE = DynaTree(d0=3, d_max=5)
RULES: dict[str, dict[str, Rules]] = {
    "ar": {},
    "linear": {"linear": Linear(3)},
    "fixed": {"fixed": Fixed(3, 2)},
    "dynatree": {"dynatree": TREE},
    "alg1": {"dynatree": TREE},
}


def counts(tally: Tally) -> dict[str, object]:
    """All fields except the times."""
    found = msgspec.structs.asdict(tally)
    return {key: value for key, value in found.items() if key not in TIMES} | {"distinct": tally.log.distinct}


@pytest.fixture(scope="module")
def engine(tiny_models: TinyModels) -> Engine:
    return tiny_models.loaded(tiny_models.pair("neox"), "float32")


@pytest.mark.parametrize("method", [*RULES, "generate", "assisted"])
def test_a_cut_has_the_rounds_and_tokens_of_a_run_that_ends_there(method: str, engine: Engine) -> None:
    """Assisted generation drafts only as many tokens in its last burst as fit, so counts of drafted tokens differ."""

    def of_length(length: int) -> Contender:
        config = RunConfig(max_new_tokens=length, parameters=RULES.get(method, {}))
        foreign = {"generate": 0, "assisted": 3}
        return (
            baselines(engine.pair, config)[foreign[method]]
            if method in foreign
            else own(method, method, method, config)
        )

    trial = of_length(T).run(engine, PROMPT)
    for length in range(1, T + 1):
        found, shorter = cut(trial, length), of_length(length).run(engine, PROMPT).tally
        assert (tuple(found.tokens), found.rounds) == (tuple(shorter.tokens), shorter.rounds), length
        assert method == "assisted" or counts(found) == counts(shorter), length


def test_a_cut_has_the_times_at_the_end_of_its_last_round_and_the_peak_of_the_whole_turn() -> None:
    def burst(t: float, tokens: int) -> Round:
        return as_round("ar", 0, Outcome(TokenTree([0]), committed=list(range(tokens))), t)

    several = DecodedText(Tally(), [burst(t, 3) for t in (1.0, 2.0, 3.0)])
    found = cut(several, 4)
    assert (found.rounds, found.decode_s, found.timed_tokens, tuple(found.tokens)) == (2, 2.0, 4, (0, 1, 2, 0))
    at_once = DecodedText(Tally(peak_bytes=7), [burst(0.0, 5)])
    assert cut(at_once, 2).timed_tokens == 0, "tokens that came with the prompt have no time"
    cuts = totals_at(at_once, (2, 4, 9))
    assert [(len(each.tokens), each.peak_bytes) for each in cuts] == [(2, None), (4, None), (5, 7)]
    assert totals_at(at_once, ()) == ()
