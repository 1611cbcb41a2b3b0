"""A ring for people: its peers in order, as a circle of characters or a drawing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

from wherecast.overlay.requests import PeerError

_ROWS = 17
_COLUMNS = 37  # a character is about twice as high as it is wide


class Place(NamedTuple):
    """A peer on the ring."""

    peer: str
    id: int
    share: float  # of the ring that it owns
    successor: str
    keys: int
    subscriptions: int
    is_consistent: bool  # its neighbours are the next peers on either side


def places(statuses: list[dict[str, Any]]) -> list[Place]:
    """Members by id, from what each says of itself (`Peer.status`)."""
    members = sorted((s for s in statuses if s["is_member"]), key=lambda s: int(s["id"], 16))
    found = []
    for number, status in enumerate(members):
        before, after = members[number - 1], members[(number + 1) % len(members)]
        size = 1 << status["bits"]
        owned = (int(status["id"], 16) - int(before["id"], 16)) % size or size
        neighbours = (status["predecessor"] or {}).get("id"), status["successors"][0]["id"]
        found.append(
            Place(
                status["peer"],
                int(status["id"], 16),
                owned / size,
                status["successors"][0]["peer"],
                status["keys"],
                status["subscriptions"],
                neighbours == (before["id"], after["id"]),
            )
        )
    return found


def _angles(ring: list[Place], bits: int) -> list[float]:
    """Clockwise from the top."""
    return [2 * math.pi * place.id / (1 << bits) for place in ring]


def draw_text(ring: list[Place], bits: int) -> str:
    """A circle with the number of each peer at its place; peers that share a place stand beside each other."""
    grid = [[" "] * (_COLUMNS + 8) for _ in range(_ROWS)]

    def spot(angle: float) -> tuple[int, int]:
        row = (_ROWS - 1) / 2 * (1 - math.cos(angle))
        return round(row), round((_COLUMNS - 1) / 2 * (1 + math.sin(angle))) + 2

    for step in range(240):
        row, column = spot(step * math.pi / 120)
        grid[row][column] = "·"
    for number, angle in enumerate(_angles(ring, bits), 1):
        row, column = spot(angle)
        label = str(number)
        while any(c.isdigit() for c in grid[row][column : column + len(label) + 1]):
            column += 1
        grid[row][column : column + len(label)] = label
    return "\n".join("".join(line).rstrip() for line in grid)


def save_picture(ring: list[Place], bits: int, path: Path) -> None:
    """A drawing: peers at their places, arcs by owner. Raises PeerError without matplotlib or for another suffix."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise PeerError(f"'{path}': unknown suffix {path.suffix!r}; name it .png or .svg")
    try:
        from matplotlib.figure import Figure  # in the extra `lab`
    except ImportError:
        raise PeerError("drawing needs matplotlib; install wherecast[lab]") from None
    figure = Figure(figsize=(8, 6), dpi=150)
    axes: Any = figure.add_axes((0.1, 0.02, 0.8, 0.96), projection="polar")
    axes.set_theta_zero_location("N")
    axes.set_theta_direction(-1)
    axes.set_axis_off()
    axes.set_ylim(0, 1.35)
    for number, (place, angle) in enumerate(zip(ring, _angles(ring, bits), strict=True), 1):
        width = 2 * math.pi * place.share
        axes.bar(angle - width / 2, 0.09, width, bottom=0.95, color="#56B4E9" if number % 2 else "#CFE8F7")
        axes.plot([angle], [1.0], "o", color="#0072B2", markersize=9)
        side = "left" if math.sin(angle) >= 0 else "right"
        axes.text(angle, 1.1, f"{number}  {place.peer}, {place.keys} keys", ha=side, va="center", fontsize=7)
    axes.text(0, 0, f"{len(ring)} peers\nclockwise", ha="center", va="center", color="#666666")
    figure.savefig(path)
