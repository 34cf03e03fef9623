"""Where a detection is, as far as that is known: left or right, how far, in which frame; pure.

An image's size tells sides from a box. A point tells sides and a distance only in a frame whose
axes are known: optical ones (x right, z forward) and those of a body (x forward, y left), as
REP 103 names them. In any other frame it is told as the numbers it is.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from mcp_perception_buffer.decoding.text import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from mcp_perception_buffer.model import Detection, ImageSize, Observation, Point, StreamView

Side = Literal["left", "centre", "right"]
Range = Literal["near", "far"]

NEAR_M, FAR_M = 1.0, 4.0
CENTRE_RAD = math.radians(10)  # to either side
_OPTICAL = re.compile(r"optical")
_BODY = re.compile(r"(^|/)base|_link$|camera_frame$|camera_center$")


class Place(NamedTuple):
    """What is known of where something is; None is not known."""

    side: Side | None = None
    distance_m: float | None = None
    range: Range | None = None
    ahead: bool | None = None  # False: behind


NOWHERE = Place()


def place(found: Detection, image: ImageSize | None, frame_id: str | None) -> Place:
    """Return where a detection is.

    Args:
        found: the detection.
        image: size of the image that its box refers to.
        frame_id: of its message.
    """
    side = _side_in_image(found, image) if image and found.box else None
    if found.point is None:
        return Place(side) if side else NOWHERE
    frame = found.frame_id or frame_id or ""
    forward_left = _forward_left(found.point, frame)
    if forward_left is None:
        return Place(side)
    forward, left = forward_left
    distance_m = math.hypot(*found.point)
    if side is None:
        bearing = math.atan2(left, abs(forward))
        side = "centre" if abs(bearing) <= CENTRE_RAD else "left" if bearing > 0 else "right"
    distance: Range | None = (
        "near" if distance_m <= NEAR_M else "far" if distance_m >= FAR_M else None
    )
    return Place(side, distance_m, distance, forward >= 0)


def _side_in_image(found: Detection, image: ImageSize) -> Side | None:
    assert found.box is not None
    across = (found.box.x + found.box.width / 2) / image.width
    if not 0 <= across <= 1:
        return None  # a box of another image
    return "left" if across < 1 / 3 else "right" if across > 2 / 3 else "centre"


def _forward_left(point: Point, frame: str) -> tuple[float, float] | None:
    if _OPTICAL.search(frame):
        return point.z, -point.x
    return (point.x, point.y) if _BODY.search(frame) else None


def where(found: Detection, at: Place, frame_id: str | None) -> Iterable[str]:
    """Yield the words for a place, such as "0.8 m ahead (near)" and "left"."""
    if at.distance_m is not None:
        near = f" ({at.range})" if at.range else ""
        yield f"{at.distance_m:.1f} m {'ahead' if at.ahead else 'behind'}{near}"
    elif found.point is not None:
        x, y, z = found.point
        frame = found.frame_id or frame_id
        into = f"in {quoted(frame)}" if frame else "in an unnamed frame"
        yield f"at ({x:.2f}, {y:.2f}, {z:.2f}) m {into}"
    if at.side:
        yield at.side


def image_of(view: StreamView, images: Sequence[StreamView]) -> ImageSize | None:
    """Return the size of the image that a stream's boxes refer to, None if that is not known.

    It is that of an image of the same stamp, or else of the same frame, if only one size fits.
    """
    seen = view.observation
    if seen is None:
        return None
    known = [image.observation for image in images if image.info.robot == view.info.robot]
    for fits in (_same_stamp, _same_frame):
        sizes = {other.image for other in known if other and other.image and fits(seen, other)}
        if len(sizes) == 1:
            return sizes.pop()
    return None


def _same_stamp(seen: Observation, image: Observation) -> bool:
    return seen.stamp is not None and any(seen.stamp) and seen.stamp == image.stamp


def _same_frame(seen: Observation, image: Observation) -> bool:
    return bool(seen.frame_id) and seen.frame_id == image.frame_id
