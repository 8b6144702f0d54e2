"""Each round records the rule that limited the tree at its most probable leaf."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from decoder import DynaTree, Fixed, Linear, RunConfig, decode
from decoder.events import LENGTH, LOST, OTHER_LIMITS, Limit
from decoder.methods.auto import Auto
from decoder.run.lane import limited_by
from decoder.tree import TokenTree
from decoder.tree_rules import Rules, least_probability
from tests.decoder.makers import Played, TinyModels, host_session, with_pair

PROMPT = "The tree grows"
FAR = 99
"""More levels than any tree of these tests has."""
WIDE = DynaTree(d0=5, rho_stop=0.01, rho_deep=0.5, tau=0, n_max=99, selection="best")


def chain(*logprobs: float) -> TokenTree:
    """A path of drafted nodes."""
    tree = TokenTree([0])
    for logprob in logprobs:
        tree.add(len(tree) - 1, 1, logprob)
    return tree


LIMITS: dict[str, tuple[Rules, Sequence[float], int, Limit]] = {
    "too deep for all": (replace(WIDE, d_max=6), [0.0] * 6, FAR, "d_max"),
    "too deep for an improbable path": (replace(WIDE, d0=2), [-1.0, -1.0], FAR, "d0"),
    "as deep as D0 and probable, but the tree is full": (replace(WIDE, d0=2), [-0.1, -0.1], FAR, "n_max"),
    "too improbable": (WIDE, [-1.0, -4.0], FAR, "rho_stop"),
    "too improbable for tau": (replace(WIDE, tau=0.2), [-1.0, -1.0], FAR, "tau"),
    "rho_stop and tau alike": (replace(WIDE, tau=0.2, rho_stop=0.2), [-1.0, -1.0], FAR, "rho_stop"),
    "too improbable and as deep as D0: a greater D0 would not help": (replace(WIDE, d0=1), [-5.0], FAR, "rho_stop"),
    "no room in the context": (WIDE, [-0.1, -0.1], 2, "context"),
    "neither room nor permission": (replace(WIDE, d_max=6), [0.0] * 6, 6, "context"),
    "allowed, but it does not pay": (Auto(), [-0.1], FAR, "cost"),
    "nothing drafted, since nothing pays": (Auto(), [], FAR, "cost"),
    "a bound of the automatic tree": (Auto(d0=1, rho_deep=0.5), [-1.0], FAR, "d0"),
    "a whole chain": (Linear(2), [-9.0, -9.0], FAR, "k"),
    "a chain at the end of the context": (Linear(9), [-9.0, -9.0], 2, "context"),
    "a whole fixed tree": (Fixed(depth=2), [-0.1, -0.1], FAR, "fixed_depth"),
    "an improbable path of a fixed tree": (Fixed(), [-1.0, -4.0], FAR, "fixed_tau"),
    "a full fixed tree": (Fixed(n_max=2), [-0.1, -0.1], FAR, "n_max"),
}


@pytest.mark.parametrize(("rules", "logprobs", "room", "expected"), LIMITS.values(), ids=LIMITS)
def test_the_limit_of_a_path_is_named(rules: Rules, logprobs: Sequence[float], room: int, expected: Limit) -> None:
    assert limited_by(rules, chain(*logprobs), room) == expected
    own = {"d_max", "d0", "n_max", "rho_stop", "tau", "k", "fixed_depth", "fixed_tau"}
    assert {limit for *_, limit in LIMITS.values()} == own | (OTHER_LIMITS - {LENGTH, LOST}), "every limit is named"


def test_of_several_leaves_the_most_probable_one_counts() -> None:
    tree = TokenTree([0])
    likely, unlikely = tree.grow(0, [1, 2], [-0.2, -6.0])
    tree.grow(likely, [3, 4], [-1.0, -1.5])
    assert limited_by(replace(WIDE, d0=2), tree, FAR) == "d0"
    assert limited_by(replace(WIDE, d0=2), tree.subtree([0, unlikely]), FAR) == "rho_stop"


YIELDING: dict[Limit, dict[str, Any]] = {
    "d_max": {"d_max": 9},
    "d0": {"rho_deep": 0.0},
    "rho_stop": {"rho_stop": 0.0, "rho_deep": 0.0},
    "tau": {"tau": 0.0},
}
"""By rule, the values with which it limits none of these trees."""


def test_no_rule_but_the_named_one_can_let_the_leaf_grow() -> None:
    for seed in range(60):
        luck = random.Random(seed)
        tree = chain(*(luck.choice([-0.05, -0.7, -2.0]) for _ in range(luck.randint(1, 4))))
        d_max = luck.randint(2, 4)
        rules = DynaTree(
            d0=luck.randint(1, d_max - 1),
            d_max=d_max,
            rho_stop=luck.choice([0.0, 0.1, 0.4]),
            rho_deep=luck.choice([0.4, 0.9]),
            tau=luck.choice([0.0, 0.05, 0.5]),
        )
        named, depth, chance = limited_by(rules, tree, FAR), tree.depths[-1], tree.path_probability(len(tree) - 1)
        if named == "n_max":
            assert chance >= least_probability(rules.rule().growth, depth)
            continue
        others: dict[str, Any] = {}
        for other, values in YIELDING.items():
            others |= values if other != named else {}
        if named == "rho_stop":  # rho_deep must not be smaller
            others["rho_deep"] = rules.rho_stop
        if named == "d0":  # rho_deep is the threshold beyond D0
            others["rho_deep"] = rules.rho_deep
        yielded = replace(rules, **others)
        assert not chance >= least_probability(yielded.rule().growth, depth)
        assert chance >= least_probability(replace(yielded, **YIELDING[named]).rule().growth, depth)


def test_the_end_of_the_context_limits_the_last_trees_and_the_length_what_is_told(
    tiny_models: TinyModels,
) -> None:
    prompt, rules = tiny_models.prompt_tokens(tiny_models.pair("neox"), PROMPT), Linear(11)
    short = with_pair(tiny_models.loaded(tiny_models.pair("neox"), "float32"), context=len(prompt) + 12)
    session = host_session(short, prompt, 12, rules)
    session.prefill()
    outcomes = [session.step(())]
    while not outcomes[-1].finished:
        outcomes.append(session.step(()))
    drafted = [limited_by(rules, outcome.tree, outcome.room) for outcome in outcomes]
    told = Played(list(decode(short, PROMPT, RunConfig(("linear",), 12, linear=rules)))).rounds("linear")
    assert (drafted[0], drafted[-1]) == ("k", "context")
    assert (told[0].limited_by, told[-1].limited_by) == ("k", LENGTH)
