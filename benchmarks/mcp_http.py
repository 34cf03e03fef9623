"""A client that costs next to nothing, so that what is timed is the server and the transport.

It sends the bytes that the official client sends, by protocol 2026-07-28.
"""

from __future__ import annotations

import http.client
import json
import time
from typing import Any

PROTOCOL = "2026-07-28"
_META = {
    "io.modelcontextprotocol/protocolVersion": PROTOCOL,
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(tool: str, arguments: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a tool call."""
    return message("tools/call", tool, name=tool, arguments=arguments)


def message(method: str, about: str | None = None, **params: Any) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of any request; `about` is the tool or resource, if there is one."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": _META}}
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
        "mcp-protocol-version": PROTOCOL,
        "mcp-method": method,
    }
    return json.dumps(body).encode(), headers | ({"mcp-name": about} if about else {})


class Caller:
    """One kept connection; blocking."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

    def call(self, tool: str, **arguments: Any) -> tuple[dict[str, Any], float]:
        """Return a tool's result and how many seconds it took, parsing not included."""
        body, headers = request(tool, arguments)
        began = time.perf_counter()
        self._connection.request("POST", "/mcp", body, headers)
        raw = self._connection.getresponse().read()
        took = time.perf_counter() - began
        answer = json.loads(raw)
        if "result" not in answer or answer["result"].get("isError"):
            raise RuntimeError(f"{tool}: {raw[:500]!r}")
        result: dict[str, Any] = answer["result"]
        return result, took
