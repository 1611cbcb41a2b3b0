"""An S3 server of a test's own: moto, in a process, on a port of the loopback interface."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.jars.artifacts import s3a_jars
from tests.servers.ports import LOOPBACK, free_ports, is_open

BUCKET = "wherecast"
_START_S = 60


def s3a_settings(spark_version: str, environment: dict[str, str]) -> dict[str, str]:
    """What a session needs to find the server by `s3a://`. Raises MavenError."""
    return {
        "spark.jars": ",".join(map(str, s3a_jars(spark_version))),
        "spark.hadoop.fs.s3a.endpoint": environment["AWS_ENDPOINT_URL"],
        "spark.hadoop.fs.s3a.endpoint.region": environment["AWS_DEFAULT_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": environment["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": environment["AWS_SECRET_ACCESS_KEY"],
    }


@contextmanager
def running_s3() -> Iterator[dict[str, str]]:
    """A server with one empty bucket; the environment variables by which clients find it."""
    [port] = free_ports(1)
    process = subprocess.Popen([sys.executable, "-m", "tests.servers.s3", str(port)])
    try:
        end = time.monotonic() + _START_S
        while not is_open(port):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the S3 server did not start (exit code {process.poll()})")
            time.sleep(0.1)
        yield {
            "AWS_ENDPOINT_URL": f"http://{LOOPBACK}:{port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.terminate()
        process.wait()


class OneAtATime:
    """Requests in turn: S3 decides conditional puts one after the other, moto looks and then writes."""

    def __init__(self, application: Any) -> None:
        self._application, self._lock = application, threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        with self._lock:
            return list(self._application(environ, start))


def serve(port: int) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple
    from werkzeug.test import Client

    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    Client(application).put(f"/{BUCKET}")
    run_simple(LOOPBACK, port, application, threaded=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
