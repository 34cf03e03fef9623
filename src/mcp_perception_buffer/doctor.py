"""`doctor`: asks a running service why there is no data, and shows the answer as one table.

It asks as a brain does, through the official MCP client over HTTP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from rich.table import Table
from rich.text import Text

from mcp_perception_buffer.errors import UnavailableError, UnknownSkillError
from mcp_perception_buffer.model import State

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"problem": "bold red", "warning": "yellow", "ok": "green"}


async def doctor(url: str, skill: str | None, console: Console, token: str | None = None) -> bool:
    """Print what keeps a skill's data from arriving; False if there is a problem.

    Args:
        url: the service's MCP endpoint, such as `http://127.0.0.1:9202/mcp`.
        skill: its name; None means every skill there is.
        console: where the tables go.
        token: the service's bearer token, if it asks for one.

    Raises:
        UnavailableError: no service answers at `url`.
        UnknownSkillError: it knows no such skill.
    """
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            listing = (await client.call_tool("list_streams", {})).structured_content or {}
            skills = [skill] if skill else await _skills(client, listing)
            results = [await client.call_tool("diagnose", {"skill": name}) for name in skills]
    except Exception as error:  # the client's own types, from a refused connection to a bad answer
        raise UnavailableError(
            f"no service answers at {url}: start it (mcp-perception-buffer serve), or set MCP_PORT"
        ) from error
    answers = []
    for result in results:
        if result.is_error:
            raise UnknownSkillError(result.content[0].text)  # type: ignore[union-attr]
        answers.append(result.structured_content or {})
    for answer in answers:
        console.print(_table(answer))
    if listing["unmapped"] and not skill:
        console.print(_unmapped_table(listing["unmapped"]))
    if not answers:
        console.print(
            "No skill has published anything yet: is the vision node running, in the domain of the"
            " service (ROS_DOMAIN_ID)?"
        )
    checks = [check for answer in answers for check in answer["checks"]]
    return bool(answers) and all(check["status"] != "problem" for check in checks)


async def _skills(client: Client, listing: dict[str, Any]) -> list[str]:
    """Return the names of all skills, those that cannot be read included."""
    names = {entry["skill"] for entry in listing["unsupported"]}
    cursor: str | None = ""
    for state in get_args(State):
        while cursor is not None:
            page = await client.call_tool("list_streams", {"state": state, "cursor": cursor})
            streams = page.structured_content or {"streams": [], "next_cursor": None}
            names |= {stream["skill"] for stream in streams["streams"]}
            cursor = streams["next_cursor"]
        cursor = ""
    return sorted(names - {""})


def _unmapped_table(unmapped: list[dict[str, Any]]) -> Table:
    table = Table(title="published, but not watched", title_justify="left")
    for column in ("topic", "type", "what to do"):
        table.add_column(column, overflow="fold")
    for entry in unmapped:
        table.add_row(Text(entry["topic"]), Text(entry["type"]), Text(entry["advice"]))
    return table


def _table(answer: dict[str, Any]) -> Table:
    table = Table(title=f"{answer['skill']}: {answer['summary']}", title_justify="left")
    for column in ("about", "finding", "what to do"):
        table.add_column(column, overflow="fold")
    for check in answer["checks"]:
        style = STYLES[check["status"]]
        # Names come from anyone on the network, and are no markup.
        table.add_row(
            Text(check["subject"]),
            Text(check["finding"], style=style),
            Text(check["advice"] or "" if check["status"] != "ok" else ""),
        )
    return table
