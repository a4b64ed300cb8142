"""``--storage-option NAME=VALUE``: what opens the buckets of a cluster.

Owns: the option, and its errors, which show no value because it may be a secret.  Must not know the
options of a store.
"""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

OPTION = "--storage-option"
StorageOptionsOption = Annotated[
    list[str] | None,
    typer.Option(
        OPTION,
        metavar="NAME=VALUE",
        help="Opens the buckets, such as endpoint_url=URL; may be repeated. Secrets are better "
        "off in AWS_... variables.",
    ),
]


def parse_storage_options(pairs: Sequence[str] | None) -> dict[str, Any]:
    """Return ``NAME=VALUE`` texts as storage options, whose values have the types that they mean.

    Raises typer.BadParameter.
    """
    from sparklog.storage_backends.s3_options import option_value

    found: dict[str, Any] = {}
    for number, pair in enumerate(pairs or (), 1):
        name, separator, value = (part.strip() for part in pair.partition("="))
        if not separator or not name:
            raise typer.BadParameter(f"number {number} is not NAME=VALUE", param_hint=OPTION)
        found[name] = option_value(name, value)
    return found
