"""Makes text from the world safe to show: one line, no control or bidi characters, capped."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from mcp_perception_buffer.model import NO_LABEL

MAX_TEXT_CHARS = 4000
MAX_LABEL_CHARS = 64
MAX_TOPIC_CHARS = 256
# What stands for a byte that is no UTF-8 until the text is cleaned: ASCII's own sign for it.
INVALID = b"\x1a"

# Controls, line and paragraph separators, lone surrogates: they break lines or encoders.
_BREAKS = re.compile("[\x00-\x20\x7f-\xa0\u2028\u2029]+")
# Bidi controls, fillers, invisible operators, tags and selectors can hide or reorder what a reader
# sees (Unicode TR 36 and TR 39; the default-ignorable characters of UAX 44, and blank Braille).
_HIDDEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e"
    "\u2060-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
# What joins letters and emoji has its uses, one at a time; a run of it hides a message.
_JOINERS = re.compile("(\ufe0f?[\u200c\u200d]|\ufe0f(?![\u200c\u200d]))[\u200c\u200d\ufe0f]+")


def one_line(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """Return `text` on one line, without hidden characters, at most `limit` characters.

    Cut text ends with an ellipsis. Costs at most four times `limit`, however long the input is.
    """
    head = text[: 4 * limit].replace("\x1a", "\ufffd")
    if not head.isascii():
        head = _JOINERS.sub(r"\1", _HIDDEN.sub("", head))
    clean = _BREAKS.sub(" ", head).strip()
    if len(clean) > limit or len(text) > 4 * limit:
        clean = clean[: limit - 1] + "…"
    return clean


def label(text: str) -> str:
    """Return a label, id or frame name by the rules of `one_line`, cached since they repeat."""
    return _label(text[: 4 * MAX_LABEL_CHARS + 1])


@lru_cache(maxsize=2048)
def _label(text: str) -> str:
    return one_line(text, MAX_LABEL_CHARS)


def topic(text: str) -> str:
    """Return the name of a topic, a skill or a type by the rules of `one_line`, cached as well."""
    return _topic(text[: 4 * MAX_TOPIC_CHARS + 1])


@lru_cache(maxsize=2048)
def _topic(text: str) -> str:
    return one_line(text, MAX_TOPIC_CHARS)


def quoted(text: str) -> str:
    """Return a label as it stands in a sentence: anything but plain words is quoted.

    It is what somebody else's model said, and must not read as ours.
    """
    return _quoted(text[: 4 * MAX_LABEL_CHARS + 1])


@lru_cache(maxsize=2048)
def _quoted(text: str) -> str:
    clean = one_line(text, MAX_LABEL_CHARS)
    if clean == NO_LABEL or _PLAIN.fullmatch(clean):
        return clean
    return json.dumps(clean, ensure_ascii=False)


_PLAIN = re.compile(r"\w[\w ./+-]{0,31}|… \d+ other labels")
