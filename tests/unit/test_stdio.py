"""Which requests a client that hangs up is still answered."""

import asyncio
from typing import Any

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_perception_buffer.stdio import ENDLESS, Unanswered


def asked(number: int | str, method: str = "tools/list") -> SessionMessage:
    return SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=number, method=method))


def answered(number: int | str) -> SessionMessage:
    return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result={}))


def cancelled(number: int | str) -> SessionMessage:
    params: dict[str, Any] = {"requestId": number}
    return SessionMessage(
        JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
    )


async def is_over(unanswered: Unanswered) -> bool:
    waiting = asyncio.create_task(unanswered.none())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    return waiting.done()


async def test_the_end_waits_until_all_is_answered_or_cancelled() -> None:
    unanswered = Unanswered()
    assert await is_over(unanswered)
    for number in (1, "two", 3):
        unanswered.note(asked(number))
    for message in (answered(1), cancelled("two")):
        unanswered.note(message)
        assert not await is_over(unanswered)
    unanswered.note(answered(3))
    assert await is_over(unanswered)


async def test_neither_a_stream_of_events_nor_a_broken_message_is_waited_for() -> None:
    unanswered = Unanswered()
    unanswered.note(asked(1, ENDLESS))
    unanswered.note(ValueError("no JSON"))
    assert await is_over(unanswered)
