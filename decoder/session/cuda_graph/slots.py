"""Slots, each for one text at a time: caches and numbers at fixed addresses, and the graphs that use them.

A session takes a slot and gives it back, so that graphs are captured once a pair and lane and not once a text. What
several lanes at once need is as many slots; weights are shared.
"""

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from decoder.device import Graphs, Mailbox, Mark, without_gradients
from decoder.draft.tree_size.cost_model import PlanCosts
from decoder.forward.language_model import LanguageModel
from decoder.forward.static.static_forward import StaticForward, static_forward, visibility
from decoder.models.pair import Pair
from decoder.session.cuda_graph.capture_guard import refuse_waits
from decoder.session.cuda_graph.device_state import REPORT, DeviceState
from decoder.session.cuda_graph.draft import Layout, Side, grow
from decoder.session.cuda_graph.static_shapes import DEEPEST, MOST_NODES, MOST_ROWS, Shape, levels, slots
from decoder.session.cuda_graph.verify import verify
from decoder.tree_rules import TreeRule
from decoder.verify.greedy import GreedyVerifier
from decoder.verify.verifier import DeviceVerifier

CHUNK = 512
"""Tokens of a prompt that are read at once."""
BEYOND = 8
"""Slots that no attention reads."""
AHEAD = 64
"""Tokens: graphs that a text needs when it has grown by so many are captured while nothing else is to be done."""
Work = Callable[[], None]


class GraphSlot:
    """Two models' keys and values, one device state, and all that was captured over them.

    Without `graphs` everything is computed by plain calls. `capturable` are the kinds of work in which the host was
    found not to wait; all slots of these forwards share them.
    """

    def __init__(self, target: Side, draft: Side, graphs: Graphs | None, capturable: set[Hashable]) -> None:
        device = target.store.device
        self.target = target
        self.draft = draft
        self.state = DeviceState(device, max(target.store.shape[3], draft.store.shape[3]))
        self.mailbox = Mailbox(device, REPORT)
        self.capturing_s = 0.0
        self.verifier: DeviceVerifier = GreedyVerifier()
        """Makes the target's choices, which the draft guesses, in what is asked for from now on."""
        self._graphs = graphs
        self._capturable = capturable
        self._captured: dict[tuple[object, ...], Work] = {}
        self._layouts: dict[Shape, Layout] = {}
        self._in_use: dict[Shape | int, None] = {}
        """Drafts and rows of verifications that this text has asked for so far, in their order."""

    def mark(self) -> Mark:
        """Here, in the device's stream of work."""
        return Mark(self.target.store.device)

    def fits(self, models: tuple[StaticForward, StaticForward], longest: int, *, graphs: bool) -> bool:
        """Whether it serves a text of so many tokens."""
        rooms = self.target.store.shape[3] - MOST_NODES, self.draft.store.shape[3] - MOST_ROWS
        alike = (self.target.forward, self.draft.forward) == models
        return alike and graphs == (self._graphs is not None) and min(rooms) - BEYOND - DEEPEST - 1 >= longest

    def begin(self, text: Sequence[int], rule: TreeRule | None) -> None:
        """Reads a new text, all but its last token."""
        self._in_use.clear()
        self.state.begin(text, rule)
        for side in (self.target, self.draft) if rule else (self.target,):
            # Rows left by another text may be infinite, and infinite values break masked attention.
            side.store.zero_()
            _read_all(side, text[:-1])

    def catch_up(self, text: Sequence[int], start: int) -> None:
        """Lets the draft read the text from here on, where it lacks more than a draft reads by itself."""
        _read_all(self.draft, text, start)

    def drafting(self, shape: Shape, length: int) -> Work:
        """A function that drafts a tree after a text of at most so many tokens and reports it."""
        visible = slots(length + shape.rows)
        self._in_use[shape] = None
        if shape not in self._layouts:
            self._layouts[shape] = Layout(shape, self.draft.vocabulary, self.draft.store.device)
        layout, verifier = self._layouts[shape], self.verifier
        return self._repeatable(
            ("draft", shape.widest == 1, verifier),
            (shape, visible, verifier),
            lambda: grow(self.draft, self.state, layout, visible, verifier),
        )

    def verification(self, nodes: int, length: int) -> Work:
        """A function that verifies and commits at most so many nodes after a text of at most so many tokens."""
        visible, draft = slots(length - 1 + nodes), self.draft if nodes > 1 else None
        verifier = self.verifier
        self._in_use[nodes] = None
        return self._repeatable(
            ("verification", nodes == 1, verifier),
            (nodes, visible, verifier),
            lambda: verify(self.target, draft, self.state, nodes, levels(nodes), visible, verifier.choose),
        )

    def capture_ahead(self, length: int) -> bool:
        """Captures one graph, if any, that this text lacks when it is so long; returns whether there was one."""
        before = len(self._captured)
        for size in list(self._in_use):
            if isinstance(size, Shape):
                self.drafting(size, length)
            else:
                self.verification(size, length)
            if len(self._captured) > before:
                return True
        return False

    def _repeatable(self, kind: Hashable, key: tuple[object, ...], work: Work) -> Work:
        if self._graphs is None:
            return work
        if key not in self._captured:
            # What was asked for before is part of the round that waits, and capturing is not.
            self.mark().wait()
            started, device, undo = time.perf_counter(), self.target.store.device, self._undo()
            if kind not in self._capturable:
                tried(work, undo, device)
                self._capturable.add(kind)
            self._captured[key] = captured(self._graphs, work, undo)
            self.mark().wait()
            self.capturing_s += time.perf_counter() - started
        return self._captured[key]

    def _undo(self) -> Work:
        """What puts back all that is needed again; verified rows are not, since they are computed before they move."""
        restore, store = self.state.saved(), self.draft.store
        places = (self.state.length + torch.arange(MOST_ROWS, device=store.device)).clamp(max=store.shape[3] - 1)
        rows = store.index_select(3, places)

        def undo() -> None:
            restore()
            store.index_copy_(3, places, rows)

        return undo


