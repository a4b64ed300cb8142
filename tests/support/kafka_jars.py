"""Jars of Apache Kafka and of Spark's package for it: fetched once from Maven Central, by Maven,
and checked against lists.

Owns: the cache folder, ``.cache`` in the checkout.  Must not know what is done with the jars.

Maven is used as the machine has it set up (its settings, proxies, mirrors and local repository);
the lists of SHA-256 in ``peers`` and ``compat`` pin every jar, whoever handed it out.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

FETCH_SECONDS_MAX = 300.0
CACHE = Path(__file__).parents[2] / ".cache"

POM = """\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>org.sparklog.tests</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <dependencies>{dependencies}</dependencies>
</project>
"""
DEPENDENCY = """
    <dependency>
      <groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
      {classifier}{exclusions}
    </dependency>"""
NOTHING_ELSE = """<exclusions>
        <exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>
      </exclusions>"""


class JarsUnavailableError(Exception):
    """They cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """``artifacts`` as ``group:artifact:version`` or ``group:artifact:version:classifier``;
    ``whole``: with what they depend on.

    ``name`` is that of the folder in the cache, and of the list in ``folder``.
    """

    name: str
    folder: str
    artifacts: tuple[str, ...]
    whole: bool

    @property
    def pom(self) -> str:
        found = []
        for text in self.artifacts:
            group, artifact, version, *classifiers = text.split(":")
            found.append(
                DEPENDENCY.format(
                    group=group,
                    artifact=artifact,
                    version=version,
                    classifier="".join(f"<classifier>{each}</classifier>" for each in classifiers),
                    exclusions="" if self.whole else NOTHING_ELSE,
                )
            )
        return POM.format(dependencies="".join(found))

    @property
    def checksums(self) -> dict[str, str]:
        """SHA-256 by file name."""
        text = (Path(__file__).parents[1] / self.folder / f"{self.name}.sha256").read_text()
        pairs = (line.split() for line in text.splitlines())
        return {name: checksum for checksum, name in pairs}


KAFKA = JarSet(
    name="kafka-4.3.1",
    folder="peers",
    artifacts=("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1"),
    whole=True,
)
#: Beside ``KAFKA``, which has what they depend on; only RocksDB is missing.
KAFKA_APPLICATIONS = JarSet(
    name="kafka-applications-4.3.1",
    folder="applications",
    artifacts=("org.apache.kafka:kafka-streams:4.3.1", "org.apache.kafka:connect-file:4.3.1"),
    whole=False,
)
#: Beside ``KAFKA``: ``LocalTieredStorage``, which keeps remote segments in a folder.
KAFKA_TIERED = JarSet(
    name="kafka-tiered-4.3.1",
    folder="peers",
    artifacts=("org.apache.kafka:kafka-storage:4.3.1:test",),
    whole=False,
)
#: The newest package that resolves; it runs on PySpark 4.2 and 4.3.  Spark brings the rest along.
SPARK_PACKAGE = JarSet(
    name="spark-kafka-4.2.0",
    folder="compat",
    artifacts=(
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.1",
        "org.apache.commons:commons-pool2:2.12.1",
    ),
    whole=False,
)


#: All of them.
JAR_SETS = (KAFKA, KAFKA_TIERED, KAFKA_APPLICATIONS, SPARK_PACKAGE)

#: What could not be had by this process, which does not try again.
_unavailable: dict[str, JarsUnavailableError] = {}


def kafka_jars() -> Path:
    """The folder with Kafka and its tools.  Raises JarsUnavailableError."""
    return jars_of(KAFKA)


def jars_of(wanted: JarSet) -> Path:
    """The folder with every jar, each the right one.  Raises JarsUnavailableError."""
    folder = CACHE / wanted.name
    if folder.exists():
        return folder
    if wanted.name in _unavailable:
        raise _unavailable[wanted.name]
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "jars.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two Mavens get in each other's way
        if not folder.exists():  # another process was not faster
            _make(folder, wanted)
    return folder


def _make(folder: Path, wanted: JarSet) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="jars-") as name:
        try:
            fetched = _fetch(wanted, Path(name))
        except JarsUnavailableError as error:
            _unavailable[wanted.name] = error
            raise
        _check(fetched, wanted.checksums)
        fetched.rename(folder)


def _fetch(wanted: JarSet, work: Path) -> Path:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailableError(f"Maven (mvn) is not installed, so {wanted.name} is missing")
    (work / "pom.xml").write_text(wanted.pom)
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
        raise JarsUnavailableError(
            f"Maven did not fetch {wanted.name} in {error.timeout} s"
        ) from None
    if done.returncode:
        said = "; ".join(line for line in done.stdout.splitlines() if line.startswith("[ERROR]"))
        raise JarsUnavailableError(f"Maven could not fetch {wanted.name}: {said[:500]}")
    return work / "jars"


def _check(folder: Path, expected: dict[str, str]) -> None:
    found = {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
        for name in os.listdir(folder)
    }
    assert found == expected
