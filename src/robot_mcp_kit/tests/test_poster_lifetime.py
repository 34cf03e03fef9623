import asyncio
import contextlib
import logging
import sys
import traceback

import pytest
from aiohttp import web

from robot_mcp_kit import EventPoster, OutcomeKind, SecretError

SECRET = "SEKRET signing secret"
BODY = b"{}"


@contextlib.asynccontextmanager
async def hanging(brain):
    """Let the receiver hold each request; yields an event that says one has come."""
    came, released = asyncio.Event(), asyncio.Event()

    async def hang(request):
        came.set()
        await released.wait()
        return web.Response()

    brain.secrets, brain.answer = [SECRET], hang
    try:
        yield came
    finally:
        released.set()


@pytest.mark.parametrize("status", [200, 302, 400, 401, 410, 503])
async def test_secrets_are_absent_from_logs_outcomes_and_repr(brain, clock, caplog, status):
    caplog.set_level(logging.DEBUG)
    brain.secrets = [SECRET]
    brain.answers(status, Location="/?token=SEKRET")
    url = brain.url.replace("http://", "http://SEKRETUSER:SEKRETPW@")
    async with EventPoster(
        f"{url}/SEKRETPATH?token=SEKRET#SEKRET", secrets=[SECRET], clock=clock
    ) as poster:
        outcome = await poster.post(BODY, msg_id="evt_1")
        shown = [repr(poster), str(poster), repr(outcome), caplog.text]

    assert brain.requests[0].query == {"token": "SEKRET"}
    assert outcome.status == status
    assert "SEK" not in "".join(shown)


async def test_secrets_are_absent_from_the_outcomes_of_broken_connections(
    brain, listen, clock, caplog
):
    caplog.set_level(logging.DEBUG)

    async def hang_up(reader, writer):
        await reader.readuntil(b"\r\n\r\n")

    async with hanging(brain):
        for url in (await listen(hang_up), brain.url, "http://127.0.0.1:1/"):
            async with EventPoster(
                f"{url}?token=SEKRET", secrets=[SECRET], clock=clock, total_timeout_s=0.2
            ) as poster:
                outcome = await poster.post(BODY, msg_id="evt_1")
            assert outcome.kind is OutcomeKind.RETRY
            assert "SEK" not in repr(outcome)

    assert "SEK" not in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        *("", "SEKRET", "/?token=SEKRET", "//h/?token=SEKRET", "ftp://h/?token=SEKRET"),
        *("http://?token=SEKRET", "http:///SEKRET", "http://h:99999/?token=SEKRET"),
        *("http://[::1/?token=SEKRET", "http://a..b/?token=SEKRET"),
        f"http://{'a' * 64}.b/?token=SEKRET",
    ],
)
def test_unusable_url_is_an_error_that_does_not_show_it(url, clock):
    with pytest.raises(ValueError, match="absolute http or https URL") as caught:
        EventPoster(url, secrets=[SECRET], clock=clock)

    assert "SEK" not in "".join(traceback.format_exception_only(caught.value))
    assert caught.value.__context__ is None


@pytest.mark.parametrize("secrets", [[], [""], ["whsec_SEKRET!"]])
def test_unusable_secret_is_found_before_the_first_event(secrets):
    with pytest.raises(SecretError):
        EventPoster("http://localhost/", secrets=secrets)


async def test_closing_twice_or_unopened_does_nothing(brain, clock):
    poster = EventPoster(brain.url, secrets=[SECRET], clock=clock)
    await poster.close()
    async with poster:
        await poster.close()
    await poster.close()


async def test_posting_needs_an_open_poster(brain, clock):
    poster = EventPoster(brain.url, secrets=[SECRET], clock=clock)
    with pytest.raises(RuntimeError, match="not open"):
        await poster.post(BODY, msg_id="evt_1")
    async with poster:
        with pytest.raises(RuntimeError, match="open already"):
            await poster.__aenter__()
    with pytest.raises(RuntimeError, match="not open"):
        await poster.post(BODY, msg_id="evt_1")

    assert brain.requests == []


async def test_attempt_under_way_at_close_ends_as_a_retry(brain, clock):
    async with (
        hanging(brain) as came,
        EventPoster(brain.url, secrets=[SECRET], clock=clock) as poster,
    ):
        attempt = asyncio.create_task(poster.post(BODY, msg_id="evt_1"))
        await asyncio.wait_for(came.wait(), 5)
        await poster.close()
        outcome = await asyncio.wait_for(attempt, 5)

    assert outcome.kind is OutcomeKind.RETRY


async def test_cancelled_attempt_ends_as_cancelled(brain, clock):
    async with (
        hanging(brain) as came,
        EventPoster(brain.url, secrets=[SECRET], clock=clock) as poster,
    ):
        attempt = asyncio.create_task(poster.post(BODY, msg_id="evt_1"))
        await asyncio.wait_for(came.wait(), 5)
        attempt.cancel()
        with pytest.raises(asyncio.CancelledError):
            await attempt


async def test_event_that_cannot_be_signed_is_not_sent(brain, clock):
    async with EventPoster(brain.url, secrets=[SECRET], clock=clock) as poster:
        with pytest.raises(ValueError, match="message id"):
            await poster.post(BODY, msg_id="")
        with pytest.raises(ValueError, match="utf-8"):
            await poster.post(b"\xff", msg_id="evt_1")

    assert brain.requests == []


HANGING_LOOKUP = """
import asyncio, socket, sys, threading
from robot_mcp_kit import EventPoster

socket.getaddrinfo = lambda *args, **options: threading.Event().wait()

async def main():
    async with EventPoster("http://brain.example/", secrets=["s"], connect_timeout_s=0.1) as poster:
        print((await poster.post(b"{}", msg_id="m")).reason)

asyncio.run(main())
"""


async def test_a_lookup_that_hangs_holds_nobody_back_at_the_end():
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HANGING_LOOKUP, stdout=asyncio.subprocess.PIPE
    )
    try:
        out, _ = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
    assert (process.returncode, out) == (0, b"timeout\n")


async def test_a_name_that_nobody_knows_is_a_retry():
    async with EventPoster("http://nobody.invalid/", secrets=["s"]) as poster:
        outcome = await poster.post(b"{}", msg_id="m")
    assert outcome.kind is OutcomeKind.RETRY
