"""Chooses a draft, and its number of tokens at each load, from a profile and the costs of forward passes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, product

import msgspec
import numpy as np
from msgspec import structs

from decoder.errors import ConfigError, quoted
from dynatui.servers.costs import CostSource, LoadCosts, LoadCurve, Reals, Round
from dynatui.servers.costs import chain as chain_round
from dynatui.servers.engines import Band, Commands, Deployment, Engine, Rule, Tree, commands
from dynatui.servers.profile_file import Acceptance, Chain, DraftProfile, Grouped, ModelSize, Profile, Stopped

MOST_STREAMS = 1024
LOADS = (1, 4, 16, 64, 256, 1024)
_MEMORY_SHARE = 0.9
"""Share of a device's memory for weights and KV cache."""
_ALIKE = 0.01
"""Speed-ups within this share of the largest count as equal; among them, the fewest drafted tokens are chosen."""
_KEPT = 0.02
"""From one load to the next, the number of drafted tokens is kept if its speed-up there is at most this share below the
best speed-up, and not below 1."""
_CONTEXTS = {"<1k": 512, "<4k": 2048, "<16k": 8192, ">=16k": 32768}
"""Context group of the profile -> context length, in tokens, for which its speed-ups are computed."""
_CHILDREN = (2, 3, 4)
_SHOWN_CURVES = (1, 3, 5, 8)


class ChainAdvice(msgspec.Struct, frozen=True, kw_only=True):
    k: int
    length: float
    interval: tuple[float, float] | None
    speedups: tuple[float, ...]
    """Speed-up at each of `Advice.loads`."""
    break_even: tuple[float, ...]
    """Tokens per round from which drafts pay, at each of `Advice.loads`."""


class ContextAdvice(msgspec.Struct, frozen=True, kw_only=True):
    context: str
    """A context group of the profile, or "all"."""
    best: tuple[int, ...]
    speedups: tuple[float, ...]
    """Speed-up with the best number of drafted tokens, at each of `Advice.loads`."""


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """Drafts of at most `k` tokens that end before a token whose draft probability is below `p_min`."""

    p_min: float
    k: int
    drafted: float
    length: float
    survival: tuple[float, ...]
    speedups: tuple[float, ...]


class TreeBound(msgspec.Struct, frozen=True, kw_only=True):
    """Upper bound for a tree, as if its `tree.tokens` tokens included every accepted sibling with its continuation."""

    tree: Tree
    speedups: tuple[float, ...]
    pays: bool
    """Whether the tree may be faster than the best chain at some load."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    weights_bytes: float
    kv_bytes_per_token: float
    tokens: float | None = None
    """Tokens that fit in the KV cache without the draft; None if the device's memory is unknown."""
    tokens_left: float | None = None
    """As `tokens`, with the draft."""


class DraftAdvice(msgspec.Struct, frozen=True, kw_only=True):
    draft: str
    kind: str
    rule: Rule
    chains: tuple[ChainAdvice, ...]
    bands: tuple[Band, ...]
    """The best number of drafted tokens by load."""
    k: int
    """The best number of drafted tokens for an engine that uses one number at all loads; 0 if drafts do not pay."""
    gain: float
    """Geometric mean of the speed-ups at doubling loads, with `bands` if the engine supports them, else with `k`."""
    best: ContextAdvice
    contexts: tuple[ContextAdvice, ...]
    """Advice by context length."""
    curve: LoadCurve
    stop: Stop | None = None
    """Drafts that end early; None unless these are faster than drafts of every fixed length."""
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
    """Mean number of tokens before a scored token of the profile."""
    drafts: tuple[DraftAdvice, ...]
    """By `gain`, the largest first."""
    left_out: dict[str, str]
    """Draft without advice -> reason."""
    deployment: Deployment | None
    """Deployment of the best draft; None if no draft pays."""
    commands: Commands


