"""The servers that are known: what each calls the figures on its page of metrics, and what switches that page on.

A name is written without `_total`. Knows neither pages nor how figures are computed from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Names: TypeAlias = tuple[str, ...]
"""Counters that are summed; none where the server does not tell."""


@dataclass(frozen=True)
class Kind:
    """One kind of server."""

    name: str
    title: str
    prefix: str
    """How the names of its metrics begin."""
    generated: Names
    """Tokens."""
    drafts: Names = ()
    """Verified drafts, a round each; where positions alone are counted, those of the first."""
    drafted: Names = ()
    accepted: Names = ()
    accepted_at: str = ""
    """Accepted tokens by position."""
    drafted_at: str = ""
    position: str = "position"
    """The label that holds a position, from 0."""
    length: str = ""
    """A gauge of the mean acceptance length, the target's token included."""
    rate: str = ""
    """A gauge of accepted / drafted."""
    speed: str = ""
    """A gauge of tokens a second."""
    steps: str = ""
    """A gauge of the draft's passes in a round, 0 before the first one, as are the three below."""
    draft_tokens: str = ""
    """A gauge of the tokens that a round verifies, the place of the target's own among them."""
    cap_length: str = ""
    """A gauge of the mean verified tokens, where a round may verify fewer than `draft_tokens`."""
    block_length: str = ""
    """A gauge of the mean acceptance length if all had been verified."""
    ranks: Names = ()
    """Labels of the processes of one engine, each of which shows the same gauges."""
    rounds_generate: bool = False
    """Whether all tokens are generated in counted rounds, so that L-bar is generated / rounds, and what a round brings
    beyond one token was drafted."""
    page: str = ""
    """The server as started with metrics, where these are off by default."""
    model: str = ""
    """The label that names the model, where there is one."""

    @property
    def speculative(self) -> Names:
        """All names of metrics of drafts: a server whose page has none does not speculate."""
        named = (*self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at, self.length, self.rate)
        return tuple(name for name in named if name)

    @property
    def counters(self) -> Names:
        """Names of all that only grows while the server runs."""
        named = (*self.generated, *self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at)
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def gauges(self) -> Names:
        """Names of all that is shown as it is at the moment."""
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


def recognised(lines: Sequence[str]) -> Kind | None:
    """The kind whose metrics a page has or announces; of several the one that tells of drafts, then the first here."""

    def has(names: Names) -> bool:
        return any(line.startswith(names) for line in lines)

    present = [kind for kind in KINDS.values() if has(tuple(mark + kind.prefix for mark in ("", "# TYPE ", "# HELP ")))]
    return next((kind for kind in present if has(kind.speculative)), present[0] if present else None)
