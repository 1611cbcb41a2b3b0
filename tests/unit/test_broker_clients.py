"""The clients of a broker, without one."""

from __future__ import annotations

import inspect

import pytest

from wherecast import AsyncClient, Client


def calls_of(client):
    return {name: f for name, f in vars(client).items() if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(calls_of(Client).keys() | calls_of(AsyncClient).keys()))
def test_both_clients_have_the_same_calls(name):
    """Each call takes the same arguments, gives the same result, and says the same of itself."""
    one, two = calls_of(Client)[name], calls_of(AsyncClient)[name]
    assert inspect.signature(one).parameters == inspect.signature(two).parameters
    given, awaited = (inspect.signature(f).return_annotation for f in (one, two))
    assert given.replace("Iterator", "AsyncIterator") == awaited
    if name != "feed":  # refers to the other
        assert one.__doc__ == two.__doc__
