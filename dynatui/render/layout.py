"""Chooses the panels to show, by terminal size and the user's choice; the style sheet defines their positions.

- roomy: like `full`, with a further column for the `work` panel and the guide to the screen.
- full: a line of tabs, text and tree, and the curves below them; the panels `race`, `work`, `whatif`, `prompts`, `log`
  and `sampling` share one area.
- tabbed: cards, sliders and one page; the first page has text, tree and race, every other page has one panel.
- small: like `tabbed`, without sliders; the most needed figures are on one line, and the first page has no frames and
  no tabs, so the footer has the keys of the tabs.
- line: one line with the essentials; other rows show the end of the text.
"""

from typing import Literal, TypeAlias

from dynatui.keymap import ALWAYS, CURSOR, PanelName
from dynatui.render.scene import Scene

Layout: TypeAlias = Literal["roomy", "full", "tabbed", "small", "line"]

_SMALLEST: dict[Layout, tuple[int, int]] = {
    "roomy": (160, 50),
    "full": (110, 34),
    "tabbed": (60, 18),
    "small": (40, 10),
    "line": (0, 0),
}
LAYOUTS: tuple[Layout, ...] = tuple(_SMALLEST)
_CONTAINERS: dict[str, tuple[str, ...]] = {
    "main": ("left", "tree", "column"),
    "left": ("text", "race", "work", "whatif", "prompts", "log", "sampling", "inspect", "drawer"),
    "column": ("side", "guide"),
    "curves": ("acceptance", "depth"),
}


def layout(width: int, height: int) -> Layout:
    return next((name for name, (w, h) in _SMALLEST.items() if width >= w and height >= h), "line")


def arranged(room: Layout, scene: Scene, shared: PanelName) -> frozenset[str]:
    """Names of visible widgets and containers; `shared` is the panel in the area that several panels share."""
    panels = _panels(room, scene, shared)
    for container, inside in reversed(_CONTAINERS.items()):
        panels |= {container} if panels.intersection(inside) else set()
    return frozenset(panels)


def _panels(room: Layout, scene: Scene, shared: PanelName) -> set[str]:
    inspecting = {"inspect"} if scene.mode in CURSOR else set[str]()
    if room == "line":
        return {"essentials", "text"}
    if scene.maximised and scene.mode != "knobs":
        beside = inspecting if scene.panel in ("text", "tree") else set[str]()
        return {"status", "tabs", "footer", *_canvases(scene.panel), *beside}
    if room in ("roomy", "full"):
        below = {"acceptance", "depth", "timeline", *(() if scene.mode == "knobs" else ("knobs", "tabs"))}
        side = {"side", "guide"} if room == "roomy" else set[str]()
        beneath_text = {"drawer"} if scene.mode == "knobs" else inspecting or {shared}
        return {"status", "cards", "text", "tree", "footer", *below, *side, *beneath_text}
    if scene.mode == "knobs":
        return {"status", "cards", "drawer", "footer"} | ({"trends"} if room == "tabbed" else set())
    return _one_page(room, scene, inspecting)


def _one_page(room: Layout, scene: Scene, inspecting: set[str]) -> set[str]:
    tabbed = room == "tabbed"
    around = {"status", "cards", "footer"} | ({"knobs"} if tabbed else set[str]())
    if scene.panel == "text" and not inspecting and not scene.state.failure:
        where = set[str]() if scene.place.live else {"timeline"}
        return around | {"text", "tree", "race"} | where | ({"tabs"} if tabbed else set[str]())
    below = {"trends" if scene.place.live else "timeline"} if tabbed else set[str]()
    shown = {*_canvases(scene.panel)} - (set[str]() if tabbed else {"depth"})
    return around | {"tabs"} | below | shown | (inspecting if scene.panel in ("text", "tree") else set[str]())


def _canvases(panel: PanelName) -> tuple[str, ...]:
    return ("acceptance", "depth") if panel == "curves" else (panel,)


def shared_place(panel: PanelName, before: PanelName) -> PanelName:
    """The panel in the shared area after the user has chosen `panel`; `before` is the previous panel in this area."""
    return before if panel in ALWAYS else panel
