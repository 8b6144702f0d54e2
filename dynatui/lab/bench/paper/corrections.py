"""Errors in the paper's own numbers, as shown by the paper's text, the authors' code and the authors' logs.

Nothing in this module was measured by this project; `claims` compares measurements with the paper.
"""

from typing import NamedTuple

CODE, LOGS = "the authors' code (commit a8a25af)", "the authors' logs"


class Correction(NamedTuple):
    """Error in the paper, and the source that shows it."""

    says: str
    source: str


CORRECTIONS = (
    Correction(
        "Trees are verified without position ids: the position of a node is its place in breadth-first order, not its "
        "depth. Therefore the texts differ from those of greedy decoding, though the paper proves them equal.",
        CODE,
    ),
    Correction(
        "All branches of a tree share one cache of the draft: after the first branching the draft reads tokens of "
        "other branches, at wrong positions.",
        CODE,
    ),
    Correction(
        "The acceptance rate is the number of committed tokens, including bonus tokens, divided by rounds x (initial "
        "D0 + 2). But nodes are up to D_max deep, so the rate can reach 129 %. Counting the bonus tokens does not "
        "explain the 102.2 % that the paper prints.",
        f"{CODE}; v4 table 3",
    ),
    Correction(
        "The definition of acceptance changes between versions, and even within v1: for linear drafting with K=6, v1 "
        "prints both 0.68 and 81.2 %, and for trees both 0.38 and 79.5 %.",
        "v1 tables 1 and 3",
    ),
    Correction(
        "l-bar counts the bonus token. l-bar is computed for each prompt and averaged over prompts, while L-bar is the "
        "number of all tokens divided by the number of all rounds.",
        f"{CODE}; v4 section 4.2",
    ),
    Correction(
        "TTFT is the time of one prefill of the target alone, which is the same work for every method: differences "
        "come from the order of runs.",
        f"{CODE}; v4 table 2",
    ),
    Correction(
        "The speed-up of 1.70x on PG-19 is relative to plain decoding at 114.8 ±20.6 tokens/s, which was measured "
        "while others used the GPU. v2 prints an undisturbed run of plain decoding, at 133.7 ±0.7 tokens/s; relative "
        "to this run, the speed-up is 1.44x.",
        "v4 table 1; v2 table 1",
    ),
    Correction(
        "On PG-19 DynaTree needs more rounds than the fixed tree, 243 against 242, and commits fewer tokens a "
        "round, 6.17 against 6.20; the text says that DynaTree needs fewer rounds.",
        "v4 table 3 and section 4.4",
    ),
    Correction(
        "Adaptive breadth alone is 0.8 % slower than the fixed tree; table 4 shows adaptive breadth only together with "
        "adaptive depth.",
        f"{LOGS}; v4 table 4",
    ),
    Correction(
        "The gain of 16.2 % is over an untuned tree of depth 5; over the tuned tree of table 1 the gain is "
        "9.4 % on WikiText-2 and 5.1 % on PG-19.",
        "v4 tables 1 and 4",
    ),
    Correction(
        "Assisted generation of transformers is faster than every tree of the same run: 209.8 against 185.3 "
        "tokens/s on WikiText-2, 184.8 against 165.7 on PG-19, T=500. v1 prints 161.9, measured on one prompt; later "
        "versions leave assisted generation out.",
        f"{LOGS}; v1 table 1",
    ),
    Correction(
        "v1 prints 210.8 tokens/s for DynaTree in its abstract, 193.4 in its text and figure 3, 185.2 in table 1; all "
        "DynaTree rows of its tables are fixed trees.",
        "v1",
    ),
    Correction(
        "In tables 1 and 2 of v2, two PG-19 rows are labelled linear K=8 and fixed D=8, B=3, but their numbers are "
        "those of linear K=5 and fixed D=5, B=2, as in table 3 of v2.",
        f"v2 tables 1 to 3; {LOGS}",
    ),
    Correction(
        "L_max counts characters, not tokens: 800 characters are about 200 tokens. One table of v1 labels these "
        "lengths as tokens.",
        f"{CODE}; v1 table 6",
    ),
    Correction(
        "The shape of figure 8 comes from a shared GPU: plain decoding runs at 57 tokens/s after prompts of 300 "
        "characters, and at 138 tokens/s after prompts of 750. In a later run, these speeds are 132 and 138 tokens/s.",
        f"{LOGS}; v4 figure 8",
    ),
    Correction(
        "Figure 6 shows one prompt decoded ten times, not the prompts of WikiText-2. Its three sweeps have one "
        "setting in common, but different speeds for it: 212, 222.5 and 226 tokens/s.",
        f"{LOGS}; v4 figure 6",
    ),
    Correction(
        "The sweep of fixed trees has two prompts per setting, no warm-up, and at most 128 nodes instead of 256.",
        f"{LOGS}; v4 figure 7",
    ),
    Correction(
        "At T=100, all methods are slower than an undisturbed AR: 0.72x to 0.94x. v1 prints 1.54x for that length, "
        "relative to an AR at 73.5 tokens/s.",
        f"{LOGS}; v1 table 4",
    ),
    Correction(
        "The history rule adapts parameters once per text, not once per round, and only after five texts: results "
        "depend on the order of prompts.",
        CODE,
    ),
    Correction(
        "Pruning only stops expansion: leaves whose path probability is below tau are still verified. Each round has "
        "two passes of the target, and the draft recomputes the entire text.",
        CODE,
    ),
    Correction(
        "Means are over all ten prompts, including the two used for the warm-up, not over the remaining eight.",
        f"{CODE}; v4 section 4.1",
    ),
    Correction(
        "Peak memory is that of the last prompt only. Both models are loaded during plain decoding too, so the 3 % of "
        "additional memory for drafting is mostly for logits of the draft. v1 prints 0.45 % of additional memory.",
        f"{CODE}; v1 table 7",
    ),
)
"""All corrections, the most important first."""
