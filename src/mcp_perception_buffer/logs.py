"""Structured logs on stderr: JSON lines, or coloured text for a person."""

from __future__ import annotations

import logging
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import structlog

from mcp_perception_buffer.decoding.text import one_line

if TYPE_CHECKING:
    from mcp.server.context import CallNext, ServerRequestContext

log = structlog.get_logger(__name__)

# Without the values of local variables, among which are bearer tokens and secrets.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
_AS_THEY_ARE = ("exception", "exc_info", "stack", "stack_info")  # tracebacks have many lines
# At their DEBUG level these write message bodies, events and queries included.
CHATTY = ("mcp", "aiohttp", "httpx", "httpcore", "sse_starlette", "asyncio")


def configure_logging(*, level: str = "INFO", pretty: bool = False) -> None:
    """Send all logs, those of uvicorn, the MCP SDK and rcl included, to stderr in one format.

    Stdout stays untouched: in stdio mode it carries JSON-RPC.
    """
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    rendering: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
        if pretty
        else [_TRACEBACKS, structlog.processors.JSONRenderer()]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                clean_values,
                *rendering,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in CHATTY:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    _configure_rcl(pretty=pretty)


def clean_values(logger: Any, method: str, event: structlog.typing.EventDict) -> Any:
    """Make what others publish, ask or answer fit to be shown, wherever it stands in a line."""
    return {key: value if key in _AS_THEY_ARE else _clean(value) for key, value in event.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, (list, tuple, set)) else value


def _configure_rcl(*, pretty: bool) -> None:
    """Let rcl, which writes by itself, use the same stream and format (rcutils/logging.h)."""
    os.environ["RCUTILS_LOGGING_USE_STDOUT"] = "0"
    if not pretty:
        os.environ["RCUTILS_COLORIZED_OUTPUT"] = "0"
        os.environ.setdefault(
            "RCUTILS_CONSOLE_OUTPUT_FORMAT",
            '{"event": "{message}", "level": "{severity}", "logger": "{name}", "time_s": {time}}',
        )


async def log_requests(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> Any:
    """Bind a request's id to every log line it causes, and say how long it took."""
    params = ctx.params or {}
    with structlog.contextvars.bound_contextvars(request_id=ctx.request_id, method=ctx.method):
        started = time.perf_counter()
        try:
            return await call_next(ctx)
        finally:
            took_ms = round((time.perf_counter() - started) * 1e3, 3)
            log.debug("request_answered", tool=params.get("name"), duration_ms=took_ms)
