"""Reports as text of at most 80 columns. This module only formats numbers that other modules compute."""

from collections.abc import Callable, Sequence

from decoder.analysis.metrics import FIGURES
from decoder.events import arithmetic
from dynatui.lab.bench.contenders import INEXACT
from dynatui.lab.bench.protocol import disturbed
from dynatui.lab.bench.report import Report, RoundsReport, Setup
from dynatui.lab.bench.rounds import LENGTHS, Growth, Rounds
from dynatui.lab.bench.summary import Comparison, Difference, Row
from dynatui.lab.tables.data import UNKNOWN, Cell, Column, Spec, Table, number, of_rows, percent
from dynatui.lab.tables.text import WIDTH, counted, cut, interval, short, text

NAME = 16
_LABELS = {figure.key: figure.label for figure in FIGURES}


def on_texts(report: Report) -> str:
    """The report of methods and baselines."""
    tables = [
        _heading(report),
        text(speeds(report.rows, report.best_generate)),
        text(parts(report.rows)),
        compared(report.comparisons),
        differing(report.differences),
    ]
    return "\n\n".join(filter(None, tables)) + "\n"


def on_rounds(report: RoundsReport) -> str:
    """The report of rounds."""
    contexts = dict.fromkeys(row.context for row in report.rounds)
    by_context = [[row for row in report.rounds if row.context == context] for context in contexts]
    tables = [table for rows in by_context for table in (rounds(rows), rates(rows))]
    if report.growth:
        tables.append(grown(report.growth))
    tables.append(memory(report.rounds, report.growth))
    return "\n\n".join([_heading(report), *map(text, tables)]) + "\n"


def _heading(report: Report | RoundsReport) -> str:
    """Heading lines: models, machine and settings of the measurement, and disturbances by other processes."""
    setup, machine = report.setup, report.setup.machine
    waits = [record.waited for record in report.samples]
    quiet = "" if None in waits else f"; {disturbed(waits)} of {len(waits)} turns were disturbed"
    prompts = f"{counted(len(setup.prompts), 'prompt')} of {_range([len(prompt) for prompt in setup.prompts])} tokens"
    computed = arithmetic(setup.dtype, setup.draft_dtype, exact=setup.exact)
    lines = [
        f"{setup.target} with {setup.draft} on {setup.place} in {computed}, {_chosen(setup)}",
        f"{prompts}, at most {setup.max_new_tokens} new tokens; {counted(setup.repeats, 'repeat')}; seed {setup.seed}",
        f"rounds: {setup.path}, {setup.path_reason}",
        f"{machine.processor}, {counted(machine.threads, 'thread')} on {counted(machine.cores, 'core')}",
        f"system load {number(machine.load_before, 1)} before the run, {number(report.load_after, 1)} after it{quiet}",
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"medians with 95 % bootstrap intervals; measured in {_processes(setup)}, turn by turn",
    ]
    if machine.accelerator:
        copied = machine.copy_bytes_per_s
        lines.insert(2, f"{machine.accelerator}, copies {number(copied and copied / 1e12, 2)} TB/s")
    if peaks := report.peak_bytes_by_rank:
        lines.append(f"peak memory by process: {', '.join(f'{peak / 1e9:.2f}' for peak in peaks)} GB")
    turns = len(setup.contenders) * len(setup.prompts) * setup.repeats
    if len(waits) < turns:
        lines.append(f"INTERRUPTED: the results below are from {len(waits)} of {turns} turns")
    return "\n".join(map(cut, lines))


def _processes(setup: Setup) -> str:
    """Number of processes that run the target, in words."""
    return f"{len(setup.ranks)} processes" if setup.ranks else "one process"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def speeds(rows: Sequence[Row], best_generate: str | None) -> Table:
    """Table of tokens/s, and of ratios with their intervals."""
    limits = any(row.bandwidth_share is not None for row in rows)
    rate, length, same = (_LABELS[key] for key in ("tokens_per_second", "tokens_per_round", "identical_to_ar"))
    specs: list[Spec[Row]] = [
        (Column("", width=NAME), lambda row: row.name),
        (Column(rate, "number", 1, 8), lambda row: row.tokens_per_second and row.tokens_per_second.value),
        (Column(length, "number", 2, 6), lambda row: row.tokens_per_round),
        (Column("x ar", width=17), lambda row: interval(row.over_ar, short)),
        (Column("x generate", width=17), lambda row: interval(row.over_generate, short)),
        (Column(same, width=11), _same),
    ]
    if limits:
        specs.append((Column("limit", "number", 1, 5), lambda row: percent(row.bandwidth_share)))
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
        (Column("milliseconds:", width=NAME), lambda row: row.name),
        (Column("round", width=7), lambda row: _ms(row.round_ms)),
        (Column("draft", width=7), lambda row: _ms(row.draft_ms)),
        (Column("verify", width=7), lambda row: _ms(row.verify_ms)),
        (Column("commit", width=7), lambda row: _ms(row.commit_ms)),
        (Column("host", width=7), lambda row: _ms(row.host_ms)),
        (Column("host %", "number", 1, 7), lambda row: percent(row.host_share)),
        (Column("syncs", "number", 2, 7), lambda row: row.waits)
        if waits
        else (Column("rest %", "number", 1, 7), lambda row: percent(row.rest_share)),
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


def compared(comparisons: Sequence[Comparison]) -> str:
    """Lines that compare contenders with the best contender of each kind."""
    lines = []
    for comparison in comparisons:
        among = f" ({comparison.than}, best of {comparison.of})" if comparison.of > 1 else ""
        compared_with = f"{comparison.name} over {comparison.kind}{among}"
        ratio, room = interval(comparison.ratio, short), WIDTH - len(compared_with)
        lines += [f"{compared_with}{ratio:>{room}}"] if room >= 20 else [compared_with, f"{ratio:>{WIDTH}}"]
    return "\n".join(lines)


