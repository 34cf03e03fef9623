"""Turns CDR bytes into observations; pure.

The buffer calls this when a message is first needed. Wire decoding is rosbags' work, from the
message definitions of the ROS installation or of a bag; `shapes` finds what in them are detections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from rosbags.interfaces import Nodetype
from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.base import TypesysError
from rosbags.typesys.store import Typestore

from mcp_perception_buffer.decoding.flat import flatten
from mcp_perception_buffer.decoding.names import Names
from mcp_perception_buffer.decoding.shapes import Shape, Unfit, find_shape
from mcp_perception_buffer.decoding.text import INVALID, label, one_line
from mcp_perception_buffer.decoding.types import Definitions, describe, getter
from mcp_perception_buffer.decoding.values import read_value
from mcp_perception_buffer.errors import DecodeError, UnknownTypeError
from mcp_perception_buffer.model import (
    IMAGES,
    NO_LABEL,
    PLAIN,
    ImageSize,
    Kind,
    Observation,
    Reading,
    Stamp,
    StreamInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from rosbags.interfaces.typing import FieldDesc

IMAGE_TYPE = "sensor_msgs/msg/Image"
CAMERA_INFO_TYPE = "sensor_msgs/msg/CameraInfo"
SIZED = (IMAGE_TYPE, CAMERA_INFO_TYPE)  # both begin with header, height, width
IMAGE_TYPES = (IMAGE_TYPE, "sensor_msgs/msg/CompressedImage")
BYTES = ("byte", "char", "int8", "uint8")  # a sequence of them is no value, but pixels or the like
HEADER_TYPE = "std_msgs/msg/Header"

MAX_DETECTIONS = 1000  # 5.5 ms of decoding; a message that claims more is refused unread
LEAST_BYTES = 8  # of one detection: its name's length and a number
MAX_SEQUENCE = 64 * 1024 * 1024  # bytes of the largest mask that is believed
MAX_REPAIRS = 16  # different strings of one message that are no UTF-8
MAX_REASON_CHARS = 500

# What `SIZED` messages begin with, as a type of its own.
IMAGE_HEAD = "perception_buffer/msg/ImageHead"
_UINT32: FieldDesc = (Nodetype.BASE, ("uint32", 0))
_IMAGE_HEAD: list[tuple[str, FieldDesc]] = [
    ("header", (Nodetype.NAME, HEADER_TYPE)),
    ("height", _UINT32),
    ("width", _UINT32),
]


class Decoder:
    """Decodes messages of every type whose definition can be found."""

    def __init__(self, find_definition: Callable[[str], str]) -> None:
        """Decode from the definitions that `find_definition` gives.

        Args:
            find_definition: `"std_msgs/msg/String"` to the text of its `.msg` file; raises
                `UnknownTypeError` for a type that is not installed.
        """
        self._find_definition = find_definition
        self._store = Typestore(max_sequence_length=MAX_SEQUENCE)
        self._definitions = Definitions(self._store.fielddefs)
        self._store.register({IMAGE_HEAD: ([], _IMAGE_HEAD)})
        # Of types with detections, laid out flat, with points joined and without.
        self._flat = [Typestore(max_sequence_length=MAX_SEQUENCE) for _ in range(2)]
        self._shapes: dict[tuple[str, Reading], tuple[Shape, str | None, Typestore]] = {}
        self._unfit: dict[tuple[str, Reading], Unfit] = {}

    def kind_of(self, type_name: str) -> Kind | None:
        """Guess what a topic of this type carries; None if nothing that can be read here."""
        if type_name == CAMERA_INFO_TYPE:
            return "camera"
        if type_name in IMAGE_TYPES:
            return "overlay"
        for kind in ("detections", "semantic"):
            if self.why_unreadable(kind, type_name) is None:
                return kind
        return None

    def why_unreadable(self, kind: Kind, type_name: str, reading: Reading = PLAIN) -> str | None:
        """Say why a topic of this kind and type cannot be read, or None if it can."""
        images = (*IMAGE_TYPES, CAMERA_INFO_TYPE) if kind == "camera" else IMAGE_TYPES
        if kind in IMAGES and type_name not in images:
            return f"an image must be {' or '.join(images)}"
        try:
            self._load(type_name)
            if kind == "detections":
                self._shape(type_name, reading)
        except (UnknownTypeError, Unfit) as error:
            return one_line(str(error), MAX_REASON_CHARS)
        # Of two types that hold each other there is no end.
        except (TypesysError, SerdeError, ValueError, SyntaxError, RecursionError) as error:
            return one_line(f"the definition of {type_name} cannot be used: {error}", 300)
        return self._why_no_value(type_name) if kind == "semantic" else None

    def decode(self, info: StreamInfo, cdr: bytes) -> Observation:
        """Return what one message says.

        Of images only header and size are read. Text is cleaned and capped, NaN and infinities
        become None, detections are sorted by falling score.

        Args:
            info: what the topic carries, its type, and how it is read.
            cdr: the serialised message with its encapsulation header, as rclpy hands it out raw.

        Raises:
            DecodeError: the bytes are not a message of this type, or exceed the bounds above.
        """
        try:
            self._load(info.type)
            if info.kind in IMAGES:
                return self._image(info.type, cdr)
            if info.kind == "detections":
                return self._detections(info.type, info.reading, cdr)
            message = self._read(info.type, cdr)
            return Observation(*_header(message), value=read_value(message.data))
        except (SerdeError, TypesysError, UnknownTypeError, Unfit) as error:
            raise DecodeError(one_line(str(error), 200)) from error
        except DecodeError:
            raise
        # Bytes come from anyone on the network: no kind of them may raise anything else.
        except Exception as error:
            raise DecodeError(one_line(f"{type(error).__name__}: {error}", 200)) from error

    def _image(self, type_name: str, cdr: bytes) -> Observation:
        if type_name not in SIZED:
            header = self._read(HEADER_TYPE, cdr, whole=False)
            return Observation(_stamp(header), label(header.frame_id))
        head = self._read(IMAGE_HEAD, cdr, whole=False)
        size = ImageSize(head.width, head.height) if head.width and head.height else None
        return Observation(*_header(head), image=size)

    def _detections(self, type_name: str, reading: Reading, cdr: bytes) -> Observation:
        shape, head, store = self._shape(type_name, reading)
        if head is not None and len(cdr) > MAX_DETECTIONS * LEAST_BYTES:
            count = self._read(head, cdr, whole=False).count
            if count > MAX_DETECTIONS:
                raise DecodeError(f"{count} detections in one message, more than {MAX_DETECTIONS}")
        message = self._read(type_name, cdr, store)
        found = shape.read(message)
        odd = sum(1 for one in found if one.score is None and one.label != NO_LABEL)
        odd_scores = odd if shape.scored else 0
        return Observation(*_flat_header(message), detections=found, odd_scores=odd_scores)

    def _read(
        self, type_name: str, cdr: bytes, store: Typestore | None = None, *, whole: bool = True
    ) -> Any:
        """Deserialise a message, or the beginning of one.

        A string that is no UTF-8 costs no more than itself: its wrong bytes are replaced.
        """
        if len(cdr) < 4 or cdr[0] != 0 or cdr[1] > 1:
            raise SerdeError("invalid or unsupported CDR encapsulation")
        store = store or self._store
        msgdef = store.get_msgdef(type_name)
        read = msgdef.deserialize_cdr_le if cdr[1] else msgdef.deserialize_cdr_be
        for _ in range(MAX_REPAIRS):
            try:
                # A view, or rosbags would copy the pixels of every mask.
                message, end = read(memoryview(cdr)[4:], 0, msgdef.cls, store)
            except UnicodeDecodeError as error:
                cdr = _repaired(cdr, error.object)
                continue
            if whole and end + 4 + 3 < len(cdr):
                raise SerdeError(f"the message is longer than a {type_name}")
            return message
        raise SerdeError(f"more than {MAX_REPAIRS} different strings are no UTF-8")

    def _load(self, type_name: str) -> None:
        if type_name in self._store.fielddefs:
            return
        types = get_types_from_msg(self._find_definition(type_name), type_name)
        for _, fields in types.values():
            for _, desc in fields:
                reference = describe("", desc).message
                if reference and reference not in types:
                    self._load(reference)
        self._store.register(types)

    def _shape(self, type_name: str, reading: Reading) -> tuple[Shape, str | None, Typestore]:
        """Return a type's shape, the type of what comes before its list, and where it is flat."""
        known = self._shapes.get((type_name, reading))
        if known is None:
            if (unfit := self._unfit.get((type_name, reading))) is not None:
                raise unfit
            try:
                shape, head = find_shape(self._definitions, type_name, reading), None
            except Unfit as error:
                self._unfit[type_name, reading] = error
                raise
            join_points = Names(self._definitions, reading).joins_points
            store = self._flat[join_points]
            store.register(flatten(self._definitions, type_name, join_points=join_points))
            if shape.head is not None:
                head = f"perception_buffer/msg/Head{len(self._shapes)}"
                self._store.register({head: ([], shape.head)})
            known = self._shapes[type_name, reading] = shape, head, store
        return known

    def _why_no_value(self, type_name: str) -> str | None:
        fields = self._definitions.fields(type_name)
        data = next((found for found in fields if found.path == "data"), None)
        if data is None or data.message:
            return "a semantic output needs a field `data` of a basic type"
        if data.is_list and data.base in BYTES:
            return "its `data` are bytes, such as pixels, which are never sent"
        return None


