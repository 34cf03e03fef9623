"""Signing and event posting shared by the robot's MCP servers."""

from robot_mcp_kit.outcome import Outcome, OutcomeKind
from robot_mcp_kit.poster import EventPoster
from robot_mcp_kit.signing import (
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

__all__ = [
    "EventPoster",
    "MalformedBody",
    "MalformedHeader",
    "MalformedSignature",
    "MissingHeader",
    "NoMatchingSignature",
    "Outcome",
    "OutcomeKind",
    "SecretError",
    "SignatureError",
    "TimestampOutOfTolerance",
    "Verified",
    "sign",
    "verify",
]
