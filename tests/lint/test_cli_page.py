"""docs/cli.md says what the commands say."""

import cli_page


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert cli_page.DOCUMENT.read_text() == cli_page.due(), "run python tests/lint/cli_page.py"
