"""What strangers cost a peer: memory and descriptors stay bounded, and an honest client is served meanwhile.

A peer runs as a process of its own, so that what it takes can be measured. All traffic is on the loopback interface.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.servers.ports import free_ports

from wherecast.overlay.client import PeerClient
from wherecast.overlay.frames import MAX_BODY, VERSION, Framing
from wherecast.overlay.requests import Inspect, Publish
from wherecast.overlay.wire import WIRE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc"),
]

SECRET = b"a secret of the whole ring"
HEAD = struct.Struct(">BQI")
PEER = """
import resource, sys
limit = int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
from wherecast.cli.app import main
main()
"""


class Besieged:
    """A ring of one peer in a process."""

    def __init__(self, folder, secret, descriptors):
        [self.port] = free_ports(1)
        self.secret = secret
        (folder / "schema.json").write_text(json.dumps({"price": {"type": "double", "min": 0, "max": 1000}}))
        command = [sys.executable, "-c", PEER, str(descriptors), "peer", "--listen", self.endpoint, "--found", "1"]
        command += ["--schema", str(folder / "schema.json")]
        if secret is not None:
            (folder / "secret").write_bytes(secret)
            command += ["--secret-file", str(folder / "secret")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.sockets = []

    @property
    def endpoint(self):
        return f"127.0.0.1:{self.port}"

    def connect(self):
        made = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        self.sockets.append(made)
        return made

    def shake_hands(self):
        """A connection that has greeted and, where there is no secret, shown all that there is to show."""
        made, framing = self.connect(), Framing(None, is_opener=True)
        greeting = bytearray(framing.greeting)
        greeting[4] = self.secret is not None
        made.sendall(greeting)
        made.recv(len(greeting), socket.MSG_WAITALL)
        if self.secret is None and VERSION > 1:
            made.sendall(HEAD.pack(VERSION, 0, 0))
            made.recv(HEAD.size, socket.MSG_WAITALL)
        return made

    def rested(self):
        """The peer without visitors, its peak of memory forgotten."""
        for each in self.sockets:
            each.close()
        self.sockets.clear()
        self.is_served()
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")
        return self

    @property
    def first_number(self):
        return 1 if self.secret is None and VERSION > 1 else 0

    def send_frame(self, body, announced=None):
        """The first frame of a connection; being cut off is an answer, too."""
        made, number = self.shake_hands(), self.first_number
        with contextlib.suppress(OSError):
            made.sendall(HEAD.pack(VERSION, number, len(body) if announced is None else announced))
            made.sendall(body)
        return made

    def mebibytes(self, name):
        """Memory of the process: VmRSS, what it has now; VmHWM, the most it had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 1024

    @property
    def descriptors(self):
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    async def serve(self):
        """An honest client subscribes, publishes and is told; the counters of the peer."""
        async with asyncio.timeout(30), PeerClient(self.endpoint, self.secret) as client:
            await client.subscribe("s", "price < 10")
            assert (await client.publish(['{"price": 5}']))[0].is_complete
            assert json.loads((await client.notice()).event) == {"price": 5.0}
            await client.unsubscribe("s")
            return (await client.status())["counters"]

    def is_served(self):
        return asyncio.run(self.serve())

    async def wait(self):
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(Exception):
                    await self.serve()
                    return
                await asyncio.sleep(0.2)

    def close(self):
        for each in self.sockets:
            each.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    """Peers by secret and number of descriptors, each started when it is first asked for."""
    started = {}

    def start(secret=None, descriptors=1024):
        if (secret, descriptors) not in started:
            peer = Besieged(tmp_path_factory.mktemp("peer"), secret, descriptors)
            started[secret, descriptors] = peer
            asyncio.run(peer.wait())
        return started[secret, descriptors].rested()

    yield start
    for each in started.values():
        each.close()


@pytest.mark.parametrize("secret", [SECRET, None], ids=["secret", "open"])
def test_unfinished_frames(peers, secret):
    """Sixty frames of 16 MiB that lack their last byte: a peer holds few of them, and sixty more take no more memory."""
    peer, body = peers(secret), bytes(MAX_BODY - 1)
    before, reason = peer.mebibytes("VmRSS"), "oversized" if secret else "crowded"
    for siege in range(2):
        refused = peer.is_served().get(reason, 0)
        for number in range(60):
            peer.send_frame(body, MAX_BODY)
            if number % 20 == 19:
                counters = peer.is_served()
        taken = peer.mebibytes("VmHWM") - before
        print(f"unfinished frames, {reason}, siege {siege}: {taken:.0f} MiB at most; {counters}")
        assert taken < 160
        assert counters[reason] - refused >= 50
        peer.rested()


@pytest.mark.parametrize("is_greeted", [False, True], ids=["silent", "greeted"])
def test_idle_connections(peers, is_greeted):
    """More connections than descriptors: those that wait longest go first, and an honest client gets in."""
    peer = peers(descriptors=128)
    crowd = peer.is_served().get("crowded", 0)
    for number in range(300):
        with contextlib.suppress(OSError):
            (peer.shake_hands if is_greeted else peer.connect)()
        time.sleep(0.01)  # else the peer's short queue overflows, and who is dropped there tries again after a second
        if number % 100 == 99:
            counters = peer.is_served()
    print(f"idle connections, {is_greeted=}: {peer.descriptors} descriptors; {counters}")
    assert peer.descriptors < 110
    assert counters["crowded"] - crowd > 150


ELEMENTS = MAX_BODY - 5
EVENT = b"[" + b"[]," * ((MAX_BODY - 100) // 3) + b"[]]"
BOMBS = {
    "empty arrays": b"\xdd" + struct.pack(">I", ELEMENTS) + b"\x90" * ELEMENTS,
    "empty maps": b"\xdd" + struct.pack(">I", ELEMENTS) + b"\x80" * ELEMENTS,
    "arrays in arrays": (b"\xdd" + struct.pack(">I", 1 << 22)) * 1000 + bytes(MAX_BODY - 5000),
    "a wide text": b"\xdb" + struct.pack(">I", ELEMENTS) + "\N{GRINNING FACE}".encode() + b"x" * (ELEMENTS - 4),
    "an event": WIRE.encode(Publish((EVENT.decode(),), 0)),
    "many events": WIRE.encode(Publish(("{}",) * 1_000_000, 0)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_one_frame(peers, bomb):
    """A frame that would become many times its size is refused before anything is built from it."""
    peer = peers()
    before = peer.mebibytes("VmRSS")
    made = peer.send_frame(BOMBS[bomb])
    body = WIRE.encode(Inspect())
    made.sendall(HEAD.pack(VERSION, peer.first_number + 1, len(body)) + body)
    made.settimeout(60)
    assert made.recv(1)  # an answer: what came before has been dealt with
    taken = peer.mebibytes("VmHWM") - before
    print(f"{bomb}: {taken:.0f} MiB at most; {peer.is_served()}")
    assert taken < 160
