"""Who is told how, and what became of it: tell, subscribers, deliveries, replay."""

from __future__ import annotations

import enum
import itertools
import json
from typing import Annotated, Any

import typer

from wherecast.cli.broker import LOCAL, TokenOption, UrlOption, connect
from wherecast.cli.failures import CommandError, usage_error

delivery_app = typer.Typer(rich_markup_mode="rich")

NameOption = Annotated[str | None, typer.Option("--subscriber", metavar="NAME", help="Those of this subscriber.")]


class RouteName(enum.StrEnum):
    """The kinds of routes."""

    WEBHOOK = "webhook"
    EMAIL = "email"
    CHAT = "chat"
    FILE = "file"
    FEED = "feed"


@delivery_app.command()
def tell(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The subscriber, as subscriptions name it.")],
    kind: Annotated[RouteName, typer.Argument(metavar="KIND", help="webhook, email, chat, file or feed.")],
    target: Annotated[
        str, typer.Argument(metavar="[TARGET]", help="A URL, an address or a file name; none: a feed.")
    ] = "",
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Tell a subscriber of matches by one more route, and print the subscriber as JSON. A webhook is asked whether it agrees.

    The secret that signs a webhook is shown only now. The exit code is 1 if the webhook does not agree.

    \b
    Examples:
      wherecast tell alice email alice@example.com
      wherecast tell alice webhook https://example.com/hook
    """
    from wherecast.broker.client.calls import BrokerError

    with connect(url, token) as client:
        fields: dict[str, Any] = {"routes": []}
        try:
            fields |= client.subscriber(name)
        except BrokerError as error:
            if error.status != 404:
                raise
        routes = [{key: one[key] for key in ("route", "kind", "target")} for one in fields["routes"]]
        fields["routes"] = [*routes, {"kind": kind.value, "target": target}]
        for key in ("name", "created_at", "updated_at"):
            fields.pop(key, None)
        made = client.put_subscriber(name, **fields)
        route = made["routes"][-1]
        if kind is RouteName.WEBHOOK:
            secret = route["secret"]
            route.update(client.verify_route(name, route["route"]))
            route["secret"] = secret
    typer.echo(json.dumps(made))
    if route["state"] != "active":
        raise CommandError(f"nothing is sent to {target} yet: {route['reason']}")


@delivery_app.command()
def subscribers(
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="Those with this in their name.")] = None,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Print the subscribers that are told by routes, a line of JSON each.

    \b
    Examples:
      wherecast subscribers
      wherecast subscribers --text ali
    """
    with connect(url, token) as client:
        for row in client.subscribers(text=text):
            typer.echo(json.dumps(row))


@delivery_app.command()
def deliveries(
    subscriber: NameOption = None,
    dead: Annotated[bool, typer.Option("--dead", help="Dead letters only: what was given up.")] = False,
    pending: Annotated[bool, typer.Option("--pending", help="Only what will be tried.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many.")] = None,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Print deliveries, the newest first, a line of JSON each: state, tries, and the reason if one failed.

    \b
    Examples:
      wherecast deliveries --count 20
      wherecast deliveries --dead --subscriber alice
    """
    if dead and pending:
        raise usage_error("--dead or --pending, not both")
    state = "dead" if dead else "pending" if pending else None
    with connect(url, token) as client:
        for row in itertools.islice(client.deliveries(subscriber=subscriber, state=state), count):
            typer.echo(json.dumps(row))


@delivery_app.command()
def replay(
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="A dead letter, as `deliveries` names it.")] = None,
    subscriber: NameOption = None,
    every: Annotated[bool, typer.Option("--all", help="All dead letters.")] = False,
    url: UrlOption = LOCAL,
    token: TokenOption = None,
) -> None:
    """Try dead letters again, with the ids that they had: one, those of a subscriber, or all.

    \b
    Examples:
      wherecast replay d0123456789abcdef
      wherecast replay --subscriber alice
      wherecast replay --all
    """
    if [id is not None, subscriber is not None, every].count(True) != 1:
        raise usage_error("say which dead letters: an ID, --subscriber NAME, or --all")
    with connect(url, token) as client:
        typer.echo(json.dumps({"replayed": client.replay(id, subscriber=subscriber)}))
