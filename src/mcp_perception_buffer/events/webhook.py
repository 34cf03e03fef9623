"""Adapter: events as signed HTTP posts to the brain (Standard Webhooks 1.0)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from mcp_perception_buffer.component import Timeout  # noqa: TC001  # evaluated at start-up
from mcp_perception_buffer.errors import ConfigError
from mcp_perception_buffer.events.base import Event, EventSink
from robot_mcp_kit import EventPoster, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class WebhookSink(EventSink):
    """Posts to one URL, signed with every secret at the time of each attempt."""

    def __init__(
        self,
        url: str,
        *,
        secrets: Sequence[str],
        timeout_s: Timeout = 10.0,
        wall_clock_s: Callable[[], float] = time.time,
    ) -> None:
        """Prepare; nothing is sent before it is entered.

        Args:
            url: the brain's endpoint; its query may hold a token and is never shown.
            secrets: several sign together, so that they can be rotated.
            timeout_s: of one attempt as a whole.
            wall_clock_s: Unix seconds, for the time of signing.

        Raises:
            ConfigError: the URL or a secret cannot be used; the text shows neither.
        """
        try:
            self._poster = EventPoster(
                url, secrets=secrets, total_timeout_s=timeout_s, clock=wall_clock_s
            )
        except ValueError as error:
            raise ConfigError(f"events cannot be pushed: {error}") from error

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        await self._poster.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it; attempts under way end as retries."""
        await self._poster.close()

    async def send(self, event: Event) -> Outcome:
        """See `EventSink.send`."""
        return await self._poster.post(event.body, msg_id=event.id)
