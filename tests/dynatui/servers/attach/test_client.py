"""Requests to a local server: limited in time and size, sent to no other host, with one line for each failure."""

import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from decoder.errors import ConfigError
from dynatui.servers.attach import client as client_module
from dynatui.servers.attach.client import TOKEN, Client, token
from dynatui.servers.attach.figures import NotMetricsError, PageError
from tests.dynatui.servers.attach.page_server import Answer, PageServer, by_path, dripping, page, raw, serving, text

SECRET = "sk-very-secret-token"  # noqa: S105 - a fake token
SOON_S = 0.8
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100000\r\n"
NO_HTTP = (b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x00\x01\x02\x03" * 9, HEAD + b"\r\nbroken off", b"HTTP/1.1 abc\r\n\r\n")


@pytest.fixture
def server() -> Iterator[PageServer]:
    with serving(text(page("vllm-1"))) as found:
        yield found


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(SECRET, patience_s=SOON_S) as found:
        yield found


def failure(client: Client, url: str, kind: type[PageError] = PageError) -> str:
    with pytest.raises(kind) as caught:
        client.page(url)
    said = str(caught.value)
    assert "\n" not in said
    assert SECRET not in said
    return said


def test_a_page_is_asked_for_unpacked_with_the_token_and_without_cookies(server: PageServer, client: Client) -> None:
    server.answer = text(page("vllm-1"), Set_Cookie="id=1")
    assert [client.page(f"{server.url}/metrics") for _ in range(2)] == [page("vllm-1")] * 2
    for path, headers, _ in server.requests:
        assert (path, headers["Accept-Encoding"], "Cookie" in headers) == ("/metrics", "identity", False)
        assert headers["Accept"].startswith("text/plain;version=0.0.4")
        assert headers["Authorization"] == f"Bearer {SECRET}"


def test_without_a_token_none_is_sent_and_a_server_that_wants_one_is_told_so(server: PageServer) -> None:
    with Client() as plain:
        plain.page(f"{server.url}/metrics")
        assert "Authorization" not in server.requests[0][1]
        server.answer = text("", 401)
        with pytest.raises(PageError, match=f"set {TOKEN} to the server's token"):
            plain.page(f"{server.url}/metrics")


def test_one_connection_serves_many_polls(server: PageServer, client: Client) -> None:
    ports = set[int]()
    answer = text("a 1\n")

    def noting(handler: object) -> None:
        ports.add(handler.client_address[1])  # type: ignore[attr-defined]
        answer(handler)  # type: ignore[arg-type]

    server.answer = noting
    for _ in range(5):
        client.page(f"{server.url}/metrics")
    assert len(ports) == 1


def test_a_token_that_a_server_sends_back_is_not_told(server: PageServer, client: Client) -> None:
    server.answer = text(f'a{{b="{SECRET}"}} 1\n')
    assert SECRET not in client.page(f"{server.url}/metrics")


COMPLAINTS = (
    '{"error": {"message": "%s", "type": "busy"}}',  # OpenAI
    '{"error": "%s", "error_type": "overloaded"}',  # TGI
    '{"object": "error", "message": "%s", "code": 429}',  # SGLang
    '{"detail": "%s"}',  # FastAPI
)
WORDLESS = ("", "busy", "<html>", "[]", '{"detail": [{"loc": 1}]}', '{"error": 3}', "[" * 99_999, b"\xff\xfe", b"\0")


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (text("", 401), f"…401 Unauthorized); the token in {TOKEN} is not accepted…"),
        (text("", 403), "…403 Forbidden…"),
        (text("", 404), "…no metrics at URL/metrics (404 Not Found); some servers have metrics only if they…"),
        (text("", 501), "…llama-server with --metrics…"),
        *((text("", status), f"…answers {status}…") for status in (503, 599, 304)),
        (text("", 302, Location="/metrics"), "…too many times…"),
        (text("", 302, Location="http://example.com/metrics"), "…which is not contacted…"),
        (text("", 302, Location="https://127.0.0.1:1/metrics"), "…which is not contacted…"),
        (text("", 302, Location="//other/metrics"), "…which is not contacted…"),
        (text(b"\x1f\x8b", Content_Encoding="gzip"), "…compressed…"),
        (text(b"a 1\n\xff\xfe\n"), "…not UTF-8 text…"),
        (text('{"error": "a\\n\\u001b[2Jb' + "x" * 9999 + '"}', 400), "…'a\\n\\x1b[2Jb…"),
        *((raw(content), "…does not respond as an HTTP server…https://127.0.0.1:PORT…") for content in NO_HTTP),
        *((text(words % "no", 429), "HOST answers 429 Too Many Requests to /metrics: 'no'") for words in COMPLAINTS),
        *((text(words % SECRET, 401), "…'***'; the token in…") for words in COMPLAINTS),
        *((text(words, 500), "HOST answers 500 Internal Server Error to /metrics") for words in WORDLESS),
    ],
)
def test_a_failure_is_one_short_line_with_the_remedy_or_the_server_s_words(
    server: PageServer, client: Client, answer: Answer, told: str
) -> None:
    server.answer = answer
    another = told.startswith("…no metrics at")  # then another page is worth a try
    said = failure(client, f"{server.url}/metrics?key={SECRET}", NotMetricsError if another else PageError)
    told = told.replace("URL", server.url).replace("HOST", "127.0.0.1:PORT").replace("PORT", str(server.port))
    assert re.fullmatch(".*".join(map(re.escape, told.split("…"))), said)
    assert len(said) < 400


