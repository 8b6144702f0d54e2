"""The most probable tokens after each row of a level, in two kernels; the PyTorch version is `draft.add_children`.

The first kernel finds the best tokens of each part of the vocabulary, the second the best of these tokens. Of equally
probable tokens, the token with the lower id comes first. These kernels are independent of models and of passes.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from decoder.session.cuda_graph.device_state import GROWTH
from decoder.session.cuda_graph.draft import DraftLayout
from decoder.tree_rules import Growth

PART = 2048
"""Number of tokens of each part of the vocabulary."""
NONE = tl.constexpr(-(2**63))
"""Code that stands for no token; less than the code of every token."""
LAST = tl.constexpr(2**31 - 1)
"""Largest token id; also the mask of all bits of a float32 except the sign."""


@triton.jit
def _code(logits, tokens):
    """Integers that order tokens by logit, then by descending id: the upper 32 bits are the logit's bits, changed so
    that integers have the order of the logits; the lower 32 bits are LAST minus the id.
    """
    bits = tl.where(logits == 0.0, 0.0, logits).to(tl.int32, bitcast=True)  # 0 and -0 are equal
    return ((bits ^ ((bits >> 31) & LAST)).to(tl.int64) << 32) | (LAST - tokens).to(tl.int64)


@triton.jit
def _logit(code):
    bits = (code >> 32).to(tl.int32)
    return (bits ^ ((bits >> 31) & LAST)).to(tl.float32, bitcast=True)


@triton.jit
def part_best(
    logits,
    row_stride,
    token_stride,
    vocabulary,
    part_max,
    part_sum,
    part_codes,
    children,
    part: tl.constexpr,
):
    """Program for one part of one row: computes the part's largest logit, sum of exp(logit - largest), and codes of the
    best tokens, best first.
    """
    row, number, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    tokens = number * part + tl.arange(0, part)
    there = tokens < vocabulary
    x = tl.load(logits + row.to(tl.int64) * row_stride + tokens * token_stride, there, other=float("-inf"))
    x = x.to(tl.float32)
    top = tl.max(x, 0)
    at = row * parts + number
    tl.store(part_max + at, top)
    # A part without any possible token adds nothing to the row's sum.
    tl.store(part_sum + at, tl.sum(tl.exp(x - tl.where(top == float("-inf"), 0.0, top)), 0))
    codes = tl.where(there, _code(x, tokens), NONE)
    for rank in range(children):
        best = tl.max(codes, 0)
        tl.store(part_codes + at * children + rank, best)
        codes = tl.where(codes == best, NONE, codes)


@triton.jit
def best_of_parts(
    part_max,
    part_sum,
    part_codes,
    parts,
    children,
    paths,
    narrow,
    middle,
    wide,
    tau_h,
    tau_l,
    tokens,
    logprobs,
    line_paths,
    even: tl.constexpr,
    most_parts: tl.constexpr,
    most_codes: tl.constexpr,
):
    """Program for one row: computes its best tokens, best first, their log-probabilities and path log-probabilities.
    Unless `even`, tokens beyond the node's number of children (`tree_rules.breadth`) get paths of minus infinity.
    """
    row = tl.program_id(0)
    p, c = tl.arange(0, most_parts), tl.arange(0, most_codes)
    tops = tl.load(part_max + row * parts + p, p < parts, other=float("-inf"))
    sums = tl.load(part_sum + row * parts + p, p < parts, other=0.0)
    codes = tl.load(part_codes + row * parts * children + c, c < parts * children, other=NONE)
    path = tl.load(paths + row)
    top = tl.max(tops, 0)
    log_sum = tl.log(tl.sum(sums * tl.exp(tops - top), 0))
    confidence = (_logit(tl.max(codes, 0)) - top - log_sum).to(tl.float64)
    for rank in range(children):
        best = tl.max(codes, 0)
        logprob = (_logit(best) - top) - log_sum
        before = path
        if not even:
            unsure = tl.where(confidence < tl.load(tau_l), tl.load(wide + rank), tl.load(middle + rank))
            before += tl.where(confidence >= tl.load(tau_h), tl.load(narrow + rank), unsure)
        at = row * children + rank
        tl.store(tokens + at, LAST - (best & LAST))
        tl.store(logprobs + at, logprob)
        tl.store(line_paths + at, before + logprob.to(tl.float64))
        codes = tl.where(codes == best, NONE, codes)


def add_children(
    logits: Float[Tensor, "W V"],
    layout: DraftLayout,
    breadths: Growth[Tensor] | None,
    paths: Float[Tensor, "W"],
    lines: Int[Tensor, "3 K"],
    logprobs: Float[Tensor, "K"],
) -> None:
    rows, vocabulary = logits.shape
    parts, children = triton.cdiv(vocabulary, PART), layout.children
    part_max = logits.new_empty((2, rows, parts), dtype=torch.float32)
    part_codes = logits.new_empty((rows, parts, children), dtype=torch.int64)
    part_best[(rows, parts)](
        logits, *logits.stride(), vocabulary, *part_max, part_codes, children, PART, enable_fp_fusion=False
    )
    rule = breadths or Growth(*[paths] * len(GROWTH))
    best_of_parts[(rows,)](
        *part_max,
        part_codes,
        parts,
        children,
        paths,
        rule.narrow,
        rule.middle,
        rule.wide,
        rule.tau_h,
        rule.tau_l,
        lines[0],
        logprobs,
        lines[1].view(torch.float64),
        breadths is None,
        triton.next_power_of_2(parts),
        triton.next_power_of_2(parts * children),
        enable_fp_fusion=False,
    )
