"""Supported servers: the names of their metrics, and the option that enables their metrics page.

Names are written without the suffix `_total`. A page may have them under another prefix, and with underscores in place
of colons: Ray Serve, for example, writes `ray_vllm_generation_tokens` for `vllm:generation_tokens`. Knows neither how a
page is parsed nor how figures are computed.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

Names: TypeAlias = tuple[str, ...]
"""Names of counters whose sum is one count; empty if the server has no such counter."""


@dataclass(frozen=True)
class Kind:
    """A kind of server, such as vLLM, with the names of its metrics."""

    name: str
    title: str
    prefix: str
    """Prefix of the server's metric names."""
    generated: Names
    """Names of the counters for generated tokens."""
    drafts: Names = ()
    """Names of the counters for rounds (verified drafts); empty if the first position of `drafted_at` counts rounds."""
    drafted: Names = ()
    accepted: Names = ()
    accepted_at: str = ""
    """Name of the counter for accepted tokens by draft position."""
    drafted_at: str = ""
    """Name of the counter for drafted tokens by draft position."""
    position: str = "position"
    """Label that holds the draft position, from 0."""
    length: str = ""
    """Name of the gauge for the mean acceptance length, which includes the target's own token."""
    rate: str = ""
    """Name of the gauge for the acceptance rate: accepted tokens / drafted tokens."""
    speed: str = ""
    """Name of the gauge for generated tokens per second."""
    steps: str = ""
    """Name of the gauge for draft passes per round. This gauge and the gauges in the next three fields are 0 before the
    first round."""
    draft_tokens: str = ""
    """Name of the gauge for positions verified per round, including the position of the target's own token."""
    cap_length: str = ""
    """Name of the gauge for the mean number of verified positions per round, which may be below `draft_tokens`."""
    block_length: str = ""
    """Name of the gauge for the mean acceptance length that would result if every draft were verified in full."""
    ranks: Names = ()
    """Labels that distinguish the processes of one engine, which all report the same gauges."""
    rounds_generate: bool = False
    """Whether all tokens are generated in counted rounds: then L-bar is generated tokens / rounds, and every generated
    token except one per round was drafted."""
    page: str = ""
    """Command or option that enables the metrics page, if it is off by default."""
    model: str = ""
    """The label that holds the model's name; empty if there is no such label."""

    @property
    def speculative(self) -> Names:
        """Names of all metrics of speculative decoding; a server without any of them on its page does not speculate."""
        named = (*self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at, self.length, self.rate)
        return tuple(name for name in named if name)

    @property
    def counters(self) -> Names:
        """Names of all counters of this kind of server."""
        named = (*self.generated, *self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at)
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def gauges(self) -> Names:
        """Names of all gauges of this kind of server."""
        drafting = self.steps, self.draft_tokens, self.cap_length, self.block_length
        return tuple(filter(None, (self.length, self.rate, self.speed, *drafting)))


