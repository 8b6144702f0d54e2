"""Random input from a seed: keys of the key map, opened and closed pages, clicks, drags, unusual characters and bytes.

Keys that leave or suspend the program (q, ctrl+c, ctrl+z) are excluded, and so are these commands in the command
palette; see `commands_that_stay`.
"""

import random
from collections.abc import Iterator
from typing import Any

from dynatui.keymap import KEYMAP, Keymap

ESCAPE = "\x1b[27u"
SPECIAL = {
    "left": "\x1b[D",
    "right": "\x1b[C",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "shift+left": "\x1b[1;2D",
    "shift+right": "\x1b[1;2C",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "escape": ESCAPE,
    "enter": "\r",
    "tab": "\t",
    "shift+tab": "\x1b[Z",
    "backspace": "\x7f",
    "space": " ",
    "ctrl+p": "\x10",
}
_LEAVING = {"leave", "suspend_process"}
_COMMANDS: Any = Keymap.commands
commands_that_stay = property(
    lambda keys: (each for each in _COMMANDS.fget(keys) if each[0] not in ("quit", "suspend"))
)
KEYS = tuple(SPECIAL.get(cap, cap) for key in KEYMAP.keys if not _LEAVING & set(key.actions) for cap in key.caps)
PAGES = ("?", "E", "y", "B", "/", "\x10")
_JUNK = (
    "\x1b[I",
    "\x1b[O",
    "\x1b[200~pasted \x1b[31m[/x]\n\x1b[201~",
    "\x1b[999;999R",
    "\x1b[?1;2c",
    "\x1b]11;rgb:0000/0000/0000\x07",
    "\x1bOP",
    "\x1b[15;5~",
    "\x1b[97;5u",
    "\x1b[57399u",
    "\x1b[<999;1;1M",
    "\x1b[<0;9999;9999M",
    "\x00",
    "\x1b[1;5C",
    "\x0f\x0b\x1f",
)
_UNUSUAL = "äß世🧑\u0301\u200d\u202e\u00a0\ufffd\U000e0041ﷺ"
LARGEST = (300, 100)
_LONGEST = 12
_BYTES = bytes(byte for byte in range(256) if byte not in b"q\x03\x1a\x10")
_SEQUENCE = b"\x1b[]OPM<>?;:0123456789~uABCDHFmMRcIt"
_CODED = (b"113", b"99;", b"122;", b"112;", b"3u", b"3;", b"16;", b"16u", b"26;", b"26u")
"""Parts of sequences that are keys by their codes: q, ctrl+c, ctrl+z and ctrl+p."""


def random_bursts(seed: int, strokes: int) -> Iterator[str]:
    chosen, done = random.Random(seed), 0
    while done < strokes:
        for burst in _bursts(chosen):
            done += len(burst)
            yield "".join(burst)


def sizes(seed: int, count: int) -> Iterator[tuple[int, int]]:
    chosen = random.Random(seed)
    for _ in range(count):
        width, height = LARGEST
        yield max(1, int(width ** chosen.random())), max(1, int(height ** chosen.random()))


def random_bytes(seed: int, count: int) -> Iterator[bytes]:
    """Strings of arbitrary bytes, many of which begin sequences."""
    chosen = random.Random(seed)
    while count:
        alphabet = chosen.choice((_BYTES, _BYTES[:125], _SEQUENCE))
        string = bytes(chosen.choices(alphabet, k=chosen.randint(1, _LONGEST)))
        if alphabet is _SEQUENCE:
            string = b"\x1b" + string
        if not any(code in string for code in _CODED):
            count -= 1
            yield string


def _bursts(chosen: random.Random) -> Iterator[list[str]]:
    kind = chosen.random()
    if kind < 0.05:
        yield [chosen.choice(PAGES)]
        yield [*(chosen.choice((*KEYS, *_UNUSUAL, *_JUNK)) for _ in range(chosen.randrange(8))), SPECIAL["escape"]]
    elif kind < 0.8:
        yield [chosen.choice(KEYS)]
    elif kind < 0.9:
        yield list(_pointer(chosen))
    else:
        yield [chosen.choice(_JUNK if kind < 0.95 else _UNUSUAL)]


def _pointer(chosen: random.Random) -> Iterator[str]:
    width, height = LARGEST
    x, y = chosen.randint(1, width // 2), chosen.randint(1, height // 2)
    if chosen.random() < 0.3:
        yield f"\x1b[<{chosen.choice((64, 65))};{x};{y}M"
        return
    yield f"\x1b[<0;{x};{y}M"
    for _ in range(chosen.randrange(3)):
        x, y = max(1, x + chosen.randint(-9, 9)), max(1, y + chosen.randint(-2, 2))
        yield f"\x1b[<32;{x};{y}M"
    yield f"\x1b[<0;{x};{y}m"
