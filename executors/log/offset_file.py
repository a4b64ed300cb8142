"""A file of one offset in a partition directory: a line with the version, a line with the offset.

Owns: offset <-> text.  Must not know what the offset means.
"""

from typing import Final

_VERSION: Final = 0


def encode_offset(offset: int) -> bytes:
    return f"{_VERSION}\n{offset}\n".encode()


def decode_offset(data: bytes) -> int | None:
    """The offset in the text of a file; None for text of another kind."""
    lines = data.decode("ascii", errors="replace").split("\n")
    if len(lines) != 3 or lines[0] != str(_VERSION) or lines[2]:
        return None
    digits = lines[1]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else None
