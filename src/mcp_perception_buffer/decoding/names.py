"""The table of field names as one stream has it, looked up in the types that are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mcp_perception_buffer.decoding.fields import TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mcp_perception_buffer.decoding.types import Definitions, Field
    from mcp_perception_buffer.model import Reading


class Names(NamedTuple):
    """The table as one stream has it, and the types that it is looked up in."""

    types: Definitions
    reading: Reading

    def of(self, row: str) -> tuple[str, ...]:
        """Return the paths that may hold this part."""
        own = self.reading.fields.get(row)
        return (own,) if own is not None else TABLE[row]

    def first(
        self, type_name: str, row: str, among: tuple[str, ...], below: str = ""
    ) -> str | None:
        """Return where a type has this part as one value of a basic type."""
        return self.types.first(type_name, self.of(row), among=among, below=below)

    @property
    def joins_points(self) -> bool:
        """Whether arrays of points are read as one of their numbers: no path may lead into them."""
        return not any(
            part.isdecimal() for path in self.reading.fields.values() for part in path.split(".")
        )

    def find(self, type_name: str, row: str) -> Iterator[Field]:
        """Yield what a type has under the names of this part, of any type."""
        for path in self.of(row):
            found = self.types.find(type_name, path)
            if found is not None:
                yield found
