"""Scenes with extreme or absurd contents that painters must survive, and generated views of them."""

import math
from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st
from msgspec import structs

from decoder.events import Draws, End, Event, Figures, Knob, Knobs, Round, Verification
from decoder.session.steering import Stage, StageName
from dynatui.gpu import GpuLoad
from dynatui.render.ink import Rows, in_ascii, width_of
from dynatui.render.scene import HEATS, Meters, Scene
from dynatui.state.run_state import Failure, Loading, Prompt, RunState
from dynatui.state.session_log import Results, noted, opening_of
from dynatui.state.timeline import TimelinePosition
from tests.dynatui.compared_runs import compared
from tests.dynatui.scripted_runs import (
    HOSTILE,
    delayed_run,
    drawn_round,
    lines,
    plain_round,
    run,
    running,
    state_of,
    story,
    tree_round,
)

HUGE = 1e308


def _alg1(**changed: Any) -> Scene:
    return Scene(state_of([run(("alg1",)), structs.replace(tree_round(0), method="alg1", **changed)]))


def _repeated() -> list[Event]:
    absurd = structs.replace(
        tree_round(7, HOSTILE),
        t=1e308,
        draft_s=1e308,
        verify_s=None,
        logprobs=[math.nan, 1e300, -1e300, -math.inf, math.inf, 5.0],
        pieces=[HOSTILE, "", "\n", "世界", "\u0301", " " * 40],
    )
    empty = structs.replace(plain_round("dynatree", 7), t=1e308, text="", committed=[])
    return [run(), absurd, empty, structs.replace(tree_round(2**53, "\n\n"), t=0.0, accepted=[0, 1, 3])]


def _hostile() -> RunState:
    parameters = {"d_max": -3, "window": 0, "branching": ["x", None, -1], "tau_h": "high", "n_max": -(10**30), "k": 0.5}
    claims = structs.replace(
        run(),
        methods={"dynatree": parameters, "fixed": {"depth": -5, "branching": []}, HOSTILE: {"tau": 9e5}, "ar": {}},
        target=HOSTILE,
        draft="",
        prompt=HOSTILE,
    )
    absurd: Round = structs.replace(
        tree_round(10**15, HOSTILE), t=HUGE, draft_s=-HUGE, logprobs=[0.0] + [HUGE] * 5, knobs=Knobs(HUGE, -HUGE, HUGE)
    )
    turn = Knob(method="dynatree", round=2**53, name="d0", old=-HUGE, new=HUGE, source="user")
    turns = [
        structs.replace(turn, name=name, source=source)
        for name in ("tau_h", "n_max", "history", "b_min", "fixed_depth", "d0")
        for source in ("user", "history")
    ]
    return state_of([Prompt(10**9, 0), claims, absurd, *turns, absurd, plain_round("ar", 0)])


def _hostile_draws() -> RunState:
    wild = Verification(
        surprise=math.nan,
        surprise_variance=-1.0,
        top1=HUGE,
        top1_variance=HUGE,
        predicted_tokens=-HUGE,
        reach=[math.nan, HUGE, -1.0],
        path=[Draws(count=2**53, accepted=True, l1=HUGE, acceptance=math.inf, bound=-HUGE)] * 40,
    )
    claims = structs.replace(drawn_round(0), shape=(0, 2**53, 2**53), drawn=[2**53, 0], verification=wild)
    parameters = {"verifier": "none", "drafting": 7, "k": -1, "l1": HUGE, "l2": None}
    begins = structs.replace(delayed_run(), methods={"delayed": parameters, "ar": {}}, verifier=HOSTILE)
    return state_of([begins, claims, structs.replace(claims, round=1, position=3), drawn_round(2)])


def _wild() -> Scene:
    numbers = [1e15, -1e15, 0.0, math.inf, math.nan]
    state = state_of([Prompt(1, 2), *story()])
    wild = state.figures()
    results: Results = {}
    for place, number in enumerate(numbers):
        whole = 10**15 if place % 2 else -(10**15)
        wild = {method: _claiming(entry, whole, number) for method, entry in state.figures().items()}
        results = noted(results, structs.replace(state, summary=wild, prompt=Prompt(place + 1, 2)))
    return Scene(structs.replace(state, summary=wild), results=results)


def _hostile_trees() -> Scene:
    absurd = structs.replace(
        tree_round(10**15), logprobs=[0.0] + [HUGE] * 5, pieces=[HOSTILE, "", "\n", "世界", "x", "y"]
    )
    wide = structs.replace(tree_round(3), pieces=["世界" * 20] * 6, accepted=[0, 1, 3])
    return Scene(state_of([run(), absurd, wide, absurd, wide, absurd]))


