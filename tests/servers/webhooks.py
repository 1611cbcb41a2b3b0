"""A webhook receiver: verifies signatures with the reference library, and answers as it is told."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError


class WebhookReceiver:
    """What came, by path. `status` says how a message is answered; those below 300 are counted as taken."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.secrets: dict[str, str] = {}  # by path
        self.status: Callable[[str, int], int] = lambda path, count: 204
        self.events: list[dict[str, Any]] = []
        self.taken: Counter[str] = Counter()
        self.tries: Counter[str] = Counter()
        self.unsigned = 0
        self.signatures: list[str] = []
        self.changed = threading.Condition()

    def take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        with self.changed:
            self.changed.notify_all()
            try:
                event = Webhook(self.secrets[path]).verify(body, headers)
            except (WebhookVerificationError, KeyError):
                self.unsigned += 1
                return 401
            id = headers["webhook-id"]
            assert event["id"] == id
            self.tries[id] += 1
            self.signatures.append(headers["webhook-signature"])
            status = self.status(path, self.tries[id])
            if status < 300:
                self.taken[id] += 1
                if self.taken[id] == 1:
                    self.events.append(event)
            return status

    def wait(self, is_done: Callable[[], bool], seconds: float = 30.0) -> None:
        with self.changed:
            assert self.changed.wait_for(is_done, seconds), (len(self.taken), dict(self.tries.most_common(5)))


@contextmanager
def receiving_webhooks() -> Iterator[WebhookReceiver]:
    """A receiver on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_OPTIONS(self) -> None:
            self.send_response(200)
            if "silent" not in self.path:
                self.send_header("WebHook-Allowed-Origin", self.headers["WebHook-Request-Origin"])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = receiver.take(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            self.send_response(status)
            if status != 204:
                self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A broker that is killed breaks its connections."""

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver = WebhookReceiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
