import json
import traceback
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from robot_mcp_kit import (
    MalformedBody,
    MalformedHeader,
    MalformedSignature,
    MissingHeader,
    NoMatchingSignature,
    SecretError,
    SignatureError,
    TimestampOutOfTolerance,
    Verified,
    sign,
    verify,
)

KNOWN_ANSWERS = json.loads(Path(__file__).with_name("known_answers.json").read_text("utf-8"))
KNOWN = pytest.mark.parametrize("known", KNOWN_ANSWERS["vectors"], ids=lambda known: known["id"])

NOW = 1_785_196_800
BODY = '{"label":"tür offen ☕","score":0.30000000000000004}'.encode()
SECRETS = ["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=", "plain pässword"]
HEADERS = sign(BODY, msg_id="evt_1", timestamp=NOW, secrets=SECRETS)

any_text = st.text(st.characters()) | st.binary().map(lambda raw: raw.decode("latin-1"))
visible = st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters=".")
msg_ids = st.text(visible, min_size=1, max_size=256)
raw_secrets = st.text(min_size=1).filter(lambda text: text.strip() and text[:6] != "whsec_")


@KNOWN
def test_signature_is_the_known_answer(known):
    headers = sign(
        known["body"].encode(),
        msg_id=known["id"],
        timestamp=known["timestamp"],
        secrets=[known["secret"]],
    )

    assert headers == {
        "webhook-id": known["id"],
        "webhook-timestamp": str(known["timestamp"]),
        "webhook-signature": known["signature"],
    }


@KNOWN
def test_known_answer_verifies(known):
    headers = {
        "Webhook-Id": known["id"],
        "WEBHOOK-TIMESTAMP": str(known["timestamp"]),
        "webhook-Signature": known["signature"],
    }

    verified = verify(
        known["body"].encode(), headers, secrets=[known["secret"]], now=known["timestamp"]
    )

    assert verified == Verified(known["id"], known["timestamp"])


def test_datetime_of_any_zone_signs_its_instant():
    tokyo = datetime.fromtimestamp(NOW + 0.75, tz=timezone(timedelta(hours=9)))

    assert sign(BODY, msg_id="evt_1", timestamp=tokyo, secrets=SECRETS) == HEADERS


@given(
    text=st.text(),
    msg_id=msg_ids,
    timestamp=st.integers(0, 99_999_999_999),
    secrets=st.lists(raw_secrets, min_size=1, max_size=3),
)
def test_each_secret_alone_verifies_what_all_have_signed(text, msg_id, timestamp, secrets):
    headers = sign(text.encode(), msg_id=msg_id, timestamp=timestamp, secrets=secrets)

    for secret in secrets:
        verified = verify(text.encode(), headers, secrets=[secret], now=timestamp)
        assert verified == Verified(msg_id, timestamp)


def test_receiver_that_rotates_accepts_the_old_secret_too():
    headers = sign(BODY, msg_id="evt_1", timestamp=NOW, secrets=["old"])

    verify(BODY, headers, secrets=["new", "old"], now=NOW)


def test_unpadded_base64_is_the_same_secret():
    headers = sign(BODY, msg_id="evt_1", timestamp=NOW, secrets=[SECRETS[0].rstrip("=")])

    verify(BODY, headers, secrets=SECRETS[:1], now=NOW)


def test_text_without_prefix_is_not_read_as_base64():
    headers = sign(BODY, msg_id="evt_1", timestamp=NOW, secrets=["AAECAwQF"])

    with pytest.raises(NoMatchingSignature):
        verify(BODY, headers, secrets=["whsec_AAECAwQF"], now=NOW)


def test_signatures_of_other_versions_are_skipped():
    signatures = HEADERS["webhook-signature"]

    verify(
        BODY, HEADERS | {"webhook-signature": f"v1a,xyz v2 {signatures}"}, secrets=SECRETS, now=NOW
    )
    with pytest.raises(NoMatchingSignature):
        verify(
            BODY,
            HEADERS | {"webhook-signature": signatures.replace("v1,", "v2,")},
            secrets=SECRETS,
            now=NOW,
        )


@pytest.mark.parametrize("name", HEADERS)
@pytest.mark.parametrize("empty", [True, False])
def test_absent_or_empty_header_is_missing(name, empty):
    headers = HEADERS | {name: ""}
    if not empty:
        del headers[name]

    with pytest.raises(MissingHeader):
        verify(BODY, headers, secrets=SECRETS, now=NOW)


@pytest.mark.parametrize("name", HEADERS)
def test_header_given_twice_is_malformed(name):
    with pytest.raises(MalformedHeader):
        verify(BODY, HEADERS | {name.title(): HEADERS[name]}, secrets=SECRETS, now=NOW)


@pytest.mark.parametrize(
    "timestamp",
    [
        *("NaN", "inf", "-inf", "1e9", "1785196800.0", "-1", "+1785196800", " 1785196800"),
        *("1785196800\n", "01785196800", "1_785_196_800", "0x6a67", "9" * 5000, "²", "\udcff"),
        "１７８５１９６８００",
        "١٧٨٥١٩٦٨٠٠",
    ],
)
def test_timestamp_other_than_plain_seconds_is_malformed(timestamp):
    with pytest.raises(MalformedHeader):
        verify(BODY, HEADERS | {"webhook-timestamp": timestamp}, secrets=SECRETS, now=NOW)


