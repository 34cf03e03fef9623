"""Standard Webhooks 1.0 signatures over the raw bytes: the poster signs, a receiver verifies.

The HMAC is the `standardwebhooks` library's. Parsing and tolerance are done here, because its own
`verify` lets errors of the parsers out and knows no clock but the wall clock.
"""

import base64
import hmac
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from standardwebhooks import Webhook

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"

_SECRET_PREFIX = "whsec_"  # noqa: S105 - a public prefix of the format
# Without full stops: the scheme joins id, timestamp and body with them, so an id that holds one
# could move bytes from one field to the next under the same signature.
_MSG_ID = re.compile(r"[!-\-/-~]{1,256}")
# Canonical ASCII digits only: the signed text is rebuilt from the number. Eleven digits stay
# within what datetime can hold.
_TIMESTAMP = re.compile(r"0|[1-9][0-9]{0,10}")
_V1_SIGNATURE = re.compile(r"v1,[A-Za-z0-9+/]{43}=")


class SecretError(ValueError):
    """No usable signing secret is configured; the message never holds the secret."""


class SignatureError(Exception):
    """The message cannot be trusted; each cause is a subclass."""


class MissingHeader(SignatureError):  # noqa: N818 - named after the cause
    """A signature header is absent or empty."""


class MalformedHeader(SignatureError):  # noqa: N818 - named after the cause
    """A signature header is ambiguous or not of the scheme's form."""


class MalformedSignature(MalformedHeader):
    """The signature header holds a `v1` entry that is no base64 of a SHA-256 MAC."""


class MalformedBody(SignatureError):  # noqa: N818 - named after the cause
    """The body is not UTF-8, which is all that the scheme signs here."""


class TimestampOutOfTolerance(SignatureError):  # noqa: N818 - named after the cause
    """The message was signed too long ago, or in the future."""


class NoMatchingSignature(SignatureError):  # noqa: N818 - named after the cause
    """None of the signatures was made with one of the secrets."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The signed metadata of an authentic message; `msg_id` is its idempotency key."""

    msg_id: str
    timestamp_s: int


def sign(
    body: bytes, *, msg_id: str, timestamp: datetime | int, secrets: Sequence[str]
) -> dict[str, str]:
    """Return the three headers that authenticate `body`, signed with every secret.

    An integer timestamp counts seconds since the Unix epoch; fractions of a datetime are dropped.

    Raises:
        SecretError: a secret is empty or malformed, or there is none.
        ValueError: `msg_id` is not 1 to 256 visible ASCII characters without a full stop, the
            timestamp is naive, before 1970 or past the year 5138, or the body is not UTF-8.
    """
    keys = secret_keys(secrets)
    if not _MSG_ID.fullmatch(msg_id):
        raise ValueError("the message id must be 1 to 256 visible ASCII characters without '.'")
    if isinstance(timestamp, datetime):
        timestamp = math.floor(_unix_s(timestamp))
    if not _TIMESTAMP.fullmatch(str(timestamp)):
        raise ValueError("the timestamp is out of range")
    text = body.decode()
    signatures = [_signature(key, msg_id, timestamp, text) for key in keys]
    return {
        ID_HEADER: msg_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: " ".join(signatures),
    }


def verify(
    body: bytes,
    headers: Mapping[str, str],
    *,
    secrets: Sequence[str],
    tolerance_s: float = 300,
    now: datetime | float | None = None,
) -> Verified:
    """Check that `body`, exactly as received, was signed with one of `secrets` around `now`.

    Header names are compared without case. `now` counts seconds since the Unix epoch and defaults
    to the wall clock; the tolerance is inclusive, towards past and future. Signatures of other
    versions than `v1` are skipped. The comparison takes constant time.

    Raises:
        SignatureError: one of its subclasses, whatever the peer has sent.
        SecretError: a secret is empty or malformed, or there is none.
        ValueError: the tolerance is negative or NaN, or `now` is naive.
    """
    keys = secret_keys(secrets)
    if not tolerance_s >= 0:
        raise ValueError("the tolerance must not be negative")

    msg_id = _header(headers, ID_HEADER)
    timestamp_text = _header(headers, TIMESTAMP_HEADER)
    signatures = _v1_signatures(_header(headers, SIGNATURE_HEADER))
    if not _MSG_ID.fullmatch(msg_id):
        raise MalformedHeader(f"{ID_HEADER} is not visible ASCII without '.'")
    if not _TIMESTAMP.fullmatch(timestamp_text):
        raise MalformedHeader(f"{TIMESTAMP_HEADER} is not a number of seconds")

    timestamp_s = int(timestamp_text)
    if now is None:
        now = time.time()
    elif isinstance(now, datetime):
        now = _unix_s(now)
    # Written so that a NaN clock refuses.
    if not abs(now - timestamp_s) <= tolerance_s:
        raise TimestampOutOfTolerance(f"{TIMESTAMP_HEADER} is more than {tolerance_s} s off")

    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise MalformedBody("the body is not UTF-8") from None

    expected = [_signature(key, msg_id, timestamp_s, text) for key in keys]
    if not any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in signatures):
        raise NoMatchingSignature("no signature was made with a known secret")
    return Verified(msg_id=msg_id, timestamp_s=timestamp_s)


def secret_keys(secrets: Sequence[str]) -> list[bytes]:
    """Return each secret's HMAC key: base64 after `whsec_`, else the UTF-8 bytes of the text.

    Raises:
        SecretError: a secret is empty or malformed, or there is none.
    """
    # A plain string is a sequence too, of secrets of one character.
    if isinstance(secrets, str) or not secrets:
        raise SecretError("a non-empty list of signing secrets is needed")
    return [_key(secret, place) for place, secret in enumerate(secrets, start=1)]


def _key(secret: str, place: int) -> bytes:
    key: bytes | None = None
    try:
        if secret.startswith(_SECRET_PREFIX):
            digits = secret.removeprefix(_SECRET_PREFIX).rstrip("=")
            key = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
        else:
            key = secret.encode() if secret.strip() else b""
    except ValueError:
        pass
    # Raised outside of the handler: the parsers' errors hold the secret, even as a context.
    if key is None:
        raise SecretError(f"signing secret {place} is not valid base64 after whsec_, or not UTF-8")
    if not key:
        raise SecretError(f"signing secret {place} is empty")
    return key


def _unix_s(moment: datetime) -> float:
    if moment.tzinfo is None:
        raise ValueError("a time without a time zone is ambiguous")
    return moment.timestamp()


def _header(headers: Mapping[str, str], name: str) -> str:
    found = [value for key, value in headers.items() if key.lower() == name]
    if len(found) > 1:
        raise MalformedHeader(f"{name} is there more than once")
    if not found or not found[0]:
        raise MissingHeader(f"{name} is missing")
    return found[0]


def _v1_signatures(header: str) -> list[str]:
    signatures = [entry for entry in header.split(" ") if entry.startswith("v1,")]
    for entry in signatures:
        if not _V1_SIGNATURE.fullmatch(entry):
            raise MalformedSignature(f"{SIGNATURE_HEADER} holds a v1 entry that is no signature")
    return signatures


def _signature(key: bytes, msg_id: str, timestamp_s: int, text: str) -> str:
    # In UTC, since the library replaces the time zone instead of converting.
    signed_at = datetime.fromtimestamp(timestamp_s, tz=UTC)
    return Webhook(key).sign(msg_id=msg_id, timestamp=signed_at, data=text)
