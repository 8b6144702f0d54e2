"""Measures how every causal language model of transformers is decoded, and writes `docs/models.md`.

    python -m tests.decoder.survey --output DIR

Each family runs in a process of its own with a time limit. DIR has the log, from which the same command resumes. With
--families nothing but the log is written; --replace then replaces the kept results of these families.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from decoder.errors import DecoderError
from decoder.system.whole_files import made_folder
from dynatui.lab.bench.record_log import RecordLog, header_now, opened
from tests.decoder.survey.results import (
    FORMAT,
    GREEDY,
    SAMPLED,
    Header,
    Request,
    Survey,
    in_order,
    merged,
    read,
    result,
    write,
)
from tests.decoder.survey.tiny_models import FAMILIES
from tests.decoder.survey.trial import Trial, isolated

LIMIT_S = 120.0
"""Seconds after which the process of a family is killed."""


def main(command_line: Sequence[str] | None = None) -> int:
    """Runs the survey; returns 0, or 2 if the output is unusable."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, required=True, help="folder of the log, from which a later run resumes")
    parser.add_argument("--families", help="names of model types, with commas; default: all")
    parser.add_argument("--replace", action="store_true", help="replace the kept results of --families")
    arguments = parser.parse_args(command_line)
    families = arguments.families.split(",") if arguments.families else FAMILIES
    torch.set_num_threads(1)
    version = transformers.__version__
    try:
        made_folder(arguments.output)
        with opened(arguments.output / "results.jsonl", FORMAT) as log:
            header = header_now(log, Request(transformers=version), torch.device("cpu"), lambda: None, say)
            log.begin(header, complete=True)
            for temperature in (GREEDY, SAMPLED):
                measure(log, families, temperature)
            if not arguments.families:
                write(Survey(transformers=version, trials=in_order(log.records)))
            elif arguments.replace:
                write(merged(read(), Survey(transformers=version, trials=tuple(log.records))))
    except DecoderError as error:
        say(f"survey: {error}")
        return 2
    return 0


def measure(log: RecordLog[Header, Trial], families: Sequence[str], temperature: float) -> None:
    """Adds the missing trials; for sampled trials, only of families whose greedy trial wrote a text."""
    done = {trial.family for trial in log.records if trial.temperature == temperature}
    decoded = {trial.family for trial in log.records if trial.route}
    for family in families:
        if family not in done and (temperature == GREEDY or family in decoded):
            log.add(trial := isolated(family, temperature, LIMIT_S))
            say(f"{family}, T = {temperature:g}: {result(trial)}")


def say(line: str) -> None:
    """Prints a progress line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
