"""The report as text of at most 80 columns, in the layout of the paper's tables. Only words and numbers."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from decoder.analysis.interval import Interval
from decoder.bench.contenders import BASELINE
from decoder.bench.sampling import paper
from decoder.bench.sampling.claims import Claim, Ranking
from decoder.bench.sampling.log import BOUND
from decoder.bench.sampling.report import SPEED, TOKENS, Action, Agreement, Divergence, Row, SamplingReport
from decoder.bench.sampling.tasks import STAND_INS
from decoder.events import arithmetic
from decoder.verify.names import COUPLED, Drafting

WIDTH = 80
NAME = 22


def on_samplings(report: SamplingReport) -> str:
    """The whole report."""
    both = (
        (
            "Block efficiency: tokens a round",
            report.block_efficiency,
            paper.BLOCK_EFFICIENCY,
            paper.DELAYED_BLOCK_EFFICIENCY,
        ),
        (
            "Tokens a second, decoded",
            report.tokens_per_second,
            paper.TOKENS_PER_SECOND,
            paper.DELAYED_TOKENS_PER_SECOND,
        ),
    )
    tables = [_heading(report)]
    for title, rows, iid, delayed in both:
        if rows:
            tables.append(averages(f"{title} (the paper's tables 2, 3, 6 and 7)", rows, iid, delayed))
            tables.append(columns(f"{title}, by task (8, 9)", rows, lambda row: row.by_task, paper.TASKS))
            tables.append(columns(f"{title}, by setting (10 to 15)", rows, lambda row: row.by_sampling, {}))
    tables += [divergence(report.divergence, report.begun.asked.k), actions(report.actions)]
    tables += [agreements(report.agreement), rankings(report.rankings), claims(report.claims)]
    return "\n\n".join(filter(None, tables)) + "\n"


def _heading(report: SamplingReport) -> str:
    begun, asked = report.begun, report.begun.asked
    machine = begun.machine
    tasks = [f"{name} for {STAND_INS[name]}" if name in STAND_INS else name for name in asked.tasks]
    computed = arithmetic(asked.dtype, asked.draft_dtype)
    lines = [
        f"{asked.target} with {asked.draft} on {asked.device} in {computed}, independent sampling",
        f"{machine.processor}, torch threads: {machine.threads}, cores: {machine.cores}",
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"load {_number(machine.load_before, 1)} before, {_number(report.load_after, 1)} after; "
        f"{report.disturbed} of {report.decoded} decoded texts were disturbed",
        f"K 1 to {asked.k}, L1 and L2 0 to {asked.length}; {sum(map(len, asked.tasks.values()))} prompts a setting; "
        f"seed {asked.seed}",
        f"{report.roots} roots, every {asked.roots_every} of {asked.max_new_tokens} tokens of the target's own",
        f"decoded: {asked.decoded} prompts of each task, {asked.max_new_tokens} tokens, {asked.repeats} times",
        "block efficiency: closed forms at the roots, with the best shape of a setting",
        "on the half of the prompts on which it was not chosen; of coupled trees, of",
        "decoded texts. tokens/s: of computing, without waiting for a processor.",
        "means over prompts, then over tasks and settings; 95 % bootstrap intervals",
    ]
    if asked.selecting():
        trained = " and ".join(name.split()[0] for name in asked.selectors)
        lines += _wrapped(f"selector: chooses for speed, trained for {trained}; others take the one most like theirs.")
    if any(name in STAND_INS for name in asked.tasks):
        lines += _wrapped(f"Tasks of Spec-Bench stand in for the paper's data sets: {', '.join(tasks)}.")
    if report.disturbed:
        lines.append("TIMES WERE MEASURED ON A BUSY MACHINE; block efficiency does not depend on it.")
    if not report.complete:
        lines.append("INTERRUPTED: what follows rests on a part of what was asked for.")
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines)


def averages(title: str, rows: Sequence[Row], iid: Mapping[str, float], delayed: Mapping[str, float]) -> str:
    """Means over everything, the least first, beside the paper's."""
    reported = {Drafting.IID: iid, Drafting.DELAYED: delayed, Drafting.SELECTOR: delayed}
    with_ar = any(row.over_ar for row in rows)
    lines = [title, _line("", (20, "here"), (9, "paper"), *([(22, "x ar")] if with_ar else []))]
    for row in sorted(rows, key=lambda row: row.mean.value):
        there = reported.get(Drafting(row.drafting), {}).get(row.verifier) if row.k is None and _drawn(row) else None
        cells = [(20, _interval(row.mean)), (9, _number(there, 2))]
        lines.append(_line(_name(row), *cells, *([(22, _interval(row.over_ar))] if row.over_ar else [])))
    return "\n".join(lines)


