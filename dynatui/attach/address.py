"""Where a server's metrics are, from what a user types: a host and a port, a base URL, or the page's own URL.

Nothing secret comes this way: a password in a URL is refused, and what is shown of a URL has no query.
"""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

from decoder.errors import ConfigError, quoted

PAGES = ("/metrics", "/prometheus/metrics")
"""Where servers have their pages; the second is TensorRT-LLM's."""
_API = "/v1"
_EXAMPLE = "give HOST:PORT or a URL such as http://localhost:8000"


@dataclass(frozen=True)
class Address:
    """A server."""

    pages: tuple[str, ...]
    """URLs where its metrics may be, the likeliest first."""
    base: str
    """The base URL of its API."""
    shown: str
    """What may be told of it."""


def address(text: str) -> Address:
    """The server that is meant; raises a ConfigError that never holds a password."""
    parts = _split(text.strip())
    path = parts.path.rstrip("/")
    page = next((known for known in reversed(PAGES) if path.endswith(known)), "")
    root = (path.removesuffix(page) if page else path).removesuffix(_API)
    pages = (path,) if page else tuple(root + known for known in PAGES)
    base = urlunsplit((parts.scheme, parts.netloc, root, "", ""))
    return Address(tuple(urlunsplit((parts.scheme, parts.netloc, each, parts.query, "")) for each in pages), base, base)


def without_query(url: str) -> str:
    """The URL as it may be told."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, host_of(url), parts.path, "", ""))


def origin(url: str) -> tuple[str, str | None, int]:
    """Scheme, host and port of the server."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def is_here(url: str) -> bool:
    """Whether a URL is of this machine, so that nobody is on the way."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # a name, which need not be what it looks like
        return False


def host_of(url: str) -> str:
    """Host and port as they are written."""
    return urlsplit(url).netloc.rpartition("@")[2]


def _split(text: str) -> SplitResult:
    if "@" in text:  # anywhere: a password may hold what ends a host elsewhere
        raise ConfigError(
            "the URL holds a user or a password, as it has an @; leave them out, and give a token by the variable "
            "DYNATUI_ATTACH_TOKEN; an @ of a query is written %40"
        )
    told = quoted(text.partition("?")[0])
    if not text.isprintable() or " " in text:
        raise ConfigError(f"the URL {told} holds blanks or control characters; {_EXAMPLE}")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL {told} cannot be read: {error}; {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"the URL {told} is of {quoted(parts.scheme)}; give one of http or https")
    if not parts.hostname or port == 0:
        raise ConfigError(f"the URL {told} names no {'host' if not parts.hostname else 'port'}; {_EXAMPLE}")
    return parts
