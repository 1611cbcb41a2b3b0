"""How this machine reaches Maven Central: through Maven where it is installed, else by HTTP, from a mirror if one is configured."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from xml.etree import ElementTree as ET

import pyspark

VARIABLE = "WHERECAST_MAVEN_REPOSITORY"
_MAVEN_S, _DOWNLOAD_S, _TRIES = 600, 60, 3

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


class MavenError(Exception):
    """Jars cannot be had; the message says what to do."""


def find_maven() -> str | None:
    """The command to use, unless a repository is named by the environment: that one is meant."""
    return None if os.environ.get(VARIABLE) else shutil.which("mvn")


def copy_with_maven(maven: str, folder: Path, coordinates: Iterable[str], *, with_dependencies: bool) -> None:
    """Fill a folder with jars, laid out as a repository is. Raises MavenError."""
    coordinates = list(coordinates)
    pom = folder / "pom.xml"
    pom.write_text(_POM.format(dependencies="".join(_dependency(c, with_dependencies) for c in coordinates)))
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={folder}", "-Dmdep.useRepositoryLayout=true"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MavenError(f"Maven could not fetch {coordinates[0]}: {error}") from None
    if result.returncode:
        reason = next((line for line in result.stdout.splitlines() if "ERROR" in line), result.stdout + result.stderr)
        raise MavenError(f"Maven could not fetch {coordinates[0]}: {reason}")


def _dependency(coordinates: str, with_dependencies: bool) -> str:
    group, name, version = coordinates.split(":")
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
        f"{'' if with_dependencies else _ALONE}</dependency>"
    )


def repository() -> str:
    """The address of the repository: the environment's, the mirror in Maven's settings, or Maven Central."""
    return (os.environ.get(VARIABLE) or _mirror(Path.home() / ".m2" / "settings.xml") or central()).rstrip("/")


@cache
def central() -> str:
    """The address of Maven Central that Spark's own resolver has: it is a constant of the Ivy in PySpark."""
    [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    with zipfile.ZipFile(ivy) as jar:
        found = re.search(
            rb"https://[a-z0-9.]+/maven2", jar.read("org/apache/ivy/plugins/resolver/IBiblioResolver.class")
        )
    if found is None:
        raise MavenError(f"{ivy.name} does not tell where Maven Central is; set {VARIABLE} to its address")
    return found[0].decode()


def _mirror(settings: Path) -> str | None:
    """The first mirror of Maven Central that a settings file names."""
    if not settings.is_file():
        return None
    try:
        mirrors = ET.parse(settings).getroot().iterfind("{*}mirrors/{*}mirror")
        for mirror in mirrors:
            of = {name.strip() for name in mirror.findtext("{*}mirrorOf", "").split(",")}
            if of & {"*", "external:*", "central"} and "!central" not in of:
                return mirror.findtext("{*}url", "").strip() or None
    except ET.ParseError as error:
        raise MavenError(f"{settings} cannot be read: {error}; mend it, or set {VARIABLE}") from None
    return None


def download(path: str) -> bytes:
    """A file of the repository. Raises MavenError."""
    base = repository()
    for attempt in range(1, _TRIES + 1):
        try:
            with urllib.request.urlopen(f"{base}/{path}", timeout=_DOWNLOAD_S) as answer:
                found: bytes = answer.read()
                return found
        except (OSError, ValueError) as error:  # an HTTPError is an OSError; ValueError: the address is none
            if attempt == _TRIES or not isinstance(error, OSError) or isinstance(error, urllib.error.HTTPError):
                raise MavenError(
                    f"cannot fetch {path} from {base}: {error}. The tests of Kafka need it once. Set {VARIABLE} to the "
                    "address of a repository that this machine reaches, HTTPS_PROXY to a proxy, or install Maven"
                ) from None
    raise AssertionError
