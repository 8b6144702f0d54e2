"""Slots for CUDA graphs. A slot serves one text at a time: it has KV caches and a device state at fixed addresses, and
the graphs that use this memory.

A session takes a slot and releases it at the end of its text, so that graphs are captured once and not for each text.
Methods that decode at the same time need a slot each; all slots share the models' weights. Plain calls take several
times as long as a graph, and a capture takes as long as several rounds. So graphs are captured before a text's first
round and in idle time. A graph that is still missing is captured when a round needs it, outside of the decode time.
"""

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.errors import PairError
from decoder.forward.families.native import NativeModel
from decoder.forward.language_model import LanguageModel
from decoder.forward.static_forward import StaticForward, static_forward
from decoder.heads.eagle3 import UNTAPPED, StaticHead, static_head
from decoder.models.pair import Pair
from decoder.session.cuda_graph.capture_guard import refuse_waits
from decoder.session.cuda_graph.device_state import REPORT, DeviceState
from decoder.session.cuda_graph.draft import DraftLayout, DraftPart, Part, grow, side_of
from decoder.session.cuda_graph.heads import HeadPart, TappedTarget
from decoder.session.cuda_graph.operators import PLAIN, Operators
from decoder.session.cuda_graph.static_shapes import (
    DEEPEST,
    MOST_NODES,
    MOST_ROWS,
    Shape,
    Size,
    padded,
    room,
    visible,
)
from decoder.session.cuda_graph.verify import verify
from decoder.system.device import Graphs, Mailbox, Mark, without_gradients
from decoder.tree_rules import TreeRule
from decoder.verify.verifier import DeviceVerifier, GreedyVerifier

CHUNK = 512
"""Prompt tokens in one forward pass."""
BEYOND = 40
"""Number of slots at the end of a KV store that no attention reads; at least `HEAD_ROWS`, since up to this number of
rows of a head's first pass may be at positions before the text.
"""
MOST = MOST_NODES, MOST_ROWS
"""Largest number of rows after the text: of the target, and of the draft."""
AHEAD = 64
"""In idle time, graphs are captured for a text of up to this number of tokens more than at present."""
Work = Callable[[], None]
Form = StaticForward | StaticHead
Forms = tuple[StaticForward] | tuple[StaticForward, Form]
"""Form of the target and, if a model or head drafts, form of the draft."""


@dataclass(frozen=True)
class _Repeatable:
    """Work that a graph can repeat."""

    kind: Hashable
    """`refuse_waits` checks only the first work of each kind, before its capture."""
    key: tuple[object, ...]
    """The same graph repeats all work with equal keys."""
    run: Work


