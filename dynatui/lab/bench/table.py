"""Reports as text of at most 80 columns. All numbers are computed in other modules."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from decoder.analysis.metrics import FIGURES
from decoder.events import arithmetic
from dynatui.lab.bench.contenders import INEXACT
from dynatui.lab.bench.job import Common, Report, RoundsReport, Setup
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.bench.rounds import LENGTHS, Growth, Rounds
from dynatui.lab.bench.summary import Comparison, Difference, Row
from dynatui.lab.tables import (
    UNKNOWN,
    WIDTH,
    Cell,
    Column,
    Spec,
    Table,
    cut,
    interval,
    number,
    of_rows,
    percent,
    short,
    text,
)
from dynatui.number_format import counted

NAME = 16
_LABELS = {figure.key: figure.label for figure in FIGURES}


def on_texts(report: Report) -> str:
    tables = [
        _heading(report, [record.waited for record in report.samples]),
        text(speeds(report.rows, report.best_generate)),
        text(parts(report.rows)),
        _compared(report.comparisons),
        _differing(report.differences),
    ]
    return "\n\n".join(filter(None, tables)) + "\n"


def on_rounds(report: RoundsReport) -> str:
    contexts = dict.fromkeys(row.context for row in report.rounds)
    by_context = [[row for row in report.rounds if row.context == context] for context in contexts]
    tables = [table for rows in by_context for table in (rounds(rows), rates(rows))]
    if report.growth:
        tables.append(grown(report.growth))
    tables.append(memory(report.rounds, report.growth))
    return "\n\n".join([_heading(report, [record.waited for record in report.samples]), *map(text, tables)]) + "\n"


def _heading(report: Common, waits: Sequence[float | None]) -> str:
    """Heading: models, machine and settings of the measurement, and the number of disturbed turns."""
    setup, machine = report.setup, report.setup.machine
    quiet = "" if None in waits else f"; {disturbed(waits)} of {len(waits)} turns were disturbed"
    lengths = sorted(map(len, setup.prompts))
    several = f"{lengths[0]} to {lengths[-1]}" if lengths[0] < lengths[-1] else lengths[0]
    processes = f"{len(setup.ranks)} processes" if setup.ranks else "one process"
    lines = [
        f"{setup.target} with {setup.draft} on {setup.place} in "
        f"{arithmetic(setup.dtype, setup.draft_dtype, exact=setup.exact)}, {_chosen(setup)}",
        f"{counted(len(lengths), 'prompt')} of {several} tokens, at most {setup.max_new_tokens} new tokens; "
        f"{counted(setup.repeats, 'repeat')}; seed {setup.seed}",
        f"rounds: {setup.path}, {setup.path_reason}",
        f"{machine.processor}, {counted(machine.threads, 'thread')} on {counted(machine.cores, 'core')}",
        f"system load {number(machine.load_before, 1)} before the run, {number(report.load_after, 1)} after it{quiet}",
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"medians with 95 % bootstrap intervals; measured in {processes}, turn by turn",
    ]
    if setup.passes:
        lines.insert(3, f"passes: {', '.join(f'{role} {computed}' for role, computed in setup.passes.items())}")
    if machine.accelerator:
        copied = machine.copy_bytes_per_s
        lines.insert(2, f"{machine.accelerator}, copies {number(copied and copied / 1e12, 2)} TB/s")
    if peaks := report.peak_bytes_by_rank:
        lines.append(f"peak memory by process: {', '.join(f'{peak / 1e9:.2f}' for peak in peaks)} GB")
    turns = len(setup.contenders) * len(setup.prompts) * setup.repeats
    if len(waits) < turns:
        lines.append(f"INTERRUPTED: the results below are from {len(waits)} of {turns} turns")
    return "\n".join(map(cut, lines))


def speeds(rows: Sequence[Row], best_generate: str | None) -> Table:
    """Table of tokens/s, and of ratios with their intervals."""
    limits = any(row.bandwidth_share is not None for row in rows)
    rate, length, same = (_LABELS[key] for key in ("tokens_per_second", "tokens_per_round", "identical_to_ar"))
    specs: list[Spec[Row]] = [
        _name(""),
        (Column(rate, "number", 1, 8), lambda row: row.tokens_per_second and row.tokens_per_second.value),
        _number(length, "tokens_per_round", 2, 6),
        _interval("x ar", "over_ar", 17),
        _interval("x generate", "over_generate", 17),
        (Column(same, width=11), _same),
        *[_percent("limit", "bandwidth_share", 5)] * limits,
    ]
    remarks = {
        f"x generate: speed over {best_generate}, transformers' fastest plain decoding.": best_generate,
        "own: a text that differs from the text of ar by design; its speed counts.": any(row.by_design for row in rows),
        "~: method without exactness; a near tie may change its text.": any(row.group == INEXACT for row in rows),
        "limit: rate at which passes read weights, in % of the copy bandwidth.": limits,
    }
    return of_rows(specs, rows, notes=(remark for remark, holds in remarks.items() if holds))


def _same(row: Row) -> str:
    if row.same is None:
        return "own" if row.by_design else UNKNOWN
    return f"{row.same} of {row.prompts}"


def parts(rows: Sequence[Row]) -> Table:
    """Table with the milliseconds of each part of a round, the forward passes per round, and the peak memory."""
    waits = any(row.waits is not None for row in rows)
    specs: list[Spec[Row]] = [
        _name("milliseconds:"),
        *_times("round", "draft", "verify", "commit", "host"),
        _percent("host %", "host_share", 7),
        _number("syncs", "waits", 2, 7) if waits else _percent("rest %", "rest_share", 7),
        (Column("forwards", width=9), _passes),
        (Column("GB", "number", 2, 6), lambda row: row.peak_bytes and row.peak_bytes / 1e9),
    ]
    beside = "syncs: waits for the device" if waits else "rest %: time outside of the models' calls"
    notes = (
        f"Per round. host %: commit + host; {beside};",
        "forwards: passes of target and draft; GB: peak memory (on CPU: of the process).",
    )
    return of_rows(specs, rows, notes=notes)


def _passes(row: Row) -> str:
    counts = (row.target_forwards, row.draft_forwards)
    return "+".join(UNKNOWN if count is None else f"{count:.3g}" for count in counts)


def _compared(comparisons: Sequence[Comparison]) -> str:
    lines = []
    for comparison in comparisons:
        among = f" ({comparison.than}, best of {comparison.of})" if comparison.of > 1 else ""
        compared_with = f"{comparison.name} over {comparison.kind}{among}"
        ratio, room = interval(comparison.ratio, short), WIDTH - len(compared_with)
        lines += [f"{compared_with}{ratio:>{room}}"] if room >= 20 else [compared_with, f"{ratio:>{WIDTH}}"]
    return "\n".join(lines)


def _differing(differences: Sequence[Difference]) -> str:
    lines = ["Texts that differ from that of ar; these methods have no speed on these prompts:"] * bool(differences)
    lines += [
        f"{difference.name}, prompt {difference.prompt + 1}, first at token {difference.index}: {_verdict(difference)}"
        for difference in differences
    ]
    return "\n".join(lines)


def _verdict(difference: Difference) -> str:
    if difference.near_tie is None:
        return "one text is shorter" if difference.judged else "not judged"
    return f"{'a near tie' if difference.near_tie else 'NO TIE'}, gap {difference.gap:.2g}"


def rounds(rows: Sequence[Rounds]) -> Table:
    """Table of round costs by tree size, for rounds after a text of one length."""
    gpu = any(row.bandwidth_share is not None for row in rows)
    specs: list[Spec[Rounds]] = [
        _name("levels x rows"),
        (Column("ms/round", width=20), lambda row: interval(row.round_ms, _ms)),
        *_times("draft", "/level", "verify", *(() if gpu else ("commit", "host"))),
    ]
    if gpu:
        specs += [
            (Column("host", width=6), lambda row: _ms(row.commit_ms + row.host_ms)),
            _percent("limit", "bandwidth_share", 6),
            _number("syncs", "waits", 2, 7),
        ]
    title = f"After {rows[0].context} random tokens, with a draft that guesses at random:"
    notes = ["host: includes commit; limit: % of copy bandwidth; syncs: waits for the device."] * gpu
    return of_rows(specs, rows, title=title, notes=notes)


def rates(rows: Sequence[Rounds]) -> Table:
    def column(length: float) -> Spec[Rounds]:
        return Column(f"{length:g}", "number", 1, 10), lambda row: row.tokens_per_second.get(length)

    return of_rows([_name(f"tokens/s at {_LABELS['tokens_per_round']}"), *map(column, LENGTHS)], rows)


def grown(rows: Sequence[Growth]) -> Table:
    """Table with the growth of round times and of multiply-adds per round, relative to the first text length."""
    specs: list[Spec[Growth]] = [
        _name("levels x rows"),
        _number("after", "context", 0, 7),
        _interval("round", "round", 17),
        _number("/level", "level", 2, 8),
        _number("verify", "verify", 2, 8),
        _number("sums", "multiply_adds", 2, 8),
        _interval("round/sums", "beyond", 16),
    ]
    notes = (
        "sums: growth of the multiply-adds of matrices and attention in the same rounds;",
        "round/sums: growth of the round's time, divided by sums.",
    )
    return of_rows(specs, rows, title=f"Growth relative to {rows[0].over} tokens:", notes=notes)


def memory(rows: Sequence[Rounds], growth: Sequence[Growth]) -> Table:
    """Table of KV cache bytes and peak memory, and of their increase with the text length."""
    more = {(row.name, row.context): row for row in growth}

    def mb(title: str, key: str, width: int, *, added: bool = False) -> Spec[Rounds]:
        def take(row: Rounds) -> Cell:
            of = more.get((row.name, row.context)) if added else row
            count = getattr(of, key, None)
            return "" if of is None else count and count / 1e6

        return Column(title, "number", 1, width), take

    specs: list[Spec[Rounds]] = [
        _name("megabytes:"),
        _number("after", "context", 0, 7),
        mb("keys and values", "kv_bytes", 17),
        mb("peak", "peak_bytes", 9),
    ]
    if growth:
        specs += [mb("adds: k+v", "kv_bytes", 11, added=True), mb("peak", "peak_bytes", 9, added=True)]
    notes = (
        "keys and values: allocated bytes of both models' caches;",
        "peak: peak memory in the rounds (CUDA: of the device; CPU: of the process).",
    )
    return of_rows(specs, rows, notes=notes)


def _name(title: str) -> Spec[Row | Rounds | Growth]:
    return Column(title, width=NAME), lambda row: row.name


def _number(title: str, key: str, digits: int, width: int) -> Spec[object]:
    return Column(title, "number", digits, width), attrgetter(key)


def _percent(title: str, key: str, width: int) -> Spec[object]:
    return Column(title, "number", 1, width), lambda row: percent(getattr(row, key))


def _interval(title: str, key: str, width: int) -> Spec[object]:
    return Column(title, width=width), lambda row: interval(getattr(row, key), short)


def _times(*titles: str) -> Iterable[Spec[object]]:
    """Columns with the milliseconds of these parts of a round."""

    def take(key: str) -> Callable[[object], Cell]:
        return lambda row: _ms(getattr(row, key))

    return [(Column(title, width=7), take(f"{title.strip('/')}_ms")) for title in titles]


def _ms(value: float | None) -> str:
    """Milliseconds as text; large numbers have fewer decimals, so that all numbers fit their column."""
    return number(value, 3 if value is None or value < 10 else 2 if value < 100 else 1)


def _chosen(setup: Setup) -> str:
    """Sampling setting in words."""
    if not setup.temperature:
        return "greedy"
    kept = [f"top-k {setup.top_k}"] * bool(setup.top_k) + [f"top-p {setup.top_p:g}"] * (setup.top_p < 1)
    return ", ".join([f"sampled at temperature {setup.temperature:g}", *kept])
