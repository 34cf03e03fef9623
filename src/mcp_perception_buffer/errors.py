"""The errors that this package raises on purpose, each with a text for the person who reads it."""


class PerceptionError(Exception):
    """Base of all deliberate errors; its text says what is wrong and what to do."""


class ConfigError(PerceptionError):
    """The configuration cannot be used; ends start-up with exit code 2, trying again is no use."""


class UnavailableError(PerceptionError):
    """What is needed is not there now: rclpy, the port, a folder; ends start-up with exit code 1.

    A supervisor may try again.
    """


class InterfaceError(PerceptionError):
    """Message definitions, or the folders that should hold them, cannot be used as they are."""


class DecodeError(PerceptionError):
    """A message's bytes are not what its type says; the message is counted and skipped."""


class UnknownTypeError(PerceptionError):
    """No definition of a message type is installed here."""


class UnknownSkillError(PerceptionError):
    """A caller asked for a skill that no stream belongs to."""
