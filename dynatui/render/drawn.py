"""Texts about sampled trees, shared by several panels: verifier, drafting, shape."""

from collections.abc import Mapping

from decoder.events import Round
from decoder.knobs import KnobName
from decoder.methods.delayed import Delayed
from decoder.verify.names import COUPLED, Drafting
from dynatui.knobs import info, rules_in_force
from dynatui.render.ink import Row, best, width_of
from dynatui.render.scene import Scene
from dynatui.render.words import written
from dynatui.state.run_state import RunState


def drawing(state: RunState) -> Delayed | None:
    rules = rules_in_force(state)
    return rules if isinstance(rules, Delayed) and rules.draws else None


def shape_of(state: RunState) -> tuple[int, int, int] | None:
    """(K, L1, L2) of the watched method's trees: the knobs' values, or the selector's choice in the last round."""
    rules, newest = drawing(state), state.lane.newest
    if rules is None:
        return None
    if rules.drafting == Drafting.SELECTOR:
        return newest.shape if newest else None
    return rules.shape.k, rules.shape.l1, rules.shape.l2


def shape_written(shape: tuple[int, int, int]) -> str:
    return f"({', '.join(map(str, shape))})"


def shape_words(shape: tuple[int, int, int]) -> str:
    k, l1, l2 = shape
    if k <= 1 or l2 == 0:
        return f"one path of {_draws(l1 + l2)}"
    rollouts = f"{k} paths of {_draws(l2)}"
    return f"{rollouts} from the root" if l1 == 0 else f"a path of {_draws(l1)}, then {rollouts} from its end"


def shape_sentence(state: RunState, event: Round) -> str:
    """Shape of a round's sampled tree, and what it means; empty if the tree has no shape."""
    if event.shape is None:
        return ""
    place = state.lane.setting("drafting", event.round)
    chosen = place is not None and written(info("drafting"), place) == Drafting.SELECTOR
    return f"{'the selector chose ' if chosen else ''}{shape_written(event.shape)}: {shape_words(event.shape)}"


def drawing_words(state: RunState, pending: Mapping[KnobName, float] | None = None) -> tuple[str, ...]:
    """Wordings, the longest first; empty if no trees are sampled, except for a verifier other than the default."""
    rules, shape = drawing(state), shape_of(state)
    if rules is None:
        run = state.run
        return (run.verifier,) if run and run.drafting == Drafting.TREE and run.verifier != COUPLED else ()
    verifier, drafting = (_turning(name, state, pending or {}) for name in ("verifier", "drafting"))
    written_as = f" {shape_written(shape)}" if shape else ""
    return f"{verifier}, {drafting}{written_as}", f"{verifier}{written_as}", verifier


def drawing_line(scene: Scene, width: int) -> Row:
    rules, shape = drawing(scene.state), shape_of(scene.state)
    if rules is None:
        return ()
    row: Row = ()
    for name in ("verifier", "drafting"):
        named = _turning(name, scene.state, scene.pending)
        row = (*row, (f"{name} ", "plain"), (f"{scene.keys.cap(f'cycle({name!r})')} ", "key"))
        row = (*row, (named, "warn" if name in scene.pending else "strong"), ("  ", "plain"))
    meaning = [shape_words(shape)] if shape else []
    return (*row, (best(max(0, width - width_of(row)), *meaning, ""), "dim"))


def _turning(name: KnobName, state: RunState, pending: Mapping[KnobName, float]) -> str:
    knob, now = info(name), state.lane.settings.get(name, 0.0)
    return f"{written(knob, now)}{f'→{written(knob, pending[name])}' if name in pending else ''}"


def _draws(count: int) -> str:
    return f"{count} draw{'s' * (count != 1)}"
