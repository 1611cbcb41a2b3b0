"""A Kafka broker of one node (KRaft) on free ports of the loopback interface, for the time of a `with` block."""

from __future__ import annotations

import ctypes
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.jars.artifacts import broker_jars
from tests.servers.ports import LOOPBACK, free_ports

from wherecast.class_archive import QUICK
from wherecast.spark.session import find_java

_START_S, _STOP_S = 60.0, 10.0
_LIBC, _PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
#: Any base64 of 16 bytes will do: each broker has its own folder.
_CLUSTER = "d2hlcmVjYXN0LXRlc3RzLQ"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/data
num.partitions=2
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """Start a broker with its data in `folder`; yields its address, and ends it whatever happens."""
    port, controller = free_ports(2)
    config = folder / "server.properties"
    config.write_text(_PROPERTIES.format(port=port, controller=controller, folder=folder))
    java = [str(find_java().executable), "-Xmx384m", *QUICK.split(), "-cp", ":".join(map(str, broker_jars()))]
    log = folder / "broker.log"
    with log.open("wb") as output:
        format_command = [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(config)]
        subprocess.run(format_command, stdout=output, stderr=output, check=True)
        command = [*java, "kafka.Kafka", str(config)]
        # One system call between fork and exec, of a library that is loaded already.
        process = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=_end_with_parent)  # noqa: PLW1509
    try:
        _wait(process, port, log)
        yield f"{LOOPBACK}:{port}"
    finally:
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_with_parent() -> None:
    """Whoever kills the tests kills the broker, where the system can do that."""
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    end = time.monotonic() + _START_S
    while not _answers(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"the Kafka broker does not answer:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.2)


def _answers(port: int) -> bool:
    """Whether a broker tells its API versions: an open port alone is there long before."""
    request = struct.pack(">hhih", 18, 0, 1, -1)  # ApiVersions, version 0, correlation id 1, no client id
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2.0) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = connection.recv(10, socket.MSG_WAITALL)  # length, correlation id, error code
    except OSError:
        return False
    return len(answer) == 10 and struct.unpack(">iih", answer)[1:] == (1, 0)
