"""Report of a comparison of verifiers as plain text, at most 80 columns wide, in the layout of the paper's tables."""

from collections.abc import Mapping, Sequence

from decoder.events import arithmetic
from decoder.verify.names import COUPLED, Drafting
from dynatui.lab.bench.contenders import BASELINE
from dynatui.lab.bench.sampling.records import BOUND, STAND_INS, Contest
from dynatui.lab.bench.sampling.report import Action, Agreement, Divergence, Row, SamplingReport
from dynatui.lab.bench.sampling.statistics import NAMES, REPORTED, SPEED, TOKENS, Ranking, SamplingClaim
from dynatui.lab.tables import WIDTH, Column, Spec, Table, cut, interval, number, of_rows, short, text, wrapped

NAME = 22


def on_samplings(report: SamplingReport) -> str:
    parts = [_heading(report)]
    for title, measure, rows in (
        ("Block efficiency: tokens a round", TOKENS, report.block_efficiency),
        ("Tokens a second, decoded", SPEED, report.tokens_per_second),
    ):
        if rows:
            parts.append(text(_averages(f"{title} (the paper's tables 2, 3, 6 and 7)", rows, *REPORTED[measure])))
            parts.append(text(_columns(f"{title}, by task (tables 8 and 9)", rows, "by_task")))
            parts.append(text(_columns(f"{title}, by setting (tables 10 to 15)", rows, "by_sampling")))
    parts += [text(_divergence(report.divergence, report.header.request.k)), _actions(report.actions)]
    parts += [text(_agreements(report.agreement))] * bool(report.agreement)
    parts += [_rankings(report.rankings)] * bool(report.rankings)
    parts += [text(_claims(report.claims))] * bool(report.claims)
    return "\n\n".join(parts) + "\n"


def _heading(report: SamplingReport) -> str:
    request, machine = report.header.request, report.header.machine
    tasks = [f"{name} for {STAND_INS[name][0]}" if name in STAND_INS else name for name in request.tasks]
    computed = arithmetic(request.dtype, request.draft_dtype)
    lines = [
        f"{request.target} with {request.draft} on {request.device} in {computed}, independent sampling",
        f"{machine.processor}, torch threads: {machine.threads}, cores: {machine.cores}",
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"system load {number(machine.load_before, 1)} before the run, {number(report.load_after, 1)} after it; "
        f"{report.disturbed} of {report.decoded} decoded texts were disturbed",
        f"tree shapes: K 1 to {request.k}, L1 and L2 0 to {request.length}; "
        f"{sum(map(len, request.tasks.values()))} prompts per setting; seed {request.seed}",
        f"{report.roots} roots: one per {request.roots_every} tokens, "
        f"in texts of {request.max_new_tokens} sampled tokens",
        f"decoded: {request.decoded} prompts of each task, {request.max_new_tokens} tokens, {request.repeats} times",
        "block efficiency: closed forms at the roots; for coupled trees: decoded texts",
        "shapes: the best on one half of the prompts, evaluated on the other half",
        "tokens/s: from decoded texts, without time spent waiting for a processor",
        "means over prompts, then over tasks and settings; 95 % bootstrap intervals",
    ]
    if request.selecting():
        trained = " and ".join(name.split()[0] for name in request.selectors)
        lines += wrapped(
            f"selector: chooses shapes for speed; trained for {trained}; each other verifier uses the selector "
            "of a similar verifier."
        )
    if any(name in STAND_INS for name in request.tasks):
        lines += wrapped(f"Tasks of Spec-Bench stand in for the paper's data sets: {', '.join(tasks)}.")
    if report.disturbed:
        lines.append("TIMES WERE MEASURED ON A BUSY MACHINE; block efficiency does not depend on times.")
    if not report.complete:
        lines.append("INTERRUPTED: the results below are from a part of the measurement.")
    return "\n".join(map(cut, lines))


def _averages(title: str, rows: Sequence[Row], iid: Mapping[str, float], delayed: Mapping[str, float]) -> Table:
    """Table of measured means over all texts, next to the paper's averages, in ascending order of the means."""

    def there(row: Row) -> float | None:
        known = row.k is None and row.verifier != COUPLED
        return (iid if row.drafting == Drafting.IID else delayed).get(row.verifier) if known else None

    specs: list[Spec[Row]] = [
        (Column("", width=NAME), _name),
        (Column("here", width=20), lambda row: interval(row.mean, short)),
        (Column("paper", "number", 2, 9), there),
    ]
    if any(row.over_ar for row in rows):
        specs.append((Column("x ar", width=22), lambda row: interval(row.over_ar, short)))
    return of_rows(specs, sorted(rows, key=lambda row: row.mean.value), title=title)


