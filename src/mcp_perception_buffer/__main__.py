"""The command `mcp-perception-buffer`, also as `python -m mcp_perception_buffer`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it quietly even while modules are still being loaded."""
    try:
        from mcp_perception_buffer.cli import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
