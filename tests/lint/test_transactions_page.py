"""The page on transactions shows the transitions that the coordinator makes."""

from tests.lint import transactions_page


def test_the_diagram_is_up_to_date() -> None:
    assert transactions_page.DOCUMENT.read_text() == transactions_page.due(), (
        "run python -m tests.lint.transactions_page"
    )
