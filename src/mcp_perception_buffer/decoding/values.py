"""What the `data` of a semantic output says, as a JSON value; pure."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from mcp_perception_buffer.decoding.text import label, one_line

if TYPE_CHECKING:
    from mcp_perception_buffer.model import JsonValue

MAX_JSON_CHARS = 65_536  # longer data is text, whatever it looks like
MAX_ITEMS = 200  # per list or object of a semantic value
MAX_DEPTH = 8
MAX_INTEGER_DIGITS = 64


def read_value(data: Any) -> JsonValue:
    """Read a semantic output's `data` by the rule of the interface.

    A string that is a JSON bool, number, list or object (or Python's `True` and `False`) is that
    value; everything else is text. NaN and infinities are not numbers.
    """
    if isinstance(data, str):
        return _read_text(data)
    if hasattr(data, "tolist"):  # a numpy array, which may be long
        shown, more = _bounded(data[:MAX_ITEMS].tolist(), MAX_DEPTH), len(data) - MAX_ITEMS
        return [*shown, f"… {more} more"] if more > 0 and isinstance(shown, list) else shown
    return _bounded(data, MAX_DEPTH)


def _read_text(data: str) -> JsonValue:
    text = data.strip() if len(data) <= MAX_JSON_CHARS else ""
    if text in ("True", "False"):
        return text == "True"
    if text and text[0] in "tf-0123456789[{":
        try:
            value = json.loads(text, parse_constant=_not_a_number, parse_float=_finite)
            if not isinstance(value, str):
                return _bounded(value, MAX_DEPTH)
        except (ValueError, RecursionError):
            pass  # text, then
    return one_line(data)


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _bounded(value: Any, depth: int) -> JsonValue:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        # More digits than any client's number can hold are text.
        return value if abs(value) < 2**63 else one_line(str(value), MAX_INTEGER_DIGITS)
    if isinstance(value, (list, tuple, dict)):
        if depth == 0:
            return "…"
        more = len(value) - MAX_ITEMS
        if isinstance(value, dict):
            shown = {
                label(str(key)): _bounded(item, depth - 1)
                for key, item in list(value.items())[:MAX_ITEMS]
            }
            return shown if more <= 0 else {**shown, "…": f"{more} more"}
        items = [_bounded(item, depth - 1) for item in value[:MAX_ITEMS]]
        return items if more <= 0 else [*items, f"… {more} more"]
    return None if value is None else one_line(str(value))