VLLM = Kind(
    name="vllm",
    title="vLLM",
    prefix="vllm:",
    generated=("vllm:generation_tokens",),
    drafts=("vllm:spec_decode_num_drafts",),
    drafted=("vllm:spec_decode_num_draft_tokens",),
    accepted=("vllm:spec_decode_num_accepted_tokens",),
    accepted_at="vllm:spec_decode_num_accepted_tokens_per_pos",
    model="model_name",
)
SGLANG = Kind(
    name="sglang",
    title="SGLang",
    prefix="sglang:",
    page="SGLang with --enable-metrics",
    generated=("sglang:generation_tokens",),
    drafts=("sglang:spec_verify_calls",),
    length="sglang:spec_accept_length",
    rate="sglang:spec_accept_rate",
    speed="sglang:gen_throughput",
    steps="sglang:spec_num_steps",
    draft_tokens="sglang:spec_num_draft_tokens",
    cap_length="sglang:spec_cap_length",
    block_length="sglang:spec_block_accept_length",
    ranks=("tp_rank", "pp_rank", "moe_ep_rank"),
    rounds_generate=True,
    model="model_name",
)
LLAMACPP = Kind(
    name="llamacpp",
    title="llama.cpp",
    prefix="llamacpp:",
    page="llama-server with --metrics",
    generated=("llamacpp:tokens_predicted",),
    drafts=("llamacpp:spec_decode_num_drafts",),
    drafted=("llamacpp:spec_decode_num_draft_tokens",),
    accepted=("llamacpp:spec_decode_num_accepted_tokens",),
    accepted_at="llamacpp:spec_decode_num_accepted_tokens_per_pos",
)
TENSORRT_LLM = Kind(
    name="tensorrt_llm",
    title="TensorRT-LLM",
    prefix="trtllm_",
    page="trtllm-serve with return_perf_metrics in its configuration",
    generated=("trtllm_generation_tokens",),
    drafted=("trtllm_spec_decode_num_draft_tokens",),
    accepted=("trtllm_spec_decode_num_accepted_tokens",),
    accepted_at="trtllm_spec_decode_accepted_tokens",
    drafted_at="trtllm_spec_decode_drafted_tokens",
    position="token_position",
    length="trtllm_spec_decode_acceptance_length",
    model="model_name",
)
TGI = Kind(
    name="tgi",
    title="TGI",
    prefix="tgi_",
    generated=("tgi_request_skipped_tokens_sum", "tgi_request_skipped_tokens_count"),
    drafts=("tgi_request_skipped_tokens_count",),
    accepted=("tgi_request_skipped_tokens_sum",),
)
KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (VLLM, SGLANG, LLAMACPP, TENSORRT_LLM, TGI)}


def recognised(lines: Sequence[str]) -> tuple[Kind, Sequence[str]] | None:
    """The kind of server that has these metrics, and the lines of its page with the kind's own names; None if no
    supported kind has them.

    If several kinds have metrics on the page, the first kind in `KINDS` that has metrics of speculative decoding is
    returned. If no kind has such metrics, the first kind with any metrics is returned.
    """
    pages = [(kind, _with_own_names(kind, lines)) for kind in KINDS.values()]
    present = [(kind, page) for kind, page in pages if _has(page, _beginnings(kind))]
    return next(((kind, page) for kind, page in present if _has(page, kind.speculative)), next(iter(present), None))


def _has(lines: Sequence[str], beginnings: Names) -> bool:
    return any(line.startswith(beginnings) for line in lines)


def _beginnings(kind: Kind) -> Names:
    return tuple(mark + kind.prefix for mark in ("", "# TYPE ", "# HELP "))


def _with_own_names(kind: Kind, lines: Sequence[str]) -> Sequence[str]:
    """The lines of a page, with the kind's names in place of names that differ in prefix or separator.

    A page that has the kind's own prefix stays as it is. If a page has several other prefixes, the most frequent one
    counts: a second one would count the same tokens again.
    """
    if _has(lines, _beginnings(kind)):
        return lines
    word, pattern = kind.prefix[:-1], _other_names(kind)
    found = {number: match for number, line in enumerate(lines) if word in line and (match := pattern.match(line))}
    if not found:
        return lines
    prefix, _ = Counter(match["prefix"] for match in found.values()).most_common(1)[0]
    renamed = list(lines)
    for number, match in found.items():
        if match["prefix"] == prefix:
            comment, name = match["comment"] or "", kind.prefix + match["stem"]
            renamed[number] = comment + name + lines[number][match.end() :]
    return renamed


@cache
def _other_names(kind: Kind) -> re.Pattern[str]:
    """Pattern of the beginning of a line that has one of the kind's metrics under any prefix."""
    stems = sorted((name.removeprefix(kind.prefix) for name in (*kind.counters, *kind.gauges)), key=len, reverse=True)
    return re.compile(
        rf"(?P<comment># (?:TYPE|HELP) )?(?P<prefix>(?:[a-zA-Z_:][\w:]*[_:])?{kind.prefix[:-1]}[_:])"
        rf"(?P<stem>{'|'.join(map(re.escape, stems))})(?=_total|_created|[{{\s]|$)"
    )
