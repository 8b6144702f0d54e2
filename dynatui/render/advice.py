"""Advice for a server as lines of text: the drafts, the number of drafted tokens by load, and further remarks."""

from collections.abc import Iterator
from functools import partial
from textwrap import wrap

from dynatui.clean import clean_line
from dynatui.number_format import count, percent, short, size
from dynatui.render.ink import Column, Sheet, column
from dynatui.render.server_load import load_curve
from dynatui.servers.advice import Advice, ChainAdvice, ContextAdvice, DraftAdvice, Memory
from dynatui.servers.engines import Deployment
from dynatui.session import Symbols

_NAME, _FIGURE, _INTERVAL = 26, 6, 14
_CURVE_ROWS = 14
_DEEPEST = 8
"""All chains up to this length are listed; of the longer chains, only the best and the longest."""
_COLUMNS = (
    "L(K): tokens a round; 1, 4, ...: speed-up at so many running requests; L>1, ...: the L from which it exceeds 1"
)


def advice_lines(advice: Advice, width: int) -> Iterator[str]:
    """Lines on drafts, loads and remarks, without the control characters that names from files may contain."""
    bound = "; least times, so speed-ups are at most these" if advice.at_most else ""
    yield from wrap(
        clean_line(f"target {_brief(advice.target)}, {count(advice.context)} tokens of context on average"), width
    )
    yield from wrap(f"costs: {clean_line(advice.costs)}{bound}", width)
    if advice.drafts:
        yield ""
        yield from _drafts(advice, width)
        yield ""
        yield from _chains(advice, advice.drafts[0], width)
        yield ""
    for line in (*_verdicts(advice), *(f"left out: {name}, {why}" for name, why in advice.left_out.items())):
        yield from wrap(clean_line(line), width, subsequent_indent="  ")


def curve_lines(advice: Advice, width: int, symbols: Symbols = "braille") -> Iterator[str]:
    """A chart of the best draft's speed-up by running requests; nothing for a single load or without a draft."""
    if advice.drafts and len(advice.loads) > 1:
        one = advice.drafts[0]
        yield ""
        yield from wrap(f"{clean_line(_brief(one.draft))}. Speed-up over plain decoding, by running requests", width)
        rows = load_curve(one.curve, (width, _CURVE_ROWS), symbols)
        yield from ("".join(text for text, _ in row) for row in rows)


def _brief(name: str) -> str:
    """The last folder of a path; a model id of the Hugging Face hub is unchanged."""
    return name.rstrip("/").rpartition("/")[2] if name.count("/") > 1 else name


def _drafts(advice: Advice, width: int) -> Iterator[str]:
    """The best speed-up of each draft at each load; for the best draft, also by number of tokens before the round."""

    def best(place: int, one: ContextAdvice) -> str:
        return f"{short(one.speedups[place])} ({one.best[place]})"

    loads = enumerate(advice.loads)
    sheet = Sheet([Column(str(load), _FIGURE + 4, partial(best, place), place) for place, load in loads], width - _NAME)
    rows = [(_brief(one.draft), one.best) for one in advice.drafts]
    contexts = advice.drafts[0].contexts
    rows[1:1] = [(f"  {each.context} tokens before", each) for each in contexts if len(contexts) > 1]
    yield f"{column('best speed-up (K) at load', _NAME)}{sheet.heads}"
    for name, one in rows:
        yield f"{column(clean_line(name), _NAME)}{sheet.row(one)}".rstrip()


