"""docs/settings.md says what the tables say."""

import settings_page


def test_the_page_of_settings_is_up_to_date() -> None:
    assert settings_page.DOCUMENT.read_text() == settings_page.due(), (
        "run python tests/lint/settings_page.py"
    )
