"""ARCHITECTURE.md's file map says of every module what the module says of itself."""

import file_map


def test_the_file_map_is_up_to_date() -> None:
    assert file_map.written() == file_map.due(), "run python tests/lint/file_map.py"
