"""The paper's claims as data, each with the quotient of the paper's own numbers that supports the claim.

The numbers are those of `published`; the numbers of figure 5 and of phase 1 are only in the authors' logs.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from dynatui.lab.bench.paper.published import DOUBTS, EARLIER_LENGTH, LENGTH, PG19, WIKITEXT

MEMORY = 1.035
"""Largest memory quotient that still counts as "about 3 % more memory"."""
DEEPER = DOUBTS["deeper-on-pg19"]


class PaperClaim(NamedTuple):
    """Claim of the paper: its text, the paper's quotient, and the limit with which a measured quotient is compared."""

    name: str
    says: str
    source: str
    """Version of the paper, and section, table or figure in it."""
    paper: Mapping[str, float]
    """Quotient of the paper's own numbers, by data set."""
    limit: float = 1.0
    """Limit of the quotient: the quotient must be below this limit if `below` is set, and above it otherwise."""
    below: bool = False
    doubt: Mapping[str, str] = MappingProxyType({})
    """Reasons not to rely on the paper's quotient, by data set."""
    length: int = LENGTH
    """Number of new tokens, T, to which the paper's quotient applies."""


LOSSLESS = PaperClaim(
    "lossless", "Every method generates the same text as plain greedy decoding.", "v4 section 3.6", {}
)
FASTER = PaperClaim(
    "faster_than_ar",
    "DynaTree is faster than plain decoding.",
    "v4 table 1",
    {WIKITEXT: 219.5 / 133.4, PG19: 194.9 / 114.8},
    doubt={PG19: f"{DOUBTS['shared-base']}; relative to an undisturbed AR the quotient is 1.44; {DEEPER}"},
)
LOWEST_TPOT = PaperClaim(
    "lowest_tpot",
    "DynaTree takes less time per token than plain decoding, linear drafting and fixed trees.",
    "v4 table 2",
    {WIKITEXT: 5.30 / 4.59, PG19: 5.55 / 5.30},
    doubt={PG19: DEEPER},
)
LOWER_TTFT = PaperClaim(
    "lower_ttft",
    "Speculative decoding has a lower time to the first tokens than plain decoding.",
    "v4 section 4.4",
    {WIKITEXT: 18.9 / 14.4, PG19: 21.8 / 9.6},
    doubt=dict.fromkeys((WIKITEXT, PG19), DOUBTS["one-prefill"]),
)
FEWER_ROUNDS = PaperClaim(
    "fewer_rounds",
    "DynaTree needs fewer rounds than linear drafting and fixed trees.",
    "v4 table 3",
    {WIKITEXT: 220 / 212, PG19: 242 / 243},
    doubt={PG19: DEEPER},
)
DEPTH = PaperClaim(
    "depth_dominates",
    "Adaptive depth gains more speed than adaptive breadth.",
    "v4 section 4.5",
    {WIKITEXT: (213.2 / 186.5) / (186.5 / 188.0)},
    doubt={WIKITEXT: "the numbers of phase 1 are from the authors' logs; no version of the paper has them"},
)
HISTORY_GAINS = PaperClaim(
    "history_gains", "The history rule makes DynaTree faster.", "v4 table 4", {WIKITEXT: 218.5 / 213.2}
)
HISTORY_STABILISES = PaperClaim(
    "history_stabilises",
    "The history rule stabilises DynaTree: the speed differs less between prompts.",
    "v4 section 4.5",
    {WIKITEXT: 26.1 / 22.2},
)
THREE_PERCENT = PaperClaim(
    "memory",
    "DynaTree takes about 3 % more memory than plain decoding.",
    "v4 table 5",
    {WIKITEXT: 6316.1 / 6110.0, PG19: 6359.4 / 6157.7},
    MEMORY,
    below=True,
    doubt={PG19: DEEPER},
)
GROWS = PaperClaim(
    "gain_grows",
    "DynaTree's gain over plain decoding grows with the length of the text.",
    "v4 figure 5",
    {WIKITEXT: (218.5 / 132.8) / (116.6 / 83.3)},
    doubt={
        WIKITEXT: "the gain at T=1500 divided by the gain at T=100; at T=100, AR reached 83.3 tokens/s while others "
        "used the GPU, and 127.9 tokens/s in another run"
    },
)
BEATS_LINEAR = PaperClaim(
    "beats_linear",
    "A tree beats a chain: DynaTree is faster than the best linear drafting.",
    "v4 table 1",
    {WIKITEXT: 219.5 / 196.1, PG19: 194.9 / 144.9},
    doubt={PG19: DEEPER},
)
BEATS_FIXED = PaperClaim(
    "beats_fixed",
    "DynaTree is faster than the tuned fixed tree.",
    "v4 table 1",
    {WIKITEXT: 219.5 / 200.7, PG19: 194.9 / 185.5},
    doubt={PG19: DEEPER},
)
BEATS_HF = PaperClaim(
    "beats_hf",
    "DynaTree is faster than assisted generation of transformers.",
    "v1 section 4.4",
    {WIKITEXT: 193.4 / 161.9},
    doubt={WIKITEXT: "the paper's 161.9 tokens/s are from one prompt; the mean over prompts in the logs is 209.8"},
    length=EARLIER_LENGTH,
)
