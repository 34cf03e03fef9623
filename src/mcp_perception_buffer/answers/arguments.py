"""The SDK's server, whose errors are one plain sentence for the model that made the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from pydantic import ValidationError

from mcp_perception_buffer.decoding.text import one_line

if TYPE_CHECKING:
    from mcp.server.mcpserver import Context
    from mcp.types import CallToolResult, InputRequiredResult

MAX_ERROR_CHARS = 2000


class PlainServer(MCPServer):
    """Tells wrong arguments and what a tool refuses without prefix, link or library's words."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """See `MCPServer.call_tool`."""
        try:
            return await super().call_tool(name, arguments, context)
        except UnexpectedToolError:
            raise
        except ToolError as error:
            cause = error.__cause__
            text = str(error)
            if isinstance(cause, ValidationError):
                text = f"{name}: {_sentence(cause)}."
            elif isinstance(cause, ToolError):
                text = str(cause)
            raise ToolError(one_line(text, MAX_ERROR_CHARS)) from None


def _sentence(error: ValidationError) -> str:
    parts = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        where = ".".join(str(part) for part in item["loc"])
        said = item["msg"].removeprefix("Value error, ")
        missing = item["type"] == "missing"
        parts.append(f"{where} is missing" if missing else f"{where}: {said[:1].lower()}{said[1:]}")
    return "; ".join(parts)
