"""Truncation by top-k and top-p without a sort, in one kernel; the reference in torch is `DeviceTruncation`.

A logit's code is an integer; codes have the order of logits. One program searches one row for the least logit to keep,
two bits of its code at a time: for top-k by numbers of tokens, then for top-p by float64 sums of probabilities. First,
one pass over the row lists the best logits of each lane of tokens. These lists contain every logit above some floor, so
they are searched in place of the row, which is searched only if the result is not above the floor, as with thousands of
equal logits. All sums have a fixed order. Independent of positions and of how the target chooses.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float
from torch import Tensor

BLOCK = 2048
"""Number of tokens that a program reads at once, and number of lanes: token t is in lane t % BLOCK."""
BEST = 4
"""Number of logits listed per lane. In 27 of a million rows in random order, a lane has 4 of the 50 best tokens."""
WARPS = 16
LEAST = tl.constexpr(-(2**31))
LAST = tl.constexpr(2**31 - 1)
"""Largest code, and the bits of a code without its sign."""


def row_passes(*, top_k: bool, top_p: bool) -> int:
    """How often the kernel reads a usual row, whose lists contain the results of all searches."""
    return 2 + (top_p and not top_k)


def blocks(vocabulary: int, code_bits: int, *, top_k: bool, top_p: bool) -> int:
    """Number of blocks, of a usual row and of its lists, that a program reads one after the other; logits have
    `code_bits` bits.
    """
    of_lists = (top_k + top_p) * code_bits // 2 + (top_k and top_p)
    return BEST * of_lists + -(-vocabulary // BLOCK) * row_passes(top_k=top_k, top_p=top_p)


@triton.jit
def _flipped(bits):
    """Turns the bits of logits into codes with the order of the logits, and codes into bits."""
    return bits ^ ((bits >> 31) & LAST)


@triton.jit
def _read(row, token_stride, tokens, vocabulary):
    """Logits and their codes, which have 32 bits; a logit in half precision is coded by the upper 16."""
    x = tl.load(row + tokens.to(tl.int64) * token_stride, tokens < vocabulary, other=float("-inf"))
    x = tl.where(x == 0.0, 0.0, x)  # 0 and -0 are equal
    if x.dtype.primitive_bitwidth == 16:
        bits = x.to(tl.int16, bitcast=True).to(tl.int32) << 16
    else:
        bits = x.to(tl.int32, bitcast=True)
    return x.to(tl.float64), _flipped(bits)


@triton.jit
def _logit(code, example):
    """The logit of a code, in the dtype to which `example` points."""
    bits = _flipped(code)
    if example.dtype.element_ty.primitive_bitwidth == 16:
        x = (bits >> 16).to(tl.int16).to(example.dtype.element_ty, bitcast=True)
    else:
        x = bits.to(tl.float32, bitcast=True)
    return x


@triton.jit
def _in_order(a, b):
    return tl.maximum(a, b), tl.minimum(a, b)


@triton.jit
def _list_best(row, token_stride, vocabulary, lists, block: tl.constexpr):
    """Writes the best logits of each lane to `lists`: the best of all lanes, then the second best, and so on. Returns
    the row's largest code, and the largest code that may be missing in the lists.
    """
    lane = tl.arange(0, block)
    first, second = tl.full([block], LEAST, tl.int32), tl.full([block], LEAST, tl.int32)
    third, fourth = tl.full([block], LEAST, tl.int32), tl.full([block], LEAST, tl.int32)
    for start in tl.range(0, vocabulary, block, loop_unroll_factor=4):
        _, code = _read(row, token_stride, start + lane, vocabulary)
        code = tl.where(start + lane < vocabulary, code, LEAST)
        first, code = _in_order(first, code)
        second, code = _in_order(second, code)
        third, code = _in_order(third, code)
        fourth = tl.maximum(fourth, code)
    tl.store(lists + lane, _logit(first, row))
    tl.store(lists + block + lane, _logit(second, row))
    tl.store(lists + 2 * block + lane, _logit(third, row))
    tl.store(lists + 3 * block + lane, _logit(fourth, row))
    tl.debug_barrier()  # the program's threads read what other threads have written
    return tl.max(first, 0), tl.max(fourth, 0)


@triton.jit
def _weight(x, top, temperature):
    """Probabilities of logits, divided by the probability of the largest logit, `top`."""
    return tl.exp((x - top) / temperature)


@triton.jit
def _search(
    row,
    token_stride,
    vocabulary,
    floor,
    limit,
    top,
    temperature,
    weighted: tl.constexpr,
    code_bits: tl.constexpr,
    block: tl.constexpr,
):
    """The least code, from `floor` on, such that all tokens with higher codes together weigh less than `limit`, and the
    weight of these tokens; code `LEAST` if even all tokens from `floor` on weigh less. Without `weighted`, each token
    weighs 1.
    """
    dtype: tl.constexpr = tl.float64 if weighted else tl.int32
    low, last = tl.full([], LEAST, tl.int32), tl.full([], LAST, tl.int32)
    above = tl.zeros([], tl.float64)
    step = tl.full([], 1 << 30, tl.int32)
    for _ in range(code_bits // 2):
        second = low + step
        third = second + step
        fourth = third + step
        from_second, from_third, from_fourth = (
            tl.zeros([block], dtype),
            tl.zeros([block], dtype),
            tl.zeros([block], dtype),
        )
        for start in range(0, vocabulary, block):
            tokens = start + tl.arange(0, block)
            x, code = _read(row, token_stride, tokens, vocabulary)
            searched = (code >= tl.maximum(second, floor)) & (code <= last) & (tokens < vocabulary)
            # Counting tokens takes less time than testing whether there are any.
            useful = tl.max(searched.to(tl.int32), 0) > 0 if weighted else True
            if useful:
                weight = _weight(x, top, temperature) if weighted else tl.full([block], 1, tl.int32)
                weight = tl.where(searched, weight, 0)
                from_second += weight
                from_third += tl.where(code >= third, weight, 0)
                from_fourth += tl.where(code >= fourth, weight, 0)
        second_up = above + tl.sum(from_second, 0)
        third_up = above + tl.sum(from_third, 0)
        fourth_up = above + tl.sum(from_fourth, 0)
        low = tl.where(
            second_up < limit, low, tl.where(third_up < limit, second, tl.where(fourth_up < limit, third, fourth))
        )
        above = tl.where(
            second_up < limit,
            second_up,
            tl.where(third_up < limit, third_up, tl.where(fourth_up < limit, fourth_up, above)),
        )
        last = low + (step - 1)
        step = step >> 2
    return low, above


@triton.jit
def _search_lists_first(
    row,
    token_stride,
    vocabulary,
    lists,
    missing,
    floor,
    limit,
    top,
    temperature,
    weighted: tl.constexpr,
    code_bits: tl.constexpr,
    listed: tl.constexpr,
    block: tl.constexpr,
):
    """`_search` in the lists, then in the row if needed. The lists contain all codes above `missing`, so a result above
    `missing` is also the row's result; any other result may be too low.
    """
    low, before = tl.full([], LEAST, tl.int32), tl.zeros([], tl.float64)
    for attempt in range(2):
        if low <= missing:
            of_lists = attempt == 0
            low, before = _search(
                tl.where(of_lists, lists, row),
                tl.where(of_lists, 1, token_stride),
                tl.where(of_lists, listed, vocabulary),
                floor,
                limit,
                top,
                temperature,
                weighted,
                code_bits,
                block,
            )
    return low, before


@triton.jit
def _total(row, token_stride, vocabulary, least, top, temperature, block: tl.constexpr):
    sums = tl.zeros([block], tl.float64)
    for start in range(0, vocabulary, block):
        tokens = start + tl.arange(0, block)
        x, code = _read(row, token_stride, tokens, vocabulary)
        counted = (code > least) & (tokens < vocabulary)
        if tl.max(counted.to(tl.int32), 0) > 0:
            sums += tl.where(counted, _weight(x, top, temperature), 0.0)
    return tl.sum(sums, 0)


@triton.jit
def exclude(
    logits,
    row_stride,
    token_stride,
    vocabulary,
    settings,
    settings_stride,
    lists,
    mask,
    code_bits: tl.constexpr,
    best: tl.constexpr,
    block: tl.constexpr,
):
    """Writes one row of the mask. Kept are all tokens with codes above the search's result, and as many with this code
    as top-k and top-p allow, those with the lowest ids first.
    """
    number = tl.program_id(0)
    row, mask_row = logits + number.to(tl.int64) * row_stride, mask + number.to(tl.int64) * vocabulary
    own, lists = settings + number * settings_stride, lists + number.to(tl.int64) * (best * block)
    temperature, ranks, share = tl.load(own), tl.load(own + 1), tl.load(own + 2)
    alike: tl.constexpr = (1 << (32 - code_bits)) - 1  # the bits of a code that logits in half precision lack
    low, spare = tl.full([], LEAST, tl.int32), tl.zeros([], tl.float64)
    highest, missing = _list_best(row, token_stride, vocabulary, lists, block)
    if ranks < vocabulary:
        low, before = _search_lists_first(
            row, token_stride, vocabulary, lists, missing, low, ranks, 0.0, 1.0, False, code_bits, best * block, block
        )
        spare = ranks - before
    limit, before = tl.full([], float("inf"), tl.float64), tl.zeros([], tl.float64)
    tie_weight = tl.zeros([], tl.float64)
    if share < float("inf"):
        top = _logit(highest, row).to(tl.float64)
        of_lists = low > missing
        total = _total(
            tl.where(of_lists, lists, row),
            tl.where(of_lists, 1, token_stride),
            tl.where(of_lists, best * block, vocabulary),
            low + alike,
            top,
            temperature,
            block,
        )
        ties = tl.where(spare > 0, spare * _weight(_logit(low, row).to(tl.float64), top, temperature), 0.0)
        limit = share * (total + ties)
        found, before = _search_lists_first(
            row,
            token_stride,
            vocabulary,
            lists,
            missing,
            low,
            limit,
            top,
            temperature,
            True,
            code_bits,
            best * block,
            block,
        )
        spare = tl.where(found > low, float("inf"), spare)
        low = tl.maximum(found, low)
        tie_weight = _weight(_logit(low, row).to(tl.float64), top, temperature)
    seen = tl.zeros([], tl.int32)
    for start in range(0, vocabulary, block):
        tokens = start + tl.arange(0, block)
        _, code = _read(row, token_stride, tokens, vocabulary)
        kept = code > low + alike
        tie = (code >= low) & (code <= low + alike) & (tokens < vocabulary)
        if tl.max(tie.to(tl.int32), 0) > 0:
            rank = seen + tl.cumsum(tie.to(tl.int32), 0) - 1
            kept = kept | (tie & (rank < spare) & (before + rank * tie_weight < limit))
            seen += tl.sum(tie.to(tl.int32), 0)
        tl.store(mask_row + tokens, (~kept).to(tl.uint8), tokens < vocabulary)


@dataclass(frozen=True)
class SearchedTruncation:
    """Truncation by the kernel `exclude`, for logits in float32 or half precision."""

    settings: Float[Tensor, "N 3"]
    """Settings of each row, or one row of settings for all rows; see `Truncating`."""

    @classmethod
    def of(cls, settings: Float[Tensor, "N 3"], vocabulary: int) -> "SearchedTruncation":
        del vocabulary
        return cls(settings)

    def row(self, index: int) -> "SearchedTruncation":
        return SearchedTruncation(self.settings[index : index + 1])

    def excluded(self, logits: Float[Tensor, "N V"]) -> Bool[Tensor, "N V"]:
        rows, vocabulary = logits.shape
        mask = logits.new_empty((rows, vocabulary), dtype=torch.bool)
        lists = logits.new_empty((rows, BEST * BLOCK))
        exclude[(rows,)](
            logits,
            *logits.stride(),
            vocabulary,
            self.settings,
            self.settings.shape[1] if len(self.settings) > 1 else 0,
            lists,
            mask.view(torch.uint8),
            logits.element_size() * 8,
            BEST,
            BLOCK,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
        return mask