def _chains(advice: Advice, one: DraftAdvice, width: int) -> Iterator[str]:
    def interval(each: ChainAdvice) -> str:
        return " to ".join(map(short, each.interval)) if each.interval else "-"

    def speedup(place: int, each: ChainAdvice) -> str:
        return short(each.speedups[place])

    def even(place: int, each: ChainAdvice) -> str:
        return short(each.break_even[place])

    columns: list[Column[ChainAdvice]] = [
        Column("K", 3, lambda each: str(each.k)),
        Column("L(K)", _FIGURE, lambda each: short(each.length)),
        Column("95 %", _INTERVAL, interval),
    ]
    for title, written in (("", speedup), ("L>", even)):
        for place, load in enumerate(advice.loads):
            columns.append(Column(f"{title}{load}", _FIGURE + 1, partial(written, place), 1 + place))
    sheet = Sheet(columns, width)
    yield from wrap(f"{clean_line(_brief(one.draft))}. {_COLUMNS}", width, subsequent_indent="  ")
    yield sheet.heads
    listed = {*range(1, _DEEPEST + 1), one.k, len(one.chains)}
    yield from (sheet.row(each) for each in one.chains if each.k in listed)


def _verdicts(advice: Advice) -> Iterator[str]:
    if not advice.drafts:
        yield "advice: no draft can be judged; serve without drafts"
        return
    one, deployed = advice.drafts[0], advice.deployment
    if deployed:
        rule = ", drawn from the draft's distribution" if deployed.rule == "probabilistic" else ""
        mean = f"{short(one.gain)} times as fast as plain decoding on average over these loads"
        yield f"advice: {_brief(deployed.draft)}{rule}, {_schedule(deployed)}; {mean}"
        rates = " ".join(map(percent, deployed.survival))
        yield f"promise: L {short(deployed.length)} at K {deployed.k}; accepted by position {rates}"
    else:
        several = "s" * (advice.loads[-1] > 1)
        span = _between(advice.loads[0], advice.loads[-1])
        yield f"advice: no draft pays at {span} running request{several}; serve without drafts"
    if unsure := list(_unsure(advice, one)):
        loads = ", ".join(unsure)
        yield f"uncertain at {loads} running requests: the interval of L includes the break-even; profile more prompts"
    if stop := one.stop:
        ends = f"drafts of up to {stop.k} tokens that end before one less probable than {stop.p_min:g} (p_min)"
        yield f"faster: {ends}: {', '.join(map(short, stop.speedups))} times plain decoding at these loads"
    if one.tree:
        shape = f"{one.tree.tree.steps} steps and top-k {one.tree.tree.topk}"
        verdict = f"may pay, try {shape}" if one.tree.pays else f"cannot pay, not even with {shape}"
        reached = ", ".join(map(short, one.tree.speedups))
        yield f"a tree {verdict}: at most {reached} times plain decoding at these loads"
    if one.memory:
        yield f"memory of the draft: {_memory(one.memory)}"


def _schedule(deployed: Deployment) -> str:
    parts = [
        f"{f'K {band.k}' if band.k else 'no drafts'} at {_between(band.first, band.last)}" for band in deployed.bands
    ]
    return f"{', '.join(parts)} running requests" if parts else f"K {deployed.k}"


def _between(first: int, last: int) -> str:
    return f"{first}-{last}" if last > first else f"{first}"


def _unsure(advice: Advice, one: DraftAdvice) -> Iterator[str]:
    """The loads at which the interval of the best chain's L includes break-even, so that drafts may cost time."""
    for place, load in enumerate(advice.loads):
        best = one.chains[max(1, one.best.best[place]) - 1]
        if best.interval and best.interval[0] < best.break_even[place] < best.interval[1]:
            yield str(load)


def _memory(memory: Memory) -> str:
    taken = f"{size(int(memory.weights_bytes))} of weights, {size(int(memory.kv_bytes_per_token))} a token of KV cache"
    if memory.tokens is None or memory.tokens_left is None:
        return taken
    if memory.tokens == 0:
        return f"{taken}; the target alone does not fit in 0.9 of the device's memory"
    left = f"{count(memory.tokens_left)} of {count(memory.tokens)} tokens of KV cache are left"
    return f"{taken}; {left}, {percent(1 - memory.tokens_left / memory.tokens)} fewer"
