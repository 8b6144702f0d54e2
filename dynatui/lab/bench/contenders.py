"""Contenders of a benchmark: each has a name and a function that decodes and times one text.

Methods of this project run in the same sessions as in the terminal app and in the library. This module does not depend
on prompts or statistics.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from decoder.analysis.metrics import Tally, tally_round
from decoder.engine import Engine
from decoder.errors import LogitsError
from decoder.events import Round
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from decoder.run.config import RunConfig
from decoder.session.protocol import Outcome
from decoder.system.device import Stopwatch
from dynatui.lab.bench.instrumented import InstrumentedEngine, Seen, kv_bytes, waits

PromptRead = Callable[[torch.device], None]
"""Callback that is called between prefill and first round, outside all timed sections; its argument is the device."""
BASELINE = "ar"
"""Name of plain decoding, the contender with which the texts and speeds of all other contenders are compared."""
INEXACT = "not exact"
"""Group of the contenders that decode without batch-invariant passes, to show the cost of exactness."""
PROMPT_LOOKUP = "prompt lookup"


@dataclass(frozen=True)
class Trial:
    """Result of decoding one text to its end."""

    tally: Tally
    after: tuple[Tally, ...] = ()
    """Totals after each round, from which the figures of shorter texts are computed."""
    seen: Seen | None = None
    """Time and work of both models after prefill; None if unknown."""
    kv_bytes: int | None = None
    """Allocated bytes of both models' KV caches; None if unknown."""
    waits: int | None = None
    """Number of times that the host waited for the device during rounds; None if not counted."""


@dataclass(frozen=True)
class Contender:
    """One method or baseline under one setting."""

    name: str
    group: str
    """Method or baseline that this contender runs; equal to `name` if it is measured in one setting only."""
    run: Callable[[Engine, Sequence[int]], Trial]
    """Decodes a prompt's text to its end."""
    settings: Mapping[str, Any]
    foreign: bool = False
    """Whether the contender may reject a model, a setting or a machine; after a rejection, it is left out."""


def nothing(_device: torch.device) -> None:
    pass


def is_adaptive(group: str) -> bool:
    return group in METHODS and isinstance(METHODS[group].own, AdaptiveTree)


def own(name: str, group: str, method: str, config: RunConfig, prompt_read: PromptRead = nothing) -> Contender:
    """Contender of a registered method with its parameters; `prompt_read` is called after each prefill."""
    parameters = METHODS[method].parameters(config)
    return Contender(name, group, lambda engine, ids: decoded(engine, ids, method, config, prompt_read), parameters)


def sweep(
    methods: Sequence[str],
    config: RunConfig,
    settings: Mapping[str, Mapping[str, TunableParameters]],
) -> list[Contender]:
    """Contenders of every method under each of its settings; method `ar` comes first, even if it is not named.

    `settings` has parameters by method, then by the suffix of the contender's name; `config` has the others.
    """
    contenders = [own(BASELINE, BASELINE, BASELINE, config)]
    for method in methods:
        if method == BASELINE:
            continue
        runs = {label: config.with_rules(method, rules) for label, rules in settings.get(method, {}).items()}
        contenders += [
            own(f"{method} {label}".strip(), method, method, run) for label, run in (runs or {"": config}).items()
        ]
    return contenders


def inexact(contenders: Sequence[Contender], engine: Engine) -> list[Contender]:
    """Copies of `ar` and of all adaptive trees; the copies decode on `engine`, whose passes are not batch-invariant."""

    def run(contender: Contender) -> Callable[[Engine, Sequence[int]], Trial]:
        return lambda _, prompt_ids: contender.run(engine, prompt_ids)

    return [
        replace(one, name=f"{one.name} ~", group=INEXACT, run=run(one), settings={**one.settings, "exact": False})
        for one in contenders
        if one.group == BASELINE or is_adaptive(one.group)
    ]


def decoded(
    engine: Engine,
    prompt_ids: Sequence[int],
    method: str,
    config: RunConfig,
    prompt_read: PromptRead = nothing,
) -> Trial:
    """Decodes one text to its end.

    The clock is read outside the session, so that all of a session's work is timed; the session reports the times of
    the parts of a round. The device is synchronised only before and after the prefill, and before the first and after
    the last round. If the sum of the rounds' reported times exceeds the clock's time, part of the rounds' work ran
    before the clock started; the sum is then used.

    Raises:
        LogitsError: The target's logits leave no choice, so there is no text whose decoding could be timed.
    """
    clock, instrumented = Stopwatch(engine.pair.target.device), InstrumentedEngine(engine)
    opened = clock.now()
    session = METHODS[method].open(instrumented.engine, prompt_ids, config)
    outcomes: list[tuple[Outcome, float]] = []
    try:
        session.prefill()
        prefill_s = clock.now() - opened
        prompt_read(engine.pair.target.device)
        started, before = clock.now(), instrumented.seen()
        while not outcomes or not outcomes[-1][0].finished:
            outcome = session.step(())
            outcomes.append((outcome, time.perf_counter() - started))
        ended = max(clock.now() - started, sum(outcome.round_s for outcome, _ in outcomes))
        after, kept, waited = instrumented.seen(), kv_bytes(session), waits(session)
    except LogitsError as error:
        raise LogitsError(f"round {len(outcomes) + 1} of {method}", engine.pair.dtype) from error
    finally:
        session.close()
    outcomes[-1] = (outcomes[-1][0], ended)
    tallies = running(prefill_s, method, outcomes)
    return Trial(tallies[-1], tallies, after.since(before) if after and before else None, kept, waited)


def running(prefill_s: float, method: str, outcomes: Iterable[tuple[Outcome, float]]) -> tuple[Tally, ...]:
    """Totals after each round; `outcomes` has each outcome with its end in seconds since the first round began."""
    rounds = (as_round(method, number, outcome, t) for number, (outcome, t) in enumerate(outcomes))
    return tuple(accumulate(rounds, tally_round, initial=Tally(prefill_s=prefill_s)))[1:]


def as_round(method: str, number: int, outcome: Outcome, t: float) -> Round:
    """Outcome as a `Round` for `decoder.analysis.metrics`; fields that metrics do not read have placeholder values."""
    return Round(
        method=method,
        round=number,
        position=0,
        t=t,
        wall_s=t,
        draft_s=outcome.draft_s,
        verify_s=outcome.verify_s,
        commit_s=outcome.commit_s,
        target_forwards=outcome.target_forwards,
        draft_forwards=outcome.draft_forwards,
        tokens=outcome.tree.tokens,
        parents=outcome.tree.parents,
        logprobs=outcome.tree.logprobs,
        pieces=[""] * len(outcome.tree.tokens),
        accepted=outcome.accepted[
            : len(outcome.committed) - 1
        ],  # the last token is the target's own, not an accepted token
        committed=outcome.committed,
        text="",
    )
