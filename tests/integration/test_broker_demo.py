"""`make demo-broker`: the story runs, signs in once, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from wherecast.broker.demo import ACTS, FILTERS, SCHEMA, QuoteMarket
from wherecast.engine.engine import Engine

pytestmark = pytest.mark.slow


def start(folder, *arguments):
    environment = {**os.environ, "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "wherecast.broker.demo", "--port", "0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_the_demo_runs_and_leaves_nothing_behind(tmp_path):
    """It prints a link and tells its story; after Ctrl-C no file and no broker is left."""
    demo = start(tmp_path, "--seconds", "300")
    try:
        link = next(found for line in demo.stdout if (found := re.search(r"(http://\S+)/console#once=wc_\S+", line)))
        assert any("Ann's webhook is out of order" in line for line in demo.stdout)
        demo.send_signal(signal.SIGINT)
        out, err = demo.communicate(timeout=60)
        assert (demo.returncode, err) == (0, "")
        assert "nothing is left behind" in out
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(urllib.error.URLError):
            urllib.request.urlopen(f"{link.group(1)}/healthz", timeout=5)
    finally:
        demo.kill()
        demo.wait()


def test_every_filter_of_the_story_has_its_moment():
    """Each filter matches something in one round of the acts, and none matches everything."""
    market = QuoteMarket(1)
    quotes = [quote for act in ACTS for _ in range(int(act.seconds * 4)) for quote in market.quotes(act, 8)]
    engine = Engine(SCHEMA)
    for id, _, filter in FILTERS:
        engine.subscribe(id, filter)
    found = [id for ids in engine.match_batch(quotes) for id in ids]
    for id, _, _ in FILTERS:
        assert 0 < found.count(id) < len(quotes) / 2, (id, found.count(id))
