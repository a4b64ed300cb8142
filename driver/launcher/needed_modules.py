"""The modules that executors must have, as the requirements of the installed package name them.

Owns: the way from requirements to module names.  Must not know who looks for the modules.

Executors may have only an archive of sparklog, which carries no metadata.  The driver therefore
derives the names and hands them down.
"""

import re
from importlib.metadata import PackageNotFoundError, files, requires
from importlib.util import find_spec

DISTRIBUTION = "sparklog"
#: Requirements that only the driver and the command line import.
DRIVER_ONLY = frozenset({"rich", "typer"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def needed_modules() -> tuple[str, ...]:
    """Top-level modules that brokers, readers and writers import, in order.

    Empty where the driver's own sparklog has no metadata, because it was not installed: nothing
    can be looked for then.
    """
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return ()
    distributions = required_distributions(requirements) - DRIVER_ONLY
    return tuple(sorted({name for each in distributions for name in modules_of(each)}))


def required_distributions(requirements: list[str]) -> set[str]:
    """Normalized names of the distributions that every install has.

    A requirement with a marker belongs to an extra, or only to some machines, of which an
    executor need not be one; it is left out.
    """
    found = set()
    for requirement in requirements:
        name = _NAME.match(requirement)
        if name is not None and ";" not in requirement:
            found.add(re.sub(r"[-_.]+", "-", name[0]).lower())
    return found


def modules_of(distribution: str) -> set[str]:
    """The names to import a distribution by: its own name if there is such a module, else what its
    files say."""
    own = distribution.replace("-", "_")
    if find_spec(own) is not None:
        return {own}
    try:
        paths = files(distribution) or []
    except PackageNotFoundError:  # the driver lacks it, too
        paths = []
    tops = {path.parts[0].partition(".")[0] for path in paths if path.suffix in (".py", ".so")}
    return {name for name in tops if name.isidentifier()} or {own}