class GraphSlot:
    """Keys and values of target and draft, one device state, and the CUDA graphs that use this memory."""

    def __init__(
        self, target: DraftPart, draft: DraftPart | HeadPart | None, graphs: Graphs, operators: Operators
    ) -> None:
        device = target.store.device
        self.target = target
        self._draft = draft
        self._sides = [target, draft] if draft else [target]
        self.state = DeviceState(device, max(side.store.shape[3] for side in self._sides), operators.truncating)
        self.mailbox = Mailbox(device, REPORT)
        self.capturing_s = 0.0
        free = [side.store.shape[3] - padded(rows) for side, rows in zip(self._sides, MOST, strict=False)]
        self._room = min(free) - BEYOND
        """Number of cache slots for a text."""
        self.verifier: DeviceVerifier = GreedyVerifier()
        """Verifier of all work that is queued later; also estimates the probabilities by which drafts grow."""
        self._graphs = graphs
        self._operators = operators
        self._capturable: set[Hashable] = set()
        """Kinds of work that are known to be capturable."""
        self._captured: dict[tuple[object, ...], Work] = {}
        self._layouts: dict[Shape, DraftLayout] = {}
        self._in_use: dict[Size, None] = {}
        """Sizes that this text has used so far, in the order of first use."""

    @property
    def draft(self) -> DraftPart | HeadPart:
        """Must only be used for a pair with a draft model or head."""
        assert self._draft is not None, "only slots with a draft model or a head draft"  # noqa: S101 - a programmer's mistake
        return self._draft

    def drafts_after(self, length: int) -> bool:
        """Whether a round after `length` tokens can draft: a head needs states of tokens that the target has read."""
        return self._draft is None or length > self._draft.lag

    def mark(self) -> Mark:
        return Mark(self.target.store.device)

    def fits(self, models: Forms, longest: int, operators: Operators) -> bool:
        alike = tuple(side.forward for side in self._sides) == models and self._operators is operators
        return alike and self._room - DEEPEST - 1 >= longest

    def begin(self, text: Sequence[int], rule: TreeRule | None) -> None:
        self._in_use.clear()
        self.state.begin(text, rule)
        for side in self._sides if rule else self._sides[:1]:
            # Rows of an earlier text may contain infinite values, which break masked attention.
            side.store.zero_()
            _read_all(side, self.state, 0, len(text) - 1)

    def catch_up(self, start: int, end: int) -> None:
        """Lets the draft read more unread tokens than its first pass reads; the host does not wait."""
        _read_all(self.draft, self.state, start, end)

    def work(self, size: Size, length: int) -> Work:
        """A function that replays the CUDA graph of this size for a text of at most `length` tokens; a missing graph is
        captured first. The graph drafts a tree and writes it to the report, or verifies a tree and commits its path.
        """
        self._in_use[size] = None
        work = self._repeatable(size, length)
        if work.key not in self._captured:
            self._capture(work)
        return self._captured[work.key]

    def capture_one(self, expected: Sequence[Size], lengths: Sequence[int]) -> str:
        """Captures one missing graph, for a size that is expected or in use and a text of one of these lengths. Returns
        in words how many graphs are captured; empty if no graph was missing.
        """
        sizes = dict.fromkeys((*expected, *self._in_use))
        works = (self._repeatable(size, length) for length in lengths for size in sizes)
        missing = {work.key: work for work in works if work.key not in self._captured}
        if not missing:
            return ""
        self._capture(next(iter(missing.values())))
        return f"CUDA graphs: {len(self._captured)} of {len(self._captured) + len(missing) - 1} captured"

    def _repeatable(self, size: Size, length: int) -> _Repeatable:
        return self._draft_of(size, length) if isinstance(size, Shape) else self._verification_of(*size, length)

    def _draft_of(self, shape: Shape, length: int) -> _Repeatable:
        attended = visible(length, shape.rows, self._room)
        if shape not in self._layouts:
            self._layouts[shape] = DraftLayout(shape, self.draft.vocabulary, self.draft.store.device, self.draft.first)
        layout, verifier = self._layouts[shape], self.verifier
        return _Repeatable(
            ("draft", shape.widest == 1, verifier),
            (shape, attended, verifier),
            lambda: grow(self.draft, self.state, layout, attended, verifier, self._operators),
        )

    def _verification_of(self, nodes: int, deepest: int, length: int) -> _Repeatable:
        attended, draft = visible(length, nodes - 1, self._room), self._draft if nodes > 1 else None
        verifier = self.verifier

        def run() -> None:
            if self._draft is None and nodes > 1:
                self.state.append_tree(nodes)
            verify(self.target, draft, self.state, nodes, deepest, attended, verifier.choose, self._operators)

        return _Repeatable(("verification", nodes == 1, verifier), (nodes, attended, deepest, verifier), run)

    def _capture(self, work: _Repeatable) -> None:
        # The time of the capture does not count as decode time, but the time of work that is already queued does. So
        # this work must end before the capture is timed.
        self.mark().wait()
        started, device, undo = time.perf_counter(), self.target.store.device, self._undo()
        if work.kind not in self._capturable:
            tried(work.run, undo, device)
            self._capturable.add(work.kind)
        self._captured[work.key] = captured(self._graphs, work.run, undo)
        self.mark().wait()
        self.capturing_s += time.perf_counter() - started

    def _undo(self) -> Work:
        """Saves the device state and the draft's cache rows; returns a function that restores them after a trial of
        work. The target's cache rows are not restored, since the next verification overwrites them.
        """
        restore = self.state.saved()
        if self._draft is None:
            return restore
        store = self._draft.store
        places = (self.state.length + torch.arange(MOST_ROWS, device=store.device)).clamp(max=store.shape[3] - 1)
        rows = store.index_select(3, places)

        def undo() -> None:
            restore()
            store.index_copy_(3, places, rows)

        return undo


def tried(work: Work, undo: Work, device: torch.device) -> None:
    """Runs and undoes the work. Raises NotCapturableError if a CUDA graph cannot contain it."""
    try:
        refuse_waits(work, device)
    finally:
        undo()


def captured(graphs: Graphs, work: Work, undo: Work) -> Work:
    """Captures the work, and replays the graph once, since the first replay uploads it to the device."""
    replay = graphs.capture(work, undo)
    replay()
    undo()
    return replay


def new_store(forward: Form, capacity: int) -> Float[Tensor, "L 2 H S D"]:
    """The store is created outside of inference mode, since compiled passes treat inference tensors differently."""
    with torch.inference_mode(mode=False):
        return forward.new_store(capacity)


def _parts(pair: Pair, forms: Forms, most: int) -> tuple[DraftPart, DraftPart | HeadPart | None]:
    """Parts of target and draft for a text of up to `most` cache slots. Raises PairError if a head drafts and the
    target runs as a Hugging Face module.
    """
    sizes, target = (pair.vocabulary, pair.context), forms[0]
    store, *others = (new_store(form, most + padded(rows) + BEYOND) for form, rows in zip(forms, MOST, strict=False))
    if len(forms) == 1:
        return DraftPart(target, store, *sizes), None
    draft, (drafting,) = forms[1], others
    if not isinstance(draft, StaticHead):
        return DraftPart(target, store, *sizes), side_of(pair.draft_model, draft, drafting, pair)
    if not isinstance(target, NativeModel):
        raise PairError(UNTAPPED)
    tapped = TappedTarget(target, store, *sizes, draft.head.target_layers)
    return tapped, HeadPart(draft, drafting, *sizes, tapped.states)


