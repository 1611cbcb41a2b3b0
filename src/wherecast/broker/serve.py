"""Running the broker: a socket, uvicorn, and what is said at the start."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys

import uvicorn

from wherecast.broker.app.api import create_app
from wherecast.broker.broker import Broker
from wherecast.broker.settings import Settings, SettingsError

#: The loop that answers and the thread that commits take turns in Python. By default one waits 5 ms for the other, which is longer
#: than a commit takes; a publish has to wait several times.
_SWITCH_S = 0.0005


def serve(settings: Settings) -> None:
    """Serve until somebody ends the process."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    logging.getLogger("alembic").setLevel(logging.WARNING)  # a new file is no news
    sys.setswitchinterval(_SWITCH_S)
    _allow_sockets()
    broker = Broker(settings)
    listener = _listen(settings)
    config = uvicorn.Config(
        create_app(settings, broker),
        log_level="warning",
        access_log=False,
        limit_concurrency=settings.max_connections,
        timeout_graceful_shutdown=5,
        ws_max_size=1 << 16,
        server_header=False,
    )
    server = _Server(config, broker, f"http://{settings.host}:{listener.getsockname()[1]}")
    server.run(sockets=[listener])


class _Server(uvicorn.Server):
    """Says where it listens, and the first token, once."""

    def __init__(self, config: uvicorn.Config, broker: Broker, address: str) -> None:
        super().__init__(config)
        self._broker, self._address = broker, address

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            return
        lines = [
            f"wherecast serves {self._broker.database.name} at {self._address} (API: {self._address}/openapi.json)"
        ]
        if self._broker.first_token is not None:
            lines.append(f"admin token, shown only now: {self._broker.first_token}")
        lines.append(f"console: {self._address}/console")
        sys.stdout.write("\n".join(lines) + "\n")
        sys.stdout.flush()


def _allow_sockets() -> None:
    """Use as many files as the system lets us: each connection is one, and the usual limit is 1,024."""
    if sys.platform != "win32":
        import resource  # noqa: PLC0415 - Windows has none

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        with contextlib.suppress(ValueError, OSError):  # macOS says "unlimited" and means less
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Inherited by connections: one whose peer takes nothing for so long is closed by the system, whatever is buffered. The
        # feed is cut off before that, which counts it.
        milliseconds = int(settings.slow_reader_s * 1000) + 30_000
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        raise SettingsError(
            f"cannot listen at {settings.host}:{settings.port}: {error.strerror}; choose another --port"
        ) from None
    listener.listen(2048)
    return listener
