"""Measures how every causal language model of transformers is decoded, and writes `docs/models.md`.

    python -m tests.decoder.survey [--families NAMES]

Each family runs in a process of its own with a time limit, and its results replace the kept ones at once.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from tests.decoder.survey.results import GREEDY, KEPT, PAGE, SAMPLED, Survey, read, replaced, result, write
from tests.decoder.survey.tiny_models import FAMILIES
from tests.decoder.survey.trial import isolated

LIMIT_S = 120.0
"""Seconds after which the process of a family is killed."""


def main(command_line: Sequence[str] | None = None, kept: Path = KEPT, page: Path = PAGE) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--families", help="names of model types, with commas; default: all")
    arguments = parser.parse_args(command_line)
    families = arguments.families.split(",") if arguments.families else FAMILIES
    torch.set_num_threads(1)
    before = read(kept)
    whole = before.transformers != transformers.__version__
    if whole and arguments.families:
        say(f"survey: the kept results are those of transformers {before.transformers}; leave out --families")
        return 2
    survey = Survey(transformers=transformers.__version__, trials=() if whole else before.trials)
    for temperature in (GREEDY, SAMPLED):
        decoded = {trial.family for trial in survey.trials if trial.route}
        for family in families:
            if temperature == GREEDY or family in decoded:  # only families whose greedy trial wrote a text are sampled
                survey = replaced(survey, trial := isolated(family, temperature, LIMIT_S))
                write(survey, kept, page)
                say(f"{family}, T = {temperature:g}: {result(trial)}")
    return 0


def say(line: str) -> None:
    """Prints a progress line without buffering."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
