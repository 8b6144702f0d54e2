"""Repetition in sampled texts of the embedded target, as the share of distinct 8-grams of tokens.

    python benchmarks/distinct.py FILE ...

This command continues the beginning of each file by plain decoding in float32, with several seeds. The result holds for
every method, since speculative decoding follows the same distribution.
"""

import argparse
import sys
from pathlib import Path
from statistics import mean

sys.path.append(str(Path(__file__).parents[1]))

from decoder import RunConfig, decode, load_pair
from decoder.engine import Engine
from decoder.events import Summary

TOKENS, CHARACTERS = 256, 600
ENOUGH = 0.95


def distinct(engine: Engine, prompt: str, seed: int, temperature: float) -> float:
    """Share of distinct 8-grams in a sampled continuation of a prompt."""
    events = decode(engine, prompt, RunConfig(("ar",), TOKENS, seed, temperature=temperature))
    summary = next(event for event in events if isinstance(event, Summary))
    share = summary.methods["ar"].distinct_8grams
    return 1.0 if share is None else share


def main() -> int:
    """Measures every file with every seed and prints the shares; returns the exit code."""
    parser = argparse.ArgumentParser(description="How often the embedded target repeats itself.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="text file whose beginning is the prompt")
    parser.add_argument("--temperature", type=float, default=0.6, metavar="T")
    parser.add_argument("--seeds", type=int, default=12, metavar="N", help="number of seeds: 0 to N - 1")
    arguments = parser.parse_args()
    engine, shares = load_pair(dtype="float32"), list[float]()
    prompts = [file.read_text(encoding="utf-8")[:CHARACTERS] for file in arguments.files]
    for seed in range(arguments.seeds):
        seed_shares = [distinct(engine, prompt, seed, arguments.temperature) for prompt in prompts]
        shares += seed_shares
        sys.stdout.write(
            f"share of distinct 8-grams, seed {seed}: mean {mean(seed_shares):.3f}, smallest {min(seed_shares):.2f}\n"
        )
    enough = mean(share >= ENOUGH for share in shares)
    sys.stdout.write(
        f"share of distinct 8-grams, all seeds: mean {mean(shares):.3f}; {ENOUGH} or more in {enough:.0%} of "
        f"{len(shares)} texts\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