_KINDS = {
    "model": "models",
    "eagle3": "EAGLE-3 heads",
    "mtp": "MTP layers",
    "dflash": "DFlash heads",
    "lookup": "lookups",
}


def advised(
    profile: Profile, source: CostSource, engine: Engine, streams: tuple[int, int], category: str | None = None
) -> Advice:
    """Advice for loads from `streams[0]` to `streams[1]` running requests. Raises ConfigError if no draft has rounds of
    `category`.
    """
    first, last = streams if engine.batches else (1, 1)
    loads = tuple(sorted({first, last, *(load for load in LOADS if first <= load <= last)}))
    left_out, judged = dict(profile.draft_errors), dict[str, DraftProfile]()
    for name, draft in profile.drafts.items():
        if draft.kind not in engine.kinds:
            left_out[name] = f"{engine.title} does not draft with {_KINDS[draft.kind]}"
        elif name not in source.costs:
            left_out[name] = "the size of the draft is unknown, and so its time; give --step-ms and --draft-ms"
        elif category is not None and category not in draft.by_category:
            left_out[name] = f"no rounds of category {quoted(category)}"
        else:
            judged[name] = draft if category is None else _of_category(draft, category)
    if category is not None and not judged:
        known = ", ".join(sorted({each for draft in profile.drafts.values() for each in draft.by_category}))
        raise ConfigError(f"no draft has rounds of category {quoted(category)}; give one of {known or 'none'}")
    drafts = list[DraftAdvice]()
    for name, draft in judged.items():
        case = _Case(draft, source.costs[name], loads, profile.mean_context)
        memory = _memory(draft.size, profile.size, source.memory_bytes)
        rules: list[Rule] = [rule for rule in engine.rules if rule == "greedy" or draft.probabilistic] or ["greedy"]
        by_rule = [_draft_advice(name, case, rule, engine, memory) for rule in rules]
        drafts.append(max(by_rule, key=lambda each: each.gain))
    drafts.sort(key=lambda each: -each.gain)
    deployments = _deployed(profile.target, judged[drafts[0].draft], drafts[0], engine, last) if drafts else {}
    return Advice(
        target=profile.target,
        costs=source.words,
        at_most=source.at_most,
        loads=loads,
        context=profile.mean_context,
        drafts=tuple(drafts),
        left_out=left_out,
        deployment=deployments.get("advised"),
        commands=commands(engine, profile.target, last, **deployments),
    )


def _of_category(draft: DraftProfile, category: str) -> DraftProfile:
    """The draft with its acceptance on one category of prompts; `confidence` is not measured by category."""
    drawn = draft.probabilistic
    return structs.replace(
        draft,
        **structs.asdict(draft.by_category[category]),
        probabilistic=drawn and structs.replace(drawn, **structs.asdict(drawn.by_category[category])),
        confidence=(),
    )


def _deployed(target: str, draft: DraftProfile, best: DraftAdvice, engine: Engine, most: int) -> dict[str, Deployment]:
    """Deployments of the best draft that may be faster than plain decoding, by field of `Commands`."""
    bands = best.bands if draft.kind in engine.by_load else ()
    if bands:
        bands = (structs.replace(bands[0], first=1), *bands[1:])
    k = max(1, max((band.k for band in bands), default=best.k))
    chain = _by_rule(draft, best.rule).at(k)
    advised = Deployment(
        target=target,
        draft=best.draft,
        kind=draft.kind,
        levels_at_once=draft.levels_at_once or 1,
        k=k,
        bands=bands,
        most=most,
        survival=chain.of_drafts,
        length=chain.mean_length,
        rule=best.rule,
    )
    found = {"advised": advised} if best.pays else {}
    if best.pays and best.tree and best.tree.pays:
        found["tree"] = structs.replace(advised, tree=best.tree.tree)
    if stop := best.stop:
        ends = {"k": stop.k, "p_min": stop.p_min, "survival": stop.survival, "length": stop.length}
        found["stopped"] = structs.replace(advised, **ends, bands=())
    return found


