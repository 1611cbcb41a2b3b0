"""Jars for the tests of Kafka, without Maven."""

from __future__ import annotations

import hashlib
import re

import pytest
from tests.jars import maven
from tests.jars.artifacts import (
    BROKER,
    CONNECTOR,
    JDBC,
    LAKES,
    PINS,
    S3A,
    Jar,
    broker_jars,
    connector_jars,
    fetch,
    read_pins,
)
from tests.jars.maven import VARIABLE, MavenError, central, repository

PATH = "org/example/thing/1.0/thing-1.0.jar"
CONTENT = b"not really a jar"
JAR = Jar(hashlib.sha256(CONTENT).hexdigest(), PATH)


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine without Maven, with a repository of one jar and an empty cache."""
    served = tmp_path / "repository" / PATH
    served.parent.mkdir(parents=True)
    served.write_bytes(CONTENT)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(VARIABLE, (tmp_path / "repository").as_uri())
    return served


def test_what_was_fetched_is_kept(machine):
    """Without Maven; the second time nothing is asked for, unless the file in the cache is damaged."""
    (place,) = fetch([JAR])
    assert (place.name, place.read_bytes()) == ("thing-1.0.jar", CONTENT)
    machine.unlink()
    assert fetch([JAR]) == [place]
    place.write_bytes(CONTENT[:-1])
    with pytest.raises(MavenError, match="cannot fetch"):
        fetch([JAR])
    machine.write_bytes(CONTENT)
    assert fetch([JAR]) == [place]
    assert place.read_bytes() == CONTENT


def test_another_file_is_refused(machine, tmp_path):
    """The message names both checksums, and nothing is in the cache."""
    machine.write_bytes(b"something else")
    with pytest.raises(MavenError, match=f"{hashlib.sha256(b'something else').hexdigest()}, and {JAR.sha256}"):
        fetch([JAR])
    assert not [file for file in (tmp_path / "cache").rglob("*") if file.is_file()]


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "nowhere"])
def test_without_a_network_the_error_says_what_to_do(monkeypatch, address):
    """And which file from where."""
    monkeypatch.setenv(VARIABLE, address)
    with pytest.raises(
        MavenError, match=rf"cannot fetch {PATH} from {address}.*{VARIABLE}.*HTTPS_PROXY.*install Maven"
    ):
        fetch([JAR])


SETTINGS = """<settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>
<mirror><id>other</id><mirrorOf>other</mirrorOf><url>http://other.example</url></mirror>
<mirror><id>ours</id><mirrorOf>{of}</mirrorOf><url> http://ours.example/maven/ </url></mirror>
</mirrors></settings>"""


@pytest.mark.parametrize(
    ("of", "found"),
    [
        ("central", "http://ours.example/maven"),
        ("*", "http://ours.example/maven"),
        ("external:*,!other", "http://ours.example/maven"),
        ("*,!central", None),
        ("snapshots", None),
    ],
)
def test_a_mirror_in_the_settings_is_used(monkeypatch, tmp_path, of, found):
    """The environment goes before it, Maven Central comes after it."""
    (tmp_path / ".m2").mkdir()
    (tmp_path / ".m2" / "settings.xml").write_text(SETTINGS.format(of=of))
    assert repository() == (tmp_path / "repository").as_uri()
    monkeypatch.delenv(VARIABLE)
    assert repository() == (found or central())
    assert central().startswith("https://")


def test_maven_is_used_where_it_is(monkeypatch):
    """Its jars are held against the pins, too; where it fails, they are fetched without it."""
    asked = []

    def copy(command, folder, coordinates, *, with_dependencies):
        asked.append((command, list(coordinates), with_dependencies))
        (folder / PATH).parent.mkdir(parents=True)
        (folder / PATH).write_bytes(CONTENT if len(asked) > 1 else b"damaged")

    monkeypatch.setattr("tests.jars.artifacts.find_maven", lambda: "mvn")
    monkeypatch.setattr("tests.jars.artifacts.copy_with_maven", copy)
    with pytest.warns(UserWarning, match="trying without Maven"):
        (place,) = fetch([JAR])
    place.unlink()
    assert fetch([JAR]) == [place]
    assert asked == [("mvn", ["org.example:thing:1.0"], False)] * 2


def test_a_repository_that_is_named_goes_before_maven(monkeypatch):
    """Or there would be no way round a Maven that cannot reach anything."""
    monkeypatch.setattr("shutil.which", lambda name: "/usr/bin/mvn")
    assert maven.find_maven() is None
    monkeypatch.delenv(VARIABLE)
    assert maven.find_maven() == "/usr/bin/mvn"


@pytest.mark.parametrize(
    ("file", "coordinates"),
    [
        ("broker", BROKER),
        ("connector", CONNECTOR),
        ("jdbc", JDBC),
        *((f"s3a-{version}", jars) for version, jars in S3A.items()),
        *((f"lakes-{version}", jars) for version, jars in LAKES.items()),
    ],
)
def test_pins_are_whole(file, coordinates):
    """Every jar once, with a checksum, and what is asked for is among them."""
    jars = read_pins(PINS / f"{file}.sha256")
    assert {jar.coordinates for jar in jars} >= set(coordinates)
    assert len({jar.path for jar in jars}) == len(jars)
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) and jar.path.endswith(".jar") for jar in jars)
    assert (broker_jars if file == "broker" else connector_jars).__doc__
