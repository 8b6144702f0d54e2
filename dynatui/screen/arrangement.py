"""Which panels are on the screen: a pure function of the room there is and of where the user looks.

The style sheet says where they are. Names are those of the widgets.
"""

from dynatui.keymap import ALWAYS, CURSOR, PanelName
from dynatui.render.layout import Layout
from dynatui.render.scene import Scene

_CONTAINERS: dict[str, tuple[str, ...]] = {
    "main": ("left", "tree", "column"),
    "left": ("text", "race", "work", "whatif", "prompts", "log", "inspect", "drawer"),
    "column": ("side", "guide"),
    "curves": ("acceptance", "depth"),
}


def arranged(room: Layout, scene: Scene, shared: PanelName) -> frozenset[str]:
    """The widgets that are shown, containers included; `shared` is the panel in the place that several share."""
    panels = _panels(room, scene, shared)
    for container in reversed(_CONTAINERS):
        if panels.intersection(_CONTAINERS[container]):
            panels |= {container}
    return frozenset(panels)


def _panels(room: Layout, scene: Scene, shared: PanelName) -> set[str]:
    inspecting = {"inspect"} if scene.mode in CURSOR else set[str]()
    if room == "line":
        return {"essentials", "text"}
    if scene.maximised and scene.mode != "knobs":
        return {"status", "footer", *_of(scene.panel), *(inspecting if scene.panel in ("text", "tree") else ())}
    if room in ("roomy", "full"):
        below = {"acceptance", "depth", "timeline", *(() if scene.mode == "knobs" else ("knobs",))}
        side = {"side", "guide"} if room == "roomy" else set[str]()
        beneath_text = {"drawer"} if scene.mode == "knobs" else inspecting or {shared}
        return {"status", "cards", "text", "tree", "footer", *below, *side, *beneath_text}
    if scene.mode == "knobs":
        return {"status", "cards", "drawer", "footer"} | ({"trends"} if room == "tabbed" else set())
    shown = {"status", "cards", "footer", *_of(scene.panel), *(inspecting if scene.panel in ("text", "tree") else ())}
    if room == "tabbed":
        return shown | {"tabs", "knobs", "trends" if scene.place.live else "timeline"}
    return shown - {"depth"} | {"tabs"}


def _of(panel: PanelName) -> tuple[str, ...]:
    return ("acceptance", "depth") if panel == "curves" else (panel,)


def shared_place(panel: PanelName, before: PanelName) -> PanelName:
    """The panel in the shared place once another was chosen."""
    return before if panel in ALWAYS else panel