def columns(
    title: str, rows: Sequence[Row], values: Callable[[Row], Mapping[str, float]], heads: Mapping[str, str]
) -> str:
    """One column a task or a setting, in the paper's order of rows."""
    names = list(dict.fromkeys(name for row in rows for name in values(row)))
    width = min(12, (WIDTH - NAME) // max(1, len(names)))
    lines = [title, _line("", *((width, heads.get(name, name)[: width - 1]) for name in names))]
    lines += [
        _line(_name(row), *((width, _short(values(row).get(name))) for name in names))
        for row in sorted(rows, key=_place)
    ]
    return "\n".join(lines)


def divergence(found: Divergence, k: int) -> str:
    """The paper's figure 1."""
    names = [paper.NAMES.get(name, "bound") for name in found.acceptance]
    lines = [f"By depth of the draft tree (figure 1): L1 distance, acceptance among {k} draws"]
    lines.append(f"{'depth':<6}" + "".join(f"{name:>10}" for name in ("L1", *names)))
    for depth, distance in enumerate(found.distance):
        cells = (distance, *(levels[depth] for levels in found.acceptance.values()))
        lines.append(f"{depth:<6}" + "".join(f"{value:>10.3f}" for value in cells))
    return "\n".join(lines + ["bound: what no solver exceeds."] * (BOUND in found.acceptance))


def actions(found: Sequence[Action]) -> str:
    """The best static shape of each verifier, by setting and by task."""
    tables = []
    for aim, means in ((TOKENS, "most tokens a round"), (SPEED, "most tokens a second")):
        these = [action for action in found if action.aim == aim]
        among = list(dict.fromkeys(action.among for action in these))
        lines = [f"Best K,L1,L2 for {means}, and its tokens a round"]
        for start in range(0, len(among), 4):
            heads = among[start : start + 4]
            lines.append(_line("", *((14, name[:13]) for name in heads)))
            for verifier, drafting in dict.fromkeys((action.verifier, action.drafting) for action in these):
                mine = {each.among: each for each in these if (each.verifier, each.drafting) == (verifier, drafting)}
                lines.append(_line(_called(verifier, drafting, None), *((14, _action(mine[name])) for name in heads)))
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def agreements(found: Sequence[Agreement]) -> str:
    """Whether real rounds bring what closed forms say."""
    if not found:
        return ""
    lines = ["Tokens a round of decoded texts, and by closed forms on the same prompts"]
    lines.append(_line("", (10, "decoded"), (10, "expected")))
    for each in found:
        name = _called(each.verifier, each.drafting, each.k)
        lines.append(_line(name, (10, _number(each.realised, 2)), (10, _number(each.expected, 2))))
    lines.append("Expected: every root alike. Decoded: every round alike, and there are more")
    lines.append("where few tokens are accepted; the last round is cut at the text's end.")
    return "\n".join(lines)


def rankings(found: Sequence[Ranking]) -> str:
    """Orders of verifiers, the best first, and how many pairs keep the paper's."""
    lines = ["Rankings, the best first"]
    for ranking in found:
        counts = f"{ranking.holds} pairs in the paper's order, {ranking.fails} not, {ranking.open} open"
        lines.append(f"{ranking.what}: {counts}")
        for where, names in (("here", ranking.here), ("paper", ranking.paper)):
            lines += _wrapped(f"  {where:<6}" + ", ".join(paper.NAMES[name] for name in names))
    return "\n".join(lines) if found else ""


def claims(found: Sequence[Claim]) -> str:
    """What of the paper holds: quotients that must exceed 1."""
    lines = [
        "What holds of the paper: quotients that exceed 1 if it does",
        f"{'':<41}{'paper':>6}{'here':>17}  verdict",
    ]
    for claim in found:
        *above, last = _wrapped(claim.says, 40)
        lines += above
        lines.append(f"{last:<41}{_number(claim.paper, 2):>6}{_interval(claim.here):>17}  {claim.verdict}")
    return "\n".join(lines) if found else ""


def _place(row: Row) -> tuple[bool, int, int, int]:
    """Where the paper's tables have a row: by verifier, delayed trees before others; coupled trees come last."""
    order, draftings = list(paper.NAMES), [Drafting.SELECTOR, Drafting.DELAYED, Drafting.IID]
    if not _drawn(row):
        return (True, 0, 0, 0)
    return (False, order.index(row.verifier), draftings.index(Drafting(row.drafting)), row.k or 0)


def _drawn(row: Row) -> bool:
    return row.verifier != COUPLED


def _name(row: Row) -> str:
    if not _drawn(row):
        return row.drafting if row.drafting == BASELINE else f"coupled {row.drafting}"
    return _called(row.verifier, row.drafting, row.k)


def _called(verifier: str, drafting: str, k: int | None) -> str:
    """As the paper calls it."""
    more = f", K={k}" if k else f", {drafting}" * (drafting != Drafting.IID)
    return f"{paper.NAMES[verifier]}{more}"


def _action(action: Action) -> str:
    return f"{','.join(map(str, action.shape))} {action.tokens:.2f}"


def _line(name: str, *cells: tuple[int, str]) -> str:
    return f"{name:<{NAME}}" + "".join(f"{text:>{width}}" for width, text in cells)


def _wrapped(text: str, width: int = WIDTH) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield line


def _interval(found: Interval) -> str:
    ends = "" if found.low is None or found.high is None else f" {_short(found.low)}-{_short(found.high)}"
    return f"{_short(found.value)}{ends}"


def _short(value: float | None) -> str:
    return _number(value, 2 if value is None or value < 10 else 1)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
