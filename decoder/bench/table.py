"""Reports as text of at most 80 columns. Only words and numbers: everything is computed before it comes here."""

from collections.abc import Callable, Sequence

from decoder.analysis.interval import Interval
from decoder.analysis.metrics import FIGURES
from decoder.bench.contenders import INEXACT
from decoder.bench.protocol import DISTURBED
from decoder.bench.report import Report, RoundsReport, Setup
from decoder.bench.rounds import LENGTHS, Growth, Rounds
from decoder.bench.summary import Comparison, Difference, Row
from decoder.events import arithmetic

WIDTH = 80
NAME = 16
UNKNOWN = "-"
_LABELS = {figure.key: figure.label for figure in FIGURES}


def on_texts(report: Report) -> str:
    """The report of methods and baselines."""
    tables = [
        _heading(report),
        speeds(report.rows, report.best_generate),
        parts(report.rows),
        compared(report.comparisons),
        differing(report.differences),
    ]
    return "\n\n".join(filter(None, tables)) + "\n"


def on_rounds(report: RoundsReport) -> str:
    """The report of rounds."""
    contexts = dict.fromkeys(row.context for row in report.rounds)
    tables = [rounds([row for row in report.rounds if row.context == context]) for context in contexts]
    tables += [grown(report.growth), memory(report.rounds, report.growth)]
    return "\n\n".join(filter(None, [_heading(report), *tables])) + "\n"


def _heading(report: Report | RoundsReport) -> str:
    """What was measured, where, and how quiet it was there."""
    setup, machine = report.setup, report.setup.machine
    waits = [record.waited for record in report.samples]
    disturbed = sum(waited > DISTURBED for waited in waits if waited is not None)
    quiet = "" if None in waits else f"; {disturbed} of {len(waits)} turns were disturbed"
    prompts = f"{_counted(len(setup.prompts), 'prompt')} of {_range([len(prompt) for prompt in setup.prompts])} tokens"
    computed = arithmetic(setup.dtype, setup.draft_dtype, exact=setup.exact)
    lines = [
        f"{setup.target} with {setup.draft} on {setup.place} in {computed}, {_chosen(setup)}",
        f"{prompts}, at most {setup.max_new_tokens} new; {_counted(setup.repeats, 'repeat')}; seed {setup.seed}",
        f"rounds: {setup.path}, {setup.path_reason}",
        f"{machine.processor}, {_counted(machine.threads, 'thread')} on {_counted(machine.cores, 'core')}",
        f"load {_number(machine.load_before, 1)} before, {_number(report.load_after, 1)} after{quiet}",
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"medians with 95 % bootstrap intervals; all in {_processes(setup)}, turn by turn",
    ]
    if machine.accelerator:
        copied = machine.copy_bytes_per_s
        lines.insert(2, f"{machine.accelerator}, copies {_number(copied and copied / 1e12, 2)} TB/s")
    if peaks := report.peak_bytes_by_rank:
        lines.append(f"most memory in use by process: {', '.join(f'{peak / 1e9:.2f}' for peak in peaks)} GB")
    turns = len(setup.contenders) * len(setup.prompts) * setup.repeats
    if len(waits) < turns:
        lines.append(f"INTERRUPTED: what follows rests on {len(waits)} of {turns} turns")
    return "\n".join(line if len(line) <= WIDTH else f"{line[: WIDTH - 3]}..." for line in lines)


