"""Draft trees that the compiled library grows: after each pass, the library adds children and describes the next pass.
For a small model, this work in Python would take half as long as a pass, since each pass displaces Python's memory from
the CPU caches. Independent of drafters.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from ctypes import Structure, c_double, c_float, c_int32, c_int64, c_uint8, c_void_p
from dataclasses import dataclass
from typing import Any

from decoder.forward.compiled.library import BestStruct
from decoder.forward.compiled.model import CompiledModel, Workspace
from decoder.forward.kv_cache import MORE_ROWS, KvCache
from decoder.sampling.noise import Estimate
from decoder.sampling.ranking import Ranking, RankingAt
from decoder.tree import TokenTree
from decoder.tree_rules import TreeRule

NODES, ROWS, DEPTHS = 128, 16, 8
"""Numbers of nodes, of rows of a pass, and of depths for which there is memory at first."""
DEEPEST = (1 << 31) - 1


@dataclass(frozen=True)
class Expectation:
    """Parameters of the acceptance model, for trees that grow by the log-probabilities of `AcceptanceModel.log_shares`.

    The compiled library computes these log-probabilities itself.
    """

    exponent: float
    undrafted: float


class RuleStruct(Structure):
    _fields_ = (
        *((name, c_double) for name in ("stop", "deep", "d0", "tau_h", "tau_l", "least", "exponent", "undrafted")),
        *((name, c_int32) for name in ("deepest", "narrow", "middle", "wide", "n_max", "best", "growing", "expected")),
    )


OF_NODES: dict[str, Any] = {
    **dict.fromkeys(("tokens", "parents", "depths"), c_int32),
    **dict.fromkeys(("logprobs", "paths", "draft"), c_double),
    **dict.fromkeys(("rows", "calls", "level"), c_int32),
}
"""Types of the arrays with an entry for each node, by their names in `GrowingStruct`."""


class GrowingStruct(Structure):
    _fields_ = (
        ("rule", RuleStruct),
        *((name, c_void_p) for name in ("job", "offsets", "factors", "row_offsets", "row_factors")),
        ("best", BestStruct),
        *((name, c_void_p) for name in (*OF_NODES, "visible")),
        *((name, c_int64) for name in ("text", "nodes", "places", "most_keys")),
        *((name, c_int32) for name in ("most_rows", "depths_known")),
        *((name, c_int32) for name in ("count", "passes", "forwarded", "level_count", "lost")),
    )


@dataclass(frozen=True)
class Grown:
    tree: TokenTree
    """All nodes, also those beyond the rule's budget."""
    rows: dict[int, int]
    """Cache row of each node that a pass has read; the root was read with the text."""
    calls: list[int]
    """Number of rows of each pass, without the pass that read the text."""