def _claiming(entry: Figures, whole: int, number: float) -> Figures:
    words = ("near_tie", "speedup_reason")
    claims: dict[str, Any] = {
        key: value if isinstance(value, bool) or key in words else whole if isinstance(value, int) else number
        for key, value in structs.asdict(entry).items()
    }
    return Figures(**claims)


def _wide() -> Scene:
    wide = "".join("世界" for _ in range(30))
    begins = structs.replace(run((wide, "ar")), target=wide, draft=wide, prompt=wide, device=wide)
    event = structs.replace(tree_round(0, wide), method=wide)
    broken = End(method=wide, reason="error", error=wide * 1000)
    return Scene(state_of([Loading(wide), Prompt(1, 1), begins, event, broken]), note=wide, broke=wide)


def _crowded() -> Scene:
    state = state_of([Prompt(3, 9), *story()[:-1], End(method="ar", reason="error", error=HOSTILE)])
    state = structs.replace(state, summary=state.figures())
    event = tree_round(7)
    gpu = GpuLoad(load=0.87, used_bytes=12 * 10**9, total_bytes=None, power_w=HUGE, temperature_c=61)
    return Scene(
        state,
        panel="prompts",
        mode="knobs",
        cursor=2,
        speed=0.0,
        frozen=True,
        recording=True,
        pending={"tau_h": HUGE, "n_max": -HUGE, "history": 0.0, "d0": 2.0},
        slider="fixed_depth",
        typed="0.7",
        place=TimelinePosition(round=10**12, rounds=3, seconds=HUGE, live=False),
        meters=Meters(fps=4.0, slow_line=True, ui_share=0.029, bytes_per_s=HUGE),
        results=noted({}, state),
        stage=Stage("drafted", event),
        broke="depth acceptance 0.12 < 0.30",
        gpus={0: gpu, 1: replace(gpu, used_bytes=10**30)},
        note="saved to x",
    )


SCENES = {
    "empty": Scene(),
    "loading": Scene(state_of([Loading(HOSTILE)])),
    "running": running(),
    "compared": Scene(state_of(compared())),
    "done": Scene(state_of([Prompt(1, 2), *story()])),
    "failed": Scene(state_of([run(), Failure(HOSTILE, 3)])),
    "ar alone": Scene(state_of([run(("ar",)), plain_round("ar", 0)])),
    "hf alone": Scene(state_of([run(("hf",)), structs.replace(plain_round("hf", 0), draft_forwards=None)])),
    "no knobs yet": Scene(state_of([run()])),
    "drawn": Scene(state_of([delayed_run(), drawn_round(0), drawn_round(1, told=False), drawn_round(2)])),
    "hostile": Scene(_hostile()),
    "hostile draws": Scene(_hostile_draws(), cursor=1),
    "wild figures": _wild(),
    "wide characters": _wide(),
    "all at once": _crowded(),
    "alg1": _alg1(accepted=[0, 1], knobs=None),
    "alg1 rejected": _alg1(accepted=[], committed=[5], text="x"),
    "hostile trees": _hostile_trees(),
    "repeated rounds": Scene(state_of(_repeated())),
}
_FOREIGN = [
    SCENES[name].state
    for name in ("loading", "failed", "hostile", "hostile draws", "wide characters", "repeated rounds", "hostile trees")
]
"""States with texts that are no ASCII."""
OPENINGS = tuple(map(opening_of, (HOSTILE, "世界" * 60, "", "x")))
SIZES = st.tuples(st.integers(1, 200), st.integers(1, 60))


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """An extreme scene with any view of it."""
    scene = draw(st.sampled_from([*SCENES.values()]))
    name = draw(st.none() | st.sampled_from(get_args(StageName)))
    return replace(
        scene,
        heat=draw(st.sampled_from(HEATS)),
        cursor=draw(st.none() | st.integers(-2, len(scene.state.lane.tokens) + 1)),
        symbols=draw(st.sampled_from(("braille", "block", "ascii"))),
        openings=draw(st.sampled_from(((), OPENINGS))),
        chosen_prompt=draw(st.none() | st.integers(-5, 10**12)),
        prompt_filter=draw(st.sampled_from(("", "x", HOSTILE, "世界"))),
        stage=name and Stage(name, tree_round(9)),
    )


def is_drawn(rows: Rows, scene: Scene, size: tuple[int, int]) -> bool:
    """Whether the rows have exactly the given size, and only ASCII characters where the scene asks for them."""
    drawn = in_ascii(rows) if scene.symbols == "ascii" else rows
    foreign = scene.symbols != "ascii" or any(scene.state is state for state in _FOREIGN)
    plain = foreign or all(line.isascii() for line in lines(drawn))
    return [width_of(row) for row in drawn] == [size[0]] * size[1] and plain