def packaged_definition(type_name: str) -> str:
    """Find a common ROS type in the definitions that rosbags carries, for use without ROS.

    Raises:
        UnknownTypeError: it is none of the common ones.
    """
    store = get_typestore(Stores.LATEST)
    if type_name not in store.fielddefs:
        raise UnknownTypeError(f"no definition of {type_name} is installed")
    return store.generate_msgdef(type_name)[0]


_HEADER = getter("header.stamp.sec", "header.stamp.nanosec", "header.frame_id")


def _flat_header(message: Any) -> tuple[Stamp | None, str | None]:
    try:
        sec, nanosec, frame_id = _HEADER(message)
    except AttributeError:
        return None, None
    return Stamp(sec, nanosec), label(frame_id)


def _header(message: Any) -> tuple[Stamp | None, str | None]:
    header = getattr(message, "header", None)
    if header is None or not hasattr(header, "stamp"):
        return None, None
    return _stamp(header), label(header.frame_id)


def _stamp(header: Any) -> Stamp:
    return Stamp(header.stamp.sec, header.stamp.nanosec)


def _repaired(cdr: bytes, text: bytes) -> bytes:
    """Put a sign of the same length for each wrong byte of a string, wherever it stands."""
    wrong = text.decode("utf-8", "surrogateescape")
    right = b"".join(INVALID if "\udc80" <= char <= "\udcff" else char.encode() for char in wrong)
    order: Literal["little", "big"] = "little" if cdr[1] else "big"
    length = (len(text) + 1).to_bytes(4, order)
    return cdr.replace(length + text, length + right)