def tried(work: Work, undo: Work, device: torch.device) -> None:
    """Does work and undoes it.

    Raises:
        NotCapturableError: A graph cannot do it.
    """
    try:
        refuse_waits(work, device)
    finally:
        undo()


def captured(graphs: Graphs, work: Work, undo: Work) -> Work:
    """A graph of work in which the host does not wait, replayed once: its first replay uploads it, which takes time."""
    replay = graphs.capture(work, undo)
    replay()
    undo()
    return replay


def new_store(forward: StaticForward, capacity: int) -> Float[Tensor, "L 2 H S D"]:
    """A model's keys and values, of one kind wherever it is asked for: compiled passes tell inference tensors apart."""
    with torch.inference_mode(mode=False):
        return forward.new_store(capacity)


def read(side: Side, tokens: Sequence[int], first: int = 0) -> Float[Tensor, "N V"]:
    """Forwards these tokens of a text, from place `first` on."""
    given = torch.tensor(tokens, device=side.store.device)
    places = torch.arange(first, first + len(given), device=given.device)
    return side.logits(given, places, places, causal_bias(side.store, len(given), first))


def _read_all(side: Side, text: Sequence[int], start: int = 0) -> None:
    for first in range(start, len(text), CHUNK):
        read(side, text[first : first + CHUNK], first)


def causal_bias(store: Float[Tensor, "L 2 H S D"], rows: int, first: int) -> Float[Tensor, "N M"]:
    """The bias of so many tokens of a text from place `first` on, which see what is before them."""
    seen = torch.ones((rows, rows), dtype=torch.bool, device=store.device).tril()
    return visibility(torch.tensor(first, device=store.device), seen, slots(first + rows), store.dtype)


@dataclass
class GraphSlots:
    """A pair's free slots, and the state that all its slots share."""

    graphs: bool = True
    """False: slots made from now on repeat nothing from a graph, they compute the same by plain calls."""
    refused: str | None = None
    """Why rounds do not run here, but from the host."""
    ahead: tuple[object, Mark] | None = None
    """The session that queued work ahead of its turn, and the mark where that work ends."""
    costs: PlanCosts = field(default_factory=PlanCosts)
    _free: list[GraphSlot] = field(default_factory=list)
    _forwards: dict[LanguageModel, StaticForward] = field(default_factory=dict)
    _capturable: dict[tuple[StaticForward, ...], set[Hashable]] = field(default_factory=dict)
    """Kinds of work in which the host does not wait, by the forwards that do it."""
    _captures: Graphs | None = None

    @without_gradients()
    def take(self, pair: Pair, longest: int) -> GraphSlot:
        """A free slot for a text of so many tokens, or a new one."""
        models = self.forward(pair.target), self.forward(pair.draft_model)
        # One that is too small is not kept: its memory is needed for a larger one.
        self._free = [slot for slot in self._free if slot.fits(models, longest, graphs=self.graphs)]
        if self._free:
            return self._free.pop()
        room = longest + DEEPEST + 1
        target, draft = (
            Side(forward, new_store(forward, slots(room + rows) + BEYOND), pair.vocabulary, pair.context)
            for forward, rows in zip(models, (MOST_NODES, MOST_ROWS), strict=True)
        )
        graphs = self._shared(pair.target.device) if self.graphs else None
        return GraphSlot(target, draft, graphs, self._capturable.setdefault(models, set()))

    def settle(self, mine: object) -> None:
        """Waits until what another session has asked for ahead of its turn is done."""
        if self.ahead and self.ahead[0] is not mine:
            self.ahead[1].wait()
            self.ahead = None

    def give_back(self, slot: GraphSlot) -> None:
        """Frees a slot for another text."""
        self._free.append(slot)

    def forward(self, model: LanguageModel) -> StaticForward:
        """The forward form by which a model runs here, made on first use."""
        if model not in self._forwards:
            self._forwards[model] = static_forward(model)
        return self._forwards[model]

    def anew(self, model: LanguageModel) -> "GraphSlots":
        """Those of another pair with this model, which runs there as it runs here."""
        forms = {model: self._forwards[model]} if model in self._forwards else {}
        return GraphSlots(refused=self.refused, _forwards=forms)

    def form(self, model: LanguageModel) -> StaticForward | None:
        """The forward form by which a model runs here; None: none was made yet."""
        return self._forwards.get(model)

    def forget(self) -> None:
        """Lets go of all slots and forms of models."""
        self._free, self._captures = [], None
        self._forwards.clear()
        self._capturable.clear()

    def run(self, model: LanguageModel, forward: StaticForward) -> None:
        """Lets a model run in another way in all slots that are taken from now on."""
        self._forwards[model] = forward

    def repeatable(self, work: Work, device: torch.device) -> Work:
        """A function that repeats work which undoes itself, as slots repeat theirs.

        Raises:
            NotCapturableError: A graph cannot do it.
        """
        if not self.graphs:
            return work
        tried(work, lambda: None, device)
        return captured(self._shared(device), work, lambda: None)

    def _shared(self, device: torch.device) -> Graphs:
        if self._captures is None:
            self._captures = Graphs(device)
        return self._captures
