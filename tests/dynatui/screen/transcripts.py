"""Golden transcripts of sessions with the app: what each key press changes, and the screen at the end.

After an intended change, run `pytest --snapshot-update` on the file and check the texts in `__snapshots__`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

import pytest
from textual.pilot import Pilot

from dynatui.screen.app import DynaApp
from tests.dynatui.screen.shown_app import screen_text, visible
from tests.dynatui.scripted_runs import ScriptedSource

Shown: TypeAlias = AbstractAsyncContextManager[tuple[DynaApp, ScriptedSource, Pilot[None]]]
_OF_SCENE = (
    *("panel", "mode", "maximised", "heat", "mask", "cursor", "query", "log_end", "chosen_prompt", "prompt_filter"),
    *("symbols", "speed", "frozen", "paused", "recording", "pending", "slider", "typed", "note"),
)


def transcripts(sessions: Mapping[str, tuple[Callable[[], Shown], *tuple[str, ...]]]) -> Callable[..., Any]:
    """A test for each named session: the app, and the key presses of each step, separated by blanks."""

    @pytest.mark.parametrize("name", sessions)
    async def test_transcript(name: str, snapshot: object) -> None:
        shown, *steps = sessions[name]
        assert await transcript(shown(), steps) == snapshot

    return test_transcript


async def transcript(shown: Shown, steps: list[str]) -> str:
    async with shown as (app, source, pilot):
        before, lines = facts(app, source), list[str]()
        for keys in steps:
            await pilot.press(*keys.split())
            after = facts(app, source)
            changed = (f"{name} {value}" for name, value in after.items() if value != before[name])
            lines.append(f"{keys} -> {'; '.join(changed)}")
            before = after
        return "\n".join([*lines, screen_text(app)])


def facts(app: DynaApp, source: ScriptedSource) -> dict[str, str]:
    """All that keys may change, besides the text of the screen."""
    scene, engine = app.scene, source.steering
    token = scene.inspected
    return {name: str(getattr(scene, name)) for name in _OF_SCENE} | {
        "token": f"{token.depth} of round {token.round}" if token else "",
        "round": f"{scene.place.round} of {scene.place.rounds}{'' if scene.place.live else ', held'}",
        "watched": scene.state.watched,
        "page": type(app.screen).__name__,
        "panels": " ".join(sorted(visible(app))),
        "theme": app.theme,
        "running": str(app.is_running),
        "copied": app.clipboard,
        "source": f"paused {source.paused}, speed {source.speed}, steps {source.steps}, file {source.recorded}",
        "engine": f"turns {source.turns}, stages {engine.stages}, edited {engine.edited}, watched {engine.watched}, "
        f"breaks on {sorted(engine.conditions.on)} under {engine.conditions.limit:.2f}",
    }
