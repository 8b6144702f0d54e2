"""Asks a server over HTTP: certificates are checked, time and size are bounded, no redirect leads to somebody else.

A token goes to the server alone, and into nothing that is told. Knows neither metrics nor events.
"""

import asyncio
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import asynccontextmanager, suppress
from typing import Any, Self, TypeAlias

import httpx2

import decoder
from decoder.errors import ConfigError, first_line
from dynatui.attach.address import host_of, origin
from dynatui.attach.exposition import NotMetricsError, PageError
from dynatui.attach.failures import TOKEN, Refusal, as_page_errors, no_answer, no_page

LARGEST_PAGE = 2**23
"""Bytes."""
PATIENCE_S = 5.0
"""Within which all of a page has to be there."""
_ACCEPT = {"Accept": "text/plain;version=0.0.4, text/plain;q=0.9, */*;q=0.1"}
_HERE = dict.fromkeys(("all://localhost", "all://127.0.0.1", "all://[::1]"))
"""Hosts that are reached without a proxy: to a proxy, these names would be itself."""
_REDIRECTS = 3
_COMPLAINT_S = 0.3
"""For which the words of a refusal are waited for."""
_SHORTEST_SECRET = 8
"""A token of fewer characters may be a part of anything, and is not looked for in answers."""

Refuse: TypeAlias = Callable[[Refusal, str], PageError]
"""The error for a status that is of no use, with what to do where a token is wanted."""


def token() -> str | None:
    """The user's token; raises a ConfigError, which does not show it, where it cannot be sent."""
    token = os.environ.get(TOKEN, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{TOKEN} holds blanks or characters that no token has; set it to the token alone")
    return token or None


class _Loop(asyncio.SelectorEventLoop):
    """Looks names up in threads that nobody waits for; those of the usual executor hold up the end of the program."""

    async def getaddrinfo(self, host: Any, port: Any, **how: Any) -> list[Any]:
        """As `socket.getaddrinfo`."""
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
    """Connections to a server, kept open between requests; used by one thread, in which no event loop runs.

    Raises:
        ConfigError: The variables for certificates or proxies name what cannot be used.
    """

    def __init__(self, secret: str | None = None, patience_s: float = PATIENCE_S) -> None:
        headers = {"User-Agent": f"dynatui/{decoder.__version__}", "Accept-Encoding": "identity"}
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        self._secret = secret or ""
        self._remedy = f"the token in {TOKEN} is not taken" if secret else f"set {TOKEN} to its token"
        self._patience_s = patience_s
        try:
            self._client = httpx2.AsyncClient(headers=headers, timeout=None, mounts=_HERE)  # `_text` bounds an answer
        except (OSError, ValueError, ImportError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"cannot connect to servers: {first_line(error)}; see the variables SSL_CERT_FILE and HTTPS_PROXY"
            ) from None
        self._runner = asyncio.Runner(loop_factory=_Loop)

    def page(self, url: str) -> str:
        """The text at a URL; raises a PageError."""
        return self._runner.run(self._text("GET", url, self._patience_s, no_page, headers=_ACCEPT))

    def answer(self, url: str, body: Mapping[str, Any] | None, patience_s: float) -> str:
        """The text at a URL of an API, which is sent JSON where there is any; raises a PageError."""
        sent = {} if body is None else {"json": body}
        return self._runner.run(self._text("POST" if sent else "GET", url, patience_s, no_answer, **sent))

    def close(self) -> None:
        """Closes the connections."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _text(self, method: str, url: str, patience_s: float, refuse: Refuse, **sent: Any) -> str:
        """The response."""
        with as_page_errors(url, patience_s):
            request = self._client.build_request(method, url, **sent)
            async with asyncio.timeout(patience_s), self._response(request) as response:
                if not response.is_success:
                    told = self._told(await _complaint(response))
                    raise refuse(Refusal(response.status_code, str(response.request.url), told), self._remedy)
                body = await _body(response)
        try:
            return self._told(body.decode())
        except UnicodeDecodeError:
            raise NotMetricsError("the page is no text in UTF-8, so it is no page of metrics") from None

    def _told(self, text: str) -> str:
        """A server's text, without the token that was sent."""
        return text.replace(self._secret, "***") if len(self._secret) >= _SHORTEST_SECRET else text

    @asynccontextmanager
    async def _response(self, request: httpx2.Request) -> AsyncIterator[httpx2.Response]:
        """The response that redirects lead to, if any; its body is not read yet."""
        for _ in range(_REDIRECTS + 1):
            response = await self._client.send(request, stream=True)
            self._client.cookies.clear()  # a server could send new ones for ever
            try:
                further = response.next_request
                if further is None:
                    yield response
                    return
            finally:
                await response.aclose()
            if origin(str(further.url)) != origin(str(request.url)):
                elsewhere = host_of(str(further.url))
                raise PageError(f"it redirects to {elsewhere}, which is not followed; give that address")
            request = further
        raise PageError("it redirects again and again; give the address that it leads to")


async def _complaint(response: httpx2.Response) -> str:
    """What a server says of its refusal; nothing where that is no text, or does not come at once."""
    with suppress(PageError, UnicodeDecodeError, TimeoutError, httpx2.HTTPError):
        async with asyncio.timeout(_COMPLAINT_S):
            return (await _body(response)).decode()
    return ""


async def _body(response: httpx2.Response) -> bytes:
    """All of a body that is neither packed nor too large."""
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise NotMetricsError("the page is compressed, though that was not asked for")
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > LARGEST_PAGE:
            raise PageError(f"the page is larger than {LARGEST_PAGE >> 20} MiB, as no page of metrics is")
    return bytes(body)
