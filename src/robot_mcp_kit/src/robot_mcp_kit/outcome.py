"""What one delivery attempt came to, judged from the response or the transport error.

The sender's outbox reads it: forget, try again, set aside, wait for a mended secret, or stop.
"""

import errno
import re
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum

MAX_RETRY_AFTER_S = 300.0

_SECONDS = re.compile(r"[0-9]+")


class OutcomeKind(StrEnum):
    """What is to become of the message."""

    DELIVERED = "delivered"
    RETRY = "retry"
    DEAD = "dead"  # the receiver will never accept this message
    HELD = "held"  # the receiver does not accept our signature or address
    DISABLED = "disabled"  # the receiver wants no more messages


_KINDS = {
    400: OutcomeKind.DEAD,
    413: OutcomeKind.DEAD,
    422: OutcomeKind.DEAD,
    401: OutcomeKind.HELD,
    403: OutcomeKind.HELD,
    410: OutcomeKind.DISABLED,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one attempt; `reason` may be logged and shown, it never holds the URL.

    `status` is None when no response came. `retry_after_s`, set on retries alone, is what the
    receiver asked for, between 0 and 300. `clock_skew_s` is the receiver's clock minus ours, to the
    second, by the `Date` of its response.
    """

    kind: OutcomeKind
    reason: str
    status: int | None = None
    retry_after_s: float | None = None
    clock_skew_s: float | None = None


def of_response(
    status: int, retry_after: str | None, *, now_s: float, date: str | None = None
) -> Outcome:
    """Judge a response by its status, `Retry-After` and `Date`, `now_s` in Unix seconds.

    Any status without a meaning of its own is retried, redirects (which are not followed)
    included: they tell of the endpoint, not of this message, so that a mended endpoint still gets
    what has not expired by then.
    """
    delivered = 200 <= status < 300
    kind = OutcomeKind.DELIVERED if delivered else _KINDS.get(status, OutcomeKind.RETRY)
    reason = f"HTTP {status}"
    if 300 <= status < 400:
        reason += ", redirects are not followed"
    wait_s = parse_retry_after(retry_after, now_s=now_s) if kind is OutcomeKind.RETRY else None
    sent_s = _unix_seconds(date)
    return Outcome(kind, reason, status, wait_s, None if sent_s is None else sent_s - now_s)


def of_transport_error(error: Exception) -> Outcome:
    """Judge an attempt that got no response; of the error, only type and errno are kept."""
    if isinstance(error, TimeoutError):
        return Outcome(OutcomeKind.RETRY, "timeout")
    code = errno.errorcode.get(getattr(error, "errno", None) or 0)
    reason = type(error).__name__ + (f" ({code})" if code else "")
    return Outcome(OutcomeKind.RETRY, reason)


def parse_retry_after(value: str | None, *, now_s: float) -> float | None:
    """Return the seconds to wait, within 0 to 300, or None when the value cannot be read.

    Both forms of RFC 9110, section 10.2.3 are read: seconds and HTTP-date.
    """
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        # float, since int refuses thousands of digits.
        return min(float(value), MAX_RETRY_AFTER_S)
    until_s = _unix_seconds(value)
    return None if until_s is None else min(max(until_s - now_s, 0.0), MAX_RETRY_AFTER_S)


def _unix_seconds(http_date: str | None) -> float | None:
    try:
        date = parsedate_to_datetime(http_date or "")
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
