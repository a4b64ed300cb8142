"""Apache Kafka's own jars: fetched once from Maven Central, by Maven, and checked against a list.

Owns: the cache folder, ``.cache`` in the checkout.  Must not know what is done with the jars.

Maven is used as the machine has it set up (its settings, proxies, mirrors and local repository);
the list of SHA-256 beside this file pins every jar that Kafka comes with, whoever handed it out.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

VERSION = "4.3.1"
SCALA_VERSION = "2.13"
FETCH_SECONDS_MAX = 170.0
CACHE = Path(__file__).parents[2] / ".cache"
CHECKSUMS = Path(__file__).with_name(f"kafka-{VERSION}.sha256")

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.sparklog.tests</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_{scala}</artifactId>
      <version>{version}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{version}</version>
    </dependency>
  </dependencies>
</project>
"""


class JarsUnavailableError(Exception):
    """They cannot be had here; the text says why."""


def kafka_jars() -> Path:
    """The folder with every jar, each the right one.  Raises JarsUnavailableError."""
    folder = CACHE / f"kafka-{VERSION}"
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE, prefix="kafka-") as name:
            fetched = _fetch(Path(name))
            _check(fetched)
            try:
                fetched.rename(folder)
            except OSError:  # another process was faster
                assert folder.is_dir()
    return folder


def _fetch(work: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError("Maven (mvn) is not installed, so Kafka cannot be fetched")
    (work / "pom.xml").write_text(POM.format(scala=SCALA_VERSION, version=VERSION))
    command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    try:
        done = subprocess.run(
            [*command, "-DoutputDirectory=jars"],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS_MAX,
        )
    except subprocess.TimeoutExpired as error:
        raise JarsUnavailableError(f"Maven did not fetch Kafka in {error.timeout} s") from None
    if done.returncode:
        said = "; ".join(line for line in done.stdout.splitlines() if line.startswith("[ERROR]"))
        raise JarsUnavailableError(f"Maven could not fetch Kafka {VERSION}: {said[:500]}")
    return work / "jars"


def _check(folder: Path) -> None:
    expected = dict(reversed(line.split()) for line in CHECKSUMS.read_text().splitlines())
    found = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in os.listdir(folder)
    }
    assert found == expected