def _processes(setup: Setup) -> str:
    """How many decode; of several the first alone drafts and keeps the time."""
    return f"{len(setup.ranks)} processes" if setup.ranks else "one process"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}{'' if count == 1 else 's'}"


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def speeds(rows: Sequence[Row], best_generate: str | None) -> str:
    """Tokens a second, and ratios with their intervals."""
    limits = any(row.bandwidth_share is not None for row in rows)
    keys = ("tokens_per_second", "tokens_per_round", "identical_to_ar")
    rate, length, same = (_LABELS[key] for key in keys)
    head = [(8, rate), (6, length), (17, "x ar"), (17, "x generate"), (11, same)]
    lines = [_line("", *head, *([(5, "limit")] if limits else []))]
    for row in rows:
        cells = [
            (8, _number(row.tokens_per_second.value if row.tokens_per_second else None, 1)),
            (6, _number(row.tokens_per_round, 2)),
            (17, _ratio(row.over_ar)),
            (17, _ratio(row.over_generate)),
            (11, f"{row.same} of {row.prompts}" if row.same is not None else "own" if row.by_design else "-"),
        ]
        lines.append(_line(row.name, *cells, *([(5, _percent(row.bandwidth_share))] if limits else [])))
    if best_generate:
        lines.append(f"x generate: over {best_generate}, transformers' plain decoding at its best.")
    if any(row.by_design for row in rows):
        lines.append("own: a text that differs from ar's by design; its speed counts.")
    if any(row.group == INEXACT for row in rows):
        lines.append("~: the same without exactness; its text may be another by a near tie.")
    if limits:
        lines.append("limit: % of the copy bandwidth at which all forward passes read weights.")
    return "\n".join(lines)


def parts(rows: Sequence[Row]) -> str:
    """Where the milliseconds of a round go, its forward passes, and memory."""
    times = ("round", "draft", "verify", "commit", "host")
    waits = any(row.waits is not None for row in rows)
    head = [*((7, time) for time in times), (7, "host %"), (7, "syncs" if waits else "rest %")]
    head += [(9, "forwards"), (6, "GB")]
    lines = [_line("milliseconds:", *head)]
    for row in rows:
        spent = (row.round_ms, row.draft_ms, row.verify_ms, row.commit_ms, row.host_ms)
        counts = (row.target_forwards, row.draft_forwards)
        passes = "+".join(UNKNOWN if count is None else f"{count:.3g}" for count in counts)
        lines.append(
            _line(
                row.name,
                *((7, _ms(time)) for time in spent),
                (7, _percent(row.host_share)),
                (7, _number(row.waits, 2) if waits else _percent(row.rest_share)),
                (9, passes),
                (6, UNKNOWN if row.peak_bytes is None else f"{row.peak_bytes / 1e9:.2f}"),
            )
        )
    beside = "syncs: waits for the device" if waits else "rest %: all outside of the models' calls"
    lines.append(f"A round. host %: commit and host; {beside};")
    lines.append("forwards: of target and draft; GB: peak memory, on a CPU the process's.")
    return "\n".join(lines)


def compared(comparisons: Sequence[Comparison]) -> str:
    """One line a comparison with the best of a kind."""
    lines = []
    for found in comparisons:
        among = f" ({found.than}, best of {found.of})" if found.of > 1 else ""
        compared_with = f"{found.name} over {found.kind}{among}"
        apart = "\n" * (len(compared_with) > WIDTH - 20)
        lines.append(f"{compared_with}{apart}{_ratio(found.ratio):>{WIDTH if apart else WIDTH - len(compared_with)}}")
    return "\n".join(lines)


def differing(differences: Sequence[Difference]) -> str:
    """One line a text that is not ar's."""
    if not differences:
        return ""
    lines = ["Texts that differ from ar's; their method has no speed on that prompt:"]
    lines += [
        f"{found.name}, prompt {found.prompt + 1}, from token {found.index} on: {_verdict(found)}"
        for found in differences
    ]
    return "\n".join(lines)


def rounds(rows: Sequence[Rounds]) -> str:
    """What rounds of each size cost after one length, and what that brings at how many tokens a round."""
    gpu = any(row.bandwidth_share is not None for row in rows)
    head = [(20, "ms/round"), (7, "draft"), (7, "/level"), (7, "verify")]
    head += [(6, "host"), (6, "limit"), (7, "syncs")] if gpu else [(7, "commit"), (7, "host")]
    lines = [f"After {rows[0].context} random tokens, with a draft that guesses at random:"]
    lines.append(_line("levels x rows", *head))
    for row in rows:
        times = (row.draft_ms, row.level_ms, row.verify_ms)
        cells = [(20, _interval(row.round_ms, _ms)), *((7, _ms(time)) for time in times)]
        if gpu:
            cells += [
                (6, _ms(row.commit_ms + row.host_ms)),
                (6, _percent(row.bandwidth_share)),
                (7, _number(row.waits, 2)),
            ]
        else:
            cells += [(7, _ms(row.commit_ms)), (7, _ms(row.host_ms))]
        lines.append(_line(row.name, *cells))
    if gpu:
        lines.append("host: with commit; limit: % of the copy bandwidth; syncs: waits for the device.")
    lines += ["", _line(f"tokens/s at {_LABELS['tokens_per_round']}", *((10, f"{length:g}") for length in LENGTHS))]
    for row in rows:
        lines.append(_line(row.name, *((10, _number(row.tokens_per_second.get(length), 1)) for length in LENGTHS)))
    return "\n".join(lines)


