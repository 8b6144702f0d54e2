"""A cut of a run equals a shorter run."""

from collections.abc import Callable

import msgspec
import pytest
from msgspec import structs

from decoder.analysis.metrics import Tally
from decoder.append_only import TokenLog
from decoder.engine import Engine
from decoder.methods.dynatree import DynaTree
from decoder.methods.fixed import Fixed
from decoder.methods.linear import Linear
from decoder.run.config import RunConfig
from decoder.tree_rules import Rules
from dynatui.lab.bench.baselines import baselines
from dynatui.lab.bench.contenders import Contender, Trial, own
from dynatui.lab.bench.protocol import cut, totals_at
from tests.decoder.makers import TinyModels

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


def same_as_shorter_runs(engine: Engine, of_length: Callable[[int], Contender]) -> None:
    after = of_length(T).run(engine, PROMPT).after
    for length in range(1, T + 1):
        shorter = of_length(length).run(engine, PROMPT).tally
        assert counts(cut(after, length)) == counts(shorter), length


@pytest.mark.parametrize("method", RULES)
def test_a_cut_has_the_rounds_and_tokens_of_a_run_that_ends_there(method: str, engine: Engine) -> None:
    def of_length(length: int) -> Contender:
        return own(method, method, method, RunConfig(max_new_tokens=length, parameters=RULES[method]))

    same_as_shorter_runs(engine, of_length)


def test_so_has_one_of_transformers_own_generation(engine: Engine) -> None:
    same_as_shorter_runs(engine, lambda length: baselines(engine.pair, RunConfig(max_new_tokens=length))[0])


def test_one_of_assisted_generation_has_its_tokens(engine: Engine) -> None:
    """Counts of drafted tokens may differ, since transformers drafts only as many tokens in the last burst as fit."""
    assisted = baselines(engine.pair, RunConfig(max_new_tokens=T))[3]
    after = assisted.run(engine, PROMPT).after
    for length in range(1, T + 1):
        shorter = baselines(engine.pair, RunConfig(max_new_tokens=length))[3].run(engine, PROMPT).tally
        found = cut(after, length)
        assert (tuple(found.tokens), found.rounds) == (tuple(shorter.tokens), shorter.rounds), length


def test_times_are_those_at_the_end_of_the_last_round() -> None:
    after = tuple(
        Tally(rounds=number, decode_s=float(number), timed_tokens=3 * number, log=TokenLog().plus(range(3 * number)))
        for number in (1, 2, 3)
    )
    found = cut(after, 4)
    assert (found.rounds, found.decode_s, found.timed_tokens, tuple(found.tokens)) == (2, 2.0, 4, (0, 1, 2, 3))


def test_tokens_that_came_with_the_prompt_have_no_time() -> None:
    burst = Tally(rounds=1, timed_tokens=0, log=TokenLog().plus(range(5)))
    assert cut((burst,), 2).timed_tokens == 0


def test_a_text_that_ended_before_is_whole() -> None:
    whole = Tally(rounds=1, timed_tokens=2, log=TokenLog().plus((1, 2)))
    assert cut((whole,), 9) is whole


def test_the_peak_of_memory_is_of_the_whole_turn() -> None:
    tally = Tally(rounds=1, log=TokenLog().plus(range(8)))
    found = totals_at(Trial(structs.replace(tally, peak_bytes=7), (tally,)), (2, 6, 8))
    assert [each.peak_bytes for each in found] == [None, None, 7]
