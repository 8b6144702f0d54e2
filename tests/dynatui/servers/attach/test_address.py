"""Addresses typed by a user become page URLs; addresses with secrets and malformed ones are refused in one line."""

import re

import pytest

from decoder.errors import ConfigError
from dynatui.servers.attach.address import address, is_here, origin, without_query

BOTH = "http://host:8000/metrics", "http://host:8000/prometheus/metrics"


@pytest.mark.parametrize(
    ("typed", "pages"),
    [
        *((typed, BOTH) for typed in ("host:8000", "host:8000/", "http://host:8000", "http://host:8000/v1")),
        ("https://host/llm/v1/", ("https://host/llm/metrics", "https://host/llm/prometheus/metrics")),
        *((typed, ("https://host/metrics",)) for typed in ("https://host/metrics", "https://host/metrics/")),
        ("host:8000/prometheus/metrics", ("http://host:8000/prometheus/metrics",)),
        ("http://[::1]:8080", ("http://[::1]:8080/metrics", "http://[::1]:8080/prometheus/metrics")),
        ("host:8080/metrics?model=a", ("http://host:8080/metrics?model=a",)),
    ],
)
def test_a_server_can_be_named_in_every_usual_way(typed: str, pages: tuple[str, ...]) -> None:
    assert address(typed).pages == pages


def test_the_paths_of_the_interface_follow_the_base_and_a_query_is_not_told() -> None:
    assert address("host:8000/metrics").base == "http://host:8000"
    assert address("https://host/llm/prometheus/metrics").base == "https://host/llm"
    assert address("host:8080/metrics?key=secret").base == "http://host:8080"
    assert without_query("http://host:8080/metrics?key=secret#there") == "http://host:8080/metrics"
    assert without_query("http://me:secret@host:8080/metrics") == "http://host:8080/metrics"


PASSWORDS = "http://me:hunter2@host:8000 me:hunter2@host https://hunter2@host/ http://me:hunter2@host:99999"
PASSWORDS += " x:/a:hunter2@h http://me:12?hunter2@host:8000 http://me:12/hunter2?@host:8000"


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        *((typed, "DYNATUI_ATTACH_TOKEN") for typed in PASSWORDS.split()),
        *((f"{scheme}host", f"'{scheme[:-3]}'") for scheme in ("ftp://", "file://")),
        *((typed, "names no host") for typed in ("", "http://", ":8000")),
        *((typed, "cannot be read") for typed in ("host:port", "host:99999", "http://[::1", "host:99999?key=hunter2")),
        ("host:0", "names no port"),
        *((typed, "blanks or control") for typed in ("two words", "host\x1b[2J", "host:8000?key=hunter2 and more")),
        ("ftp://host?key=hunter2", "'ftp'"),
    ],
)
def test_what_is_no_address_is_refused_in_a_line_without_its_secrets(typed: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)) as refused:
        address(typed)
    assert "hunter2" not in str(refused.value)
    assert not set("\n\x1b") & set(str(refused.value))


def test_this_machine_is_known() -> None:
    others = ("[::2]", "10.0.0.1", "127.0.0.1.example.com", "127.example.com")
    assert all(is_here(f"http://{host}") for host in ("localhost:1", "127.0.0.9", "[::1]:1"))
    assert not any(is_here(f"http://{host}") for host in others)


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin("http://host/a") == origin("http://host:80/b")
    assert origin("https://host/a") == origin("https://host:443/b")
    assert origin("https://host/") != origin("http://host/")
    assert origin("http://host:1/") != origin("http://host:2/")
