"""The modules that executors must have, derived from the requirements of the installed package.

Owns: the mapping from requirements to module names.  Must not know where the modules are needed.

Executors may have only an archive of sparklog, which carries no package metadata.  Therefore the
driver derives the names and passes them on.
"""

import re
from importlib.metadata import PackageNotFoundError, files, requires
from importlib.util import find_spec

DISTRIBUTION = "sparklog"
#: Requirements that only the driver and the command line import.
DRIVER_ONLY = frozenset({"rich", "typer"})

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def needed_modules() -> tuple[str, ...]:
    """The top-level modules that brokers, readers and writers import, sorted.

    The result is empty when the driver's own sparklog was not installed: without package metadata
    the requirements are unknown.
    """
    try:
        requirements = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return ()
    distributions = required_distributions(requirements) - DRIVER_ONLY
    return tuple(sorted({name for each in distributions for name in modules_of(each)}))


def required_distributions(requirements: list[str]) -> set[str]:
    """The normalized names of the distributions that every install has.

    A requirement with a marker is left out: it belongs to an extra, or to some machines only, and
    an executor need not be such a machine.
    """
    found = set()
    for requirement in requirements:
        name = _NAME.match(requirement)
        if name is not None and ";" not in requirement:
            found.add(re.sub(r"[-_.]+", "-", name[0]).lower())
    return found


def modules_of(distribution: str) -> set[str]:
    """The module names of a distribution.

    The only one is the distribution's own name if such a module exists; otherwise the names come
    from the distribution's files.
    """
    own = distribution.replace("-", "_")
    if find_spec(own) is not None:
        return {own}
    try:
        paths = files(distribution) or []
    except PackageNotFoundError:  # the driver lacks the distribution, too
        paths = []
    tops = {path.parts[0].partition(".")[0] for path in paths if path.suffix in (".py", ".so")}
    return {name for name in tops if name.isidentifier()} or {own}
