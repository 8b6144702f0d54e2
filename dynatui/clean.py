"""Makes text from models, files and servers safe to print: an escape sequence in the text could set the clipboard."""

_REPLACEMENT = "\ufffd"
_PICTURES = 0x2400
_TABLE: dict[int, str] = {code: chr(_PICTURES + code) for code in range(0x20)}
_TABLE |= dict.fromkeys(range(0x80, 0xA0), _REPLACEMENT)  # C1 characters, which begin 8-bit escape sequences
_TABLE |= dict.fromkeys(range(0xD800, 0xE000), _REPLACEMENT)  # lone surrogates, which UTF-8 cannot encode
_TABLE |= dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x061C, 0x200E, 0x200F), _REPLACEMENT)  # bidi
_TABLE |= dict.fromkeys((0x2028, 0x2029, 0xFEFF), _REPLACEMENT)
_TABLE |= {0x7F: "\u2421", ord("\n"): "\n", ord("\t"): "    "}


def clean(text: str) -> str:
    return text if text.isprintable() else text.translate(_TABLE)  # printable text needs no replacement


def clean_line(text: str) -> str:
    return clean(text).replace("\n", "\u240a")
