"""Golden transcripts of sessions with the app: what each step changes, with the changed rows of the screen.

A step is keys that are pressed and clicks (`@text+49+2` is one in the panel of the text), separated by blanks, or
records that the source gets; without steps the whole screen is kept. After an intended change, run
`pytest --snapshot-update` on the file and check the texts in `__snapshots__`.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import pytest
from textual.pilot import Pilot

from dynatui.screen.app import DynaApp
from dynatui.state.run_state import Record
from tests.dynatui.screen.shown_app import screen_text, told, visible
from tests.dynatui.scripted_runs import ScriptedSource

Shown: TypeAlias = AbstractAsyncContextManager[tuple[DynaApp, Any, Pilot[None]]]
Step: TypeAlias = str | Sequence[Record]
_OF_SCENE = (
    *("panel", "mode", "maximised", "heat", "mask", "cursor", "query", "log_end", "chosen_prompt", "prompt_filter"),
    *("symbols", "speed", "frozen", "paused", "recording", "pending", "slider", "typed", "note"),
)


def transcripts(sessions: Mapping[str, tuple[Callable[[], Shown], *tuple[Step, ...]]]) -> Callable[..., Any]:
    """A test for each named session: the app and its steps."""

    @pytest.mark.parametrize("name", sessions)
    async def test_transcript(name: str, snapshot: object) -> None:
        shown, *steps = sessions[name]
        assert await transcript(shown(), steps) == snapshot

    return test_transcript


async def transcript(shown: Shown, steps: list[Step]) -> str:
    async with shown as (app, source, pilot):
        before, lines = facts(app, source), list[str]()
        rows = screen_text(app).splitlines()
        for step in steps:
            if isinstance(step, str):
                for act in step.split():
                    await click_or_press(app, pilot, act)
            else:
                await told(app, source, pilot, *step)
            after = facts(app, source)
            changed = (f"{name} {value}" for name, value in after.items() if value != before[name])
            lines.append(f"{step if isinstance(step, str) else len(step)} -> {'; '.join(changed)}")
            before, old, rows = after, rows, screen_text(app).splitlines()
            lines += [row for number, row in enumerate(rows) if old[number : number + 1] != [row]]
        return "\n".join(lines or [before["panels"], *rows])


async def click_or_press(app: DynaApp, pilot: Pilot[None], act: str) -> None:
    name, *place = act.removeprefix("@").split("+")
    if act.startswith("@"):
        region = app.query_one(f"#{name}").region
        await pilot.click(offset=(region.x + int(place[0]), region.y + int(place[1])))
    else:
        await pilot.press(act)


def facts(app: DynaApp, source: Any) -> dict[str, str]:
    """All that keys may change, besides the text of the screen."""
    scene = app.scene
    token = scene.inspected
    return {
        **{name: str(getattr(scene, name)) for name in _OF_SCENE},
        "token": f"{token.depth} of round {token.round}" if token else "",
        "round": f"{scene.place.round} of {scene.place.rounds}{'' if scene.place.live else ', held'}",
        "watched": scene.state.watched,
        "page": type(app.screen).__name__,
        "panels": " ".join(sorted(visible(app))),
        "theme": app.theme,
        "running": str(app.is_running),
        "copied": app.clipboard,
        **(facts_of_source(source) if isinstance(source, ScriptedSource) else {"source": f"paused {source.paused}"}),
    }


def facts_of_source(source: ScriptedSource) -> dict[str, str]:
    engine = source.steering
    return {
        "source": f"paused {source.paused}, speed {source.speed}, steps {source.steps}, file {source.recorded}",
        "engine": f"turns {source.turns}, stages {engine.stages}, edited {engine.edited}, watched {engine.watched}, "
        f"breaks on {sorted(engine.conditions.on)} under {engine.conditions.limit:.2f}",
    }
