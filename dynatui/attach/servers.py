"""Supported servers: the names of their metrics, and the option that enables their metrics page.

A name is written without `_total`. Knows neither pages nor how figures are computed from them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Names: TypeAlias = tuple[str, ...]
"""Names of counters to be summed; empty where the server has none."""


@dataclass(frozen=True)
class Kind:
    """One kind of server."""

    name: str
    title: str
    prefix: str
    """Prefix of its metrics' names."""
    generated: Names
    """Counters of generated tokens."""
    drafts: Names = ()
    """Counters of rounds (verified drafts); of the first position, where only positions are counted."""
    drafted: Names = ()
    accepted: Names = ()
    accepted_at: str = ""
    """Counter of accepted tokens by position."""
    drafted_at: str = ""
    position: str = "position"
    """Label of the position, from 0."""
    length: str = ""
    """Gauge of the mean acceptance length, the target's token included."""
    rate: str = ""
    """Gauge of the acceptance rate, accepted / drafted."""
    speed: str = ""
    """Gauge of tokens a second."""
    steps: str = ""
    """Gauge of draft passes in a round; 0 before the first round, as are the three below."""
    draft_tokens: str = ""
    """Gauge of the tokens verified in a round, the target's own position included."""
    cap_length: str = ""
    """Gauge of the mean number of verified tokens, where a round may verify fewer than `draft_tokens`."""
    block_length: str = ""
    """Gauge of the mean acceptance length if every draft had been verified whole."""
    ranks: Names = ()
    """Labels of the processes of one engine, which all report the same gauges."""
    rounds_generate: bool = False
    """Whether all tokens are generated in counted rounds, so that L-bar is generated / rounds, and all tokens of a
    round but one were drafted.
    """
    page: str = ""
    """Command or option that enables metrics, where they are off by default."""
    model: str = ""
    """The label that names the model, where there is one."""

    @property
    def speculative(self) -> Names:
        """All metrics of speculative decoding: a server without them on its page does not speculate."""
        named = (*self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at, self.length, self.rate)
        return tuple(name for name in named if name)

    @property
    def counters(self) -> Names:
        """Names of all counters."""
        named = (*self.generated, *self.drafts, *self.drafted, *self.accepted, self.accepted_at, self.drafted_at)
        return tuple(dict.fromkeys(name for name in named if name))

    @property
    def gauges(self) -> Names:
        """Names of all gauges."""
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
    """The kind of server by the metrics on a page; of several, one with metrics of drafts, then the first here."""

    def has(names: Names) -> bool:
        return any(line.startswith(names) for line in lines)

    present = [kind for kind in KINDS.values() if has(tuple(mark + kind.prefix for mark in ("", "# TYPE ", "# HELP ")))]
    return next((kind for kind in present if has(kind.speculative)), present[0] if present else None)
