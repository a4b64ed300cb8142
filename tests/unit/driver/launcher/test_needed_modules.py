"""Executors are checked for exactly the modules that their code imports."""

import ast
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from sparklog.driver.launcher import needed_modules as module
from sparklog.driver.launcher.needed_modules import (
    modules_of,
    needed_modules,
    required_distributions,
)

ROOT = Path(__file__).resolve().parents[4]
#: The packages that run on executors: brokers, readers and writers, and what these import.
ROOMS = ("executors", "storage_backends", "sparklog")
#: The packages that only the driver runs.
DRIVER_FILES = frozenset({"cluster.py", "demo.py", "progress.py", "session.py", "topic.py"})
#: The generator of ``wire/messages`` runs at development time.
TOOLS = frozenset({"generate.py"})
#: Only buckets need s3fs, and aiobotocore comes with it.
OPTIONAL = frozenset({"s3fs", "aiobotocore"})
OWN = frozenset({"sparklog", "pyspark_sparklog"})


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def executor_files() -> Iterator[Path]:
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            inside = path.relative_to(ROOT / room).parts
            if inside[0] in ("cli", "driver") or inside[-1] in DRIVER_FILES | TOOLS:
                continue
            yield path


def test_executors_are_asked_for_what_their_code_imports() -> None:
    imported = {name for path in executor_files() for name in imports_of(path)}
    assert imported - sys.stdlib_module_names - OWN - OPTIONAL == set(needed_modules())


def test_extras_and_what_only_some_machines_need_are_left_out() -> None:
    requirements = [
        "pyspark<5,>=4.2",
        "numpy",
        "Ruamel.YAML_x[fast]>=1",
        'kio==0.6.5; extra == "dev"',
        'tzdata; sys_platform == "win32"',
    ]
    assert required_distributions(requirements) == {"pyspark", "numpy", "ruamel-yaml-x"}


@pytest.mark.parametrize(
    ("distribution", "modules"),
    [
        ("pyarrow", {"pyarrow"}),
        ("pytest-timeout", {"pytest_timeout"}),
        ("python-snappy", {"snappy"}),
        ("kafka-python", {"kafka"}),
        ("no-such-distribution", {"no_such_distribution"}),
    ],
)
def test_modules_have_other_names_than_their_distribution(
    distribution: str, modules: set[str]
) -> None:
    assert modules_of(distribution) == modules


def test_without_metadata_nothing_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """This happens if the driver itself runs from an archive."""
    monkeypatch.setattr(module, "DISTRIBUTION", "no-such-distribution")
    with pytest.raises(PackageNotFoundError):
        module.requires(module.DISTRIBUTION)
    assert needed_modules() == ()
