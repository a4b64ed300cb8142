"""docs/settings.md says what the tables say."""

from tests.lint import settings_page


def test_the_page_of_settings_is_up_to_date() -> None:
    assert settings_page.DOCUMENT.read_text() == settings_page.due(), (
        "run python -m tests.lint.settings_page"
    )
