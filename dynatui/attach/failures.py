"""Turns network and HTTP errors into one-line messages: the cause, and the remedy if it is known."""

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import urlsplit

import httpx2
import msgspec

from decoder.errors import first_line, quoted
from dynatui.attach.address import host_of, without_query
from dynatui.attach.exposition import NotMetricsError, PageError
from dynatui.attach.servers import KINDS

TOKEN = "DYNATUI_ATTACH_TOKEN"  # noqa: S105 - the name of a variable
"""Holds the token of the header `Authorization: Bearer`."""
_NO_PAGE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


@contextmanager
def as_page_errors(url: str, patience_s: float) -> Iterator[None]:
    host = host_of(url)
    try:
        yield
    except (TimeoutError, httpx2.TimeoutException):
        raise PageError(f"{host} has not answered in full within {patience_s:g} s") from None
    except (httpx2.RemoteProtocolError, httpx2.ReadError) as error:
        answered = quoted(first_line(error)) if str(error) else "it closes the connection"
        raise PageError(
            f"{host} does not respond as an HTTP server: {answered}; try another port, or {_other_scheme(url)}"
        ) from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise PageError(_of_tls(error, host) or f"cannot reach {host}: {_reason(error)}") from None


@dataclass(frozen=True)
class Refusal:
    """A response with status 400 or above."""

    status: int
    url: str
    text: str
    """As far as it was read."""

    @property
    def named(self) -> str:
        phrases = {status.value: status.phrase for status in HTTPStatus}
        return f"{self.status} {phrases[self.status]}" if self.status in phrases else str(self.status)


def no_page(refusal: Refusal, remedy: str) -> PageError:
    """A NotMetricsError if another URL may have the page."""
    if refusal.status not in _NO_PAGE:
        return no_answer(refusal, remedy)
    started = ", ".join(kind.page for kind in KINDS.values() if kind.page)
    return NotMetricsError(
        f"there are no metrics at {without_query(refusal.url)} ({refusal.named}); some servers have metrics "
        f"only if they are started as follows: {started}"
    )


def no_answer(refusal: Refusal, remedy: str) -> PageError:
    """With the server's message; if access is refused, also with `remedy`."""
    host, reason = host_of(refusal.url), complaint(refusal.text)
    server_message = f": {quoted(reason)}" if reason else ""
    if refusal.status in _REFUSED:
        return PageError(f"{host} refuses to answer ({refusal.named}){server_message}; {remedy}")
    return PageError(f"{host} answers {refusal.named} to {urlsplit(refusal.url).path or '/'}{server_message}")


class _Named(msgspec.Struct):
    message: str = ""


class _Complaint(msgspec.Struct):
    error: _Named | str = ""
    message: str = ""
    detail: str = ""


def complaint(text: str) -> str:
    try:
        body = msgspec.json.decode(text, type=_Complaint)
    except (msgspec.DecodeError, RecursionError):
        return ""
    return (body.error.message if isinstance(body.error, _Named) else body.error) or body.message or body.detail


def _of_tls(error: BaseException, host: str) -> str:
    cause = next((each for each in _causes(error) if isinstance(each, ssl.SSLError)), None)
    if isinstance(cause, ssl.SSLCertVerificationError):
        remedy = "set SSL_CERT_FILE to a file with the certificate of the server's certificate authority"
        return f"the certificate of {host} is not trusted: {cause.verify_message.rstrip('.')}; {remedy}"
    if cause is not None:
        return f"{host} does not respond in TLS: {cause.reason or first_line(cause)}; try http://{host}"
    return ""


def _reason(error: BaseException) -> str:
    """The system's message, without the HTTP libraries' wrapping exceptions."""
    numbered = (each for each in _causes(error) if isinstance(each, OSError) and each.errno is not None)
    cause = next(numbered, None)
    if cause is None:
        return first_line(Exception(*error.args))
    return str(cause.strerror) if isinstance(cause, socket.gaierror) else os.strerror(cause.errno or 0)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Of an exception group only the first error is followed."""
    while error is not None:
        yield error
        cause = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = cause or error.__cause__ or error.__context__


def _other_scheme(url: str) -> str:
    return f"{'https' if url.startswith('http:') else 'http'}://{host_of(url)}"
