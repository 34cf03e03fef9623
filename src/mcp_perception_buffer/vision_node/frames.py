"""Where the vision node's pixels come from: a show of photographs, a video file, or a camera.

Nothing here knows ROS. A source hands out BGR frames of one size, one a call, and `None` while
there is nothing to hand out.
"""

from __future__ import annotations

import importlib.util
import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cv2.typing import MatLike

# In scikit-image's wheel, so they need no network. Two of the four have a face to find.
PHOTOGRAPHS = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg")
SHOT_FRAMES = 40
CLOSEST_ZOOM = 0.6


class StartError(Exception):
    """The vision node cannot start; the message says what to do about it."""


class FrameSource(ABC):
    """Hands out frames of shape (height, width, 3), uint8, BGR."""

    name: str

    @abstractmethod
    def read(self) -> MatLike | None:
        """Return the next frame, or None when there is none at this moment. It may block."""

    def close(self) -> None:
        """Give the device or file back."""
        return


class PhotoShow(FrameSource):
    """Pans and zooms over photographs, one after the other, for ever.

    A frame depends on the photographs and its number alone. A file that turns out to be no readable
    image is named to `report` once and left out from then on.

    Raises:
        StartError: none of the files is a readable image.
    """

    def __init__(
        self, paths: Iterable[Path], size: tuple[int, int], report: Callable[[str], None]
    ) -> None:
        self._paths = list(paths)
        self._size = size
        self._frame = 0
        skipped: list[str] = []
        self._report: Callable[[str], None] = skipped.append
        self._photo = self._load(0)
        if self._photo is None:
            raise StartError("no readable image there; give a folder with JPEG or PNG files")
        self._report = report
        for text in skipped:
            report(text)
        self.name = f"{len(self._paths)} photographs"

    def read(self) -> MatLike | None:
        """Return the next view."""
        shot, step = divmod(self._frame, SHOT_FRAMES)
        if (step == 0 and self._frame) or self._photo is None:
            self._photo = self._load(shot)
        if self._photo is None:
            return None
        self._frame += 1
        return pan_and_zoom(self._photo, step / SHOT_FRAMES, self._size)

    def _load(self, shot: int) -> MatLike | None:
        while self._paths:
            path = self._paths[shot % len(self._paths)]
            photo = cv2.imread(str(path), cv2.IMREAD_COLOR)
            if photo is not None:
                return _shrink(photo, self._size)
            self._report(f"skipped, not readable as an image: {path.name}")
            self._paths.remove(path)
        return None


