"""HTTP client for a watched server, limited in time and size. Errors have one line; only this server gets the token."""

import asyncio
import os
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import aclosing, suppress
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import urlsplit

import httpx2
import msgspec

import decoder
from decoder.errors import ConfigError, first_line, quoted
from dynatui.servers.attach.address import host_of, origin, without_query
from dynatui.servers.attach.figures import NotMetricsError, PageError
from dynatui.servers.attach.servers import KINDS

TOKEN = "DYNATUI_ATTACH_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the token of the header `Authorization: Bearer`."""
LARGEST_PAGE = 2**23
PATIENCE_S = 5.0
_HERE = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
"""Disables proxies for URLs of this machine, since a proxy on another machine would resolve them to itself."""
_REDIRECTS = 3
_COMPLAINT_S = 0.3
_SHORTEST_SECRET = 8
"""Least length of a token that is masked in responses; a shorter token may occur in a text by chance."""


def _unreached(error: BaseException, host: str) -> str:
    """Message for a server that cannot be reached: the system's error, not the HTTP libraries' wrapping exceptions."""
    causes = [each for each in _causes(error) if isinstance(each, OSError)]
    tls = next((each for each in causes if isinstance(each, ssl.SSLError)), None)
    if isinstance(tls, ssl.SSLCertVerificationError):
        remedy = "set SSL_CERT_FILE to a file with the certificate of the server's certificate authority"
        return f"the certificate of {host} is not trusted: {tls.verify_message.rstrip('.')}; {remedy}"
    if tls is not None:
        return f"{host} does not respond in TLS: {tls.reason or first_line(tls)}; try http://{host}"
    cause = next((each for each in causes if each.errno is not None), None)
    if cause is None:
        reason = first_line(Exception(*error.args))
    else:
        reason = str(cause.strerror) if isinstance(cause, socket.gaierror) else os.strerror(cause.errno or 0)
    return f"cannot reach {host}: {reason}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error and the chain of its causes; in an exception group, only the first error is followed."""
    while error is not None:
        yield error
        cause = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = cause or error.__cause__ or error.__context__


class _Named(msgspec.Struct):
    message: str = ""


class _Complaint(msgspec.Struct):
    error: _Named | str = ""
    message: str = ""
    detail: str = ""