def differing(differences: Sequence[Difference]) -> str:
    """Lines about texts that differ from the text of `ar`."""
    if not differences:
        return ""
    lines = ["Texts that differ from that of ar; their methods have no speed on these prompts:"]
    lines += [
        f"{difference.name}, prompt {difference.prompt + 1}, first at token {difference.index}: {_verdict(difference)}"
        for difference in differences
    ]
    return "\n".join(lines)


def rounds(rows: Sequence[Rounds]) -> Table:
    """Table of round costs by tree size, for rounds after a text of one length."""
    specs: list[Spec[Rounds]] = [
        (Column("levels x rows", width=NAME), lambda row: row.name),
        (Column("ms/round", width=20), lambda row: interval(row.round_ms, _ms)),
        (Column("draft", width=7), lambda row: _ms(row.draft_ms)),
        (Column("/level", width=7), lambda row: _ms(row.level_ms)),
        (Column("verify", width=7), lambda row: _ms(row.verify_ms)),
    ]
    gpu = any(row.bandwidth_share is not None for row in rows)
    if gpu:
        specs += [
            (Column("host", width=6), lambda row: _ms(row.commit_ms + row.host_ms)),
            (Column("limit", "number", 1, 6), lambda row: percent(row.bandwidth_share)),
            (Column("syncs", "number", 2, 7), lambda row: row.waits),
        ]
    else:
        specs += [
            (Column("commit", width=7), lambda row: _ms(row.commit_ms)),
            (Column("host", width=7), lambda row: _ms(row.host_ms)),
        ]
    title = f"After {rows[0].context} random tokens, with a draft that guesses at random:"
    notes = ["host: includes commit; limit: % of copy bandwidth; syncs: waits for the device."] * gpu
    return of_rows(specs, rows, title=title, notes=notes)


def rates(rows: Sequence[Rounds]) -> Table:
    """Table of tokens/s by tree size and assumed tokens per round."""

    def column(length: float) -> Spec[Rounds]:
        return Column(f"{length:g}", "number", 1, 10), lambda row: row.tokens_per_second.get(length)

    name: Spec[Rounds] = Column(f"tokens/s at {_LABELS['tokens_per_round']}", width=NAME), lambda row: row.name
    return of_rows([name, *map(column, LENGTHS)], rows)


def grown(rows: Sequence[Growth]) -> Table:
    """Table with the growth of round times as texts get longer, beside the growth of the rounds' multiply-adds."""
    specs: list[Spec[Growth]] = [
        (Column("levels x rows", width=NAME), lambda row: row.name),
        (Column("after", "number", width=7), lambda row: row.context),
        (Column("round", width=17), lambda row: interval(row.round, short)),
        (Column("/level", "number", 2, 8), lambda row: row.level),
        (Column("verify", "number", 2, 8), lambda row: row.verify),
        (Column("sums", "number", 2, 8), lambda row: row.multiply_adds),
        (Column("round/sums", width=16), lambda row: interval(row.beyond, short)),
    ]
    notes = (
        "sums: growth of the multiply-adds of matrices and attention in the same rounds;",
        "round/sums: growth of the round's time, divided by sums.",
    )
    return of_rows(specs, rows, title=f"Growth relative to {rows[0].over} tokens:", notes=notes)


def memory(rows: Sequence[Rounds], growth: Sequence[Growth]) -> Table:
    """Table of KV cache bytes and peak memory, and of their increase with the text length."""
    more = {(row.name, row.context): row for row in growth}

    def added(take: Callable[[Growth], int | None]) -> Callable[[Rounds], Cell]:
        return lambda row: _mb(take(row_growth)) if (row_growth := more.get((row.name, row.context))) else ""

    specs: list[Spec[Rounds]] = [
        (Column("megabytes:", width=NAME), lambda row: row.name),
        (Column("after", "number", width=7), lambda row: row.context),
        (Column("keys and values", "number", 1, 17), lambda row: _mb(row.kv_bytes)),
        (Column("peak", "number", 1, 9), lambda row: _mb(row.peak_bytes)),
    ]
    if growth:
        specs += [
            (Column("adds: k+v", "number", 1, 11), added(lambda each: each.kv_bytes)),
            (Column("peak", "number", 1, 9), added(lambda each: each.peak_bytes)),
        ]
    notes = (
        "keys and values: allocated bytes of both models' caches;",
        "peak: peak memory in the rounds (CUDA: of the device; CPU: of the process).",
    )
    return of_rows(specs, rows, notes=notes)


def _verdict(difference: Difference) -> str:
    """Verdict of the float32 pass on the first two tokens that differ, in words."""
    match difference.near_tie:
        case None:
            return "one text is shorter" if difference.judged else "not judged"
        case True:
            return f"a near tie, gap {difference.gap:.2g}"
        case False:
            return f"NO TIE, gap {difference.gap:.2g}"


def _ms(value: float | None) -> str:
    """Milliseconds as text; large numbers have fewer decimals, so that all numbers fit their column."""
    return number(value, 3 if value is None or value < 10 else 2 if value < 100 else 1)


def _mb(count: int | None) -> float | None:
    return None if count is None else count / 1e6


def _chosen(setup: Setup) -> str:
    """Sampling setting in words."""
    if not setup.temperature:
        return "greedy"
    kept = [f"top-k {setup.top_k}"] * bool(setup.top_k) + [f"top-p {setup.top_p:g}"] * (setup.top_p < 1)
    return ", ".join([f"sampled at temperature {setup.temperature:g}", *kept])
