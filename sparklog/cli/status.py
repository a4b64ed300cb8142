"""``sparklog status``: what the nodes of a cluster count.

Owns: the command's options and output.  Must not know how the cluster is asked.
"""

from typing import Annotated

import typer

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    print_json,
    print_table,
)
from sparklog.cli.topics import with_admin


def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COUNTER]...", show_default="all counters"),
    ] = None,
    bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP,
    as_json: JsonOption = False,
) -> None:
    """Show the counters of every node: what it has done since its start, and how much it has now.

    A counter is given by its name or by a pattern, such as 'remote_*'.  Node 0 is the control
    plane.  A node that does not answer has none.
    """
    import fnmatch

    def wanted(counter: str) -> bool:
        return not names or any(fnmatch.fnmatchcase(counter, name) for name in names)

    nodes = {
        node_id: {name: value for name, value in counters.items() if wanted(name)}
        for node_id, counters in with_admin(bootstrap, lambda admin: admin.status()).items()
    }
    if as_json:
        print_json([{"node": node_id, "counters": found} for node_id, found in nodes.items()])
        return
    columns = {f"node {node_id}": counters for node_id, counters in nodes.items()}
    rows = [
        {"counter": name, **{column: found.get(name) for column, found in columns.items()}}
        for name in dict.fromkeys(name for found in nodes.values() for name in found)
    ]
    if rows:
        print_table(("counter", *columns), rows)
    else:
        typer.echo("There are none.")
