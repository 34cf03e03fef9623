"""One signed delivery attempt of an event over HTTP; queue and back-off are the caller's.

Nothing is logged here, and the URL, whose query may hold a token, is never part of a text.
"""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self, cast

import aiohttp
from yarl import URL

from robot_mcp_kit.outcome import Outcome, of_response, of_transport_error
from robot_mcp_kit.signing import secret_keys, sign

_MAX_RESPONSE_BYTES = 64 * 1024
_MAX_RESPONSE_BODY_S = 1.0


class EventPoster:
    """Posts events to one URL over one session, open within `async with`.

    `clock` returns Unix seconds. A connection that was idle for longer than `max_idle_s` is not
    used again: receivers close idle connections, and a request that crosses the close is lost and
    has to be retried.

    Raises:
        SecretError: a secret is empty or malformed, or there is none.
        ValueError: the URL is not an absolute http or https URL.
    """

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str],
        clock: Callable[[], float] = time.time,
        total_timeout_s: float = 10.0,
        connect_timeout_s: float = 3.0,
        max_idle_s: float = 0.5,
    ) -> None:
        secret_keys(secrets)
        self._url = _endpoint(url)
        self._secrets = tuple(secrets)
        self._clock = clock
        self._timeout = aiohttp.ClientTimeout(total=total_timeout_s, connect=connect_timeout_s)
        self._max_idle_s = max_idle_s
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        # The origin alone: user, path, query and fragment may all hold tokens.
        return f"<EventPoster {self._url.origin()}>"

    async def __aenter__(self) -> Self:
        if self._session is not None:
            raise RuntimeError("the poster is open already")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                keepalive_timeout=self._max_idle_s,
                resolver=aiohttp.ThreadedResolver(cast("asyncio.AbstractEventLoop", _Lookups())),
            ),
            timeout=self._timeout,
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity"},
            cookie_jar=aiohttp.DummyCookieJar(),
            # The body is read and dropped; decompressing would undo its bound.
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the session; attempts under way end as retries. Closing again does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, body: bytes, *, msg_id: str) -> Outcome:
        """Attempt one delivery of `body`, a UTF-8 JSON text, signed at the current time.

        `msg_id` stays the same over all attempts of an event. No response in time, and a
        connection that breaks before the response, are retries: the receiver may have taken the
        message then, and knows it again by its id.

        Raises:
            RuntimeError: the poster is not open.
            ValueError: `body` or `msg_id` cannot be signed.
        """
        if self._session is None:
            raise RuntimeError("the poster is not open")
        now_s = self._clock()
        headers = sign(body, msg_id=msg_id, timestamp=int(now_s), secrets=self._secrets)
        try:
            async with self._session.post(
                self._url, data=body, headers=headers, allow_redirects=False
            ) as response:
                await _drain(response.content)
                given = response.headers
                return of_response(
                    response.status,
                    given.get("Retry-After"),
                    now_s=self._clock(),
                    date=given.get("Date"),
                )
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            return of_transport_error(error)


class _Lookups:
    """The two functions of a loop that a resolver needs, in threads that an end need not wait for.

    The loop's own threads are joined at the end, and a lookup without a network takes its time.
    """

    async def getaddrinfo(self, host: str, port: int, **options: int) -> Any:
        return await _in_daemon(partial(socket.getaddrinfo, host, port, **options))

    async def getnameinfo(self, address: Any, flags: int) -> Any:
        return await _in_daemon(partial(socket.getnameinfo, address, flags))


async def _in_daemon(function: Callable[[], Any]) -> Any:
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()

    def settle(result: Any, error: OSError | None) -> None:
        if outcome.done():
            return  # given up
        if error is None:
            outcome.set_result(result)
        else:
            outcome.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = function()
        except OSError as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="lookup", daemon=True).start()
    return await outcome


async def _drain(content: aiohttp.StreamReader) -> None:
    """Read to the end, so that the connection can be used again, or give up at the bounds.

    The status has decided the outcome by then: a body that breaks off or hangs changes nothing.
    """
    room = _MAX_RESPONSE_BYTES
    # Any error: aiohttp's parsers let some of their own out here that are no ClientError.
    with contextlib.suppress(Exception):
        async with asyncio.timeout(_MAX_RESPONSE_BODY_S):
            while room > 0 and (chunk := await content.read(room)):
                room -= len(chunk)


def _endpoint(url: str) -> URL:
    endpoint = URL()
    with contextlib.suppress(ValueError):
        endpoint = URL(url)
        # Resolving refuses such names with an error that is not of the transport's kind.
        (endpoint.host or "").encode("idna")
        if endpoint.scheme in ("http", "https") and endpoint.host:
            return endpoint
    # Raised outside of the handler: the parser's error holds the URL, even as a context.
    raise ValueError("the event URL must be an absolute http or https URL")
