"""The JSON of `dynatui bench speed` as a page: each measurement with its setup, tables and comparisons.

All numbers come from the report; this module computes no numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from decoder.events import arithmetic
from decoder.tables.data import UNKNOWN, Column, number, of_rows
from dynatui.number_format import memory_by_rank
from dynatui.report.markup import Markup, details, element, joined
from dynatui.report.measured import interval, machine_entries, notice, verdict_of_ratio
from dynatui.report.page import Page
from dynatui.report.tables import grid

if TYPE_CHECKING:  # these modules import torch
    from decoder.bench.report import Report, RoundsReport, Setup
    from decoder.bench.rounds import Growth, Rounds
    from decoder.bench.summary import Comparison, Difference, Row

R = TypeVar("R")
_ABOUT = (
    "All contenders decoded in one run, turn by turn on the same prompts, after a warm-up. Numbers are medians, "
    "with 95 % bootstrap intervals after them. No speed is given for a text that differs from that of ar (decoding "
    "without a draft), unless the method's text differs by design."
)


def speed_page(name: str, reports: "Sequence[Report | RoundsReport]") -> Page:
    """The page of all measurements of a file."""
    head = element("header", element("h1", f"Speed: {name}"), element("p", _ABOUT))
    parts = (_section(number, report) for number, report in enumerate(reports, 1))
    return Page(title=f"{name} - dynatui", body=joined((head, element("main", *parts))))


def _section(number_of: int, report: "Report | RoundsReport") -> Markup:
    from decoder.bench.report import Report  # noqa: PLC0415 - imports torch

    setup = report.setup
    title = f"{number_of}. {setup.target} with {setup.draft}, {setup.started_at}"
    parts = _of_texts(report) if isinstance(report, Report) else _of_rounds(report)
    return element(
        "section", element("h2", title), notice(_warnings(report)), details(_setup(report)), *parts, class_="part"
    )


def _warnings(report: "Report | RoundsReport") -> Iterator[str]:
    from decoder.bench.protocol import disturbed  # noqa: PLC0415 - imports torch

    setup, waits = report.setup, [record.waited for record in report.samples]
    turns = len(setup.contenders) * len(setup.prompts) * setup.repeats
    if len(waits) < turns:
        yield f"Interrupted: only {len(waits)} of {turns} turns were measured."
    if loud := disturbed(waits):
        yield (
            f"In {loud} of {len(waits)} turns, other work disturbed the measurement: threads waited long for a "
            "processor."
        )


def _setup(report: "Report | RoundsReport") -> list[tuple[str, str]]:
    setup = report.setup
    lengths = [len(prompt) for prompt in setup.prompts]
    return [
        ("Target model", setup.target),
        ("Draft model", setup.draft),
        ("Computed in", f"{arithmetic(setup.dtype, setup.draft_dtype, exact=setup.exact)} on {setup.place}"),
        ("Rounds", f"{setup.path}, {setup.path_reason}" if setup.path else UNKNOWN),
        ("Tokens are chosen", _sampling_words(setup)),
        ("Prompts", f"{len(lengths)} of {min(lengths, default=0)} to {max(lengths, default=0)} tokens"),
        ("New tokens", f"at most {setup.max_new_tokens} a prompt; each prompt was decoded {setup.repeats} times"),
        *machine_entries(setup.machine, report.load_after),
        *((("Memory", memory_by_rank(report.peak_bytes_by_rank)),) if report.peak_bytes_by_rank else ()),
    ]


def _sampling_words(setup: "Setup") -> str:
    if not setup.temperature:
        return f"greedily, seed {setup.seed}"
    return f"at temperature {setup.temperature:g}, top-k {setup.top_k}, top-p {setup.top_p:g}, seed {setup.seed}"


def _of_texts(report: "Report") -> Iterator[Markup]:
    yield _table("Speed", _SPEED, report.rows)
    if report.best_generate:
        yield element(
            "p", f"x generate: speed relative to {report.best_generate}, transformers' plain decoding.", class_="about"
        )
    yield _table("Time of a round by stage, and model passes per round", _PARTS, report.rows)
    if report.comparisons:
        yield _table("Speed against the best contender of each kind", _COMPARED, report.comparisons)
    if report.differences:
        yield _table("Texts that differ from that of ar", _DIFFERING, report.differences)


def _of_rounds(report: "RoundsReport") -> Iterator[Markup]:
    for context in dict.fromkeys(row.context for row in report.rounds):
        rows = [row for row in report.rounds if row.context == context]
        yield _table(f"Cost of a round after {context} random tokens", _ROUND, rows)
    if report.growth:
        caption = f"Cost of a round divided by its cost after {report.growth[0].over} random tokens"
        yield _table(caption, _GROWN, report.growth)


def _table(caption: str, columns: Mapping[str, Callable[[R], str]], rows: Iterable[R]) -> Markup:
    """A table of text cells: `columns` maps each column's title to the function from a row to its cell."""
    return grid(of_rows([(Column(title), take) for title, take in columns.items()], rows, title=caption))