def read_logits(side: DraftPart, tokens: Sequence[int]) -> Float[Tensor, "N V"]:
    """Logits after each of `tokens`, which are the beginning of a text."""
    ids = torch.tensor(tokens, device=side.store.device)
    places = torch.arange(len(ids), device=ids.device)
    return side.logits(ids, places, places, causal_bias(side.store, len(ids), 0))


def _read_all(part: Part, state: DeviceState, start: int, end: int) -> None:
    last = end - part.lag
    for first in range(max(0, start - part.lag), last, CHUNK):
        places = state.steps(first, min(first + CHUNK, last))
        rows = slice(first, first + len(places))
        part.read(state, places, rows, causal_bias(part.store, len(places), first))


def causal_bias(store: Float[Tensor, "L 2 H S D"], rows: int, first: int) -> Float[Tensor, "N M"]:
    """Attention bias of rows in the slots from `first` on; a row attends to its own slot and to all slots before it."""
    slots, own = (torch.arange(count, device=store.device) for count in (padded(first + rows), rows))
    hidden = slots > first + own[:, None]
    bias = torch.zeros(hidden.shape, dtype=store.dtype, device=store.device)
    return bias.masked_fill_(hidden, torch.finfo(store.dtype).min)


@dataclass
class GraphSlots:
    """Free slots of a pair, and what all its slots share."""

    kernels: bool = False
    """Whether a trial may choose kernels (`kernel_trial.py`)."""
    kernels_later: bool = False
    """Whether the kernel trial at a pair's first start is left in `pending`, for idle time between texts."""
    pending: Iterator[str] = field(default_factory=lambda: iter(()))
    """The trial that was left for idle time: each step does a small part, and yields the progress in words."""
    operators: Operators = PLAIN
    """Operators of new slots."""
    refused: str | None = None
    """Why the host drives rounds; None if rounds run on the device."""
    ahead: tuple[object, Mark] | None = None
    """The text whose session has already queued work for its next round, and the mark at the end of this work."""
    costs: PlanCosts = field(default_factory=PlanCosts)
    forms: dict[LanguageModel, StaticForward] = field(default_factory=dict)
    """Static forms of the models, for slots that are taken later; see `forward`."""
    _free: list[GraphSlot] = field(default_factory=list)
    _captures: Graphs | None = None

    @without_gradients()
    def take(self, pair: Pair, longest: int) -> GraphSlot:
        """A free slot or a new slot, for a text of up to `longest` tokens."""
        models = self._forms(pair)
        # Slots that do not fit, for example because they are too small, are dropped: a new slot needs their memory.
        self._free = [slot for slot in self._free if slot.fits(models, longest, self.operators)]
        if self._free:
            return self._free.pop()
        target, draft = _parts(pair, models, room(longest))
        return GraphSlot(target, draft, self._shared(pair.target.device), self.operators)

    def _forms(self, pair: Pair) -> Forms:
        target, drafts = self.forward(pair.target), static_head(pair.head) or (pair.draft and self.forward(pair.draft))
        return (target, drafts) if drafts else (target,)

    def settle(self, text: object) -> None:
        """Waits for work that another text's session has queued for its next round, so that it does not distort
        timings.
        """
        if self.ahead and self.ahead[0] is not text:
            self.ahead[1].wait()
            self.ahead = None

    def give_back(self, slot: GraphSlot) -> None:
        self._free.append(slot)

    def forward(self, model: LanguageModel) -> StaticForward:
        if model not in self.forms:
            self.forms[model] = static_forward(model)
        return self.forms[model]

    def anew(self, model: LanguageModel) -> "GraphSlots":
        """Slots for another pair that contains `model`; they keep the model's form without kernels in its layers."""
        form = self.forms.get(model)
        forms = {model: form.plain if isinstance(form, NativeModel) else form} if form else {}
        return GraphSlots(kernels=self.kernels, operators=self.operators, refused=self.refused, forms=forms)

    def beside(self) -> "GraphSlots":
        """Slots of the same pair in which other operators and forms can be tested."""
        return GraphSlots(self.kernels, forms=dict(self.forms), _captures=self._captures)

    def take_over(self, tested: "GraphSlots") -> None:
        """Takes operators, costs and forms from slots that `beside` returned, and drops the free slots, whose graphs
        use the former operators and forms. No text may be open.
        """
        self.operators, self.costs = tested.operators, tested.costs
        self.forms = {model: tested.forward(model) for model in self.forms}
        self._free.clear()

    def forget(self) -> None:
        self._free, self._captures = [], None
        self.forms.clear()

    def repeatable(self, work: Work, device: torch.device) -> Work:
        """The work as a CUDA graph; capture also runs the work. Raises NotCapturableError."""
        tried(work, lambda: None, device)
        return captured(self._shared(device), work, lambda: None)

    def _shared(self, device: torch.device) -> Graphs:
        if self._captures is None:
            self._captures = Graphs(device)
        return self._captures
