"""Which draft, and how many tokens of it, at which load: from a profile and the costs of passes. Writes no text."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import msgspec
from msgspec import structs

from decoder.errors import ConfigError, quoted
from dynatui.servers.cost_source import CostSource
from dynatui.servers.engines.engine import Band, Commands, Deployment, Engine, Rule, Tree, commands
from dynatui.servers.load import LoadCosts, LoadCurve, Round
from dynatui.servers.load import chain as chain_round
from dynatui.servers.profile_file import Acceptance, Chain, DraftProfile, Grouped, Profile

MOST_STREAMS = 1024
LOADS = (1, 4, 16, 64, 256, 1024)
_MEMORY_SHARE = 0.9
"""Of a device's memory, for weights and KV cache."""
_ALIKE = 0.01
"""A speed-up that is smaller by less than this share counts as equal, if it drafts fewer tokens."""
_KEPT = 0.02
"""A number of tokens is kept at further loads while it is slower than the best by less than this share."""
_CONTEXTS = {"<1k": 512, "<4k": 2048, "<16k": 8192, ">=16k": 32768}
"""A length of text, in tokens, for each group of the profile."""
_CHILDREN = (2, 3, 4)
_SHOWN_CURVES = (1, 3, 5, 8)


class ChainAdvice(msgspec.Struct, frozen=True, kw_only=True):
    k: int
    length: float
    interval: tuple[float, float] | None
    speedups: tuple[float, ...]
    """At `Advice.loads`."""
    break_even: tuple[float, ...]
    """Tokens a round from which drafts pay, at `Advice.loads`."""


class ContextAdvice(msgspec.Struct, frozen=True, kw_only=True):
    context: str
    """A group of the profile, or "all"."""
    best: tuple[int, ...]
    speedups: tuple[float, ...]
    """With the best number of tokens, at `Advice.loads`."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts of at most `k` tokens that end before a token whose draft probability is below `p_min`."""

    p_min: float
    k: int
    drafted: float
    length: float
    survival: tuple[float, ...]
    speedups: tuple[float, ...]


