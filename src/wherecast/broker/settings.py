"""Settings of the broker: flags, else environment variables, else a TOML file, else these defaults."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from wherecast.errors import WherecastError

_DAY_MS = 86_400_000


class SettingsError(WherecastError):
    """A setting that is unknown or has a wrong value."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Every name is a key of the TOML file and, in upper case after WHERECAST_, an environment variable."""

    database: str = "sqlite:///wherecast.db"
    host: str = "127.0.0.1"
    port: int = 8080
    #: Folder of the engines' snapshots; empty: beside a SQLite file, none for PostgreSQL.
    snapshots: str = ""
    #: Of one request's body.
    max_body_bytes: int = 64 << 20
    #: Of one event, as JSON.
    max_event_bytes: int = 1 << 20
    #: Events of one request.
    max_batch_events: int = 100_000
    #: How long the body of a request may take.
    body_timeout_s: float = 60.0
    #: Connections at a time; more are answered with 503.
    max_connections: int = 20_000
    #: Of one token; 0: no limit.
    max_requests_per_s: float = 0.0
    #: Of one tenant; 0: no limit.
    max_events_per_s: float = 0.0
    #: A reader that takes nothing for so long is cut off.
    slow_reader_s: float = 30.0
    #: An idle feed shows so often that it is alive.
    heartbeat_s: float = 15.0
    #: How long events are kept, unless a space says otherwise.
    retention_ms: int = 7 * _DAY_MS
    #: How many bytes of events a space keeps, unless it says otherwise.
    retention_bytes: int = 10 << 30
    #: How long the answer to a request with an idempotency key is kept.
    answers_ms: int = _DAY_MS
    #: How long a session of the console lasts.
    session_ms: int = _DAY_MS // 2
    #: How long a deleted subscription is kept as a tombstone, for those who follow changes.
    tombstones_ms: int = 7 * _DAY_MS
    #: A snapshot is written after so many changes.
    snapshot_every: int = 50_000
    #: Networks that webhooks may go to besides public addresses, separated by commas: 10.1.0.0/16, ::1/128.
    webhook_allow: str = ""
    #: How long one try of a webhook may take, name server included.
    webhook_timeout_s: float = 15.0
    #: Tries at a time to one endpoint, and in all.
    endpoint_concurrency: int = 16
    delivery_concurrency: int = 256
    #: A delivery is given up, and becomes a dead letter, after so long.
    delivery_ms: int = 3 * _DAY_MS
    #: How long deliveries that have ended are kept, and dead letters.
    delivered_ms: int = 7 * _DAY_MS
    dead_letters_ms: int = 30 * _DAY_MS
    #: The server for e-mail, smtp://USER:PASSWORD@HOST:587 or smtps://..., and who sends it.
    smtp: str = ""
    mail_from: str = ""
    #: Services of Apprise that may be used besides those with a fixed host, separated by commas.
    chat_services: str = ""
    #: Where routes of kind file write; empty: there are none.
    file_folder: str = ""

    @property
    def snapshot_folder(self) -> Path | None:
        if self.snapshots:
            return Path(self.snapshots)
        if self.database.startswith("sqlite:///"):
            return Path(self.database.removeprefix("sqlite:///") + ".engines")
        return None


def read_settings(flags: Mapping[str, Any], file: Path | None, environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings by flags (those that are not None), environment and file, in this order."""
    found: dict[str, Any] = {}
    if file is not None:
        try:
            found = tomllib.loads(file.read_text())
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise SettingsError(f"{file}: {error}") from None
    names = {field.name for field in dataclasses.fields(Settings)}
    unknown = sorted(found.keys() - names)
    if unknown:
        raise SettingsError(f"{file}: unknown setting {unknown[0]!r}; there are {', '.join(sorted(names))}")
    for name in names:
        text = environment.get(f"WHERECAST_{name.upper()}")
        if text is not None:
            found[name] = text
    found.update({name: value for name, value in flags.items() if value is not None})
    types = get_type_hints(Settings)
    return Settings(**{name: _convert(name, value, types[name]) for name, value in found.items()})


def _convert(name: str, value: Any, kind: type) -> Any:
    if kind is int and isinstance(value, float):
        raise SettingsError(f"{name}: expected a whole number, found {value!r}")
    try:
        return kind(value)
    except (TypeError, ValueError):
        raise SettingsError(
            f"{name}: expected {'a whole number' if kind is int else 'a number'}, found {value!r}"
        ) from None
