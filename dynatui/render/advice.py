"""Advice for a server as lines of text: the drafts, the number of tokens by load, what else is worth knowing."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from textwrap import wrap

from dynatui.clean import clean_line
from dynatui.number_format import count, percent, short, size
from dynatui.render.ink import Column, Sheet, column
from dynatui.servers.advice import Advice, ChainAdvice, ContextAdvice, DraftAdvice, Memory
from dynatui.servers.engines.engine import Band

_NAME, _FIGURE, _INTERVAL = 26, 6, 14
_DEEPEST = 8
"""Longest chain with a line of its own; of longer ones, the best and the longest are listed."""


def advice_lines(advice: Advice, width: int) -> Iterator[str]:
    """Names come from files, so they are cleaned here."""
    yield from wrap(
        clean_line(f"target {_brief(advice.target)}, {count(advice.context)} tokens of context on average"), width
    )
    bound = "; least times, so speed-ups are at most these" if advice.at_most else ""
    yield from wrap(f"costs: {clean_line(advice.costs)}{bound}", width)
    if advice.drafts:
        yield ""
        yield from _drafts(advice, width)
        yield ""
        yield from _chains(advice, advice.drafts[0], width)
        yield ""
        for line in _verdicts(advice, advice.drafts[0]):
            yield from wrap(clean_line(line), width, subsequent_indent="  ")
    else:
        yield "advice: no draft can be judged; serve without drafts"
    for name, why in advice.left_out.items():
        yield from wrap(clean_line(f"left out: {name}, {why}"), width, subsequent_indent="  ")


def _brief(name: str) -> str:
    """The last folder of a path; a hub id as it is."""
    return name.rstrip("/").rpartition("/")[2] if name.count("/") > 1 else name


def _drafts(advice: Advice, width: int) -> Iterator[str]:
    loads = [
        Column[DraftAdvice](str(load), _FIGURE + 4, partial(_best, place), rank=place)
        for place, load in enumerate(advice.loads)
    ]
    sheet = Sheet(loads, width - _NAME)
    yield f"{column('speed-up (K) at requests', _NAME)}{sheet.heads}"
    for one in advice.drafts:
        yield f"{column(clean_line(_brief(one.draft)), _NAME)}{sheet.row(one)}".rstrip()


def _best(place: int, one: DraftAdvice) -> str:
    return f"{short(one.best.speedups[place])} ({one.best.best[place]})"


def _chains(advice: Advice, one: DraftAdvice, width: int) -> Iterator[str]:
    columns: list[Column[ChainAdvice]] = [
        Column("K", 3, lambda each: str(each.k)),
        Column("L(K)", _FIGURE, lambda each: short(each.length)),
        Column("95 %", _INTERVAL, lambda each: _interval(each.interval)),
    ]
    for title, written in (("", _speedup), ("L>", _even)):
        columns += [
            Column(f"{title}{load}", _FIGURE + 1, partial(written, place), rank=1 + place)
            for place, load in enumerate(advice.loads)
        ]
    sheet = Sheet(columns, width)
    title = "tokens a round (L), speed-up by running requests, and the L from which drafts pay there"
    yield from wrap(f"{clean_line(_brief(one.draft))}: {title}", width, subsequent_indent="  ")
    yield sheet.heads
    listed = {each.k for each in one.chains if each.k <= _DEEPEST} | {one.k, len(one.chains)}
    yield from (sheet.row(each) for each in one.chains if each.k in listed)


def _speedup(place: int, each: ChainAdvice) -> str:
    return short(each.speedups[place])


def _even(place: int, each: ChainAdvice) -> str:
    return short(each.break_even[place])


def _interval(ends: tuple[float, float] | None) -> str:
    return f"{short(ends[0])} to {short(ends[1])}" if ends else "-"


def _verdicts(advice: Advice, one: DraftAdvice) -> Iterator[str]:
    deployed = advice.deployment
    first, last = advice.loads[0], advice.loads[-1]
    if deployed is None:
        yield f"advice: no draft pays at {_loads(first, last)}; serve without drafts"
    else:
        how = f"K {deployed.k}"
        if deployed.bands:
            how = _banded(deployed.bands)
        rule = ", drawn from the draft's distribution" if deployed.rule == "probabilistic" else ""
        mean = f"{short(one.gain)} times plain decoding on average over loads"
        yield f"advice: {_brief(deployed.draft)}{rule}, {how}; {mean}"
        yield f"promise: L {short(deployed.length)} at K {deployed.k}, accepted by position {_rates(deployed.survival)}"
    if unsure := _unsure(advice, one):
        yield f"uncertain at {unsure} running requests: the interval of L includes the break-even; profile more prompts"
    if stop := one.stop:
        ends = f"drafts of up to {stop.k} tokens that end before one less probable than {stop.p_min:g} (p_min)"
        yield f"faster: {ends}, {', '.join(map(short, stop.speedups))} at these loads"
    if one.contexts:
        yield f"by tokens of context, at these loads: {'; '.join(_contexts(one.contexts))}"
    if one.tree:
        tree, bound = one.tree.tree, ", ".join(short(each) for each in one.tree.speedups)
        shape = f"{tree.steps} steps, top-k {tree.topk}"
        answer = (
            f"may pay, try {shape}: at most {bound}" if one.tree.pays else f"cannot pay (best bound: {shape}, {bound})"
        )
        yield f"a tree {answer} at these loads"
    if one.memory:
        yield f"memory of the draft: {_memory(one.memory)}"


def _unsure(advice: Advice, one: DraftAdvice) -> str:
    """The loads at which the best chain may be slower than plain decoding, by the interval of its L."""
    found = []
    for place, load in enumerate(advice.loads):
        best = one.chains[max(1, one.best.best[place]) - 1]
        if best.interval and best.interval[0] < best.break_even[place] < best.interval[1]:
            found.append(str(load))
    return ", ".join(found)


def _loads(first: int, last: int) -> str:
    return f"{_between(first, last)} running request{'s' * (last > 1)}"


def _between(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"


def _banded(bands: Sequence[Band]) -> str:
    parts = [f"{f'K {band.k}' if band.k else 'no drafts'} at {_between(band.first, band.last)}" for band in bands]
    return f"{', '.join(parts)} running requests"


def _rates(survival: Iterable[float]) -> str:
    return " ".join(percent(rate) for rate in survival)


def _contexts(contexts: Sequence[ContextAdvice]) -> Iterator[str]:
    for each in contexts:
        yield f"{each.context} {', '.join(map(short, each.speedups))} with K {', '.join(map(str, each.best))}"


def _memory(memory: Memory) -> str:
    taken = f"{size(int(memory.weights_bytes))} of weights, {size(int(memory.kv_bytes_per_token))} a token of KV cache"
    if memory.tokens is None or memory.tokens_left is None:
        return taken
    if memory.tokens == 0:
        return f"{taken}; the target alone does not fit in 0.9 of the device's memory"
    lost = 1 - memory.tokens_left / memory.tokens
    left = f"{count(memory.tokens_left)} of {count(memory.tokens)} tokens of KV cache are left"
    return f"{taken}; {left}, {percent(lost)} fewer"
