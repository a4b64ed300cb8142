"""``sparklog demo``: a cluster inside Spark on real data, in under two minutes.

Owns: the command's option.  Must not know what the demo does.
"""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="FOLDER", help="Leave the logs in this folder."),
    ] = None,
) -> None:
    """Write 336,776 flights to a topic inside Spark and read them back three ways."""
    from rich.console import Console

    from sparklog.demo import run

    run(Console(), keep=keep)
