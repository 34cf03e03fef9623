"""`python -m mcp_perception_buffer.vision_node`: options, signals and exit codes.

Exit code 0 after SIGINT or SIGTERM, 2 when it cannot start, 1 when it ends by itself.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def main(argv: list[str]) -> int:
    """Run the vision node with the arguments after the program name; return the exit code."""
    # Imports and devices take a while, and nothing before run() needs an orderly end.
    _on_signals(lambda: os._exit(0))
    own, ros_args = _split(argv)
    options = _parser().parse_args(own)
    # OpenCV and FFmpeg would add lines of their own to every failed read.
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "-8")
    # Fast DDS shares 512 KiB of memory by default: less than one frame, so most would be lost.
    os.environ.setdefault("FASTDDS_BUILTIN_TRANSPORTS", "DEFAULT?sockets_size=4MB")
    try:
        import cv2

        from . import frames
        from .detect import Detector
        from .node import run
    except ImportError as error:
        return _refuse(
            f"{error}; run `uv run --extra demo python -m mcp_perception_buffer.vision_node`"
        )
    # Waking a thread pool for pictures this small costs more than it saves.
    cv2.setNumThreads(1)
    try:
        if options.images is not None:
            source = frames.open_images(options.images, options.size, _say)
        elif options.video is not None:
            source = frames.Capture(options.video, options.size, options.rate)
        elif options.camera is not None:
            source = frames.Capture(options.camera, options.size, options.rate)
        else:
            source = frames.open_default(options.size, _say)
        ended_as_asked = run(
            source,
            Detector(),
            rate_hz=options.rate,
            camera_topic=options.camera_topic,
            prefix=options.prefix,
            ros_args=ros_args,
            stop=_stop_on_signals(),
        )
    except frames.StartError as error:
        return _refuse(" ".join(str(error).split()))
    return 0 if ended_as_asked else 1


def _on_signals(act: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: act())


def _stop_on_signals() -> threading.Event:
    stop = threading.Event()
    asked = False

    def ask() -> None:
        nonlocal asked
        # A second signal within this handler would find the event's lock taken, for ever.
        if not asked:
            asked = True
            stop.set()

    _on_signals(ask)
    return stop


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Separate the options from what follows --ros-args."""
    at = argv.index("--ros-args") if "--ros-args" in argv else len(argv)
    return argv[:at], argv[at:]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vision_node",
        description="Publishes what haar cascades find in the photographs that scikit-image ships, "
        "or in your own pictures.",
        epilog="Arguments after --ros-args are passed on to rclpy.",
    )
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--images", type=Path, metavar="DIR", help="show the images in a folder")
    source.add_argument("--video", metavar="FILE", help="show a video, over and over")
    source.add_argument("--camera", type=int, metavar="N", help="show what camera N sees")
    for name, convert, default, unit, text in (
        ("--rate", _rate, "5", "HZ", "frames a second"),
        ("--size", _size, "640x480", "WxH", "of the frames, in pixels"),
        ("--camera-topic", str, "/camera/image_raw", "TOPIC", "of the raw frames"),
        ("--prefix", str, "/vision/", "PREFIX", "of the topics of the tasks"),
    ):
        text = f"{text}, default {default}"
        parser.add_argument(name, type=convert, default=default, metavar=unit, help=text)
    return parser


def _rate(text: str) -> float:
    rate = float(text)
    if not 0.1 <= rate <= 60:
        raise argparse.ArgumentTypeError(f"{text}: give a rate from 0.1 to 60 Hz")
    return rate


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit()):
        raise argparse.ArgumentTypeError(f"{text}: give a size such as 640x480")
    if not (160 <= int(width) <= 1920 and 120 <= int(height) <= 1920):
        raise argparse.ArgumentTypeError(f"{text}: give a size from 160x120 to 1920x1920")
    return int(width), int(height)


def _say(text: str) -> None:
    print(f"vision_node: {text}", file=sys.stderr)


def _refuse(text: str) -> int:
    _say(text)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
