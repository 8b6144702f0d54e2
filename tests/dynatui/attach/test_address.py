"""Addresses typed by a user become page URLs; addresses with secrets and malformed ones are refused in one line."""

import pytest

from decoder.errors import ConfigError
from dynatui.attach.address import address, is_here, origin, without_query


@pytest.mark.parametrize(
    ("typed", "pages"),
    [
        ("localhost:8000", ("http://localhost:8000/metrics", "http://localhost:8000/prometheus/metrics")),
        ("10.0.0.7:30000/", ("http://10.0.0.7:30000/metrics", "http://10.0.0.7:30000/prometheus/metrics")),
        ("http://host:8000", ("http://host:8000/metrics", "http://host:8000/prometheus/metrics")),
        ("http://host:8000/v1", ("http://host:8000/metrics", "http://host:8000/prometheus/metrics")),
        ("https://host/llm/v1/", ("https://host/llm/metrics", "https://host/llm/prometheus/metrics")),
        ("https://host/metrics", ("https://host/metrics",)),
        ("https://host/metrics/", ("https://host/metrics",)),
        ("host:8000/prometheus/metrics", ("http://host:8000/prometheus/metrics",)),
        ("http://[::1]:8080", ("http://[::1]:8080/metrics", "http://[::1]:8080/prometheus/metrics")),
        ("host:8080/metrics?model=a", ("http://host:8080/metrics?model=a",)),
    ],
)
def test_a_server_can_be_named_in_every_usual_way(typed: str, pages: tuple[str, ...]) -> None:
    assert address(typed).pages == pages


def test_the_paths_of_the_interface_follow_the_base() -> None:
    assert address("host:8000/metrics").base == "http://host:8000"
    assert address("https://host/llm/prometheus/metrics").base == "https://host/llm"


@pytest.mark.parametrize(
    "typed",
    [
        "http://me:hunter2@host:8000",
        "me:hunter2@host",
        "https://hunter2@host/",
        "http://me:hunter2@host:99999",
        "x:/a:hunter2@h",
        "http://me:12?hunter2@host:8000",
        "http://me:12/hunter2?@host:8000",
    ],
)
def test_a_password_is_refused_and_not_repeated(typed: str) -> None:
    with pytest.raises(ConfigError, match="DYNATUI_ATTACH_TOKEN") as refused:
        address(typed)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("ftp://host", "'ftp'"),
        ("file:///etc/passwd", "'file'"),
        ("", "names no host"),
        ("http://", "names no host"),
        (":8000", "names no host"),
        ("host:port", "cannot be read"),
        ("host:99999", "cannot be read"),
        ("host:0", "names no port"),
        ("two words", "blanks"),
        ("host\x1b[2J", "blanks or control"),
        ("http://[::1", "cannot be read"),
    ],
)
def test_what_is_no_address_is_refused_with_an_example(typed: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why.replace("[", r"\[")) as refused:
        address(typed)
    assert "\n" not in str(refused.value)
    assert "\x1b" not in str(refused.value)


@pytest.mark.parametrize("typed", ["ftp://host?key=s3cret", "host:99999?key=s3cret", "host:8000?key=s3cret and more"])
def test_the_query_of_what_is_refused_is_not_repeated(typed: str) -> None:
    with pytest.raises(ConfigError) as refused:
        address(typed)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "here"),
    [
        *(("http://localhost:1", True), ("http://127.0.0.9", True), ("http://[::1]:1", True), ("http://[::2]", False)),
        *(("http://10.0.0.1", False), ("http://127.0.0.1.example.com", False), ("http://127.example.com", False)),
    ],
)
def test_this_machine_is_known(url: str, here: bool) -> None:  # noqa: FBT001 - a case
    assert is_here(url) is here


def test_a_query_is_not_told() -> None:
    assert address("host:8080/metrics?key=secret").base == "http://host:8080"
    assert without_query("http://host:8080/metrics?key=secret#there") == "http://host:8080/metrics"
    assert without_query("http://me:secret@host:8080/metrics") == "http://host:8080/metrics"


def test_an_origin_is_scheme_host_and_port() -> None:
    assert origin("http://host/a") == origin("http://host:80/b")
    assert origin("https://host/a") == origin("https://host:443/b")
    assert origin("https://host/") != origin("http://host/")
    assert origin("http://host:1/") != origin("http://host:2/")
