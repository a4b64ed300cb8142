"""Records as text, as JSON and by format strings, out of ``consume`` and into ``produce``."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.cli.record_format import as_json, as_json_value, parse_format
from sparklog.cli.record_input import InputRecord, json_record, text_record
from sparklog.client.consumer import ConsumedRecord
from sparklog.errors import ConfigError
from sparklog.types import MAX_INT32, MAX_INT64, TimestampType

RECORD = ConsumedRecord(
    topic="t",
    partition=3,
    offset=17,
    timestamp=1234,
    timestamp_type=TimestampType.CREATE_TIME,
    key=b"k\xff",
    value="wört".encode(),
    headers=(("a", b"1"), ("b", None)),
)
EMPTY = replace(RECORD, key=None, value=None, headers=())


def test_bytes_in_json_are_text_or_base64() -> None:
    assert [as_json_value(v) for v in ("ü".encode(), None, b"\xff\x00")] == [
        "ü",
        None,
        {"base64": "/wA="},
    ]


@pytest.mark.parametrize(
    ("text", "full", "empty"),
    [
        ("text", "wört\n".encode(), b"\n"),
        ("%t[%p]@%o %T %h;\\n", b"t[3]@17 1234 a=1,b=NULL;\n", b"t[3]@17 1234 ;\n"),
        ("%k:%s", b"k\xff:w\xc3\xb6rt", b":"),
        ("%K %S %R", b"2 5 \0\0\0\x05", b"-1 -1 \xff\xff\xff\xff"),
        ("100%%\\t\\x41\\\\\\0\\r", b"100%\tA\\\0\r", b"100%\tA\\\0\r"),
    ],
)  # fmt: skip
def test_a_format_says_which_fields_are_printed(text: str, full: bytes, empty: bytes) -> None:
    render = parse_format(text)
    assert (render(RECORD), render(EMPTY)) == (full, empty)


def test_text_has_keys_with_a_separator_alone() -> None:
    render = parse_format("text", b": ")
    assert (render(RECORD), render(EMPTY)) == (b"k\xff: w\xc3\xb6rt\n", b": \n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("xml", "'xml' is not text, json or a format string"),
        ("", "'' is not text"),
        ("%s%", "'%' is not a field of a record; use one of %t, %p"),
        ("%q", "'%q' is not a field"),
        ("%s\\q", "'\\q' is not an escape"),
        ("%s\\x4", "'\\x' is not an escape"),
        ("\\", "'\\' is not an escape"),
    ],
)
def test_what_is_no_format_is_named(text: str, said: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_format(text)
    assert said in str(caught.value)


def test_a_line_of_text_is_a_value_or_a_key_and_a_value() -> None:
    assert text_record(b"a:b:c", None) == InputRecord(value=b"a:b:c")
    assert text_record(b"a:b:c", b":") == InputRecord(value=b"b:c", key=b"a")
    assert text_record(b"abc", b":") == InputRecord(value=b"abc")


@given(
    key=st.none() | st.binary(max_size=5),
    value=st.none() | st.binary(max_size=5),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2),
    timestamp=st.integers(0, MAX_INT64),
    partition=st.integers(0, MAX_INT32),
)
def test_what_consume_prints_as_json_produce_reads(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    timestamp: int,
    partition: int,
) -> None:
    sent = InputRecord(
        key=key, value=value, headers=tuple(headers), timestamp=timestamp, partition=partition
    )
    shown = as_json(
        replace(
            RECORD, key=key, value=value, headers=sent.headers, timestamp=timestamp,
            partition=partition,
        )
    )  # fmt: skip
    assert shown.count(b"\n") == 1
    assert json_record(shown) == sent


def test_all_fields_of_a_document_may_miss() -> None:
    assert json_record(b"{}") == InputRecord(value=None)
    assert json_record(b'{"value": "v"}') == InputRecord(value=b"v")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ([], "it is not a JSON object such as"),
        ({"vaule": "v"}, "'vaule' is not a field of a record: key, value, headers"),
        ({"value": 1}, 'value is not a text, null or {"base64": "..."}'),
        ({"key": {"base64": "?"}}, "key is not base64"),
        ({"key": {"base64": 1}}, "key is not a text"),
        ({"value": "\ud800"}, "value has a character that UTF-8 cannot encode"),
        ({"headers": {"a": "b"}}, "headers is not a list of [name, value]"),
        ({"headers": [["a"]]}, "headers is not a list of [name, value]"),
        ({"headers": [["a", 1]]}, "the header 'a' is not a text, null"),
        ({"timestamp": "now"}, "timestamp is not a number from 0"),
        ({"timestamp": True}, "timestamp is not a number from 0"),
        ({"partition": -1}, "partition is not a number from 0"),
        ({"partition": 2**31}, "partition is not a number from 0 to 2147483647"),
    ],
)
def test_what_is_wrong_with_a_document_is_named(document: object, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        json_record(json.dumps(document).encode())
    assert said in str(caught.value)


@pytest.mark.parametrize("line", [b"", b"{", b"\xff", b"[" * 100_000, b"9" * 5000])
def test_what_is_no_json_is_an_error(line: bytes) -> None:
    with pytest.raises(ConfigError, match="it is not"):
        json_record(line)
