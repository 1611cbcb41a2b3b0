"""The clients of a broker, without one."""

from __future__ import annotations

import inspect
from typing import get_type_hints

import pytest

from wherecast import AsyncClient, Client
from wherecast.broker.app import delivery_models, models
from wherecast.broker.client import results


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


SHAPES = [
    (results.SpaceInfo, models.SpaceOut),
    (results.RouteInfo, delivery_models.RouteOut),
    (results.SubscriberInfo, delivery_models.SubscriberOut),
    (results.SubscriberFields, delivery_models.SubscriberIn),
    (results.RouteTest, delivery_models.RouteTestOut),
    (results.DeliveryInfo, delivery_models.DeliveryOut),
    (results.DeliveryHistory, delivery_models.DeliveryDetails),
    (results.BrokerSubscription, models.SubscriptionOut),
]


@pytest.mark.parametrize(("told", "given"), SHAPES)
def test_results_have_the_fields_of_the_api(told, given):
    """What a client promises is what the broker answers; a subscriber's name is an argument of its own."""
    fields = {field.alias or name for name, field in given.model_fields.items()}
    assert {*get_type_hints(told)} == fields - ({"name"} if told is results.SubscriberFields else set())
