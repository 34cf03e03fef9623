import asyncio
import socket

import pytest
from aiohttp import web

from robot_mcp_kit import EventPoster, OutcomeKind, TimestampOutOfTolerance, verify

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
BODY = '{"payload":{"label":"tür offen ☕ 🤖","score":0.30000000000000004}}'.encode()

RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


async def read_request(reader):
    """Return the headers and body of the next request on a raw connection."""
    _, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines if line)
    return headers, await reader.readexactly(int(headers["Content-Length"]))


def poster_for(url, clock, **options):
    return EventPoster(url, secrets=[SECRET], clock=clock, **options)


async def test_delivered_event_verifies_over_the_raw_bytes(brain, clock):
    async with poster_for(brain.url, clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert outcome.kind is OutcomeKind.DELIVERED
    assert brain.bodies == [BODY]
    assert [(seen.msg_id, seen.timestamp_s) for seen in brain.verified] == [
        ("evt_1", int(clock.now_s))
    ]
    assert brain.requests[0].content_type == "application/json"


async def test_rotated_secrets_sign_together(brain, clock):
    brain.secrets = ["the new one"]
    async with EventPoster(brain.url, secrets=[SECRET, "the new one"], clock=clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert outcome.kind is OutcomeKind.DELIVERED


async def test_wrong_secret_is_held(brain, clock):
    async with EventPoster(brain.url, secrets=["another"], clock=clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert outcome.kind is OutcomeKind.HELD
    assert len(brain.refused) == 1


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (OutcomeKind.DELIVERED, [200, 201, 202, 204]),
        (OutcomeKind.RETRY, [404, 408, 425, 429, 500, 502, 503, 504, 599]),
        (OutcomeKind.DEAD, [400, 413, 422]),
        (OutcomeKind.HELD, [401, 403]),
        (OutcomeKind.DISABLED, [410]),
    ],
)
async def test_status_decides_the_outcome(brain, clock, kind, statuses):
    async with poster_for(brain.url, clock) as poster:
        for status in statuses:
            brain.answers(status)
            outcome = await poster.post(BODY, msg_id="evt_1")
            assert (outcome.kind, outcome.status) == (kind, status)
            assert outcome.reason == f"HTTP {status}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirect_is_retried_and_not_followed(brain, clock, status):
    brain.answers(status, Location="/elsewhere?token=SEKRET")
    async with poster_for(brain.url, clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert (outcome.kind, outcome.status) == (OutcomeKind.RETRY, status)
    assert [request.path for request in brain.requests] == ["/api/agent/events"]


@pytest.mark.parametrize(
    ("retry_after", "wait_s"), [("7", 7), ("Tue, 28 Jul 2026 00:00:20 GMT", 19.75), ("soon", None)]
)
async def test_retry_after_is_handed_on(brain, clock, retry_after, wait_s):
    brain.answers(503, **{"Retry-After": retry_after})
    async with poster_for(brain.url, clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert (outcome.kind, outcome.retry_after_s) == (OutcomeKind.RETRY, wait_s)


async def test_every_attempt_of_a_long_outage_is_signed_anew(brain, clock):
    async with poster_for(brain.url, clock) as poster:
        brain.answers(503)
        first = await poster.post(BODY, msg_id="evt_1")
        clock.now_s += 361
        brain.answers(200)
        second = await poster.post(BODY, msg_id="evt_1")

    assert [first.kind, second.kind] == [OutcomeKind.RETRY, OutcomeKind.DELIVERED]
    assert [seen.msg_id for seen in brain.verified] == ["evt_1", "evt_1"]
    assert brain.verified[1].timestamp_s - brain.verified[0].timestamp_s == 361
    assert brain.bodies == [BODY, BODY]
    with pytest.raises(TimestampOutOfTolerance):
        verify(BODY, brain.requests[0].headers, secrets=[SECRET], now=clock.now_s)


async def test_silent_receiver_is_a_timeout_to_retry(brain, clock):
    released = asyncio.Event()

    async def hang(request):
        await released.wait()
        return web.Response()

    brain.answer = hang
    async with poster_for(brain.url, clock, total_timeout_s=0.1) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")
    released.set()

    assert (outcome.kind, outcome.reason) == (OutcomeKind.RETRY, "timeout")


async def test_refused_connection_is_retried(clock):
    with socket.socket() as unheard:  # bound, so that nobody else takes the port
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}/?token=SEKRET"
        async with poster_for(url, clock) as poster:
            outcome = await poster.post(BODY, msg_id="evt_1")

    assert outcome.kind is OutcomeKind.RETRY
    assert outcome.reason == "ClientConnectorError (ECONNREFUSED)"


async def test_request_lost_to_a_closing_connection_is_retried_with_the_same_id(listen, clock):
    received = []

    async def answer_once_then_close(reader, writer):
        headers, body = await read_request(reader)
        received.append(verify(body, headers, secrets=[SECRET], now=clock()).msg_id)
        writer.write(RESPONSE)
        await read_request(reader)  # crosses the close: read, never answered

    async with poster_for(await listen(answer_once_then_close), clock, max_idle_s=60) as poster:
        kinds = [(await poster.post(BODY, msg_id=f"evt_{n}")).kind for n in (1, 2, 2)]

    assert kinds == [OutcomeKind.DELIVERED, OutcomeKind.RETRY, OutcomeKind.DELIVERED]
    assert received == ["evt_1", "evt_2"]


async def test_connection_closed_while_idle_costs_no_attempt(brain, listen, clock):
    closed = asyncio.Event()

    async def answer_and_close(reader, writer):
        await read_request(reader)
        writer.write(RESPONSE)
        writer.close()
        await writer.wait_closed()
        closed.set()

    async with poster_for(await listen(answer_and_close), clock, max_idle_s=60) as poster:
        first = await poster.post(BODY, msg_id="evt_1")
        await asyncio.wait_for(closed.wait(), 5)
        # A whole exchange elsewhere: by its end the loop has seen the close.
        async with poster_for(brain.url, clock) as other:
            await other.post(BODY, msg_id="evt_1")
        second = await poster.post(BODY, msg_id="evt_2")

    assert [first.kind, second.kind] == [OutcomeKind.DELIVERED, OutcomeKind.DELIVERED]


@pytest.mark.parametrize(("max_idle_s", "connections"), [(60, 1), (1e-9, 3)])
async def test_connection_is_used_again_unless_idle_for_too_long(
    brain, clock, max_idle_s, connections
):
    async with poster_for(brain.url, clock, max_idle_s=max_idle_s) as poster:
        for number in range(3):
            await poster.post(BODY, msg_id=f"evt_{number}")

    assert len(brain.connections) == connections


async def test_endless_response_body_is_cut_off(brain, clock):
    gone = asyncio.Event()
    sent = 0

    async def flood(request):
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
                sent += 65536
        finally:
            gone.set()

    brain.answer = flood
    async with poster_for(brain.url, clock, total_timeout_s=60) as poster:
        outcome = await asyncio.wait_for(poster.post(BODY, msg_id="evt_1"), 5)
        await asyncio.wait_for(gone.wait(), 5)

    assert outcome.kind is OutcomeKind.DELIVERED
    assert sent < 64 * 1024 * 1024  # what the sockets buffer, and no more


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\npart",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\npart",
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\npart",
    ],
)
async def test_delivery_stands_when_the_response_body_breaks_off(listen, clock, response):
    async def answer(reader, writer):
        await read_request(reader)
        writer.write(response)

    async with poster_for(await listen(answer), clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert outcome.kind is OutcomeKind.DELIVERED


async def test_delivery_stands_when_the_response_body_hangs(listen, clock):
    async def answer(reader, writer):
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\npart")
        await reader.read()

    async with poster_for(await listen(answer), clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert outcome.kind is OutcomeKind.DELIVERED


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: \x00\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
        b"\xff\xfe\x00" * 100,
    ],
)
async def test_response_that_is_not_http_is_retried(listen, clock, response):
    async def answer(reader, writer):
        await read_request(reader)
        writer.write(response)

    async with poster_for(await listen(answer), clock) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")

    assert (outcome.kind, outcome.status) == (OutcomeKind.RETRY, None)


