"""The diagram in docs/transactions.md, drawn from the table of transitions.

``python -m tests.lint.transactions_page`` writes it.
"""

import re
from pathlib import Path

from sparklog.driver.transactions import diagram

DOCUMENT = Path(__file__).parents[2] / "docs" / "transactions.md"
_DIAGRAM = re.compile(r"(?<=```mermaid\n).*?(?=\n```)", re.DOTALL)


def due() -> str:
    """The page with the diagram of the present table."""
    page, found = _DIAGRAM.subn(lambda _: diagram(), DOCUMENT.read_text(), count=1)
    assert found == 1, f"{DOCUMENT.name} has no diagram"
    return page


if __name__ == "__main__":
    DOCUMENT.write_text(due())
