"""The profile of a user's prompts as a JSON file: acceptance of each draft, sizes of the models, costs of passes.

Acceptance is what servers count by position: survival s_i is the share of rounds whose first i drafted tokens were all
accepted (vLLM's and llama.cpp's accepted tokens by position, divided by drafts). Where rounds begin depends on the
length K of their chains: a copied passage of 16 tokens is one round with K = 16, but eight rounds with K = 1, so s_1
differs. Therefore each length has its own survival rates, which `Acceptance.at` returns.
"""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from decoder.errors import ConfigError, shortened
from decoder.models.names import DraftKind
from decoder.system.whole_files import write_whole
from dynatui.files import opened, text_of

SCHEMA = 1
LONGEST_CHAIN = 16
_MOST_BYTES = 2**26
_REMEDY = "give a file that dynatui profile has written"

Rate: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Amount: TypeAlias = Annotated[float, Meta(ge=0, lt=2**64)]
"""Seconds, bytes and other finite quantities."""
Rates: TypeAlias = Annotated[tuple[Rate, ...], Meta(max_length=LONGEST_CHAIN)]
Ends: TypeAlias = tuple[Rate, Rate]
"""Ends of an interval of 95 %; in a profile that `dynatui profile` measures, by bootstrap over prompts."""


class Chain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Acceptance of rounds with chains of one length K, which is the length of `survival`."""

    rounds: Amount
    """Number of rounds (expected, if acceptance is random), including rounds in which a lookup drafts nothing."""
    survival: Rates
    """s_1 to s_K."""
    intervals: Annotated[tuple[Ends, ...], Meta(max_length=LONGEST_CHAIN)] = ()
    """Intervals of `survival`; empty with fewer than two prompts."""
    length_interval: tuple[Amount, Amount] | None = None
    """Interval of `mean_length`; None with fewer than two prompts."""
    drafted: Rates = ()
    """Shares of rounds that draft at least 1, ..., K tokens; empty if every round drafts K tokens."""

    def __post_init__(self) -> None:
        k = len(self.survival)
        if list(self.survival) != sorted(self.survival, reverse=True):
            raise ValueError("survival increases with the position")
        if len(self.intervals) not in (0, k) or len(self.drafted) not in (0, k):
            raise ValueError("intervals or drafted are of another length than survival")

    @property
    def mean_length(self) -> float:
        """L(K) = 1 + s_1 + ... + s_K, tokens a round with the target's own token (vLLM: mean acceptance length)."""
        return 1 + sum(self.survival)

    @property
    def drafting(self) -> float:
        """Share of rounds with a draft."""
        return self.drafted[0] if self.drafted and self.drafted[0] else 1.0

    @property
    def of_drafts(self) -> Rates:
        """Acceptance by position as servers count it: without the rounds that draft nothing."""
        return tuple(min(1.0, rate / self.drafting) for rate in self.survival)


class Acceptance(Chain, frozen=True, kw_only=True, omit_defaults=True):
    """Acceptance of the longest chains (16 tokens, or fewer if the draft cannot draft 16) and of all shorter chains."""

    shorter: Annotated[tuple[Chain, ...], Meta(max_length=LONGEST_CHAIN - 1)] = ()
    """Acceptance of chains of 1, 2, ..., `longest` - 1 tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        lengths = [len(chain.survival) for chain in (*self.shorter, self)]
        if lengths != list(range(1, self.longest + 1)):
            raise ValueError(f"shorter and survival have {', '.join(map(str, lengths))} rates, not 1, 2, ...")

    @property
    def longest(self) -> int:
        return len(self.survival)

    def at(self, k: int) -> Chain:
        """Acceptance of chains of `k` tokens, from 1 to `longest`."""
        return self if k == self.longest else self.shorter[k - 1]


class Grouped(Acceptance, frozen=True, kw_only=True, omit_defaults=True):
    """Acceptance on all prompts; groups without a round are absent."""

    by_category: dict[str, Acceptance] = {}
    """Acceptance by `category` of the prompts; empty if prompts have no category."""
    by_context: dict[str, Acceptance] = {}
    """Acceptance by number of tokens before the round: "<1k", "<4k", "<16k", ">=16k"."""


class Stopped(msgspec.Struct, frozen=True, kw_only=True):
    """Rounds whose drafts are the longest chains, cut before the first token with a draft probability below `p_min`."""

    p_min: Rate
    rounds: Amount
    survival: Rates
    drafted: Amount
    """Mean number of drafted tokens per round."""


class Trees(msgspec.Struct, frozen=True, kw_only=True):
    """Acceptance of other nodes of a tree at the first rejected token of the longest chain."""

    mismatches: Amount
    """Number of rounds whose chain has a rejected token."""
    siblings: tuple[Rate, ...]
    """Shares of the mismatches in which the draft's token of rank 2, 3 or 4 is the target's token."""
    continuation: Rates
    """Shares of these siblings after which the next 1, 2, ... tokens of the draft are the target's too."""