class TreeGrower:
    """Grows the trees of one text by calls of the compiled library, and owns the memory that these calls use."""

    def __init__(self, model: CompiledModel, reserve: Callable[[int], None]) -> None:
        """`reserve` enlarges the cache to at least a number of rows."""
        self.model = model
        self._reserve = reserve
        self._space = Workspace(model)
        self._struct = GrowingStruct(job=ctypes.addressof(self._space.job))
        self._arrays: dict[str, Any] = {}
        self._rule: tuple[TreeRule | None, int, Expectation | None] = None, 0, None
        """Arguments of `_follow` from which `_struct.rule` was made."""
        self._ranked: tuple[int, int, bool] | None = None
        """Memory for ranked tokens: (rows, tokens per row, whether the draft's own log-probabilities are included)."""
        self._estimate: Estimate | None = None
        self._rows = ROWS
        """Largest number of rows of a pass."""
        self._make_places(NODES * ROWS)
        self._make_nodes(NODES)

    def grow(
        self,
        cache: KvCache,
        unread: Sequence[int],
        rule: TreeRule,
        deepest: int,
        ranking: RankingAt,
        expectation: Expectation | None = None,
    ) -> Grown | None:
        """Reads the unread tokens at the end of a text, then grows the same tree as `decoder.draft.growth.grow`, with
        at most `deepest` levels. Returns None without a pass if the ranking needs logits.
        """
        functions, struct, model = self.model.library.functions, self._struct, self.model
        end, address = cache.length + len(unread), ctypes.addressof(struct)
        deepest = min(deepest, int(rule.growth.deepest), DEEPEST)
        known = max(1, min(deepest, DEPTHS))
        asked = ranking(range(end, end + known))
        if asked.needs_logits:
            return None
        self._follow(rule, deepest, expectation)
        self._rank(asked, self._rows, known)
        functions.dynatui_begin_tree(address, end, unread[-1])
        model.read_ranked(self._space, cache, unread, struct.best)
        if self._space.job.capacity != struct.most_keys:
            self._limit()
        while rows := functions.dynatui_grow(address):
            self._make_room(cache, rows, ranking)
            functions.dynatui_set_level(address)
            model.team.run(self._space.job, model.threads(rows))
        cache.used = end + struct.forwarded
        return self._grown(end, own=asked.own or expectation is not None)

    def _follow(self, rule: TreeRule, deepest: int, expectation: Expectation | None) -> None:
        before, *limits = self._rule
        if before is rule and limits == [deepest, expectation]:
            return
        self._rule = rule, deepest, expectation
        growth, budget = rule.growth, rule.budget
        if 1 + growth.wide > self._struct.nodes:
            self._make_nodes(1 + int(growth.wide))
        self._struct.rule = RuleStruct(
            *map(float, (growth.stop, growth.deep, growth.d0, growth.tau_h, growth.tau_l)),
            math.log(budget.least) if budget.least else -math.inf,
            *((expectation.exponent, expectation.undrafted) if expectation else (1.0, 0.0)),
            *map(int, (deepest, growth.narrow, growth.middle, growth.wide, budget.n_max)),
            *(budget.best, budget.growing, expectation is not None),
        )

    def _rank(self, asked: Ranking, rows: int, depths: int) -> None:
        """Sets the ranking of the nodes of each depth, for passes of at most `rows` rows."""
        self._rows, self._struct.depths_known = rows, depths
        struct, count = self._struct, min(asked.count, self.model.vocabulary)
        if self._ranked != (rows, count, asked.own):
            self._ranked = rows, count, asked.own
            numbers = c_float * (rows * count)
            struct.row_offsets = self._held("row_offsets", (c_void_p * rows)())
            struct.row_factors = self._held("row_factors", (c_float * rows)())
            struct.best = BestStruct(
                None,
                None,
                self._held("best_tokens", (c_int32 * (rows * count))()),
                self._held("best_logprobs", numbers()),
                self._held("best_own", numbers()) if asked.own else None,
                count,
            )
        self._space.keep_logits(rows)
        # This reference keeps the offsets in memory, since the struct has only their addresses.
        self._estimate = estimate = asked.estimate
        struct.offsets = struct.factors = None
        if estimate is not None:
            struct.factors = self._held("factors", (c_float * depths)(*estimate.factors))
            if estimate.offsets is not None:
                addresses = (row.data_ptr() for row in estimate.offsets)
                struct.offsets = self._held("offsets", (c_void_p * depths)(*addresses))

    def _make_room(self, cache: KvCache, rows: int, ranking: RankingAt) -> None:
        """Makes room for the next pass, which has this number of rows."""
        struct, job = self._struct, self._space.job
        nodes, recent = struct.count + rows * struct.rule.wide, struct.forwarded + rows
        if nodes > struct.nodes:
            self._make_nodes(2 * nodes)
        if rows * recent > struct.places:
            self._make_places(2 * rows * recent)
        depths = self._arrays["depths"][self._arrays["level"][0]] + 1
        known = max(struct.depths_known, -(-depths // DEPTHS) * DEPTHS)
        if rows > self._rows or known > struct.depths_known:
            most_rows = 2 * rows if rows > self._rows else self._rows
            self._rank(ranking(range(cache.length, cache.length + known)), most_rows, known)
        if cache.length + recent > cache.capacity:
            cache.used = cache.length + struct.forwarded
            self._reserve(cache.length + recent + MORE_ROWS)
            job.store, job.capacity = cache.store.data_ptr(), cache.capacity
        self._limit(self.model.threads(rows))

    def _limit(self, threads: int = 1) -> None:
        """Makes room for passes by a number of threads, and sets the limits of passes for which there is memory."""
        struct, keys = self._struct, self._space.job.capacity
        struct.most_keys, struct.most_rows = keys, min(self._rows, self.model.rows_alone)
        self._space.make_room(self._rows, keys, threads, keys)

    def _held(self, name: str, array: Any) -> int:
        """Address of an array, which is kept in memory until the next array with this name."""
        self._arrays[name] = array
        return ctypes.addressof(array)

    def _make_nodes(self, count: int) -> None:
        for name, kind in OF_NODES.items():
            array = (kind * count)()
            if before := self._arrays.get(name):
                array[: len(before)] = before
            setattr(self._struct, name, self._held(name, array))
        self._struct.nodes = count
        self._make_places(max(self._struct.places, count))

    def _make_places(self, count: int) -> None:
        self._struct.visible, self._struct.places = self._held("visible", (c_uint8 * count)()), count

    def _grown(self, text: int, *, own: bool) -> Grown:
        arrays, struct = self._arrays, self._struct
        tokens, parents, depths, logprobs, paths, draft, rows = (
            arrays[name][: struct.count]
            for name in ("tokens", "parents", "depths", "logprobs", "paths", "draft", "rows")
        )
        tree = TokenTree(tokens, parents, logprobs, depths, paths, draft if own and len(tokens) > 1 else None)
        tree.lost = bool(struct.lost)
        read = {node: text + row for node, row in enumerate(rows) if row >= 0}
        return Grown(tree, read, arrays["calls"][: struct.passes])