def test_a_failure_of_endless_words_is_its_status(
    server: PageServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "_COMPLAINT_S", SOON_S / 4)
    stopped = threading.Event()
    server.answer = dripping(b"HTTP/1.1 503 no\r\nContent-Length: 99999\r\n\r\n{", 0.01, stopped)
    said = failure(client, f"{server.url}/metrics")
    stopped.set()
    assert said.endswith("answers 503 Service Unavailable to /metrics")


def test_a_redirect_is_followed_on_the_same_server_and_port_alone(server: PageServer, client: Client) -> None:
    server.answer = by_path({"/metrics": text("", 307, Location="/metrics/"), "/metrics/": text("a 1\n")})
    assert client.page(f"{server.url}/metrics") == "a 1\n"
    with serving(text("a 1\n")) as other:
        server.answer = text("", 302, Location=f"{other.url}/metrics")
        failure(client, f"{server.url}/metrics")
        assert other.requests == []


def test_a_large_page_is_not_read_to_its_end(
    server: PageServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "LARGEST_PAGE", 2**20)
    server.answer = text("a 1\n" * 2**19)
    assert "larger than 1 MiB" in failure(client, f"{server.url}/metrics")


@pytest.mark.wall_time
@pytest.mark.parametrize(
    "begins", [b"", b"HTTP/1.1 200 OK\r\nX-Long: ", HEAD + b"\r\n"], ids=["nothing", "head", "body"]
)
def test_an_endless_answer_is_given_up_however_it_drips(server: PageServer, client: Client, begins: bytes) -> None:
    stopped = threading.Event()
    server.answer = dripping(begins, SOON_S / 8, stopped)
    began = time.monotonic()
    said = failure(client, f"{server.url}/metrics")
    stopped.set()
    assert "has not answered in full within 0.8 s" in said or "does not respond as an HTTP server" in said
    assert time.monotonic() - began < 10 * SOON_S


def test_a_server_or_scheme_that_is_not_there_is_named(client: Client, server: PageServer) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    said = failure(client, f"http://127.0.0.1:{port}/metrics")
    assert said == f"cannot reach 127.0.0.1:{port}: Connection refused"
    said = failure(client, f"https://127.0.0.1:{server.port}/metrics")
    assert f"try http://127.0.0.1:{server.port}" in said
    assert "no-such-host.invalid:8000" in failure(client, "http://no-such-host.invalid:8000/metrics")


def test_a_name_that_takes_long_to_look_up_is_given_up_and_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()

    def slow(*_: object, **__: object) -> list[object]:
        assert released.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with Client(patience_s=SOON_S) as client:
        assert failure(client, "http://host.invalid:8000/metrics").startswith("host.invalid:8000 has not answered")
        began = time.monotonic()
    assert time.monotonic() - began < SOON_S
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "names")
    released.set()


def test_a_certificate_must_be_trusted_and_http_to_a_server_with_tls_is_named(
    server: PageServer, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tmp_path / "own.pem", tmp_path / "own.key"
    own = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    own += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", "req", *own], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server._server.socket = context.wrap_socket(server._server.socket, server_side=True)
    host = f"127.0.0.1:{server.port}"
    said = failure(client, f"https://{host}/metrics")
    assert f"the certificate of {host} is not trusted: self" in said
    assert "SSL_CERT_FILE" in said
    assert f"https://{host}" in failure(client, f"http://{host}/metrics")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Client() as trusting:
        assert trusting.page(f"https://{host}/metrics") == page("vllm-1")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="SSL_CERT_FILE"):
        Client()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_server_on_this_machine_is_asked_without_a_proxy_and_others_by_it(
    server: PageServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with serving(text("a 1\n")) as proxy:
        monkeypatch.setenv(name, proxy.url)
        with Client() as client:
            assert client.page(f"{server.url}/metrics") == page("vllm-1")
            assert client.page(f"http://localhost:{server.port}/metrics") == page("vllm-1")
            assert client.page("http://host.invalid:8000/metrics") == "a 1\n"


def test_a_token_comes_from_its_variable_and_an_unsendable_one_is_refused_unshown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(TOKEN, raising=False)
    assert token() is None
    monkeypatch.setenv(TOKEN, f" {SECRET}\n")
    assert token() == SECRET
    for value in ("two words", "line\nend", "t\u00fcr", "\x1b[2J"):
        monkeypatch.setenv(TOKEN, value)
        with pytest.raises(ConfigError, match=TOKEN) as refused:
            token()
        assert value not in str(refused.value)


def test_json_is_sent_and_its_answer_read(server: PageServer, client: Client) -> None:
    server.answer = text('{"ok": true}')
    assert client.answer(f"{server.url}/v1/completions", {"prompt": "x"}, 5.0) == '{"ok": true}'
    assert server.requests[0][2] in (b'{"prompt":"x"}', b'{"prompt": "x"}')
