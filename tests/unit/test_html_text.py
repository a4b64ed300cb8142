"""Records, messages and counts as a notebook shows them."""

import pytest

from sparklog.html_text import MESSAGE_MAX, SHOWN_BYTES_MAX, SHOWN_MAX, bytes_text, message, table
from sparklog.plurals import counted


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "null"),
        (b"", ""),
        (b"<b>7</b>", "<b>7</b>"),
        ("gr\u00fc\u00df \u4f60\u597d".encode(), "gr\u00fc\u00df \u4f60\u597d"),
        (b'{\n\t"a": 1\r\n}', '{  "a": 1  }'),
        (b"\x00\x00\x00\x07", "0x00000007"),
        (b"\xff\xfe", "0xfffe"),
        (b"abc\x00", "0x61626300"),
        ("right\u202eleft".encode(), "right\ufffdleft"),
        (b"\xff" * SHOWN_BYTES_MAX, "0x" + "ff" * SHOWN_BYTES_MAX),
        (b"\xff" * 5000, f"0x{'ff' * SHOWN_BYTES_MAX} ... (5,000 bytes)"),
        (b"x" * SHOWN_MAX, "x" * SHOWN_MAX),
        (b"x" * (SHOWN_MAX + 1), "x" * SHOWN_MAX + " ..."),
        ("\U0001f600".encode() * 500, "\U0001f600" * SHOWN_MAX + " ..."),
        ("\u20ac".encode() * 5000, "\u20ac" * SHOWN_MAX + " ..."),
        (b"x" + "\u20ac".encode() * 5000, "x" + "\u20ac" * (SHOWN_MAX - 1) + " ..."),
        (b"x" * 500 + b"\xff", "x" * SHOWN_MAX + " ..."),
    ],
)
def test_bytes_are_text_or_hex_and_never_long(value: bytes | None, shown: str) -> None:
    assert bytes_text(value) == shown


def test_a_cut_within_a_character_does_not_make_text_binary() -> None:
    for size in range(8):
        assert bytes_text(b"x" * size + "\u20ac".encode() * 1000).startswith("x" * size + "\u20ac")


def test_cells_are_escaped_and_wrap() -> None:
    shown = table(("a<b",), [("<script>",)])
    assert "<th" in shown
    assert "a&lt;b" in shown
    assert "&lt;script&gt;" in shown
    assert "overflow-wrap:anywhere" in shown
    assert "<script>" not in shown


def test_messages_are_cut() -> None:
    assert message("&" * 5000).count("&amp;") == MESSAGE_MAX
    assert " ..." in message("x" * 5000)


def test_counts_have_the_right_number() -> None:
    counts = [counted(count, "partition") for count in (0, 1, 2, 1000)]
    assert counts == ["0 partitions", "1 partition", "2 partitions", "1,000 partitions"]