def grown(rows: Sequence[Growth]) -> str:
    """By how much rounds take longer after longer texts, beside their arithmetic."""
    if not rows:
        return ""
    head = [(7, "after"), (17, "round"), (8, "/level"), (8, "verify"), (8, "sums"), (16, "round/sums")]
    lines = [f"Growth over {rows[0].over} tokens:", _line("levels x rows", *head)]
    for row in rows:
        factors = [(8, _number(factor, 2)) for factor in (row.level, row.verify, row.multiply_adds)]
        lines.append(
            _line(row.name, (7, str(row.context)), (17, _ratio(row.round)), *factors, (16, _ratio(row.beyond)))
        )
    lines.append("sums: multiply-adds of matrices and attention that these very rounds asked for;")
    lines.append("round/sums: growth of the round's time over theirs.")
    return "\n".join(lines)


def memory(rows: Sequence[Rounds], growth: Sequence[Growth]) -> str:
    """What keys and values take, the peak of all memory, and what a longer text adds to both."""
    more = {(row.name, row.context): row for row in growth}
    adds = [(11, "adds: k+v"), (9, "peak")] if growth else []
    lines = [_line("megabytes:", (7, "after"), (17, "keys and values"), (9, "peak"), *adds)]
    for row in rows:
        cells = [(7, str(row.context)), (17, _megabytes(row.kv_bytes)), (9, _megabytes(row.peak_bytes))]
        if found := more.get((row.name, row.context)):
            cells += [(11, _megabytes(found.kv_bytes)), (9, _megabytes(found.peak_bytes))]
        lines.append(_line(row.name, *cells))
    lines.append("Keys and values of both models as allocated; peak: of all memory during the")
    lines.append("rounds, the device's on CUDA and the whole process's on a CPU.")
    return "\n".join(lines)


def _verdict(found: Difference) -> str:
    """What float32 says of the first two tokens that differ."""
    match found.near_tie:
        case None:
            return "one is shorter" if found.judged else "not judged"
        case True:
            return f"a near tie, gap {found.gap:.2g}"
        case False:
            return f"NO TIE, gap {found.gap:.2g}"


def _line(name: str, *cells: tuple[int, str]) -> str:
    return f"{name:<{NAME}}" + "".join(f"{text:>{width}}" for width, text in cells)


def _number(value: float | None, digits: int) -> str:
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def _ms(value: float | None) -> str:
    """Milliseconds, in digits that fit a column whether they are thousandths or thousands."""
    digits = 3 if value is None or value < 10 else 2 if value < 100 else 1
    return _number(value, digits)


def _megabytes(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count / 1e6:.1f}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{100 * share:.1f}"


def _ratio(found: Interval | None) -> str:
    return UNKNOWN if found is None else _interval(found, lambda value: f"{value:.{2 if value < 10 else 1}f}")


def _interval(found: Interval, text: Callable[[float], str]) -> str:
    ends = "" if found.low is None or found.high is None else f" {text(found.low)}-{text(found.high)}"
    return f"{text(found.value)}{ends}"


def _chosen(setup: Setup) -> str:
    """How tokens were chosen."""
    if not setup.temperature:
        return "greedy"
    kept = [f"top-k {setup.top_k}"] * bool(setup.top_k) + [f"top-p {setup.top_p:g}"] * (setup.top_p < 1)
    return ", ".join([f"sampled at temperature {setup.temperature:g}", *kept])