def _by_rule(draft: DraftProfile, rule: Rule) -> Grouped:
    return draft.probabilistic if rule == "probabilistic" and draft.probabilistic else draft


@dataclass(frozen=True)
class _Case:
    """A draft of a profile, its costs, and the loads and the context length at which it is judged."""

    draft: DraftProfile
    costs: LoadCosts
    loads: tuple[int, ...]
    context: float

    @property
    def every(self) -> range:
        return range(self.loads[0], self.loads[-1] + 1)

    @property
    def octaves(self) -> list[int]:
        return [self.loads[0] << power for power in range((self.loads[-1] // self.loads[0]).bit_length())]

    def round(self, chain: Chain) -> Round:
        verified = sum(chain.drafted) if chain.drafted else None
        return chain_round(len(chain.survival), self.draft.levels_at_once or 1, verified)

    def speedups(self, acceptance: Acceptance, streams: Sequence[int], context: float) -> Reals:
        """Speed-ups by number of drafted tokens, 0 to `acceptance.longest` (rows), and running requests (columns)."""
        chains = map(acceptance.at, range(1, acceptance.longest + 1))
        drafting = (self.costs.speedups(each.mean_length, self.round(each), streams, context) for each in chains)
        return np.array([np.ones(len(streams)), *drafting])


def _draft_advice(name: str, case: _Case, rule: Rule, engine: Engine, memory: Memory | None) -> DraftAdvice:
    draft, loads, acceptance = case.draft, case.loads, _by_rule(case.draft, rule)
    speedups = case.speedups(acceptance, case.every, case.context)
    at_loads, at_octaves = ([each - loads[0] for each in streams] for streams in (loads, case.octaves))
    scheduled, k = _schedule(speedups), _fewest(_mean(speedups[:, at_octaves]))
    by_load = draft.kind in engine.by_load
    deployed = speedups[scheduled if by_load else k, np.arange(len(case.every))]
    gain = float(_mean(deployed[at_octaves]))
    shown = speedups[:, at_loads]
    contexts = {
        each: case.speedups(group, loads, _CONTEXTS.get(each, case.context))
        for each, group in acceptance.by_context.items()
    }
    return DraftAdvice(
        draft=name,
        kind=draft.kind,
        rule=rule,
        chains=tuple(
            ChainAdvice(
                k=k,
                length=chain.mean_length,
                interval=chain.length_interval,
                speedups=tuple(reached.tolist()),
                break_even=tuple((chain.mean_length / reached).tolist()),
            )
            for k, reached in enumerate(shown[1:], 1)
            for chain in [acceptance.at(k)]
        ),
        bands=tuple(_bands(case.every, scheduled)),
        k=k,
        gain=gain,
        best=_at_loads("all", [scheduled[place] for place in at_loads], shown),
        contexts=tuple(_at_loads(each, list(map(_fewest, table.T)), table) for each, table in contexts.items()),
        curve=LoadCurve(
            tuple(case.every),
            {k: tuple(speedups[k].tolist()) for k in _SHOWN_CURVES if k <= acceptance.longest},
            tuple(deployed.tolist()),
        ),
        stop=_stop(case, gain) if draft.kind in engine.stops and not by_load else None,
        tree=_tree(case, acceptance, shown) if draft.kind in engine.trees else None,
        memory=memory,
    )


def _mean(speedups: Reals) -> Reals:
    """Geometric mean over the last axis."""
    return np.asarray(np.exp(np.log(speedups).mean(axis=-1)))


def _fewest(speedups: Reals) -> int:
    """Smallest index (number of drafted tokens) whose speed-up is within `_ALIKE` of the largest."""
    return int(np.argmax(speedups >= speedups.max() * (1 - _ALIKE)))


def _schedule(speedups: Reals) -> list[int]:
    """Number of drafted tokens at every load: near the best number, and changed as seldom as `_KEPT` permits."""
    found = [_fewest(speedups[:, 0])]
    for column in speedups.T[1:]:
        keeps = column[found[-1]] >= max(column[0], column.max() * (1 - _KEPT))
        found.append(found[-1] if keeps else _fewest(column))
    return found


def _bands(streams: Sequence[int], scheduled: Sequence[int]) -> Iterator[Band]:
    for k, group in groupby(zip(streams, scheduled, strict=True), key=lambda pair: pair[1]):
        loads = [load for load, _ in group]
        yield Band(loads[0], loads[-1], k)


def _at_loads(context: str, best: Sequence[int], speedups: Reals) -> ContextAdvice:
    reached = speedups[best, np.arange(len(best))]
    return ContextAdvice(context=context, best=tuple(best), speedups=tuple(reached.tolist()))


def _stop(case: _Case, gain: float) -> Stop | None:
    """Drafts with the best `p_min`; None unless their speed-up is clearly above `gain`, that of fixed lengths."""

    def speedups(each: Stopped, streams: Sequence[int]) -> Reals:
        """The draft also computes the improbable token that ends a draft, hence `drafted` + 1 passes."""
        passes = min(float(len(each.survival)), each.drafted + 1) / (case.draft.levels_at_once or 1)
        return case.costs.speedups(1 + sum(each.survival), Round(passes, 1 + each.drafted), streams, case.context)

    means = {each: float(_mean(speedups(each, case.octaves))) for each in case.draft.confidence if each.p_min > 0}
    best = max(means, key=lambda each: means[each], default=None)
    if best is None or means[best] <= gain * (1 + _ALIKE):
        return None
    return Stop(
        p_min=best.p_min,
        k=len(best.survival),
        drafted=best.drafted,
        length=1 + sum(best.survival),
        survival=best.survival,
        speedups=tuple(speedups(best, case.loads).tolist()),
    )


def _tree(case: _Case, acceptance: Acceptance, chains: Reals) -> TreeBound | None:
    """The tree with the highest bound at the least load; `chains`: speed-ups by chain length (rows), load (columns)."""
    seen = case.draft.trees
    if seen is None:
        return None
    best = np.array([column[_fewest(column)] for column in chains.T])
    bounds = list[TreeBound]()
    for steps, topk in product(range(1, acceptance.longest + 1), _CHILDREN[: len(seen.siblings)]):
        chain, tree = acceptance.at(steps), Tree(steps, topk, 1 + steps * topk)
        right = (1 - chain.survival[-1]) * sum(seen.siblings[: topk - 1])
        length = chain.mean_length + right * (1 + sum(seen.continuation[: steps - 1]))
        shape = Round(case.round(chain).passes, tree.tokens, topk)
        reached = case.costs.speedups(length, shape, case.loads, case.context)
        pays = bool((reached > best * (1 + _ALIKE)).any())
        bounds.append(TreeBound(tree=tree, speedups=tuple(reached.tolist()), pays=pays))
    return max(bounds, key=lambda bound: bound.speedups[0], default=None)


def _memory(own: ModelSize | None, target: ModelSize, memory_bytes: float | None) -> Memory | None:
    """Memory of the draft, and the tokens that fit in the KV cache without it and with it."""
    if own is None or own.weights_bytes is None or own.kv_bytes_per_token is None:
        return None
    taken = Memory(weights_bytes=own.weights_bytes, kv_bytes_per_token=own.kv_bytes_per_token)
    if not (memory_bytes and target.weights_bytes and target.kv_bytes_per_token):
        return taken
    free = max(0.0, _MEMORY_SHARE * memory_bytes - target.weights_bytes)
    left = max(0.0, free - own.weights_bytes) / (target.kv_bytes_per_token + own.kv_bytes_per_token)
    return structs.replace(taken, tokens=free / target.kv_bytes_per_token, tokens_left=left)
