"""Table that compares models, machine and measurement protocol with those of the paper's authors."""

from collections.abc import Iterator

from decoder.events import arithmetic
from dynatui.lab.bench.paper.records import PaperExperiment, PaperRequest
from dynatui.lab.bench.paper.report import PaperReport
from dynatui.lab.tables.data import Cell, Column, Table
from dynatui.number_format import counted

AUTHORS = {
    "target": "Pythia-2.8B",
    "draft": "Pythia-70M",
    "device": "one NVIDIA A100",
    "arithmetic": "float16",
    "decoding": "greedy",
    "end of text": "ignored",
    "main": "WikiText-2: 10 prompts of at most 800 characters, T=1500; PG-19: 10 prompts of at most 1000 characters",
    "warm-up": "2 prompts",
    "order": "one method after the other, each method in its own run",
    "versions": "torch 2.0 or later, transformers 4.38 or later",
}
"""Setup of the paper's authors, by name of the table row."""


def setup(report: PaperReport) -> Table:
    return Table(
        name="setup",
        title="Setup",
        what="Setup of this measurement and of the paper's authors.",
        columns=(Column(""), Column("here"), Column("paper")),
        rows=tuple((name, here, AUTHORS.get(name)) for name, here in _rows(report)),
    )


def device(report: PaperReport) -> str:
    machine = report.header.machine
    return machine.accelerator or f"{machine.processor}, {machine.threads} of {machine.cores} cores"


def noise(report: PaperReport) -> str:
    """Sentence on disturbances by other processes: number of disturbed turns, and load averages."""
    turns = sum(len(block.turns) for block in report.blocks)
    loads = (report.header.machine.load_before, report.load_after)
    before, after = ("unknown" if load is None else f"{load:.1f}" for load in loads)
    return f"{report.disturbed} of {turns} turns were disturbed; system load {before} before the run, {after} after it"


def _rows(report: PaperReport) -> Iterator[tuple[str, Cell]]:
    header, request = report.header, report.header.request
    yield "target", request.target
    yield "draft", request.draft
    yield "device", device(report)
    yield "arithmetic", arithmetic(request.dtype, request.draft_dtype)
    yield (
        "decoding",
        "greedy" if request.temperature == 0 else f"temperature {request.temperature:g}, top-p {request.top_p:g}",
    )
    yield "end of text", "ends a text" if request.stops_at_eos else "ignored"
    for name in dict.fromkeys(experiment.name for experiment in request.experiments):
        yield name, "; ".join(_experiment(request, each) for each in request.experiments if each.name == name)
    yield "warm-up", counted(request.warm_up, "prompt")
    yield "order", "all lanes take turns on each prompt, in one process"
    yield "seed", str(request.seed)
    yield "versions", ", ".join(f"{name} {version}" for name, version in header.machine.versions.items())
    yield "commit", header.commit or None
    yield "begun", header.started_at
    yield from (
        ("resumed", f"{each.at}, dynatui {each.version}, commit {each.commit or 'unknown'}") for each in report.resumed
    )
    yield "noise", noise(report)
    measured = {turn.lane for block in report.blocks for turn in block.turns}
    asked = dict.fromkeys(name for experiment in request.experiments for name in experiment.lanes)
    if report.complete and (failed := [name for name in asked if name not in measured]):
        yield "left out", f"{', '.join(failed)}: could not decode here"
    yield "finished", "yes" if report.complete else "NO: a part of the requested measurement is missing"


def _experiment(request: PaperRequest, experiment: PaperExperiment) -> str:
    repeats = f", {experiment.repeats} times" if experiment.repeats > 1 else ""
    return (
        f"{request.text_set(experiment.data_set).title}: {counted(experiment.prompts, 'prompt')} of at most "
        f"{experiment.most} {experiment.unit}, T={experiment.lengths[-1]}, {len(experiment.lanes)} lanes{repeats}"
    )
