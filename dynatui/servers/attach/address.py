"""The URLs of a server, from the URL or HOST:PORT that the user gives; error messages never contain a secret."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit, urlunsplit

from decoder.errors import ConfigError, quoted

PAGES = ("/metrics", "/prometheus/metrics")
"""Paths of metrics pages; the second is used by TensorRT-LLM."""
_EXAMPLE = "give HOST:PORT or a URL such as http://localhost:8000"


@dataclass(frozen=True)
class Address:
    pages: tuple[str, ...]
    """Candidate URLs of the metrics page, the most likely first."""
    base: str
    """Base URL of the API, without a query, so that it may be displayed and recorded."""


def address(text: str) -> Address:
    """Parses a URL or HOST:PORT; raises a ConfigError, whose message never contains a password."""
    parts = _split(text.strip())
    path = parts.path.rstrip("/")
    page = next((suffix for suffix in reversed(PAGES) if path.endswith(suffix)), "")
    root = path.removesuffix(page).removesuffix("/v1")
    pages = (path,) if page else tuple(root + suffix for suffix in PAGES)
    urls = tuple(urlunsplit((parts.scheme, parts.netloc, page_path, parts.query, "")) for page_path in pages)
    return Address(urls, urlunsplit((parts.scheme, parts.netloc, root, "", "")))


def without_query(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, host_of(url), parts.path, "", ""))


def origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)


def is_here(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:  # the host is a name, not an IP address
        return False


def host_of(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _split(text: str) -> SplitResult:
    if "@" in text:  # an @ is refused even after the first /, since a password may contain a /
        raise ConfigError(
            "the URL has an @, which ends a user name or password; leave user name and password out, and give a token "
            "in the variable DYNATUI_ATTACH_TOKEN; write an @ in a query as %40"
        )
    url = quoted(text.partition("?")[0])
    if not text.isprintable() or " " in text:
        raise ConfigError(f"the URL {url} contains blanks or control characters; {_EXAMPLE}")
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"the URL {url} cannot be read: {error}; {_EXAMPLE}") from None
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"the URL {url} has the scheme {quoted(parts.scheme)}; give http or https")
    if not parts.hostname or port == 0:
        raise ConfigError(f"the URL {url} names no {'host' if not parts.hostname else 'port'}; {_EXAMPLE}")
    return parts
