"""Races of all methods on all kinds of pairs and settings, each with the text that plain decoding writes.

The text is computed by the target's plain module without a cache, one pass per token, with noise added number by number
(`tests.sampled_reference`). Where a race has rounding of its own, its methods write the text of its `ar`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, product
from typing import Any

from decoder import DynaTree, Fixed, Linear, RunConfig, load_pair
from decoder.engine import Engine
from decoder.methods import METHODS
from decoder.methods.bestfirst import BestFirst
from decoder.methods.delayed import Delayed
from decoder.methods.eagle2 import Eagle2
from decoder.sampling.settings import SAMPLING, Sampling
from decoder.verify.names import VERIFIER_NAMES
from tests import heads, tiny
from tests.decoder import mtp_checkpoints as mtp
from tests.decoder.makers import PROMPT, TinyModels, methods_of, with_pair
from tests.decoder.session.all_methods import LIVELY, Turns
from tests.decoder.session.made_costs import FREE, priced, some_costs, some_rules
from tests.reference import greedy
from tests.sampled_reference import SampledOracle

GREEDY, WARM = Sampling(), Sampling(0.7)
ALL = tuple(METHODS)
COUPLED = tuple(name for name, method in METHODS.items() if not method.own_noise and name != "delayed")
OF_TREES = ("ar", "linear", "fixed", "bestfirst", "eagle2", "dynatree", "auto")
"""Methods that draft with a head."""
WITHOUT_MODEL = tuple(name for name, method in METHODS.items() if not method.needs_model)
EXACT = tuple(name for name in WITHOUT_MODEL if METHODS[name].same_until is None)
GUESSES = "A small model guesses; "
TWICE = f"{tiny.SENTENCES[2]} {tiny.SENTENCES[2]}"
DIGITS = "0123456789" * tiny.CONTEXT
"""Each digit is one token."""
REPEATING = heads.name("neox", "flat")
"""A target that often repeats itself, so that some lookups are accepted."""
BUSHY = DynaTree(branching=(2, 3, 4), rho_stop=0, rho_deep=0, tau=0, d0=3, d_max=4, n_max=60)
SHAPES = (1, 0, 0), (1, 0, 3), (2, 0, 3), (3, 2, 2), (4, 1, 0)
Make = Callable[[TinyModels, str, str], Engine]
"""(models, name of a pair, dtype) -> engine."""


def usual(models: TinyModels, pair: str, dtype: str) -> Engine:
    return models.engine(pair, dtype)


@dataclass(frozen=True)
class Race:
    pair: str
    config: RunConfig
    prompt: str
    dtype: str
    make: Make
    rounds_apart: bool
    """Whether passes round otherwise than those of the plain module, or knobs are turned that change the text."""
    turns: Turns
    """Of the last method."""

    def __str__(self) -> str:
        methods = ",".join(self.config.methods)
        return f"{self.pair}, {self.dtype}, {methods}, T {self.config.sampling.temperature:g}, {self.prompt[:12]}"

    def engine(self, models: TinyModels) -> Engine:
        return self.make(models, self.pair, self.dtype)

    def text(self, models: TinyModels) -> list[int] | None:
        """The text of plain decoding; None if only the text of `ar` is known."""
        if self.rounds_apart:
            return None
        pair, config = models.pair(self.pair), self.config
        key = ("plain text", pair.target, self.dtype, self.prompt, config.sampling, config.seed, config.max_new_tokens)
        return models._once(key, lambda: self._computed(models.plain(pair.target, self.dtype), models))

    def _computed(self, module: Any, models: TinyModels) -> list[int]:
        oracle = SampledOracle(module, module, tiny.CONTEXT, sampling=self.config.sampling, seed=self.config.seed)
        prompt = models.prompt_tokens(models.pair(self.pair), self.prompt)
        return greedy(oracle, prompt, self.config.max_new_tokens)


def race(
    pair: str,
    methods: tuple[str, ...] = ALL,
    count: int = 24,
    sampling: Sampling = GREEDY,
    *,
    seed: int = 3,
    prompt: str = PROMPT,
    dtype: str = "float32",
    make: Make = usual,
    rounds_apart: bool = False,
    turns: Turns | None = None,
    **given: Any,
) -> Race:
    config = RunConfig(methods, count, seed, parameters={SAMPLING: sampling}, **given)
    return Race(pair, config, prompt, dtype, make, rounds_apart, turns or {})


def alone(models: TinyModels, pair: str, dtype: str) -> Engine:
    """The target without a draft model."""
    return with_pair(models.engine(pair, dtype), draft=None)


def looking_up(models: TinyModels, pair: str, dtype: str) -> Engine:
    """The target without its head, where lookups pay."""
    return priced(with_pair(models.engine(pair, dtype), head=None), FREE)


def costing(luck: random.Random) -> Make:
    """The pair with random costs."""
    costs = some_costs(luck)
    return lambda models, pair, dtype: priced(models.engine(pair, dtype), costs)


def free(models: TinyModels, pair: str, dtype: str) -> Engine:
    """The pair whose drafts cost nothing."""
    return priced(models.engine(pair, dtype), FREE)


def exact(models: TinyModels, pair: str, dtype: str) -> Engine:
    return models.engine(pair, dtype).batch_invariant()


def drafting_in(draft_dtype: str, **how: Any) -> Make:
    """The pair with a draft in a dtype of its own."""

    def load(models: TinyModels, pair: str, dtype: str) -> Engine:
        names = models.pair(pair)
        return load_pair(str(names.target), str(names.draft), device="cpu", dtype=dtype, draft_dtype=draft_dtype, **how)

    return load


def of_costs() -> list[Race]:
    """Any costs and rules of `auto`, beside lookups."""
    found = []
    for family, kinship, seed in product(tiny.FAMILIES, ("", "-strange"), range(4)):
        luck = random.Random(f"{seed} {family} {kinship}")
        make, rules = costing(luck), some_rules(luck)
        found.append(
            race(family + kinship, ("ar", "auto"), 40, (GREEDY, WARM)[seed % 2], prompt=(TWICE, PROMPT)[seed // 2],
                 dtype="float64", make=make, auto=rules)
        )  # fmt: skip
    return found


def of_heads() -> list[Race]:
    drafting: dict[str, Any] = {"dynatree": BUSHY, "bestfirst": BestFirst(12, 4)}
    flat: dict[str, Any] = {
        "linear": Linear(2),
        "fixed": Fixed(2),
        "bestfirst": BestFirst(8, 2),
        "dynatree": replace(BUSHY, d0=1, d_max=2),
    }

    def headed(pair: str, sampling: Sampling = GREEDY, count: int = 12, **given: Any) -> Race:
        return race(pair, OF_TREES, count, sampling, prompt=GUESSES, **drafting | given)

    return [
        *(headed(heads.name(family, "flat"), dtype="float64") for family in tiny.FAMILIES),
        *(headed(heads.name(family, "z-lab"), dtype="float64") for family in tiny.FAMILIES),
        *(
            headed(mtp.name(family), sampling, 16)
            for family, sampling in zip(mtp.FAMILIES, cycle((GREEDY, Sampling(0.8))), strict=False)
        ),
        headed(heads.name("llama", "flat"), Sampling(0.6)),
        headed(heads.name("llama", "nested, layers of Qwen3"), Sampling(1.2, 30, 0.9)),
        headed(heads.name("llama", "DeepSpec"), Sampling(0.6)),
        headed(heads.name("llama", "DeepSpec"), Sampling(1.2, 30, 0.9)),
        headed(heads.name("llama", "P-EAGLE"), count=140),
        headed(heads.name("qwen3", "DeepSpec, rnn"), Sampling(0.6), 140),
        headed(heads.name("neox", "P-EAGLE, flat"), Sampling(0.8), 24),
        headed(mtp.name("glm4_moe"), count=200, **flat),
        *(
            headed(pair, count=16, dtype=dtype, make=exact, rounds_apart=True)
            for pair, dtype in (
                (heads.name("llama", "nested"), "bfloat16"),
                (heads.name("gpt2", "nested"), "bfloat16"),
                (heads.name("neox", "z-lab"), "float32"),
                (heads.name("qwen3", "z-lab"), "bfloat16"),
                (mtp.name("glm4_moe"), "bfloat16"),
            )
        ),
    ]


def of_verifiers() -> list[Race]:
    """At temperature 0, sampled trees of any verifier and shape."""
    return [
        race("neox", ("ar", "delayed"), dtype="float64", delayed=Delayed(name, "delayed", k, l1, l2))
        for name, (k, l1, l2) in product(VERIFIER_NAMES, SHAPES)
        if name != "block" or k == 1 or not l2
    ]


def of_lookups() -> list[Race]:
    """Drafts from the text so far, without a draft model and beside one."""
    return [
        *(
            race(family, tuple(name for name in methods_of(family) if name in EXACT), prompt=TWICE, make=alone)
            for family in tiny.FAMILIES
        ),
        *(
            race("neox", EXACT, 40, sampling, seed=seed, prompt=TWICE, make=alone)
            for sampling, seed in product((WARM, Sampling(1.0, 0, 0.9)), range(2))
        ),
        race("neox", ("linear", "ar"), 40, WARM, prompt=TWICE, make=alone, verifier="nss"),
        *(
            race(pair, methods, 48, sampling, prompt=prompt, dtype="float64", make=make)
            for prompt, sampling, (pair, methods, make) in product(
                ("a", "a a"),
                (GREEDY, WARM),
                ((REPEATING, EXACT, looking_up), ("neox", ("ar", "auto"), free), (REPEATING, ("ar", "auto"), free)),
            )
        ),
    ]


HEATS: Turns = {
    2: [("temperature", 0.8)], 6: [("temperature", 0.0)], 9: [("temperature", 1.3)], 14: [("top_p", 0.6)],
}  # fmt: skip
SWITCHED: Turns = {3: [("lookup", 0)], 8: [("lookup", 1)], 12: [("lookup", 0)], 13: [("lookup", 1)]}


def of_turns() -> list[Race]:
    """Temperatures and lookups that are turned in the middle of a text."""
    turned = partial(race, count=48, prompt=TWICE, dtype="float64", rounds_apart=True)
    luck = random.Random(0)
    return [
        *(turned(REPEATING, EXACT, sampling=sampling, seed=seed, make=looking_up, turns=HEATS)
          for sampling, seed in ((GREEDY, 0), (WARM, 1))),
        *(turned(pair, ("ar", "auto"), sampling=sampling, seed=seed, make=costing(luck), turns=HEATS)
          for pair in ("neox", "neox-strange", REPEATING, heads.name("llama", "nested"))
          for sampling, seed in ((GREEDY, 0), (WARM, 1))),
        *(turned(pair, ("ar", "auto"), sampling=sampling, make=make, turns=SWITCHED)
          for sampling in (GREEDY, WARM)
          for pair, make in ((REPEATING, looking_up), ("neox", free), ("neox", costing(luck)))),
    ]  # fmt: skip


PAPER: dict[str, Any] = {"dynatree": DynaTree(history=False)}
FULL: dict[str, Any] = {
    "dynatree": DynaTree(rho_stop=0, rho_deep=0, tau=0, n_max=20),
    "fixed": Fixed(tau=0, n_max=20),
}
RACES = (
    *of_costs(),
    *of_heads(),
    *of_verifiers(),
    *of_lookups(),
    *of_turns(),
    race("neox", ALL, 40, seed=0, dynatree=LIVELY),
    race("neox-strange", COUPLED, 40, WARM, dynatree=LIVELY),
    # Texts longer than the attention windows, up to the end of the context, and short ones
    *(race(name, methods_of(name), prompt=tiny.SENTENCES[0], dtype="float64") for name in tiny.WINDOWED),
    *(
        race(name, tuple(each for each in COUPLED if each in methods_of(name)), 24, WARM, prompt=tiny.SENTENCES[0],
             dtype="float64")
        for name in tiny.WINDOWED
    ),
    *(race(name, methods_of(name), 12, prompt=DIGITS[: tiny.CONTEXT - 12], **FULL) for name in ("neox", "gpt2")),
    *(race("neox", COUPLED, limit, Sampling(0.9), prompt=GUESSES) for limit in (1, 2, 3)),
    *(
        race("neox", ("delayed",), limit, Sampling(1.0), rounds_apart=True,
             delayed=Delayed("traversal", "delayed", 3, 2, 4))
        for limit in (1, 2, 3)
    ),
    # Sampled texts
    race("neox", COUPLED, 24, Sampling(0.3), seed=0, prompt=GUESSES),
    race("neox-strange", COUPLED, 24, Sampling(0.8, 0, 0.9), prompt=GUESSES),
    race("neox-strange", COUPLED, 24, Sampling(1.0, 20), prompt=GUESSES),
    race("neox", COUPLED, 24, Sampling(2.0, 30, 0.7), seed=0, prompt=GUESSES),
    race("neox", EXACT, 40, Sampling(0.9, 0, 0.9), dtype="float64", verifier="nss"),
    # A target with more tokens than its draft
    race("wide-target", **PAPER),
    *(race("wide-target", COUPLED, 24, sampling, **PAPER) for sampling in (WARM, Sampling(1.0, 20, 0.9))),
    race("wide-target", COUPLED, dtype="bfloat16", make=exact, rounds_apart=True, **PAPER),
    # A draft in a dtype of its own
    *(
        race(family, COUPLED, 16, sampling, seed=0, make=drafting_in(dtype))
        for family, dtype, sampling in (
            *(("neox", "bfloat16", GREEDY), ("neox", "float16", Sampling(0.8)), ("neox", "float64", Sampling(0.8))),
            *(("llama", "float16", GREEDY), ("qwen3", "bfloat16", Sampling(0.8))),
        )
    ),
    race("neox", COUPLED, dtype="bfloat16", make=drafting_in("float16", exact=True), rounds_apart=True),
    # Small and large trees of best first, and a cache of streaming that holds the text
    *(
        race(name, ("bestfirst",), 40, prompt=GUESSES, bestfirst=rules)
        for name, rules in product(("neox", "neox-strange", "llama", "gpt2"), (BestFirst(1, 1), BestFirst(24, 3)))
    ),
    *(race(name, ("streaming",), 80, prompt="The tree") for name in ("neox", "llama", "qwen3")),
    # Beams of one node and of many, and chains that end before improbable tokens
    *(
        race(name, ("eagle2",), 40, sampling, prompt=GUESSES, eagle2=rules)
        for name, rules, sampling in product(
            ("neox", "neox-strange", "llama", "gpt2"), (Eagle2(4, 1, 3), Eagle2(3, 8, 40)), (GREEDY, WARM)
        )
    ),
    *(
        race(name, ("linear",), 40, sampling, prompt=GUESSES, verifier=verifier, linear=Linear(7, p_min))
        for name, p_min, (sampling, verifier) in product(
            ("neox", "llama"), (0.2, 0.6, 1.0), ((GREEDY, None), (WARM, None), (WARM, "nss"))
        )
    ),
)  # fmt: skip
