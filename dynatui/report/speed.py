"""What `dynatui bench speed --json` keeps, as a page: each measurement with its setup, tables and comparisons.

Numbers are those of the report; none is computed here.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from decoder.events import arithmetic
from dynatui.number_format import memory_by_rank
from dynatui.report.markup import Markup, details, element, joined, table
from dynatui.report.measured import UNKNOWN, interval, machine_entries, notice, number, verdict_of_ratio
from dynatui.report.page import Page

if TYPE_CHECKING:  # which import torch
    from decoder.bench.report import Report, RoundsReport, Setup
    from decoder.bench.rounds import Growth, Rounds
    from decoder.bench.summary import Comparison, Difference, Row

_ABOUT = (
    "All contenders decoded in one run, turn by turn on the same prompts, after a warm-up. Numbers are medians, "
    "with 95 % bootstrap intervals behind them. A text that differs from ar's (decoding without a draft), and not by "
    "design, has no speed."
)
_SPEED = ("method", "tokens/s", "tokens a round (L-bar)", "x ar", "x generate", "same text as ar")
_PARTS = ("ms", "round", "draft", "verify", "commit", "host", "target passes", "draft passes", "peak MB")
_COMPARED = ("compared", "ratio of speeds", "verdict")
_DIFFERING = ("method", "prompt", "from token", "why")
_ROUND = ("levels x rows", "ms a round", "draft", "a level", "verify", "commit", "host", "k+v MB", "peak MB")
_GROWN = ("levels x rows", "after", "round", "a level", "verify", "arithmetic", "round over arithmetic")


def speed_page(name: str, reports: "Sequence[Report | RoundsReport]") -> Page:
    """The page of all measurements of a file."""
    head = element("header", element("h1", f"Speed: {name}"), element("p", _ABOUT))
    parts = (_part(number, report) for number, report in enumerate(reports, 1))
    return Page(title=f"{name} - dynatui", body=joined((head, element("main", *parts))))


def _part(number_of: int, report: "Report | RoundsReport") -> Markup:
    from decoder.bench.report import Report  # noqa: PLC0415 - imports torch

    setup = report.setup
    title = f"{number_of}. {setup.target} with {setup.draft}, {setup.started_at}"
    told = _of_texts(report) if isinstance(report, Report) else _of_rounds(report)
    return element(
        "section", element("h2", title), notice(_warnings(report)), details(_setup(report)), *told, class_="part"
    )


def _warnings(report: "Report | RoundsReport") -> Iterator[str]:
    from decoder.bench.protocol import DISTURBED  # noqa: PLC0415 - imports torch

    setup, waits = report.setup, [record.waited for record in report.samples]
    turns = len(setup.contenders) * len(setup.prompts) * setup.repeats
    if len(waits) < turns:
        yield f"Interrupted: this rests on {len(waits)} of {turns} turns."
    disturbed = sum(waited > DISTURBED for waited in waits if waited is not None)
    if disturbed:
        yield f"In {disturbed} of {len(waits)} turns threads waited long for a processor: other work disturbed them."


def _setup(report: "Report | RoundsReport") -> list[tuple[str, str]]:
    setup = report.setup
    lengths = [len(prompt) for prompt in setup.prompts]
    return [
        ("Target model", setup.target),
        ("Draft model", setup.draft),
        ("Computed in", f"{arithmetic(setup.dtype, setup.draft_dtype, exact=setup.exact)} on {setup.place}"),
        ("Rounds", f"{setup.path}, {setup.path_reason}" if setup.path else UNKNOWN),
        ("Tokens are chosen", _chosen(setup)),
        ("Prompts", f"{len(lengths)} of {min(lengths, default=0)} to {max(lengths, default=0)} tokens"),
        ("New tokens", f"at most {setup.max_new_tokens}, each prompt {setup.repeats} times"),
        *machine_entries(setup.machine, report.load_after),
        *((("Memory", memory_by_rank(report.peak_bytes_by_rank)),) if report.peak_bytes_by_rank else ()),
    ]


def _chosen(setup: "Setup") -> str:
    if not setup.temperature:
        return f"greedily, seed {setup.seed}"
    return f"at temperature {setup.temperature:g}, top-k {setup.top_k}, top-p {setup.top_p:g}, seed {setup.seed}"


def _of_texts(report: "Report") -> Iterator[Markup]:
    yield table("Speed", _SPEED, map(_speed, report.rows))
    if report.best_generate:
        yield element("p", f"x generate: over {report.best_generate}, transformers' plain decoding.", class_="about")
    yield table("Where the time of a round goes, and passes of the models in it", _PARTS, map(_parts, report.rows))
    if report.comparisons:
        yield table("Against the best of each kind", _COMPARED, map(_compared, report.comparisons))
    if report.differences:
        yield table("Texts that differ from ar's", _DIFFERING, map(_differing, report.differences))


def _speed(row: "Row") -> list[str]:
    return [
        row.name,
        interval(row.tokens_per_second, 1),
        number(row.tokens_per_round),
        interval(row.over_ar),
        interval(row.over_generate),
        _same(row),
    ]


def _same(row: "Row") -> str:
    if row.same is None:
        return "differs by design" if row.by_design else UNKNOWN
    return f"{row.same} of {row.prompts}"


def _parts(row: "Row") -> list[str]:
    times = (row.round_ms, row.draft_ms, row.verify_ms, row.commit_ms, row.host_ms)
    passes = (row.target_forwards, row.draft_forwards)
    return [row.name, *(number(time, 3) for time in times), *map(number, passes), _megabytes(row.peak_bytes)]


def _compared(found: "Comparison") -> list[str]:
    among = f" ({found.than}, best of {found.of})" if found.of > 1 else ""
    return [f"{found.name} over {found.kind}{among}", interval(found.ratio), verdict_of_ratio(found.ratio)]


def _differing(found: "Difference") -> list[str]:
    unknown = "one text is shorter" if found.judged else "not judged"
    why = {None: unknown, True: "a near tie", False: "NO TIE: a fault"}[found.near_tie]
    gap = "" if found.gap is None else f", gap {found.gap:.2g}"
    return [found.name, str(found.prompt + 1), str(found.index), f"{why}{gap}"]


def _of_rounds(report: "RoundsReport") -> Iterator[Markup]:
    for context in dict.fromkeys(row.context for row in report.rounds):
        rows = [row for row in report.rounds if row.context == context]
        yield table(f"What a round costs after {context} random tokens", _ROUND, map(_round, rows))
    if report.growth:
        caption = f"By what rounds cost more than after {report.growth[0].over} tokens"
        yield table(caption, _GROWN, map(_grown, report.growth))


def _round(row: "Rounds") -> list[str]:
    times = (row.draft_ms, row.level_ms, row.verify_ms, row.commit_ms, row.host_ms)
    memory = (row.kv_bytes, row.peak_bytes)
    return [row.name, interval(row.round_ms, 3), *(number(time, 3) for time in times), *map(_megabytes, memory)]


def _grown(row: "Growth") -> list[str]:
    factors = (row.level, row.verify, row.multiply_adds)
    return [row.name, str(row.context), interval(row.round), *map(number, factors), interval(row.beyond)]


def _megabytes(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count / 1e6:.1f}"
