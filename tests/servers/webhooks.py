"""A webhook receiver of a test's own: agrees to the handshake, and fails while it is told to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.servers.ports import LOOPBACK


class WebhookReceiver(ThreadingHTTPServer):
    """What it got is in `received`, headers and body; `is_broken` makes it answer 503."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.is_broken = False
        self.received: list[tuple[dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/hook"


class _Handler(BaseHTTPRequestHandler):
    server: WebhookReceiver

    def do_OPTIONS(self) -> None:
        self.send_response(200)
        self.send_header("WebHook-Allowed-Origin", "*")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self.server.is_broken:
            self.server.received.append((dict(self.headers), body))
        self.send_response(503 if self.server.is_broken else 204)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def running_receiver() -> Iterator[WebhookReceiver]:
    server = WebhookReceiver()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