def _agreement(row: "Row") -> str:
    if row.same is None:
        return "differs by design" if row.by_design else UNKNOWN
    return f"{row.same} of {row.prompts}"


def _than(comparison: "Comparison") -> str:
    among = f" ({comparison.than}, best of {comparison.of})" if comparison.of > 1 else ""
    return f"{comparison.name} over {comparison.kind}{among}"


def _reason(difference: "Difference") -> str:
    unknown = "one text is shorter" if difference.judged else "not judged"
    reason = {None: unknown, True: "a near tie", False: "NO TIE: a fault"}[difference.near_tie]
    return reason if difference.gap is None else f"{reason}, gap {difference.gap:.2g}"


def _megabytes(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count / 1e6:.1f}"


_SPEED: "Mapping[str, Callable[[Row], str]]" = {
    "method": lambda row: row.name,
    "tokens/s": lambda row: interval(row.tokens_per_second, 1),
    "tokens a round (L-bar)": lambda row: number(row.tokens_per_round, 2),
    "x ar": lambda row: interval(row.over_ar),
    "x generate": lambda row: interval(row.over_generate),
    "same text as ar": _agreement,
}
_PARTS: "Mapping[str, Callable[[Row], str]]" = {
    "method (times in ms)": lambda row: row.name,
    "round": lambda row: number(row.round_ms, 3),
    "draft": lambda row: number(row.draft_ms, 3),
    "verify": lambda row: number(row.verify_ms, 3),
    "commit": lambda row: number(row.commit_ms, 3),
    "host": lambda row: number(row.host_ms, 3),
    "target passes": lambda row: number(row.target_forwards, 2),
    "draft passes": lambda row: number(row.draft_forwards, 2),
    "peak MB": lambda row: _megabytes(row.peak_bytes),
}
_COMPARED: "Mapping[str, Callable[[Comparison], str]]" = {
    "compared": _than,
    "ratio of speeds": lambda comparison: interval(comparison.ratio),
    "verdict": lambda comparison: verdict_of_ratio(comparison.ratio),
}
_DIFFERING: "Mapping[str, Callable[[Difference], str]]" = {
    "method": lambda difference: difference.name,
    "prompt": lambda difference: str(difference.prompt + 1),
    "from token": lambda difference: str(difference.index),
    "why": _reason,
}
_ROUND: "Mapping[str, Callable[[Rounds], str]]" = {
    "levels x rows": lambda row: row.name,
    "ms a round": lambda row: interval(row.round_ms, 3),
    "draft": lambda row: number(row.draft_ms, 3),
    "a level": lambda row: number(row.level_ms, 3),
    "verify": lambda row: number(row.verify_ms, 3),
    "commit": lambda row: number(row.commit_ms, 3),
    "host": lambda row: number(row.host_ms, 3),
    "k+v MB": lambda row: _megabytes(row.kv_bytes),
    "peak MB": lambda row: _megabytes(row.peak_bytes),
}
_GROWN: "Mapping[str, Callable[[Growth], str]]" = {
    "levels x rows": lambda row: row.name,
    "after": lambda row: str(row.context),
    "round": lambda row: interval(row.round),
    "a level": lambda row: number(row.level, 2),
    "verify": lambda row: number(row.verify, 2),
    "arithmetic": lambda row: number(row.multiply_adds, 2),
    "round over arithmetic": lambda row: interval(row.beyond),
}
