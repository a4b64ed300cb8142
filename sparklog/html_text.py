"""HTML for notebooks: escaped texts, tables whose cells wrap, and record bytes as text.

Owns: how a value looks in a notebook, and how long its text may be.  Must not know clusters or
topics.
"""

import html
from collections.abc import Sequence
from typing import Final

#: The largest number of characters of a key or value that a notebook shows.
SHOWN_MAX: Final = 120
#: The largest number of bytes of a binary key or value that a notebook shows, in hex.
SHOWN_BYTES_MAX: Final = 32
#: The largest number of characters of a message that a notebook shows.
MESSAGE_MAX: Final = 600
#: Inline styles, because notebooks remove style sheets.  A value without blanks wraps anywhere.
_CELL_STYLE: Final = (
    "max-width:32em;overflow-wrap:anywhere;white-space:normal;text-align:left;vertical-align:top"
)
_TEXT_STYLE: Final = "overflow-wrap:anywhere;white-space:normal"
#: Control characters that text contains.  Any other control character makes a value binary.
_TEXT_CONTROLS: Final = frozenset("\t\n\r")


def code(text: str) -> str:
    """Return a name or an address in a monospaced font, escaped."""
    return f'<code style="{_TEXT_STYLE}">{html.escape(text)}</code>'


def message(text: str) -> str:
    """Return an error message, escaped and cut after ``MESSAGE_MAX`` characters; its lines wrap."""
    shown = text if len(text) <= MESSAGE_MAX else f"{text[:MESSAGE_MAX]} ..."
    return f'<span style="{_TEXT_STYLE}">{html.escape(shown)}</span>'


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with the column titles ``heads``; each cell is escaped."""
    head = "".join(f'<th style="text-align:left">{html.escape(text)}</th>' for text in heads)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL_STYLE}">{html.escape(text)}</td>' for text in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def bytes_text(value: bytes | None) -> str:
    """Return the text of a key or a value: UTF-8 text, else ``0x`` and hex digits.

    A value is binary when it is not UTF-8 or has control characters other than tabs and line ends.
    Long values are cut; a binary value that is cut ends with its size in bytes.
    """
    if value is None:
        return "null"
    text = _decoded(value)
    if text is None:
        shown_bytes = f"0x{value[:SHOWN_BYTES_MAX].hex()}"
        cut = len(value) > SHOWN_BYTES_MAX
        return f"{shown_bytes} ... ({len(value):,} bytes)" if cut else shown_bytes
    shown = "".join(
        c if c.isprintable() else " " if c in _TEXT_CONTROLS else "�" for c in text[:SHOWN_MAX]
    )
    return shown if len(text) <= SHOWN_MAX else f"{shown} ..."


def _decoded(value: bytes) -> str | None:
    """The value as text, or at least its first ``SHOWN_MAX + 1`` characters; None when binary."""
    head = value[: 4 * (SHOWN_MAX + 1)]  # no character takes more than four bytes
    try:
        text = head.decode()
    except UnicodeDecodeError as error:
        # The cut may have divided the last character.
        if len(head) == len(value) or error.start < len(head) - 3:
            return None
        text = head[: error.start].decode()
    has_controls = any((c < " " or "\x7f" <= c <= "\x9f") and c not in _TEXT_CONTROLS for c in text)
    return None if has_controls else text
