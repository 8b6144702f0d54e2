"""Report of a sweep as plain text, at most 80 columns wide unless a single heat map is wider."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from dynatui.lab.bench.machine import Machine
from dynatui.lab.bench.sweep.heat_map import HeatMap, heat_maps, legend
from dynatui.lab.bench.sweep.outcome import Outcome
from dynatui.lab.bench.sweep.report import SweepReport, Trial
from dynatui.lab.tables.data import Column, Spec, of_rows, percent
from dynatui.lab.tables.text import WIDTH, cut, hundredths, interval, text

BEST = 10
REASONS = 5
"""Maximum number of settings without a speed that are listed with their reasons."""
CELL, GAP = 7, 3


def on_sweep(report: SweepReport) -> str:
    """The complete report as text."""
    parts = ["\n".join(heading(report)), maps(report), best(report), refused(report)]
    return "\n\n".join(filter(None, parts)) + "\n"


def heading(report: SweepReport) -> list[str]:
    """Heading lines: the grid and its progress, the models, the machines and the reference parameters."""
    request = report.request
    reference = ", ".join(f"{name} {value}" for name, value in request.reference.items())
    lines = [
        f"{report.settled} of {len(report.trials)} settings of {request.space} are finished; {report.folder}",
        f"{request.target} with {request.draft} on {request.device} in {request.dtype}, greedy, end of text ignored",
        f"prompts: {len(request.prompts)}; repeats: {request.repeats}; seed: {request.seed}",
        *(_machine(name, about) for name, about in report.machines.items()),
        f"reference: {reference}",
        "each setting is timed beside ar and the reference; 95 % bootstrap intervals",
    ]
    return list(map(cut, lines))


def maps(report: SweepReport) -> str:
    """Heat maps of all text lengths, side by side where the page is wide enough, with their legend."""
    blocks = [_block(each) for each in heat_maps(report)]
    return "\n\n".join("\n".join(_beside(row)) for row in _rows(blocks)) + "\n" + "\n".join(legend(report))


def best(report: SweepReport) -> str:
    """Table of the fastest settings with all measured numbers."""
    fastest = report.best(BEST)
    if not fastest:
        return ""
    outcomes = [(trial.setting.key, trial.outcome) for trial in fastest if trial.outcome]
    specs: list[Spec[tuple[str, Outcome]]] = [
        (Column("", width=max(len(key) for key, _ in outcomes)), lambda row: row[0]),
        (Column("x ar", width=15), lambda row: interval(row[1].speed, hundredths)),
        (Column("x ref.", "number", 2, 7), lambda row: row[1].over_reference and row[1].over_reference.value),
        (Column("L-bar", "number", 2, 6), lambda row: row[1].tokens_per_round),
        (Column("acc. %", "number", 1, 7), lambda row: percent(row[1].acceptance_rate)),
        (Column("nodes", "number", 1, 6), lambda row: row[1].nodes_per_round),
        (Column("ms", "number", 2, 7), lambda row: row[1].round_ms),
        (Column("rounds", "number", 0, 7), lambda row: row[1].rounds),
    ]
    notes = (
        "medians over prompts; nodes and ms are per round, rounds per text",
        "the best of many settings looks faster than it is: measure it again before use",
    )
    return text(of_rows(specs, outcomes, notes=(*notes, *_doubts(report))))


def _doubts(report: SweepReport) -> Iterator[str]:
    """Notes on disturbed measurements and on texts that differ after near ties."""
    done = [trial.outcome for trial in report.trials if trial.outcome]
    if disturbed := sum(outcome.disturbed for outcome in done):
        yield f"{disturbed} turns were disturbed by other processes, such as other shards"
    if tied := sum(outcome.near_ties for outcome in done):
        yield f"{tied} texts differ from the text of ar by a near tie and have no speed"


def refused(report: SweepReport) -> str:
    """List of the settings without a speed, with the reasons."""
    without_speed = [trial for trial in report.trials if trial.state == "refused"]
    lines = [f"{trial.setting.key}: {trial.reason}" for trial in without_speed[:REASONS]]
    if len(without_speed) > REASONS:
        lines.append(f"and {len(without_speed) - REASONS} more")
    return "\n".join(["Settings without a speed:", *lines]) if without_speed else ""


def summary(trial: Trial) -> str:
    """One-line summary of a setting."""
    if trial.outcome is None:
        return f"{trial.setting.key}: {trial.reason or trial.state}"
    return f"{trial.setting.key}: x ar {interval(trial.outcome.speed, hundredths)}"


def _machine(name: str, machine: Machine) -> str:
    return f"{name}: {machine.accelerator or machine.processor}, {machine.cores} cores"


def _block(heat_map: HeatMap) -> list[str]:
    """Heat map as lines of equal width."""
    label = max(len(heat_map.rows), *(len(row) for row, _ in heat_map.lines)) + 1
    lines = [f"{heat_map.title}, {heat_map.columns} across"]
    lines.append(f"{heat_map.rows:<{label}}" + "".join(f"{head:>{CELL}}" for head in heat_map.heads))
    lines += [f"{row:<{label}}" + "".join(f"{cell.text:>{CELL}}" for cell in cells) for row, cells in heat_map.lines]
    width = max(map(len, lines))
    return [line.ljust(width) for line in lines]


def _rows(blocks: Sequence[list[str]]) -> list[list[list[str]]]:
    """Heat maps arranged in rows that are no wider than the page, unless a single map is wider."""
    rows: list[list[list[str]]] = []
    used = 0
    for block in blocks:
        width = len(block[0]) + GAP
        if not rows or used + width - GAP > WIDTH:
            rows.append([])
            used = 0
        rows[-1].append(block)
        used += width
    return rows


def _beside(blocks: Sequence[list[str]]) -> list[str]:
    return [(" " * GAP).join(line or "" for line in lines).rstrip() for lines in zip_longest(*blocks, fillvalue="")]