def token() -> str | None:
    """The access token, None if not set; raises ConfigError, without the token, if it is invalid in an HTTP header."""
    token = os.environ.get(TOKEN, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{TOKEN} contains blanks or invalid characters; set it to the token alone")
    return token or None


class _Loop(asyncio.SelectorEventLoop):
    """Looks up DNS names in daemon threads, since threads of the default executor delay the exit."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> list[Any]:
        future: Future[list[Any]] = Future()
        future.set_running_or_notify_cancel()

        def look_up() -> None:
            try:
                future.set_result(socket.getaddrinfo(host, port, **how))
            except (OSError, UnicodeError) as error:
                future.set_exception(error)

        threading.Thread(target=look_up, name="names", daemon=True).start()
        return await asyncio.wrap_future(future)


class Client:
    """For one thread without an event loop; raises ConfigError for unusable variables of certificates or proxies."""

    def __init__(self, secret: str | None = None, patience_s: float = PATIENCE_S) -> None:
        authorization = {"Authorization": f"Bearer {secret}"} if secret else {}
        headers = {"User-Agent": f"dynatui/{decoder.__version__}", "Accept-Encoding": "identity", **authorization}
        self._secret = secret or ""
        self._remedy = f"the token in {TOKEN} is not accepted" if secret else f"set {TOKEN} to the server's token"
        self._patience_s = patience_s
        try:
            self._client = httpx2.AsyncClient(headers=headers, timeout=None, mounts=_HERE)  # `_text` limits the time
        except (OSError, ValueError, ImportError, httpx2.InvalidURL) as error:
            remedy = "check the variables SSL_CERT_FILE and HTTPS_PROXY"
            raise ConfigError(f"cannot connect to servers: {first_line(error)}; {remedy}") from None
        self._runner = asyncio.Runner(loop_factory=_Loop)

    def page(self, url: str) -> str:
        accepted = {"Accept": "text/plain;version=0.0.4, text/plain;q=0.9, */*;q=0.1"}
        return self._runner.run(self._text("GET", url, self._patience_s, headers=accepted))

    def answer(self, url: str, body: Mapping[str, Any] | None, patience_s: float) -> str:
        """The response to a POST request with a JSON body, or, without a body, to a GET request."""
        sent = {} if body is None else {"json": body}
        return self._runner.run(self._text("POST" if sent else "GET", url, patience_s, **sent))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._client.aclose())
        self._runner.close()

    async def _text(self, method: str, url: str, patience_s: float, **sent: Any) -> str:
        host = host_of(url)
        try:
            async with asyncio.timeout(patience_s):
                return await self._answered(self._client.build_request(method, url, **sent), of_page="headers" in sent)
        except (TimeoutError, httpx2.TimeoutException):
            raise PageError(f"{host} has not answered in full within {patience_s:g} s") from None
        except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
            answered = quoted(first_line(error)) if str(error) else "it closes the connection"
            remedy = f"try another port, or {'https' if url.startswith('http:') else 'http'}://{host}"
            raise PageError(f"{host} does not respond as an HTTP server: {answered}; {remedy}") from None
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            raise PageError(_unreached(error, host)) from None

    async def _answered(self, request: httpx2.Request, *, of_page: bool) -> str:
        """The response after redirects within the server."""
        for _ in range(_REDIRECTS + 1):
            async with aclosing(await self._client.send(request, stream=True)) as response:
                self._client.cookies.clear()  # a server could send cookies without bound
                further = response.next_request
                if further is None and response.is_success:
                    return self._masked(await _body(response))
                if further is None:
                    raise await self._refusal(response, of_page=of_page)
            if origin(str(further.url)) != origin(str(request.url)):
                elsewhere = f"{host_of(str(further.url))}, which is not contacted; give the URL of that server"
                raise PageError(f"the server redirects to another server, {elsewhere}")
            request = further
        raise PageError("the server redirects too many times; give the final address")

    async def _refusal(self, response: httpx2.Response, *, of_page: bool) -> PageError:
        """The error for a status of 400 or above, with the server's message; a NotMetricsError if another URL may have
        the page.
        """
        status, url, reason = response.status_code, str(response.request.url), await self._complaint(response)
        named = f"{status} {HTTPStatus(status).phrase}" if status in set(HTTPStatus) else str(status)
        if of_page and status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED):
            started = ", ".join(kind.page for kind in KINDS.values() if kind.page)
            remedy = f"some servers have metrics only if they are started as follows: {started}"
            return NotMetricsError(f"there are no metrics at {without_query(url)} ({named}); {remedy}")
        server_message = f": {quoted(reason)}" if reason else ""
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return PageError(f"{host_of(url)} refuses to answer ({named}){server_message}; {self._remedy}")
        return PageError(f"{host_of(url)} answers {named} to {urlsplit(url).path or '/'}{server_message}")

    async def _complaint(self, response: httpx2.Response) -> str:
        """The server's message in a response with an error; empty if there is none or if it arrives too slowly."""
        with suppress(PageError, TimeoutError, httpx2.HTTPError, msgspec.DecodeError, RecursionError):
            async with asyncio.timeout(_COMPLAINT_S):
                said = msgspec.json.decode(self._masked(await _body(response)), type=_Complaint)
            return (said.error.message if isinstance(said.error, _Named) else said.error) or said.message or said.detail
        return ""

    def _masked(self, text: str) -> str:
        return text.replace(self._secret, "***") if len(self._secret) >= _SHORTEST_SECRET else text


async def _body(response: httpx2.Response) -> str:
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise NotMetricsError("the page is compressed, although only an uncompressed page was requested")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_PAGE:
            raise PageError(f"the page is larger than {LARGEST_PAGE >> 20} MiB, so it is not a page of metrics")
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise NotMetricsError("the page is not UTF-8 text, so it is not a page of metrics") from None
