"""Spaces: an information space with a schema that can grow."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection

from wherecast.broker.app.access import Admin, Reader, SpaceName, TheBroker, find_space
from wherecast.broker.app.models import SpaceChange, SpaceIn, SpaceOut, space_out
from wherecast.broker.problems import Problem, not_found
from wherecast.broker.store import audit, spaces
from wherecast.broker.store.spaces import Quotas, StoredSpace
from wherecast.language.events.schema import Schema

router = APIRouter(prefix="/v1/spaces", tags=["spaces"])


@router.post("", response_model=SpaceOut, status_code=201)
async def create(who: Admin, broker: TheBroker, given: SpaceIn) -> dict[str, Any]:
    """Make a space with a schema: names and Spark SQL's types."""
    schema = Schema.of(given.schema_)
    retention = {"retention_ms": given.retention_ms, "retention_bytes": given.retention_bytes}

    def change(connection: Connection, now: int) -> StoredSpace:
        quotas = spaces.find_quotas(connection, who.tenant) or Quotas()
        if len(spaces.list_spaces(connection, who.tenant)) >= quotas.spaces:
            raise Problem(403, "quota", "the tenant has as many spaces as its quota allows")
        found = spaces.add_space(connection, who.tenant, given.name, schema.to_json(), retention, now)
        if found is None:
            raise Problem(409, "exists", f"the space {given.name!r} exists already")
        audit.write(connection, who.tenant, now, who.actor, "create space", given.name, {"attributes": len(schema)})
        return found

    stored = await broker.run(change)
    await broker.space(who.tenant, given.name)
    return space_out(stored)


@router.get("", response_model=list[SpaceOut])
async def list_spaces(who: Reader, broker: TheBroker) -> list[dict[str, Any]]:
    """The spaces of the tenant."""
    return [space_out(space) for space in await broker.read(lambda c: spaces.list_spaces(c, who.tenant))]


@router.get("/{space}", response_model=SpaceOut)
async def get(who: Reader, broker: TheBroker, name: SpaceName) -> dict[str, Any]:
    """One space."""
    stored = await broker.read(lambda c: spaces.find_space(c, who.tenant, name))
    if stored is None:
        raise not_found("space", name)
    return space_out(stored)


@router.patch("/{space}", response_model=SpaceOut)
async def grow(who: Admin, broker: TheBroker, name: SpaceName, given: SpaceChange) -> dict[str, Any]:
    """Add attributes to the schema, or change how long events are kept. Attributes are never changed or removed."""
    space = await find_space(broker, who, name)
    retention = given.model_dump(include={"retention_ms", "retention_bytes"}, exclude_unset=True)
    old = space.schema.to_dict()
    new = Schema.of({**old, **(given.schema_ or {})})
    changed = [a.name for a in space.schema.attributes if new.to_dict().get(a.name) != old[a.name]]
    if changed or new.time_zone != space.schema.time_zone:
        what = f"the type of {changed[0]!r}" if changed else "the time zone"
        raise Problem(409, "schema", f"{what} cannot change; make a new attribute, or a new space")

    def write(connection: Connection, now: int) -> None:
        if retention:
            spaces.set_retention(connection, space.tenant, space.space, retention)
        if new != space.schema:
            spaces.set_schema(connection, space.tenant, space.space, new.to_json())
        names = [a.name for a in new.attributes[len(space.schema) :]]
        audit.write(connection, who.tenant, now, who.actor, "grow space", name, {"attributes": names, **retention})

    if new != space.schema:
        await broker.grow_schema(space, new, write)
    else:
        await broker.run(write)
    stored = await broker.read(lambda c: spaces.find_space(c, who.tenant, name))
    if stored is None:
        raise not_found("space", name)
    space.stored = stored
    return space_out(stored)


@router.delete("/{space}", status_code=204)
async def remove(who: Admin, broker: TheBroker, name: SpaceName) -> Response:
    """Delete a space with its subscriptions and events."""
    space = await find_space(broker, who, name)

    def change(connection: Connection, now: int) -> None:
        spaces.remove_space(connection, space.tenant, space.space)
        audit.write(connection, who.tenant, now, who.actor, "delete space", name, {})

    await broker.run(change)
    broker.forget(space)
    return Response(status_code=204)
