"""`python -m mcp_perception_buffer` is the command `mcp-perception-buffer`."""

from mcp_perception_buffer.cli import main

main()
