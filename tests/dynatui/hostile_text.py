"""Hostile text that a model, a file name or an error message may contain and that must never reach a terminal.

The text in each field of an event begins with the field's name, so that a test can check that the screen showed it.
"""

import random
from functools import cache

from msgspec import structs

from decoder.events import End, Event, Round, Run, Summary

ACTS = (
    *(
        "\x1b]52;c;UFdORUQ=\x07",
        "\x1b]0;PWNED\x07",
        "\x1b]2;PWNED\x1b\\",
        "\x1b]8;;file:///etc/passwd\x1b\\link\x1b]8;;\x1b\\",
    ),
    *(
        '\x1bP$q"p\x1b\\',
        "\x1b_Gi=1,a=q;AAAA\x1b\\",
        "\x1b^private\x1b\\",
        "\x1bXstring\x1b\\",
        "\x1bc",
        "\x1b(0",
        "\x1b[2J",
    ),
    *("\x1b[6;53m", "\x1b[9999;9999H", "\x1b[?1049l", "\x1b[21t", "\x1b[6n", "\x9b31m", "\x9d0;PWNED\x9c", "\x90q\x9c"),
    *("\x9f\x85\x84", "\x07\x08\x0b\x0c\x0e\x0f\x05", "over\rwrite", "\x7f\x7f", "[/x]", "[@click=app.leave]PRESS[/]"),
    *("[link=file:///etc/passwd]x[/link]", "[bold red]", "\\[", "\u202eevil\u202c", "\u2066\u2069\u200f\u061c"),
    *("\ufeff\u2028\u2029", "\u200d\u200d\u200b\u2060", "👨\u200d👩\u200d👧\u200d👦🏽\ufe0f", "e" + "\u0301" * 300),
    "\u0301\u0302世界\U000e0041",
)
"""Sequences that write to the clipboard, set the title, clear or leave the screen, or make the terminal send replies as
input; and markup that would end the program or break its parser."""


@cache
def hostile(text: str, seed: int = 0) -> str:
    chosen = random.Random(f"{text} {seed}")
    return f"{text}\x1b]0;{text}\x07" + " ".join(chosen.sample(ACTS, len(ACTS)))


def name(text: str) -> str:
    return f"{text}\x1b]0;t\x07\x9b31m[/x]\u202e"


def hostile_event(event: Event) -> Event:
    match event:
        case Run():
            return structs.replace(
                event,
                prompt=hostile("PROMPT"),
                target=name("TARGET"),
                draft=name("DRAFT"),
                device=name("DEVICE"),
                dtype=name("DTYPE"),
                path=name("PATH"),
                path_reason=hostile("REASON"),
                started_at=hostile("STARTED"),
                version=hostile("VERSION"),
            )
        case Round():
            pieces = [hostile("PIECE", node) for node in range(len(event.pieces))]
            text = pieces[event.accepted[0]] if event.accepted else ""
            return structs.replace(event, text=text + hostile("TEXT", event.round % 7), pieces=pieces)
        case End():
            return structs.replace(event, reason="error", error=hostile("ERROR"))
        case _:
            return event


def renamed(event: Event) -> Event:
    match event:
        case Run(methods=methods):
            return structs.replace(event, methods={_method(name): own for name, own in methods.items()})
        case Summary(methods=figures):
            return structs.replace(event, methods={_method(name): own for name, own in figures.items()})
        case _:
            return structs.replace(event, method=_method(event.method))


def _method(method: str) -> str:
    return name(method[:2])
