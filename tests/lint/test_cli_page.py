"""docs/cli.md says what the commands say."""

from tests.lint import cli_page


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert cli_page.DOCUMENT.read_text() == cli_page.due(), "run python -m tests.lint.cli_page"