class Capture(FrameSource):
    """A video file, played at its own speed and over again, or a camera by its number.

    Raises:
        StartError: it cannot be opened or gives no frame.
    """

    def __init__(self, where: str | int, size: tuple[int, int], rate_hz: float) -> None:
        self._where = where
        self._size = size
        self._capture = cv2.VideoCapture()
        self.name = f"camera {where}" if isinstance(where, int) else f"video {where}"
        if isinstance(where, str) and not Path(where).is_file():
            raise StartError(f"{self.name}: no such file; give the path of a video file")
        self._open()
        fps = self._capture.get(cv2.CAP_PROP_FPS)
        if isinstance(where, int):
            # The driver's buffer holds a frame from before the pause since the last read.
            self._skip = 1
        else:
            self._skip = max(0, round(fps / rate_hz) - 1) if math.isfinite(fps) else 0
        self._first: MatLike | None = None
        self._first = self.read()
        if self._first is None:
            hint = (
                "plug it in, give another number, or check the permissions of /dev/video*"
                if isinstance(where, int)
                else "give one that OpenCV can decode, such as MP4, or AVI with MJPG"
            )
            raise StartError(f"{self.name} cannot be opened; {hint}")

    def read(self) -> MatLike | None:
        """Return the next frame; at a file's end, or when a camera has failed, open it again."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        frame = self._advance()
        if frame is None:
            self._open()
            frame = self._advance()
        return None if frame is None else _cover(frame, self._size)

    def close(self) -> None:
        """Release the file or device."""
        self._capture.release()

    def _open(self) -> None:
        self._capture.open(self._where)
        self._fresh = True
        if isinstance(self._where, int):
            self._capture.set(cv2.CAP_PROP_BUFFERSIZE, 1)
            self._capture.set(cv2.CAP_PROP_FRAME_WIDTH, self._size[0])
            self._capture.set(cv2.CAP_PROP_FRAME_HEIGHT, self._size[1])

    def _advance(self) -> MatLike | None:
        skip, self._fresh = (0 if self._fresh else self._skip), False
        for _ in range(skip):
            if not self._capture.grab():
                return None
        ok, frame = self._capture.read()
        return frame if ok else None


def open_default(size: tuple[int, int], report: Callable[[str], None]) -> FrameSource:
    """Open the photographs that scikit-image has on disk; nothing is ever downloaded.

    Raises:
        StartError: scikit-image, or its photographs, are not installed.
    """
    # Found without importing it: its data module would set up a download cache.
    spec = importlib.util.find_spec("skimage")
    folders = [] if spec is None else spec.submodule_search_locations or []
    paths = [Path(folder, "data", name) for folder in folders for name in PHOTOGRAPHS]
    found = [path for path in paths if path.is_file()]
    if not found:
        raise StartError(
            "the photographs of scikit-image are not installed; run with `uv run --extra demo`, "
            "or give --images, --video or --camera"
        )
    return PhotoShow(found, size, report)


def open_images(folder: Path, size: tuple[int, int], report: Callable[[str], None]) -> FrameSource:
    """Open every image directly inside `folder`, in the order of their names.

    Raises:
        StartError: it is not a folder, cannot be listed, or holds no readable image.
    """
    try:
        paths = sorted(p for p in folder.iterdir() if p.is_file() and p.name[0] != ".")
    except OSError as error:
        raise StartError(
            f"--images {folder}: {error.strerror}; give a folder of JPEG or PNG files"
        ) from error
    try:
        return PhotoShow(paths, size, report)
    except StartError as error:
        raise StartError(f"--images {folder}: {error}") from error


def pan_and_zoom(photo: MatLike, t: float, size: tuple[int, int]) -> MatLike:
    """Return the view of `photo` at `t`, 0 to 1, scaled to `size` (width, height) in pixels.

    The view starts close up in the lower right corner, draws back until it is as large as the
    photograph allows, and closes in on the upper left. It never leaves the photograph.
    """
    height, width = photo.shape[:2]
    ease = t * t * (3 - 2 * t)
    zoom = 1 - (1 - CLOSEST_ZOOM) * abs(math.cos(math.pi * t))
    scale = min(width / size[0], height / size[1]) * zoom
    left = (width - size[0] * scale) * (1 - ease)
    top = (height - size[1] * scale) * (1 - ease)
    view = np.array([[scale, 0, left], [0, scale, top]])
    flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
    return cv2.warpAffine(photo, view, size, flags=flags, borderMode=cv2.BORDER_REPLICATE)


def _shrink(photo: MatLike, size: tuple[int, int]) -> MatLike:
    """Bound the memory, and the aliasing, of a large photograph; detail for the zoom is kept."""
    height, width = photo.shape[:2]
    scale = max(size[0] / width, size[1] / height) / CLOSEST_ZOOM
    if scale >= 1:
        return photo
    return cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)


def _cover(frame: MatLike, size: tuple[int, int]) -> MatLike:
    """Cut the largest centred part of the right shape and scale it."""
    height, width = frame.shape[:2]
    scale = min(width / size[0], height / size[1])
    cut_w, cut_h = max(1, round(size[0] * scale)), max(1, round(size[1] * scale))
    left, top = (width - cut_w) // 2, (height - cut_h) // 2
    part = frame[top : top + cut_h, left : left + cut_w]
    return cv2.resize(part, size, interpolation=cv2.INTER_AREA if scale > 1 else cv2.INTER_LINEAR)