async def test_delivery_stands_when_the_response_body_is_garbled(listen, clock):
    head_sent, head_read = asyncio.Event(), asyncio.Event()

    async def answer(reader, writer):
        await read_request(reader)
        if head_sent.is_set():
            writer.write(RESPONSE)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        head_sent.set()
        await head_read.wait()
        writer.write(b"zz\r\n")

    async with poster_for(await listen(answer), clock) as poster:
        garbled = asyncio.create_task(poster.post(BODY, msg_id="evt_1"))
        await asyncio.wait_for(head_sent.wait(), 5)
        # A whole exchange on another connection: by its end the head above has been read.
        await poster.post(BODY, msg_id="evt_2")
        head_read.set()
        outcome = await asyncio.wait_for(garbled, 5)

    assert (outcome.kind, outcome.status) == (OutcomeKind.DELIVERED, 200)


async def test_cookies_are_not_kept(brain, clock):
    brain.answers(200, **{"Set-Cookie": "session=1"})
    # By name, since no client keeps cookies of an address.
    async with poster_for(brain.url.replace("127.0.0.1", "localhost"), clock) as poster:
        await poster.post(BODY, msg_id="evt_1")
        await poster.post(BODY, msg_id="evt_2")

    assert "Cookie" not in brain.requests[1].headers
