# syntax=docker/dockerfile:1

# ROS comes from wheels, which exist for x86-64 Linux only: on another machine build with
# --platform linux/amd64, or run under the robot's own ROS instead.
#
#   docker build -t mcp-perception-buffer .
#   docker run --rm --init --network host --env-file .env \
#     --read-only --tmpfs /tmp --cap-drop ALL --security-opt no-new-privileges mcp-perception-buffer
#
# Another port is set by MCP_PORT, where the health check looks.
# The host's network, because DDS finds its peers by multicast and because the service listens on
# 127.0.0.1 only.

FROM python:3.12-slim-bookworm AS build

# The message package is compiled. No version pins: Debian keeps only the newest build of each.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends cmake g++ make \
    && rm -rf /var/lib/apt/lists/* \
    && pip install --no-cache-dir "uv>=0.9,<1"

ENV UV_PROJECT_ENVIRONMENT=/opt/mcp-perception-buffer \
    UV_LINK_MODE=copy \
    UV_COMPILE_BYTECODE=1 \
    UV_PYTHON_DOWNLOADS=never
WORKDIR /source

# Dependencies change seldom, our own packages often: a layer for each. --inexact, because the ROS
# wheels bring a second metadata folder under the plain name: uv would remove it, modules and all.
COPY pyproject.toml uv.lock ./
COPY src/robot_mcp_kit/pyproject.toml src/robot_mcp_kit/
COPY src/ros2_vision_interfaces/pyproject.toml src/ros2_vision_interfaces/
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --frozen --no-dev --extra ros --no-install-workspace

COPY src/ros2_vision_interfaces src/ros2_vision_interfaces
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --frozen --inexact --no-dev --extra ros --no-install-project \
    --no-install-package robot-mcp-kit

COPY README.md LICENSE CHANGELOG.md ./
COPY config config
COPY src src
RUN --mount=type=cache,target=/root/.cache/uv \
    uv sync --frozen --inexact --no-dev --extra ros --no-editable \
    --no-install-package ros2-vision-interfaces


FROM python:3.12-slim-bookworm

RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/mcp-perception-buffer \
    --shell /usr/sbin/nologin mcp-perception-buffer
COPY --from=build /opt/mcp-perception-buffer /opt/mcp-perception-buffer

# Shared memory would need the vision node's IPC namespace and user; UDP needs neither.
ENV PATH=/opt/mcp-perception-buffer/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    FASTDDS_BUILTIN_TRANSPORTS=UDPv4 \
    ROS_LOG_DIR=/var/lib/mcp-perception-buffer/log \
    STATE_DIRECTORY=/var/lib/mcp-perception-buffer
# By number, so that Kubernetes can tell that it is not root.
USER 10001
WORKDIR /var/lib/mcp-perception-buffer
# Events that wait for the brain survive a new container.
VOLUME /var/lib/mcp-perception-buffer

# 503 and a refused connection both raise, which ends Python with 1. The image's own Python, because
# that of the environment goes through the start-up of the ROS wheels first.
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
    CMD ["/usr/local/bin/python3", "-c", \
     "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ.get(\"MCP_PORT\") or 9202}/healthz', timeout=4)"]

STOPSIGNAL SIGTERM
ENTRYPOINT ["mcp-perception-buffer"]
CMD ["serve"]
