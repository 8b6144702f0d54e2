"""Choice between Triton kernels and plain PyTorch functions by a trial on the device.

The trial runs drafts and verifications of the pair's sizes without the models: logits are looked up in tables. A kernel
is used if it leaves the same state as the plain function and if, in CUDA graphs, it is faster for at least one size and
slower for no size. A kernel of the models' layers is tried in whole passes, after a short and a long text, and is used
for the numbers of rows at which it makes passes faster. If anything fails, for example because triton is not installed,
the plain function is used, and the reason is recorded.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from decoder.errors import first_line
from decoder.forward.families.native import NativeModel
from decoder.forward.layer_kinds import Windows
from decoder.forward.linear import has_wide_product
from decoder.models.pair import Pair
from decoder.sampling.settings import Sampling
from decoder.session.cuda_graph.device_state import LEVEL, LOGPROB, DeviceState
from decoder.session.cuda_graph.draft import DraftLayout, DraftOperators, DraftPart, grow
from decoder.session.cuda_graph.operators import PLAIN, Operators, Verdict, part_of
from decoder.session.cuda_graph.pass_comparison import LONG_TEXT, TEXT, Share, compared, relative_time
from decoder.session.cuda_graph.slots import BEYOND, GraphSlots
from decoder.session.cuda_graph.static_shapes import (
    BUCKETS,
    DEEPEST,
    MOST_NODES,
    MOST_USUAL,
    beam,
    bucket,
    fits,
    levels,
    most_nodes,
    shape,
    slots,
)
from decoder.session.cuda_graph.verify import VerificationOperators, verify
from decoder.system.device import without_gradients
from decoder.tree_rules import Rules, TreeRule, tree_rule
from decoder.verify.verifier import GreedyVerifier

FAR = 1e-4
"""Allowed difference of log-probabilities, since kernels sum float32 numbers in another order."""
OTHER = "gives results that differ from the plain function's"
TRUNCATIONS = Sampling(1.0, 50, 0.95), Sampling(0.7, top_p=0.9), Sampling(1.3, 40)
LENGTH = 100
"""Length of the text before each draft, in tokens."""
ROWS = tuple(rows for rows in BUCKETS if rows <= MOST_USUAL)
"""Numbers of rows of the passes in which kernels of layers are tried."""
STATES = 64
"""Number of rows of the table that replaces a model (see `Table`)."""


def kernels() -> Mapping[str, Callable[..., Any]]:
    """Kernels by the name of the field of `Operators` that they replace. Raises ImportError without triton."""
    from decoder.session.cuda_graph.kernels import (  # noqa: PLC0415 - triton exists on devices with CUDA only
        best_tokens,
        keep_level,
        pack_tree,
        verify_tree,
    )
    from decoder.session.cuda_graph.kernels.searched_truncation import SearchedTruncation  # noqa: PLC0415 - as above

    return {
        "add_children": best_tokens.add_children,
        "keep_level": keep_level.keep_level,
        "pack_tree": pack_tree.pack_tree,
        "tree_rows": verify_tree.tree_rows,
        "accept_path": verify_tree.accept_path,
        "truncating": SearchedTruncation.of,
    }


def layer_kernels() -> Mapping[str, Callable[[NativeModel], NativeModel]]:
    """For each part of a model's layers, a function that returns a form with kernels for this part, or the given form
    if the kernels support none of its layers. Raises ImportError without triton.
    """
    from decoder.session.cuda_graph.kernels import normed_product, tree_attention  # noqa: PLC0415 - as above

    return {"attention": tree_attention.with_kernels, "norms and products": normed_product.with_kernels}


class Table:
    """A `StaticForward` without a model: the logits after a token are a row of a table. Records attention biases."""

    windows = Windows({}, ())

    def __init__(self, table: Float[Tensor, "T V"]) -> None:
        self._table = table
        wide = has_wide_product(table.device, table.dtype)
        self.logits = table.float() if wide else table
        self.biases: list[Tensor] = []

    def new_store(self, capacity: int) -> Float[Tensor, "L 2 H S D"]:
        """Each slot of the store contains its own index, so that moves between slots can be checked."""
        slot_numbers = torch.arange(capacity, device=self._table.device)
        return slot_numbers.to(self._table.dtype).view(1, 1, 1, -1, 1).repeat(1, 2, 1, 1, 1)

    def rotation(self, store: Float[Tensor, "L 2 H S D"], positions: Int[Tensor, "N"]) -> Tensor:
        del store
        return positions

    def computed(
        self,
        store: Float[Tensor, "L 2 H S D"],
        tokens: Int[Tensor, "N"],
        rotation: Tensor,
        slots: Int[Tensor, "N"],
        bias: Float[Tensor, "N M"],
    ) -> Float[Tensor, "N V"]:
        del store, rotation, slots
        self.biases.append(bias)
        return self.logits.index_select(0, tokens.remainder(len(self.logits)))


class Rehearsal:
    """A draft after a fixed text, and the verification of the drafted tree, without models."""

    def __init__(self, rule: TreeRule, tables: tuple[Tensor, Tensor], context: int) -> None:
        """`tables` are the logits of target and draft, in this order; see `Table`."""
        device, vocabulary = tables[0].device, tables[0].shape[1]
        size = beam(rule, int(rule.growth.deepest)) if rule.budget.by_cost else shape(rule)
        self._layout = DraftLayout(size, vocabulary, device)
        self._nodes = min(bucket(most_nodes(rule)), MOST_USUAL)
        self._slots = slots(LENGTH + MOST_NODES + size.rows)
        self._state = DeviceState(device, self._slots + DEEPEST + BEYOND)
        self._state.begin(range(LENGTH), rule)
        self._forms = [Table(table) for table in tables]
        numbers = [[sampling.temperature, sampling.ranks, sampling.share] for sampling in TRUNCATIONS]
        truncations: Float[Tensor, "N 3"] = torch.tensor(numbers, dtype=torch.float64, device=device)
        self._truncated = [
            (_repeated(form.logits, rows), _repeated(truncations, rows))
            for form, rows in zip(self._forms, (self._nodes, max(size.widths)), strict=True)
        ]
        self._target, self._draft = (
            DraftPart(form, form.new_store(self._slots + BEYOND), vocabulary, context) for form in self._forms
        )

    def draft(self, operators: Operators) -> None:
        self._state.length.fill_(LENGTH)
        grow(self._draft, self._state, self._layout, self._slots, GreedyVerifier(), operators)

    def verification(self, operators: Operators) -> None:
        self._state.length.fill_(LENGTH)
        choose = GreedyVerifier().choose
        sizes = self._nodes, levels(self._nodes, self._layout.deepest), self._slots
        verify(self._target, self._draft, self._state, *sizes, choose, operators)

    def truncation(self, operators: Operators) -> None:
        """Makes masks of truncation, for the rows of a verification and for the rows of a draft's widest level."""
        self._excluded(operators)

    def _excluded(self, operators: Operators) -> list[Bool[Tensor, "N V"]]:
        return [operators.truncating(each, rows.shape[1]).excluded(rows) for rows, each in self._truncated]

    def part(self, name: str) -> Callable[[Operators], None]:
        """The work that is repeated to time the kernel for this field of `Operators`."""
        if hasattr(DraftOperators, name):
            return self.draft
        return self.verification if hasattr(VerificationOperators, name) else self.truncation

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Restores the state afterwards, so that each kernel is tried on the same inputs."""
        restore, stores = self._state.saved(), [side.store.clone() for side in (self._target, self._draft)]
        try:
            yield
        finally:
            restore()
            for side, store in zip((self._target, self._draft), stores, strict=True):
                side.store.copy_(store)

    def results(self, operators: Operators) -> list[Tensor]:
        """All results of a draft, its verification and truncation."""
        for form in self._forms:
            form.biases.clear()
        with self.kept():
            self.draft(operators)
            # The lines of columns without a node are undefined.
            tree = torch.where(self._state.nodes[LEVEL] > 0, self._state.nodes, 0)
            self.verification(operators)
            after = self._state
            state = after.length, after.text, after.committed, after.outcome, after.shares, after.rounds
            changed = [*state, after.rule.vector, self._target.store, self._draft.store]
            biases = [bias for form in self._forms for bias in form.biases]
            tree_lines = [tree[:LOGPROB], tree[LOGPROB:].view(torch.float64)]
            return [*tree_lines, *(tensor.clone() for tensor in changed), *biases, *self._excluded(operators)]


def rehearsals(pair: Pair, tried: Sequence[Rules | None]) -> list[Rehearsal]:
    rules = dict.fromkeys(rule for rule in map(tree_rule, tried) if rule is not None and fits(rule))
    drafting = pair.head or pair.draft or pair.target
    device, widest = pair.target.device, max((int(rule.growth.wide) for rule in rules), default=1)
    logits = _logits(pair.vocabulary, widest)
    other = logits.clone()
    # After every fourth token, the target chooses another token than the draft.
    other[::4] = other[::4].roll(1, 1)
    tables = other.to(device, pair.target.dtype), logits.to(device, drafting.dtype)
    return [Rehearsal(rule, tables, pair.context) for rule in rules]


def _logits(vocabulary: int, widest: int) -> Float[Tensor, "T V"]:
    """Random logits; the largest logits of a row are distinct in every dtype, so their order is certain."""
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(STATES, vocabulary, generator=random).clamp(max=4)
    best = min(vocabulary, widest + 8)
    for row in logits:
        row[torch.randperm(vocabulary, generator=random)[:best]] = 8 + torch.arange(best) / 4
    return logits


def trial(
    pair: Pair, graph_slots: GraphSlots, tried: Sequence[Rules | None], known: Mapping[str, Verdict]
) -> Iterator[str]:
    """Tries the kernels without a verdict in `known`, each in one step, which yields the progress in words.
    `graph_slots` gets the chosen kernels, as operators and in the models' forms, and all verdicts.
    """
    graph_slots.operators = PLAIN
    try:
        of_rounds, of_layers = _kernels_for(pair), layer_kernels()
        examples = _rehearsed(pair, tried) if of_rounds.keys() - known.keys() else []
    except Exception as error:  # noqa: BLE001 - whatever fails, the plain functions are used
        words = f"are plain functions: {first_line(error)}"
        graph_slots.operators = PLAIN.told("all parts", Verdict(words, settled=False))
        return
    forms = {role: graph_slots.forward(model) for role, model in pair.models.items()}
    native = {role: form for role, form in forms.items() if isinstance(form, NativeModel)}
    total = len({*of_rounds, *(part_of(role, kind) for role in native for kind in of_layers)} - known.keys())
    tried_parts = itertools.chain(
        _try_in_rounds(graph_slots, of_rounds, examples, known),
        *(_try_in_layers(pair, graph_slots, role, form, of_layers, known) for role, form in native.items()),
    )
    for number, _ in enumerate((part for part in tried_parts if part not in known), 1):
        yield f"kernels: {number} of {total} tried"


def _try_in_rounds(
    graph_slots: GraphSlots,
    candidates: Mapping[str, Callable[..., Any]],
    examples: Sequence[tuple[Rehearsal, Sequence[Tensor]]],
    known: Mapping[str, Verdict],
) -> Iterator[str]:
    """Yields the name of each part after its trial."""
    for name, kernel in candidates.items():
        part: dict[str, Any] = {name: kernel}
        try:
            verdict = known.get(name) or _in_rounds(name, replace(PLAIN, **part), graph_slots, examples)
        except Exception as error:  # noqa: BLE001 - as above
            verdict = _failed(error)
        graph_slots.operators = graph_slots.operators.told(name, verdict)
        if verdict.used:
            graph_slots.operators = replace(graph_slots.operators, **part)
        yield name


def _try_in_layers(
    pair: Pair,
    graph_slots: GraphSlots,
    role: str,
    plain: NativeModel,
    candidates: Mapping[str, Callable[[NativeModel], NativeModel]],
    known: Mapping[str, Verdict],
) -> Iterator[str]:
    """Like `_try_in_rounds`, for the layers of one model. Parts that no layer of the model has get no verdict."""
    forms = dict.fromkeys(ROWS, plain)
    for kind, with_kernels in candidates.items():
        name = part_of(role, kind)
        try:
            possible = _possible(forms, with_kernels)
            verdict = known.get(name) or _in_layers(forms, possible, graph_slots, pair.context)
            if possible and verdict.used:
                forms |= {rows: possible[rows] for rows in verdict.rows or possible}
        except Exception as error:  # noqa: BLE001 - as above
            possible, verdict = forms, _failed(error)
        if possible:
            graph_slots.operators = graph_slots.operators.told(name, verdict)
        yield name
    graph_slots.forms[pair.models[role]] = plain.by_size(forms)


def _kernels_for(pair: Pair) -> Mapping[str, Callable[..., Any]]:
    """All kernels; if the pair drafts by suffix lookup, without those of draft models."""
    return {name: kernel for name, kernel in kernels().items() if not (pair.looks_up and hasattr(DraftOperators, name))}


@without_gradients()
def _rehearsed(pair: Pair, tried: Sequence[Rules | None]) -> list[tuple[Rehearsal, list[Tensor]]]:
    """The rehearsals, each with its results with the plain functions."""
    return [(example, example.results(PLAIN)) for example in rehearsals(pair, tried)]


def _failed(error: Exception) -> Verdict:
    return Verdict(f"failed: {first_line(error)}", settled=False)


@without_gradients()
def _in_rounds(
    name: str, operators: Operators, graph_slots: GraphSlots, examples: Sequence[tuple[Rehearsal, Sequence[Tensor]]]
) -> Verdict:
    if not all(all(map(_equal, example.results(operators), expected)) for example, expected in examples):
        return Verdict(OTHER)
    device, shares = examples[0][1][0].device, list[Share]()
    for example, _ in examples:
        work = example.part(name)
        with example.kept():
            example.draft(PLAIN)  # a tree to verify
            tested, plain = (graph_slots.repeatable(partial(work, used), device) for used in (operators, PLAIN))
            shares.append(relative_time(tested, plain, device))
    return Verdict(f"takes {_slowest(shares):.2f} x the time", _used(shares))


def _equal(found: Tensor, expected: Tensor) -> bool:
    """Whether results are equal; log-probabilities, which are float64 matrices, may differ by `FAR`."""
    if found.dtype is torch.float64 and found.dim() > 1:
        return torch.allclose(found, expected, rtol=0, atol=FAR, equal_nan=True)
    return torch.equal(found, expected)


@without_gradients()
def _possible(
    forms: Mapping[int, NativeModel], with_kernels: Callable[[NativeModel], NativeModel]
) -> Mapping[int, NativeModel]:
    """Forms with a kernel by number of rows, without forms in which the kernel supports no layer."""
    made = {form: with_kernels(form) for form in dict.fromkeys(forms.values())}
    return {rows: made[form] for rows, form in forms.items() if made[form] is not form}


def _in_layers(
    forms: Mapping[int, NativeModel], possible: Mapping[int, NativeModel], graph_slots: GraphSlots, context: int
) -> Verdict:
    texts, shares = (TEXT, LONG_TEXT) if context > LONG_TEXT else (TEXT,), dict[int, list[Share]]()
    for rows, form in possible.items():
        found = [compared(forms[rows], form, [rows], graph_slots, text) for text in texts]
        shares[rows] = [share for share in found if share]
        if len(shares[rows]) < len(texts):
            return Verdict(OTHER)
    times, sizes = ", ".join(f"{_slowest(each):.2f}" for each in shares.values()), ", ".join(map(str, shares))
    used = tuple(rows for rows, each in shares.items() if _used(each))
    some = () if len(used) == len(ROWS) else used
    return Verdict(f"takes {times} x the time in passes of {sizes} rows", bool(used), some)


def _used(shares: Sequence[Share]) -> bool:
    """Whether a kernel is faster in at least one comparison, and slower in none."""
    return any(share.pays for share in shares) and not any(share.costs for share in shares)


def _slowest(shares: Sequence[Share]) -> float:
    return max(share.median for share in shares)


def _repeated(lines: Tensor, rows: int) -> Tensor:
    """The given lines, repeated cyclically until there are `rows` lines."""
    return lines.index_select(0, torch.arange(rows, device=lines.device).remainder(len(lines)))
