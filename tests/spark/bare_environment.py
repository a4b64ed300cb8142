"""Virtual environments that hold the wheel and what it requires, and nothing else.

PySpark alone has 450 MB, and a download would make a test depend on a registry.  The distributions
that the wheel requires are therefore links to those of this environment, one by one, as the wheel's
own metadata names them; ``pip check`` says whether that is all of them.
"""

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from importlib.metadata import Distribution, distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """A virtual environment: where it is, its interpreter and its packages."""

    folder: Path
    python: Path
    site: Path

    def distributions(self) -> set[str]:
        return {canonicalize_name(each.name) for each in distributions(path=[str(self.site)])}


def build_wheel(folder: Path) -> Path:
    """The wheel of this source."""
    return _build(folder, "wheel")


def build_sdist(folder: Path) -> Path:
    """The archive of this source that other builds start from."""
    return _build(folder, "sdist")


def _build(folder: Path, kind: str) -> Path:
    source = folder / "source"
    _copy_tracked_files(source)
    made = folder / f"{kind}s"
    _run("-m", "build", f"--{kind}", "--no-isolation", "--outdir", str(made), str(source))
    (found,) = made.iterdir()
    return found


def empty_environment(folder: Path) -> Environment:
    """Python's standard library, without pip."""
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    return Environment(folder=folder, python=folder / "bin" / "python", site=site)


def environment_with(wheel: Path, folder: Path) -> Environment:
    """The wheel as pip installs it, and what it requires."""
    made = empty_environment(folder)
    pip = ("-m", "pip", "--python", str(made.python))
    _run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    _link_requirements(made, made)
    _run(*pip, "check")
    return made


def environment_without(wheel: Environment, folder: Path) -> Environment:
    """What the wheel requires, and not the wheel."""
    made = empty_environment(folder)
    _link_requirements(wheel, made)
    return made


#: A script with a cluster of three brokers takes a sixth of it on a slow machine that does nothing
#: else.
RUN_SECONDS_MAX = 270


def run(python: Path, script: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    """What a script prints; it runs as in a shell in which no environment is activated."""
    done = subprocess.run(
        [str(python), "-c", script],
        cwd=folder,
        env=plain_variables() | (environment or {}),
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def plain_variables() -> dict[str, str]:
    """This process's variables without those that name a Python."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYSPARK_", "PYTHON", "VIRTUAL_ENV"))
    }


def _link_requirements(wheel: Environment, into: Environment) -> None:
    found = distributions(path=[str(wheel.site)])
    (own,) = [each for each in found if each.name == "sparklog"]
    for required in _required(own):
        _link(required, into.site)


def _required(own: Distribution) -> list[Distribution]:
    """What a wheel requires, directly or not; extras count where they are named."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    pending = [(own, "")]
    while pending:
        dependent, extra = pending.pop()
        for text in dependent.requires or ():
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            name = canonicalize_name(requirement.name)
            found[name] = distribution(requirement.name)
            wanted = {(name, each) for each in ("", *requirement.extras)} - seen
            seen |= wanted
            pending += [(found[name], each) for _, each in wanted]
    return list(found.values())


def _link(required: Distribution, site: Path) -> None:
    """Everything that a distribution put directly into its ``site-packages``."""
    home = Path(str(required.locate_file("")))
    tops = {path.parts[0] for path in required.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (site / top).exists():
            (site / top).symlink_to(home / top)


def _copy_tracked_files(target: Path) -> None:
    """A build leaves folders behind in its source; not in ours."""
    names = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(names, cwd=ROOT, check=True, capture_output=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source = ROOT / name
        if not source.is_symlink() and not source.exists():
            continue
        copy = target / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_symlink():
            copy.symlink_to(source.readlink())
        else:
            copy.write_bytes(source.read_bytes())


def _run(*arguments: str) -> None:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
