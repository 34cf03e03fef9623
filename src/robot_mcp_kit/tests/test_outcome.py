import errno
from datetime import UTC, datetime

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robot_mcp_kit import OutcomeKind, outcome

NOW = datetime(2026, 12, 1, 3, 0, 0, tzinfo=UTC).timestamp()

dates = st.text("MonTue, 0123456789DecFeb:GMT+-()\t") | st.text(st.characters())


@given(status=st.integers(100, 999))
def test_every_status_has_one_outcome(status):
    judged = outcome.of_response(status, None, now_s=NOW)

    assert judged.status == status
    assert judged.retry_after_s is None
    if status in (400, 413, 422):
        assert judged.kind is OutcomeKind.DEAD
    elif status in (401, 403):
        assert judged.kind is OutcomeKind.HELD
    elif status == 410:
        assert judged.kind is OutcomeKind.DISABLED
    elif status // 100 == 2:
        assert judged.kind is OutcomeKind.DELIVERED
    else:
        assert judged.kind is OutcomeKind.RETRY


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0),
        (" 7 ", 7),
        ("300", 300),
        ("301", 300),
        ("9" * 5000, 300),
        ("Tue, 01 Dec 2026 03:00:20 GMT", 20),
        ("Tuesday, 01-Dec-26 03:00:20 GMT", 20),
        ("Tue Dec  1 03:00:20 2026", 20),
        ("Tue, 01 Dec 2026 09:00:00 GMT", 300),
        ("Tue, 01 Dec 2026 02:59:00 GMT", 0),
        (None, None),
        ("", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("soon", None),
        ("Tue, 99 Dec 2026 03:00:20 GMT", None),
    ],
)
def test_retry_after_is_read_in_both_forms_and_capped(value, wait_s):
    assert outcome.parse_retry_after(value, now_s=NOW) == wait_s


@given(value=dates)
def test_no_retry_after_breaks_or_waits_beyond_the_cap(value):
    wait_s = outcome.parse_retry_after(value, now_s=NOW)

    assert wait_s is None or 0 <= wait_s <= 300


@pytest.mark.parametrize("status", [204, 400, 401, 410])
def test_retry_after_counts_for_retries_alone(status):
    assert outcome.of_response(status, "5", now_s=NOW).retry_after_s is None


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TimeoutError("SEKRET"), "timeout"),
        (aiohttp.ServerTimeoutError("SEKRET"), "timeout"),
        (aiohttp.ServerDisconnectedError("SEKRET"), "ServerDisconnectedError"),
        (ConnectionResetError(errno.ECONNRESET, "SEKRET"), "ConnectionResetError (ECONNRESET)"),
        (OSError("SEKRET"), "OSError"),
    ],
)
def test_transport_error_is_named_without_its_text(error, reason):
    judged = outcome.of_transport_error(error)

    assert judged.kind is OutcomeKind.RETRY
    assert judged.reason == reason
    assert judged.status is None