@pytest.mark.parametrize("msg_id", ["a.b", "a b", "a\n", "é", "\udcff", "x" * 257, "."])
def test_id_that_could_be_ambiguous_is_neither_signed_nor_accepted(msg_id):
    with pytest.raises(ValueError, match="message id"):
        sign(BODY, msg_id=msg_id, timestamp=NOW, secrets=SECRETS)
    with pytest.raises(MalformedHeader):
        verify(BODY, HEADERS | {"webhook-id": msg_id}, secrets=SECRETS, now=NOW)


@pytest.mark.parametrize(
    "signature", ["v1,", "v1,!", "v1,AAAA", "v1,é", "v1,\udcff", f"v1,{'A' * 44}", "v1,a,b"]
)
def test_v1_entry_that_is_no_signature_is_malformed(signature):
    header = f"{signature} {HEADERS['webhook-signature']}"

    with pytest.raises(MalformedSignature):
        verify(BODY, HEADERS | {"webhook-signature": header}, secrets=SECRETS, now=NOW)


@pytest.mark.parametrize("off_s", [-300, 0, 300])
def test_timestamp_at_the_edge_of_tolerance_is_accepted(off_s):
    verify(BODY, HEADERS, secrets=SECRETS, now=NOW + off_s)
    verify(BODY, HEADERS, secrets=SECRETS, now=datetime.fromtimestamp(NOW + off_s, tz=UTC))


@pytest.mark.parametrize("now", [NOW - 300.001, NOW + 300.001, 0, 1e300, float("nan")])
def test_timestamp_beyond_tolerance_is_refused(now):
    with pytest.raises(TimestampOutOfTolerance):
        verify(BODY, HEADERS, secrets=SECRETS, now=now)


def test_wall_clock_refuses_a_message_of_long_ago():
    headers = sign(BODY, msg_id="evt_1", timestamp=1_614_265_330, secrets=SECRETS)

    with pytest.raises(TimestampOutOfTolerance):
        verify(BODY, headers, secrets=SECRETS)


def test_wall_clock_accepts_a_message_of_now():
    headers = sign(BODY, msg_id="evt_1", timestamp=datetime.now(UTC), secrets=SECRETS)

    assert verify(BODY, headers, secrets=SECRETS).msg_id == "evt_1"


@pytest.mark.parametrize("tolerance_s", [-1, float("nan")])
def test_impossible_tolerance_is_an_error(tolerance_s):
    with pytest.raises(ValueError, match="tolerance"):
        verify(BODY, HEADERS, secrets=SECRETS, now=NOW, tolerance_s=tolerance_s)


@given(place=st.integers(0, len(BODY) - 1), flip=st.integers(1, 255))
def test_any_changed_byte_of_the_body_is_refused(place, flip):
    changed = bytearray(BODY)
    changed[place] ^= flip

    with pytest.raises((NoMatchingSignature, MalformedBody)):
        verify(bytes(changed), HEADERS, secrets=SECRETS, now=NOW)


@given(body=st.binary())
@example(body=b"\xff")
@example(body=b"\xed\xa0\x80")
def test_any_other_body_is_refused(body):
    assume(body != BODY)

    with pytest.raises((NoMatchingSignature, MalformedBody)):
        verify(body, HEADERS, secrets=SECRETS, now=NOW)


@given(
    headers=st.dictionaries(st.sampled_from([*HEADERS, "Webhook-ID"]) | any_text, any_text),
    tail=any_text,
    body=st.binary() | st.just(BODY),
)
def test_any_header_that_is_not_ours_is_a_signature_error(headers, tail, body):
    assume(any(headers.get(name, value) != value for name, value in HEADERS.items()))

    with pytest.raises(SignatureError):
        verify(body, headers, secrets=SECRETS, now=NOW)
    with pytest.raises(SignatureError):
        verify(body, HEADERS | headers, secrets=SECRETS, now=NOW)
    with pytest.raises(SignatureError):
        verify(body, HEADERS | {"webhook-signature": f"v1,{tail}"}, secrets=SECRETS, now=NOW)


@pytest.mark.parametrize(
    "secrets",
    [
        *([], [""], [" "], ["whsec_"], ["whsec_===="], [SECRETS[0], ""]),
        *(["whsec_SEKRE"], ["whsec_SEKRETSA!!!!"], ["whsec_SEK RETS"], ["whsec_SEKRETé="]),
        *(["SEKRET\udcff"], ["whsec_SEKRET\udcff"], "SEKRET"),
    ],
)
def test_unusable_secret_is_an_error_that_does_not_show_it(secrets):
    for use in (
        lambda: sign(BODY, msg_id="evt_1", timestamp=NOW, secrets=secrets),
        lambda: verify(BODY, HEADERS, secrets=secrets, now=NOW),
    ):
        with pytest.raises(SecretError) as caught:
            use()
        assert "SEK" not in "".join(traceback.format_exception_only(caught.value))
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None


@pytest.mark.parametrize("timestamp", [-1, 100_000_000_000, datetime(2026, 12, 1)])
def test_time_that_cannot_be_signed_is_an_error(timestamp):
    with pytest.raises(ValueError, match="time"):
        sign(BODY, msg_id="evt_1", timestamp=timestamp, secrets=SECRETS)


def test_body_that_is_not_text_cannot_be_signed():
    with pytest.raises(ValueError, match="utf-8"):
        sign(b"\xff", msg_id="evt_1", timestamp=NOW, secrets=SECRETS)