class ModelSize(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: str
    revision: str = ""
    """Revision on the Hugging Face hub; empty if unknown, as for a local folder."""
    dtype: str = ""
    """Data type of the checkpoint, which servers use."""
    weights_bytes: Amount | None = None
    pass_bytes: Amount | None = None
    """Size of the weights that a pass over one row reads; in a mixture of experts, only the chosen experts count."""
    weights: Amount | None = None
    """Number of weights by which a forward pass multiplies each row."""
    kv_bytes_per_token: Amount | None = None


class DraftProfile(Grouped, frozen=True, kw_only=True, omit_defaults=True):
    """Inherited fields: acceptance of the draft's most probable tokens. At T = 0, a token is accepted if it is the
    target's; at T > 0, with its target probability (one-hot rejection; vLLM: `draft_sample_method` greedy).
    """

    kind: DraftKind
    size: ModelSize | None = None
    """None for lookup."""
    levels_at_once: int | None = None
    """Levels of a chain that one draft pass computes; None: one."""
    probabilistic: Grouped | None = None
    """Acceptance of tokens drawn from the draft's distribution, each accepted with probability min(1, p / q); None at
    T = 0, and for drafts without probabilities.
    """
    confidence: tuple[Stopped, ...] = ()
    """Acceptance of drafts that end early, by ascending `p_min`; empty for drafts without probabilities."""
    trees: Trees | None = None


class StepPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Mean time of a server's steps while `running` requests are decoded with chains of `k` tokens (0: no drafts)."""

    running: Amount
    k: Amount
    step_s: Amount
    steps: Amount


class Costs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A step of B requests with K drafted tokens takes `fixed_s`, K draft passes and a target pass (B (K + 1) rows)."""

    source: Literal["given", "measured", "roofline"]
    """Times from a roofline are lower bounds, so speed-ups from them are upper bounds."""
    device: str = ""
    context: Amount = 0
    """Number of tokens in the KV cache during these passes."""
    target_s: dict[int, Amount] = {}
    """Rows of one text -> seconds of a target pass."""
    draft_s: dict[str, Amount] = {}
    """Draft -> seconds of a draft pass of one row; lookups are absent."""
    fixed_s: Amount = 0
    """Seconds of a step that do not depend on rows."""
    bytes_per_s: Amount | None = None
    flops_per_s: Amount | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    schema: int
    target: str
    drafts: dict[str, DraftProfile]
    costs: Costs | None = None
    size: ModelSize
    """Size of the target."""
    dtype: str = ""
    """Data type in which the target was computed for this profile."""
    draft_errors: dict[str, str] = {}
    """Name of an absent draft -> why it is absent."""
    tokenizer_hash: str = ""
    temperature: Amount = 0
    top_k: int | None = None
    top_p: Rate | None = None
    prompts: int
    left_out: int = 0
    """Prompts that do not fit in the context."""
    answers: int = 0
    """Number of prompts that were scored on their given answers, not on texts of the target."""
    tokens: int
    """Number of scored tokens."""
    max_new_tokens: int = 0
    mean_context: Amount = 0
    """Mean number of tokens before a scored token."""


class _Version(msgspec.Struct):
    schema: int


def read_profile(path: Path) -> Profile:
    """Raises ConfigError if the file is unreadable, or is no profile of this schema; the message names the field."""
    name = shortened(path)
    try:
        with opened(path) as file:
            text = text_of(file, name, _MOST_BYTES, too_large="more than any profile")
        version = msgspec.json.decode(text, type=_Version).schema
        if version != SCHEMA:
            raise ConfigError(f"{name} is a profile of schema {version}, this version reads {SCHEMA}; measure it anew")
        return msgspec.json.decode(text, type=Profile)
    except OSError as error:
        raise ConfigError(f"cannot read {name}: {error.strerror}; {_REMEDY}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{name} is no profile: {error}; {_REMEDY}") from None


def write_profile(path: Path, profile: Profile) -> None:
    """Writes the profile atomically; raises ConfigError if the file cannot be written."""
    write_whole(path, msgspec.json.format(msgspec.json.encode(profile), indent=1) + b"\n")
