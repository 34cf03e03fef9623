"""The errors that this package raises on purpose, each with a text for the person who reads it."""


class PerceptionError(Exception):
    """Base of all deliberate errors; its text says what is wrong and what to do."""


class ConfigError(PerceptionError):
    """The configuration cannot be used; ends start-up with exit code 2."""


class SourceUnavailableError(PerceptionError):
    """The source of observations cannot be opened, for example without rclpy."""


class DecodeError(PerceptionError):
    """A message's bytes are not what its type says; the message is counted and skipped."""


class UnknownTypeError(PerceptionError):
    """No definition of a message type is installed here."""


class UnknownSkillError(PerceptionError):
    """A caller asked for a skill that no stream belongs to."""
