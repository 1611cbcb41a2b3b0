"""The examples of the broker's guide run, from top to bottom, against a broker; so do the clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.servers.webhooks import receiving_webhooks
from tests.servers.wherecast_broker import running_wherecast

from wherecast import AsyncClient, BrokerError, Client

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
GUIDE = GUIDES / "broker.md"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with running_wherecast(tmp_path_factory.mktemp("docs"), settings=("heartbeat_s=0.5",)) as found:
        yield found


class GuideRunner:
    """Runs the blocks of a guide one after the other: what Python defines stays, and `wherecast` is this one."""

    def __init__(self, broker, folder, capsys, **names):
        program = folder / "wherecast"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m wherecast "$@"\n')
        program.chmod(0o755)
        path = f"{folder}{os.pathsep}{os.environ['PATH']}"
        given = {"URL": broker.url, "TOKEN": broker.token, "PATH": path}
        told = {"WHERECAST_URL": broker.url, "WHERECAST_TOKEN": broker.token}
        self.environment = {**os.environ, **given, **told}
        self.names = {"url": broker.url, "token": broker.token, **names}
        self.capsys = capsys

    def run(self, kind, block):
        """What a block prints."""
        if kind == "py":
            exec(compile(textwrap.dedent(block), "guide", "exec"), self.names)
            return self.capsys.readouterr().out
        command = ["sh", "-e", "-c", block]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout


def blocks(text):
    """The kinds and texts of the blocks that run; those inside a list are indented."""
    return re.findall(r"^ *```(sh|py)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)


def test_the_examples_of_the_guide_run(broker, tmp_path, capsys):
    """curl, Python and the commands do what the guide says."""
    runner = GuideRunner(broker, tmp_path, capsys)
    printed = [runner.run(*block) for block in blocks(GUIDE.read_text())]
    assert '"version": 1' in printed[1]
    assert '"matches": 1' in printed[2]
    assert '"subscriptions":["cheap-ibm"]' in printed[3].replace(" ", "")
    assert "['dear']" in printed[4]
    assert printed[5].count('"position"') == 2


def test_the_examples_on_delivery_run(tmp_path, capsys):
    """A route is made, verified and tried; a message verifies; a dead letter is listed and replayed."""
    with (
        receiving_webhooks() as hooks,
        running_wherecast(tmp_path, settings=("webhook_allow=127.0.0.0/8",)) as broker,
    ):
        got = []
        hooks.take = lambda path, headers, body: got.append({"headers": headers, "body": body}) or 204
        runner = GuideRunner(broker, tmp_path, capsys)
        text = (GUIDES / "delivery.md").read_text().replace("https://example.com/hook", f"{hooks.url}/hook")
        with Client(broker.url, broker.token) as client:
            client.create_space("quotes", {"symbol": "string", "price": "double"})
            first, verify, dead, commands = blocks(text)
            runner.run(*first)
            runner.names.update(got[0])
            runner.run(*verify)
            assert runner.names["event"]["data"]["event"]["data"] == {"test": True}
            client.put_subscriber("alice", routes=[{"kind": "feed"}], muted=True)
            client.publish("quotes", {"price": 1.0})
            while not list(client.deliveries()):
                time.sleep(0.01)
            client.delete_subscriber("alice")
            assert "the subscriber was deleted" in runner.run(*dead)
            told = runner.run(*commands)
        made, alice, one, same, replayed = map(json.loads, told.splitlines())
        assert alice == made
        assert (alice["name"], one["state"], same["id"], replayed) == ("alice", "dead", one["id"], {"replayed": 1})


@pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed (Debian: apt install nodejs)")
def test_the_example_in_javascript_runs(broker):
    """It publishes an event and finds it in the feed of the subscriber."""
    with Client(broker.url, broker.token) as client:
        if "quotes" not in {space["name"] for space in client.spaces()}:
            client.create_space("quotes", {"symbol": "string", "price": "double"})
        client.replace("quotes", "cheap-ibm", "symbol = 'IBM' AND price < 120", subscriber="alice")
    (block,) = re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    environment = {**os.environ, "URL": broker.url, "TOKEN": broker.token}
    command = ["node", "--input-type=module", "-e", block]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"\d+ \{ symbol: 'IBM', price: 117.5 \} \[ 'cheap-ibm' \]\n", done.stdout), done.stdout


def test_clients_do_all_that_the_api_does(broker):
    """Both clients: a subscription's life, errors with their place, feeds that end when the reader has enough."""
    with Client(broker.url, broker.token) as client:
        client.create_space("clients", {"n": "bigint"})
        client.grow_space("clients", {"name": "string"})
        assert "clients" in {space["name"] for space in client.spaces()}
        made = client.subscribe("clients", "n > 1", id="a", subscriber="x", labels={"k": "v"})
        assert client.get("clients", "a") == made
        with pytest.raises(BrokerError, match="m") as caught:
            client.subscribe("clients", "m > 1")
        assert (caught.value.status, caught.value.problem["column"]) == (422, 1)
        assert client.load("clients", [{"id": f"b{n}", "filter": f"n > {n}"} for n in range(3)]).created == 3
        assert [s.id for s in client.subscriptions("clients")] == ["a", "b0", "b1", "b2"]
        client.pause("clients", "b0")
        client.resume("clients", "b0")
        client.expire("clients", "b1")
        client.delete("clients", "b2")
        client.replace("clients", "a", "n > 0", if_version=made.version)
        assert client.match("clients", {"n": 1})["subscriptions"] == ["a", "b0"]
        assert client.publish("clients", [{"n": n} for n in range(3)]).matches == 4
        feed = client.feed("clients", after="earliest")
        assert [(e.data["n"], sorted(e.subscriptions)) for e in (next(feed), next(feed))] == [
            (1, ["a", "b0"]),
            (2, ["a", "b0"]),
        ]
        feed.close()

    async def asynchronous():
        async with AsyncClient(broker.url, broker.token) as client:
            await client.subscribe("clients", "n = 7", id="seven")
            receipt = await client.publish("clients", {"n": 7})
            assert receipt.matches == 3
            async for event in client.feed("clients", subscription="seven", after="earliest"):
                assert event.data == {"n": 7}
                break
            return [s.id async for s in client.subscriptions("clients", text="seven")]

    assert asyncio.run(asynchronous()) == ["seven"]
