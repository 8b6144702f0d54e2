"""Style of each ink, from the theme's colours; attributes such as bold distinguish inks on monochrome terminals."""

from collections.abc import Mapping

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from dynatui.render.ink import Ink

THEME = Theme(
    name="dynatui",
    primary="#7cb7ff",
    secondary="#56739a",
    accent="#f2b866",
    success="#7ddc9a",
    warning="#f2b866",
    error="#ff7b86",
    foreground="#dfe4ec",
    background="#0f1319",
    surface="#171c25",
    panel="#1d2430",
    boost="#1b2230",
)

_BRIGHT, _DARKER = 0.5, 0.4
"""On a background brighter than `_BRIGHT`, colours are mixed with the text colour, whose share is then `_DARKER`."""
_ATTRIBUTES: dict[Ink, tuple[str, str]] = {
    "plain": ("foreground", ""),
    "dim": ("muted", ""),
    "strong": ("foreground", "bold"),
    "frame": ("faint", ""),
    "title": ("foreground", "bold"),
    "accepted": ("success", "bold"),
    "bonus": ("warning", "underline"),
    "prompt": ("muted", "italic"),
    "first": ("primary", "bold"),
    "second": ("accent", ""),
    "third": ("success", "italic"),
    "good": ("success", ""),
    "warn": ("warning", "bold"),
    "bad": ("error", "bold"),
    "key": ("primary", "bold"),
    "tab": ("primary", "bold reverse"),
    "logo": ("success", "bold reverse"),
    "bar": ("secondary", ""),
    "heat1": ("muted", ""),
    "heat2": ("foreground", ""),
    "heat3": ("primary", "bold"),
    "heat4": ("error", "bold italic"),
    "heat5": ("error", "bold reverse"),
    "band": ("primary", "underline"),
    "caret": ("accent", "bold underline reverse"),
    "hit": ("warning", "reverse"),
    "ghost": ("muted", ""),
    "cursor": ("warning", "bold"),
}


def palette(theme: Mapping[str, str], *, color: bool) -> dict[Ink, Style]:
    """Without `color`, styles contain only attributes, such as bold."""
    return {ink: _style(theme, role, attributes, color=color) for ink, (role, attributes) in _ATTRIBUTES.items()}


def _style(theme: Mapping[str, str], role: str, attributes: str, *, color: bool) -> Style:
    fades = {"muted": 0.42, "faint": 0.68}
    style = Style.parse(attributes)
    ansi = theme["foreground"].startswith("ansi_")
    if not color or ansi:
        style += Style(dim=True) if role in fades else Style()
    if not color:
        return style
    if ansi:
        name = theme["foreground" if role in fades else role].removeprefix("ansi_")
        return style if name == "default" else style + Style(color=name)
    if role in fades:
        blended = Color.parse(theme["foreground"]).blend(Color.parse(theme["background"]), fades[role])
    else:
        foreground = Color.parse(theme["foreground"])
        bright = Color.parse(theme["background"]).brightness > _BRIGHT
        blended = Color.parse(theme[role]).blend(foreground, _DARKER if bright else 0.0)
    return style + Style(color=RichColor.from_rgb(*blended.rgb))
