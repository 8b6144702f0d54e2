"""What is compared: a name, and how to decode one text with it while a clock runs.

Own methods run through the sessions that screen and library use. Knows neither prompts nor statistics.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from decoder.analysis.metrics import Tally, tally_round
from decoder.bench.instrumented import InstrumentedEngine, Seen, kv_bytes, waits
from decoder.config import RunConfig
from decoder.device import Stopwatch
from decoder.engine import Engine
from decoder.events import Round
from decoder.knobs import TunableParameters
from decoder.methods import METHODS
from decoder.methods.adaptive import AdaptiveTree
from decoder.session.protocol import Outcome

PromptRead = Callable[[torch.device], None]
"""Called on a device between the prompt and the first round, outside of all that is timed."""
BASELINE = "ar"
"""What every other contender's text and speed are compared with."""
INEXACT = "not exact"
"""The group of those that show what exactness costs."""
PROMPT_LOOKUP = "prompt lookup"
"""The group of transformers' own lookups."""


@dataclass(frozen=True)
class Trial:
    """One text, decoded to its end."""

    tally: Tally
    after: tuple[Tally, ...] = ()
    """The totals after each round, from which follows what a shorter text would have taken."""
    seen: Seen | None = None
    """What both models did after the prompt; None where it cannot be known."""
    kv_bytes: int | None = None
    """What keys and values of both models take, where it is known."""
    waits: int | None = None
    """How often the host waited for the device in rounds, where it is counted."""


@dataclass(frozen=True)
class Contender:
    """One way to decode."""

    name: str
    group: str
    """What it is one setting of, for example linear; its own name where there is but one."""
    run: Callable[[Engine, Sequence[int]], Trial]
    """(engine, prompt ids) -> what decoding the text to its end took."""
    settings: Mapping[str, Any]
    """All its parameters."""
    foreign: bool = False
    """Whether it may refuse a model, a setting or a machine, and is then left out."""


def nothing(_device: torch.device) -> None:
    """Nobody has anything to do between the prompt and the rounds."""


def is_adaptive(group: str) -> bool:
    """Whether a group is a method that drafts adaptive trees."""
    return group in METHODS and isinstance(METHODS[group].own, AdaptiveTree)


def own(name: str, group: str, method: str, config: RunConfig, prompt_read: PromptRead = nothing) -> Contender:
    """A method of this engine with its parameters; `prompt_read` is called each time that one was."""
    parameters = METHODS[method].parameters(config)
    return Contender(name, group, lambda engine, ids: decoded(engine, ids, method, config, prompt_read), parameters)


def sweep(
    methods: Sequence[str],
    config: RunConfig,
    settings: Mapping[str, Mapping[str, TunableParameters]],
) -> list[Contender]:
    """Every method once with each of its settings; ar first, whether it is named or not.

    Args:
        methods: Names from the registry.
        config: The length limit, and parameters of methods without settings.
        settings: Parameters by method, then by what tells them apart in a contender's name.
    """
    found = [own(BASELINE, BASELINE, BASELINE, config)]
    for method in methods:
        if method == BASELINE:
            continue
        runs = {label: config.with_rules(method, rules) for label, rules in settings.get(method, {}).items()}
        found += [
            own(f"{method} {label}".strip(), method, method, run) for label, run in (runs or {"": config}).items()
        ]
    return found


def inexact(contenders: Sequence[Contender], engine: Engine) -> list[Contender]:
    """The same for ar and every adaptive tree, on a pair that is not exact."""

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

    The clock that counts stands outside of the session, so that nothing a session does escapes it; what a method says
    of the parts of its rounds is taken over. The device is waited for at the beginning and at the end alone. Where the
    rounds own up to more time than this clock saw, some of it lay before it started, and counts.
    """
    clock, watched = Stopwatch(engine.pair.target.device), InstrumentedEngine(engine)
    opened = clock.now()
    session = METHODS[method].open(watched.engine, prompt_ids, config)
    outcomes: list[tuple[Outcome, float]] = []
    try:
        session.prefill()
        prefill_s = clock.now() - opened
        prompt_read(engine.pair.target.device)
        started, before = clock.now(), watched.seen()
        while not outcomes or not outcomes[-1][0].finished:
            outcome = session.step(())
            outcomes.append((outcome, time.perf_counter() - started))
        ended = max(clock.now() - started, sum(outcome.round_s for outcome, _ in outcomes))
        after, kept, waited = watched.seen(), kv_bytes(session), waits(session)
    finally:
        session.close()
    outcomes[-1] = (outcomes[-1][0], ended)
    tallies = running(prefill_s, method, outcomes)
    return Trial(tallies[-1], tallies, after.since(before) if after and before else None, kept, waited)


def running(prefill_s: float, method: str, outcomes: Iterable[tuple[Outcome, float]]) -> tuple[Tally, ...]:
    """The totals after each round, from its outcome and the seconds since the first began."""
    rounds = (as_round(method, number, outcome, t) for number, (outcome, t) in enumerate(outcomes))
    return tuple(accumulate(rounds, tally_round, initial=Tally(prefill_s=prefill_s)))[1:]


def as_round(method: str, number: int, outcome: Outcome, t: float) -> Round:
    """A round as `decoder.analysis.metrics` counts it, without what only a reader needs."""
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
        accepted=outcome.accepted[: len(outcome.committed) - 1],  # the last one is counted as the target's own
        committed=outcome.committed,
        text="",
    )
