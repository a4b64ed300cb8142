"""The data source is found without a registration, wherever Python was started from."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

#: The option error comes from our code, so Spark found and ran the source.
PROBE = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
import pyspark_sparklog, sparklog.driver, sparklog.executors, sparklog.storage_backends
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
reader = spark.read.format("sparklog").option("subscribe", "t")
frame = reader.option("kafka.bootstrap.servers", "127.0.0.1:1").load()
assert frame.columns[:2] == ["key", "value"], frame.columns
try:
    reader.option("kafka.bootstrap.servers", "nonsense").load()
except Exception as error:
    print("found:", "'nonsense' is not HOST:PORT" in str(error))
print("home:", pyspark_sparklog.__file__)
spark.stop()
"""


def probe(python: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [python, "-c", PROBE], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("found:", "home:"))]


def test_the_editable_install_is_found_from_an_empty_folder(tmp_path: Path) -> None:
    home = ROOT / "pyspark_sparklog.py"
    assert probe(sys.executable, tmp_path) == ["found: True", f"home: {home}"]


def test_the_wheel_is_found_from_an_empty_folder(tmp_path: Path) -> None:
    python, site = _environment_with_our_dependencies(tmp_path / "venv")
    _install_wheel(tmp_path, site)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert probe(str(python), empty) == ["found: True", f"home: {site / 'pyspark_sparklog.py'}"]


def _environment_with_our_dependencies(folder: Path) -> tuple[Path, Path]:
    """A venv that sees the packages of this one, but not its editable install of sparklog.

    A ``.pth`` file adds a folder to the path, whose own ``.pth`` files are not read.
    """
    venv.create(folder, symlinks=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python", site


def _install_wheel(folder: Path, site: Path) -> None:
    source = folder / "source"
    _copy_tracked_files(source)
    wheels = folder / "wheels"
    _run("-m", "build", "--wheel", "--no-isolation", "--outdir", str(wheels), str(source))
    (wheel,) = wheels.glob("*.whl")
    _run("-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), str(wheel))


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
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, timeout=240)