def _columns(title: str, rows: Sequence[Row], by: str) -> Table:
    """Table with a column for each task or sampling setting, and rows in the paper's order."""
    names = list(dict.fromkeys(name for row in rows for name in getattr(row, by)))
    width = min(12, (WIDTH - NAME) // max(1, len(names)))

    def column(name: str) -> Spec[Row]:
        head = STAND_INS.get(name, ("", name))[1]
        return Column(head[: width - 1], width=width), lambda row: short(getattr(row, by).get(name))

    return of_rows([(Column("", width=NAME), _name), *map(column, names)], sorted(rows, key=_place), title=title)


def _divergence(by_depth: Divergence, k: int) -> Table:
    """Table of the data in the paper's figure 1."""
    heads = [NAMES.get(name, "bound") for name in by_depth.acceptance]
    rows = zip(map(str, range(len(by_depth.distance))), by_depth.distance, *by_depth.acceptance.values(), strict=True)
    return Table(
        title=f"L1 distance, and acceptance with {k} draws, by depth of the draft tree (figure 1)",
        columns=(Column("depth", width=6), *(Column(head, "number", 3, 10) for head in ("L1", *heads))),
        rows=tuple(rows),
        notes=("bound: upper bound on the acceptance of any lossless solver.",) * (BOUND in by_depth.acceptance),
    )


def _actions(all_actions: Sequence[Action]) -> str:
    """Tables of each verifier's best fixed shape for each sampling setting and task, with four of these per table."""
    parts = []
    for aim in (TOKENS, SPEED):
        these = [action for action in all_actions if action.aim == aim]
        among = list(dict.fromkeys(action.among for action in these))
        tables = [text(_best_shapes(these, among[start : start + 4])) for start in range(0, len(among), 4)]
        parts.append("\n".join([f"Best shape K,L1,L2 for most {aim}, with the shape's tokens a round", *tables]))
    return "\n\n".join(parts)


def _best_shapes(actions: Sequence[Action], among: Sequence[str]) -> Table:
    rows: dict[str, dict[str, str]] = {}
    for each in actions:
        shape = f"{','.join(map(str, each.shape))} {each.tokens:.2f}"
        rows.setdefault(_called(Contest(each.verifier, each.drafting)), {})[each.among] = shape
    return Table(
        columns=(Column("", width=NAME), *(Column(name[:13], width=14) for name in among)),
        rows=tuple((name, *map(shapes.get, among)) for name, shapes in rows.items()),
    )


def _agreements(rows: Sequence[Agreement]) -> Table:
    """Table of tokens per round, measured on decoded texts and expected by closed forms."""
    specs: list[Spec[Agreement]] = [
        (Column("", width=NAME), _called),
        (Column("decoded", "number", 2, 10), lambda each: each.realised),
        (Column("expected", "number", 2, 10), lambda each: each.expected),
    ]
    notes = (
        "Expected: mean over roots. Decoded: mean over rounds.",
        "The last round of a text is cut off at the end of the text. If few tokens are",
        "accepted in a passage, it has more rounds, and these reduce the decoded mean.",
    )
    title = "Tokens per round, decoded and expected by closed forms, on the same prompts"
    return of_rows(specs, rows, title=title, notes=notes)


def _rankings(all_rankings: Sequence[Ranking]) -> str:
    """Lines that list the verifiers in ranked order, here and in the paper, with the number of pairs that agree."""
    lines = ["Rankings, the best first"]
    for ranking in all_rankings:
        counts = f"{ranking.holds} pairs as in the paper, {ranking.fails} reversed, {ranking.open} undecided"
        lines.append(f"{ranking.what}: {counts}")
        for where, names in (("here", ranking.here), ("paper", ranking.paper)):
            lines += wrapped(f"  {where:<6}" + ", ".join(NAMES[name] for name in names))
    return "\n".join(lines)


def _claims(rows: Sequence[SamplingClaim]) -> Table:
    specs: list[Spec[SamplingClaim]] = [
        (Column("", width=41), lambda claim: "\n".join(wrapped(claim.says, 40))),
        (Column("paper", "number", 2, 6), lambda claim: claim.paper),
        (Column("here", width=17), lambda claim: interval(claim.here, short)),
        (Column("  verdict", width=0), lambda claim: f"  {claim.verdict}"),
    ]
    return of_rows(specs, rows, title="The paper's claims; a claim holds if its quotient exceeds 1")


def _place(row: Row) -> tuple[bool, int, int, int]:
    """Sort key for the paper's order of rows: by verifier, then by kind of drafting; rows of coupled trees are last."""
    if row.verifier == COUPLED:
        return (True, 0, 0, 0)
    draftings = [Drafting.SELECTOR, Drafting.DELAYED, Drafting.IID]
    return (False, list(NAMES).index(row.verifier), draftings.index(Drafting(row.drafting)), row.k or 0)


def _name(row: Row) -> str:
    if row.verifier == COUPLED:
        return row.drafting if row.drafting == BASELINE else f"coupled {row.drafting}"
    return _called(row)


def _called(contest: Contest) -> str:
    """Name of a verifier and its drafting in the style of the paper's tables."""
    more = f", K={contest.k}" if contest.k else f", {contest.drafting}" * (contest.drafting != Drafting.IID)
    return f"{NAMES[contest.verifier]}{more}"
