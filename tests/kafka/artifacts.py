"""Jars of Kafka's broker and of Spark's Kafka connector, from Maven Central by way of the installed Maven.

Maven knows how this machine reaches Maven Central (its settings name a mirror where there is one). What it resolved is
kept under the user's cache, one folder per set of coordinates, complete or not there at all: later runs need no network.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

BROKER = (
    "org.apache.kafka:kafka_2.13:4.3.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # without a binding the broker dies in silence
)
#: The clients of the version that the connector was built with.
_CLIENTS = ("org.apache.kafka:kafka-clients:3.9.2", "org.apache.commons:commons-pool2:2.13.1")
#: Connector and token provider to use where Maven Central does not have those of the installed Spark: the newest that
#: it was seen to have. Using them is announced by a warning.
_STAND_IN = ("4.2.0", "4.0.0")
_TIMEOUT_S = 300

# Spark's own poms name a second repository, which is a mirror of Maven Central and not reachable from everywhere: the
# first declaration of an id counts, and this one is never asked.
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>wherecast.tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <repositories><repository>
    <id>gcs-maven-central-mirror</id><url>file:///dev/null</url>
    <releases><enabled>false</enabled></releases><snapshots><enabled>false</enabled></snapshots>
  </repository></repositories>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class ArtifactsError(Exception):
    """Jars cannot be had; the message says what to do."""


class Connector(NamedTuple):
    """Spark's Kafka connector, ready for `spark.jars`."""

    version: str
    jars: list[Path]


def broker_jars() -> list[Path]:
    """The broker with everything it needs. Raises ArtifactsError."""
    return _fetch(BROKER, with_dependencies=True)


def connector_jars(spark_version: str) -> Connector:
    """The connector of a Spark version: what Spark does not bring itself. Raises ArtifactsError."""
    failures = []
    for connector, token_provider in ((spark_version, spark_version), _STAND_IN):
        coordinates = (
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{connector}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{token_provider}",
            *_CLIENTS,
        )
        try:
            jars = _fetch(coordinates, with_dependencies=False)
        except ArtifactsError as error:
            failures.append(str(error))
            continue
        if connector != spark_version:
            warnings.warn(
                f"Maven has no Kafka connector {spark_version}: testing with {connector} (token provider "
                f"{token_provider}) on Spark {spark_version}",
                stacklevel=2,
            )
        return Connector(connector, jars)
    raise ArtifactsError("\n".join(failures))


def _fetch(coordinates: tuple[str, ...], *, with_dependencies: bool) -> list[Path]:
    folder = _cache_folder() / hashlib.sha256(repr((coordinates, with_dependencies)).encode()).hexdigest()[:16]
    if not folder.is_dir():
        maven = shutil.which("mvn")
        if maven is None:
            raise ArtifactsError(
                f"Maven (mvn) is needed once to fetch {coordinates[0]}; install it (Debian, Ubuntu: apt install maven)"
            )
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
        try:
            _copy_jars(maven, draft, coordinates, with_dependencies=with_dependencies)
            if not folder.is_dir():  # else another run was quicker
                (draft / "jars").rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    return sorted(folder.glob("*.jar"))


def _copy_jars(maven: str, folder: Path, coordinates: tuple[str, ...], *, with_dependencies: bool) -> None:
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(dependencies="".join(_dependency(c, with_dependencies) for c in coordinates)))
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command.append(f"-DoutputDirectory={folder / 'jars'}")
    result = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if result.returncode:
        reason = next((line for line in result.stdout.splitlines() if "ERROR" in line), result.stdout + result.stderr)
        raise ArtifactsError(f"Maven could not fetch {coordinates[0]}: {reason}")


def _dependency(coordinates: str, with_dependencies: bool) -> str:
    group, name, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{'' if with_dependencies else _ALONE}</dependency>"
    )


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "wherecast" / "jars"