class TreeBound(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a tree can reach: all right siblings and their continuations found, at the cost of a node each."""

    tree: Tree
    speedups: tuple[float, ...]
    pays: bool
    """Whether it can be faster than the best chain at any load."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    weights_bytes: float
    kv_bytes_per_token: float
    tokens: float | None = None
    """Of KV cache without the draft; None if the device's memory is unknown."""
    tokens_left: float | None = None


class DraftAdvice(msgspec.Struct, frozen=True, kw_only=True):
    draft: str
    kind: str
    rule: Rule
    chains: tuple[ChainAdvice, ...]
    bands: tuple[Band, ...]
    """The best number of tokens by load."""
    k: int
    """The best one for all loads; 0 if no draft pays on average."""
    gain: float
    """Geometric mean of the speed-ups over loads that double: by `bands` if the engine has them, else with `k`."""
    best: ContextAdvice
    contexts: tuple[ContextAdvice, ...]
    """By tokens of text before the round."""
    curve: LoadCurve
    stop: Stop | None = None
    """Only if it is faster than any fixed number of tokens."""
    tree: TreeBound | None = None
    memory: Memory | None = None

    @property
    def pays(self) -> bool:
        return self.gain > 1 + _ALIKE


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    target: str
    costs: str
    at_most: bool
    loads: tuple[int, ...]
    context: float
    """Mean tokens of text before a token of the prompts."""
    drafts: tuple[DraftAdvice, ...]
    """The best first."""
    left_out: dict[str, str]
    """Drafts without advice, and why."""
    deployment: Deployment | None
    """Of the best draft; None if no draft pays."""
    commands: Commands


def advised(
    profile: Profile, source: CostSource, engine: Engine, streams: tuple[int, int], category: str | None = None
) -> Advice:
    """For `streams`, the least and the largest number of running requests. Raises ConfigError if no draft has rounds of
    this category.
    """
    first, last = streams if engine.batches else (1, 1)
    loads = tuple(sorted({first, last, *(load for load in LOADS if first <= load <= last)}))
    left_out, drafts = dict(profile.draft_errors), list[DraftAdvice]()
    for name, draft in profile.drafts.items():
        if draft.kind not in engine.kinds:
            left_out[name] = f"{engine.title} does not draft with {_KINDS[draft.kind]}"
        elif name not in source.costs:
            left_out[name] = "the size of the draft is unknown, and so its time; give --step-ms and --draft-ms"
        elif category is not None and category not in draft.by_category:
            left_out[name] = f"no rounds of category {quoted(category)}"
        else:
            case = _Case(profile, name, draft, source, engine, loads, category)
            drafts.append(max((case.advice(rule) for rule in case.rules), key=lambda each: each.gain))
    if category is not None and not drafts:
        known = sorted({each for draft in profile.drafts.values() for each in draft.by_category})
        raise ConfigError(
            f"no draft has rounds of category {quoted(category)}; give one of {', '.join(known) or 'none'}"
        )
    drafts.sort(key=lambda each: -each.gain)
    best = drafts[0] if drafts and drafts[0].pays else None
    first_choice = drafts[0] if drafts else None
    basis = _deployment(profile, first_choice, engine, last, category) if first_choice else None
    deployment = basis if best else None
    tree = best.tree.tree if best and best.tree and best.tree.pays else None
    return Advice(
        target=profile.target,
        costs=source.words,
        at_most=source.at_most,
        loads=loads,
        context=profile.mean_context,
        drafts=tuple(drafts),
        left_out=left_out,
        deployment=deployment,
        commands=commands(
            engine, profile.target, last, deployment, (_with(basis, tree), _stopped(basis, first_choice))
        ),
    )


_KINDS = {
    "model": "models",
    "eagle3": "EAGLE-3 heads",
    "mtp": "MTP layers",
    "dflash": "DFlash heads",
    "lookup": "lookups",
}


def _deployment(profile: Profile, best: DraftAdvice, engine: Engine, most: int, category: str | None) -> Deployment:
    draft = profile.drafts[best.draft]
    bands = best.bands if draft.kind in engine.by_load else ()
    if bands:
        bands = (structs.replace(bands[0], first=1), *bands[1:])
    k = max(1, max((band.k for band in bands), default=best.k))
    chain = _grouped(draft, best.rule, category).at(k)
    return Deployment(
        target=profile.target,
        draft=best.draft,
        kind=draft.kind,
        levels_at_once=draft.levels_at_once or 1,
        k=k,
        bands=bands,
        most=most,
        survival=_of_drafts(chain),
        length=chain.mean_length,
        rule=best.rule,
    )


def _with(basis: Deployment | None, tree: Tree | None) -> Deployment | None:
    return structs.replace(basis, tree=tree) if basis and tree else None


def _stopped(basis: Deployment | None, best: DraftAdvice | None) -> Deployment | None:
    if basis is None or best is None or best.stop is None:
        return None
    stop = best.stop
    return structs.replace(basis, k=stop.k, p_min=stop.p_min, survival=stop.survival, length=stop.length, bands=())


def _of_drafts(chain: Chain) -> tuple[float, ...]:
    """Servers count rounds without a draft apart."""
    first = chain.drafted[0] if chain.drafted and chain.drafted[0] else 1.0
    return tuple(min(1.0, rate / first) for rate in chain.survival)


def _grouped(draft: DraftProfile, rule: Rule, category: str | None) -> Acceptance:
    grouped: Grouped = draft.probabilistic if rule == "probabilistic" and draft.probabilistic else draft
    return grouped if category is None else grouped.by_category[category]


@dataclass(frozen=True)
class _Case:
    """One draft of a profile, for one engine."""

    profile: Profile
    name: str
    draft: DraftProfile
    source: CostSource
    engine: Engine
    loads: tuple[int, ...]
    category: str | None

    @property
    def costs(self) -> LoadCosts:
        return self.source.costs[self.name]

    @property
    def rules(self) -> tuple[Rule, ...]:
        drawn = self.draft.probabilistic is not None
        return tuple(rule for rule in self.engine.rules if (rule == "probabilistic") <= drawn) or ("greedy",)

    def shape(self, chain: Chain) -> Round:
        verified = sum(chain.drafted) if chain.drafted else None
        return chain_round(len(chain.survival), self.draft.levels_at_once or 1, verified)

    def speedup(self, chain: Chain, streams: float, context: float) -> float:
        return chain.mean_length / self.costs.break_even(streams, self.shape(chain), context)

    def best(
        self, acceptance: Acceptance, streams: float, context: float, before: int | None = None
    ) -> tuple[int, float]:
        """Number of drafted tokens and speed-up: `before` if it is hardly slower than any, else the fewest tokens that
        are about as fast as any; 0 and 1 if drafts do not pay.
        """
        values = [1.0, *(self.speedup(acceptance.at(k), streams, context) for k in range(1, acceptance.longest + 1))]
        k = next(k for k, value in enumerate(values) if value >= max(values) * (1 - _ALIKE))
        if before is not None and values[before] >= max(values) * (1 - _KEPT):
            k = before
        return k, values[k]

    def schedule(self, acceptance: Acceptance, context: float) -> list[tuple[int, float]]:
        """The best at every load, as few changes as possible."""
        found = list[tuple[int, float]]()
        for streams in range(self.loads[0], self.loads[-1] + 1):
            found.append(self.best(acceptance, streams, context, found[-1][0] if found else None))
        return found

    def octaves(self) -> list[int]:
        first, last = self.loads[0], self.loads[-1]
        return [first * 2**power for power in range(int(math.log2(last / first)) + 1)]

    def mean(self, value: Callable[[float], float]) -> float:
        """Geometric mean over loads that double."""
        return math.exp(math.fsum(math.log(value(streams)) for streams in self.octaves()) / len(self.octaves()))

    def advice(self, rule: Rule) -> DraftAdvice:
        acceptance, context = _grouped(self.draft, rule, self.category), self.profile.mean_context
        every = range(self.loads[0], self.loads[-1] + 1)
        best = self.schedule(acceptance, context)
        means = [
            1.0,
            *(
                self.mean(partial(self.speedup, acceptance.at(k), context=context))
                for k in range(1, acceptance.longest + 1)
            ),
        ]
        k = next(k for k, value in enumerate(means) if value >= max(means) * (1 - _ALIKE))
        by_load = self.draft.kind in self.engine.by_load
        gain = self.mean(lambda streams: best[int(streams) - every[0]][1]) if by_load else means[k]
        stop = None if by_load or self.draft.kind not in self.engine.stops else self.stop(gain, context)
        return DraftAdvice(
            draft=self.name,
            kind=self.draft.kind,
            rule=rule,
            chains=tuple(self.chain(acceptance.at(each), context) for each in range(1, acceptance.longest + 1)),
            bands=tuple(_bands(every, [k for k, _ in best])),
            k=k,
            gain=gain,
            best=_at_loads("all", [best[load - every[0]] for load in self.loads]),
            contexts=tuple(self.contexts(rule)),
            curve=self.curve(acceptance, best if by_load else self.constant(acceptance, k, context), context),
            stop=stop,
            tree=self.tree(acceptance, context) if self.draft.kind in self.engine.trees else None,
            memory=self.memory(),
        )

    def chain(self, chain: Chain, context: float) -> ChainAdvice:
        shape = self.shape(chain)
        even = tuple(self.costs.break_even(streams, shape, context) for streams in self.loads)
        return ChainAdvice(
            k=len(chain.survival),
            length=chain.mean_length,
            interval=chain.length_interval,
            speedups=tuple(chain.mean_length / each for each in even),
            break_even=even,
        )

    def contexts(self, rule: Rule) -> Iterator[ContextAdvice]:
        draft = self.draft
        grouped = draft.probabilistic if rule == "probabilistic" and draft.probabilistic else draft
        for name, acceptance in grouped.by_context.items():
            context = _CONTEXTS.get(name, self.profile.mean_context)
            yield _at_loads(name, [self.best(acceptance, streams, context) for streams in self.loads])

    def constant(self, acceptance: Acceptance, k: int, context: float) -> list[tuple[int, float]]:
        """One number of drafted tokens at every load."""
        every = range(self.loads[0], self.loads[-1] + 1)
        return [(k, self.speedup(acceptance.at(k), streams, context) if k else 1.0) for streams in every]

    def curve(self, acceptance: Acceptance, best: Sequence[tuple[int, float]], context: float) -> LoadCurve:
        every = range(self.loads[0], self.loads[-1] + 1)
        depths = [k for k in _SHOWN_CURVES if k <= acceptance.longest]
        lines = {k: tuple(self.speedup(acceptance.at(k), streams, context) for streams in every) for k in depths}
        return LoadCurve(tuple(every), lines, tuple(value for _, value in best))

    def stopped_speedup(self, stop: Stop, streams: float, context: float) -> float:
        """A pass also drafts the token before which the draft ends."""
        passes = min(float(stop.k), stop.drafted + 1) / (self.draft.levels_at_once or 1)
        return stop.length / self.costs.break_even(streams, Round(passes, 1 + stop.drafted), context)

    def stop(self, gain: float, context: float) -> Stop | None:
        """The best least probability; None if fixed lengths are about as fast."""
        found, fastest = None, gain * (1 + _ALIKE)
        for each in self.draft.confidence if self.category is None else ():
            stop = Stop(
                p_min=each.p_min,
                k=len(each.survival),
                drafted=each.drafted,
                length=1 + sum(each.survival),
                survival=each.survival,
                speedups=(),
            )
            reached = self.mean(partial(self.stopped_speedup, stop, context=context))
            if each.p_min > 0 and reached > fastest:
                speedups = tuple(self.stopped_speedup(stop, streams, context) for streams in self.loads)
                found, fastest = structs.replace(stop, speedups=speedups), reached
        return found

    def tree(self, acceptance: Acceptance, context: float) -> TreeBound | None:
        """The bound that is highest at the least load."""
        seen = self.draft.trees
        if seen is None:
            return None
        bounds, chains = list[TreeBound](), [self.best(acceptance, streams, context)[1] for streams in self.loads]
        for steps in range(1, acceptance.longest + 1):
            chain = acceptance.at(steps)
            for topk in _CHILDREN[: len(seen.siblings)]:
                right = (1 - chain.survival[-1]) * sum(seen.siblings[: topk - 1])
                length = chain.mean_length + right * (1 + sum(seen.continuation[: steps - 1]))
                tree = Tree(steps, topk, 1 + steps * topk)
                shape = Round(self.shape(chain).passes, tree.tokens, topk)
                reached = tuple(length / self.costs.break_even(streams, shape, context) for streams in self.loads)
                pays = any(one > other * (1 + _ALIKE) for one, other in zip(reached, chains, strict=True))
                bounds.append(TreeBound(tree=tree, speedups=reached, pays=pays))
        return max(bounds, key=lambda bound: bound.speedups[0], default=None)

    def memory(self) -> Memory | None:
        """What the draft takes from the KV cache."""
        own, target = self.draft.size, self.profile.size
        if own is None or own.weights_bytes is None or own.kv_bytes_per_token is None:
            return None
        taken = Memory(weights_bytes=own.weights_bytes, kv_bytes_per_token=own.kv_bytes_per_token)
        if not (self.source.memory_bytes and target.weights_bytes and target.kv_bytes_per_token):
            return taken
        free = max(0.0, _MEMORY_SHARE * self.source.memory_bytes - target.weights_bytes)
        left = max(0.0, free - own.weights_bytes) / (target.kv_bytes_per_token + own.kv_bytes_per_token)
        return structs.replace(taken, tokens=free / target.kv_bytes_per_token, tokens_left=left)


def _at_loads(name: str, best: Sequence[tuple[int, float]]) -> ContextAdvice:
    return ContextAdvice(context=name, best=tuple(k for k, _ in best), speedups=tuple(value for _, value in best))


def _bands(streams: Sequence[int], best: Sequence[int]) -> Iterator[Band]:
    for k, group in groupby(zip(streams, best, strict=True), key=lambda pair: pair[1]):
        loads = [load for load, _ in group]
        yield Band(loads[0], loads[-1], k)
