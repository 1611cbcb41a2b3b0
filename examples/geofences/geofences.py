"""Geofences: zones of a city are filters over positions; couriers send where they are; a map shows who was told.

    python geofences.py map.html      # then open map.html: one file, nothing is fetched

A zone is a rectangle, a circle or a convex polygon. Each is a condition over latitude and longitude: bounds, which are indexed, and for circles
and polygons an expression that decides at the rim.
"""

from __future__ import annotations

import argparse
import html
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from wherecast import Engine

SCHEMA = {"lat": "double", "lon": "double", "speed": "double", "vehicle": "string", "courier": "integer"}
#: A city: middle, and half its height and width in degrees.
MIDDLE, HALF = (52.52, 13.40), (0.09, 0.15)
#: Kilometres of a degree of latitude, and of longitude at this latitude: flat is good enough for a city.
KM_LAT = 111.2
KM_LON = KM_LAT * math.cos(math.radians(MIDDLE[0]))
#: Pixels of the map.
WIDTH, HEIGHT = 960, 860

Point = tuple[float, float]  # latitude, longitude


class Zone(NamedTuple):
    """A zone: its name, its condition, and its shape on the map."""

    name: str
    condition: str
    shape: str


def rectangle(name: str, south: float, west: float, north: float, east: float, more: str = "") -> Zone:
    """All between four bounds."""
    (x, y), (x2, y2) = place((north, west)), place((south, east))
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{x2 - x:.1f}" height="{y2 - y:.1f}"/>'
    return Zone(name, bounds(south, west, north, east) + more, shape)


def circle(name: str, middle: Point, km: float, more: str = "") -> Zone:
    """All within a distance of a point."""
    (lat, lon), d_lat, d_lon = middle, km / KM_LAT, km / KM_LON
    near = f"pow((lat - {lat}) * {KM_LAT}, 2) + pow((lon - {lon}) * {KM_LON:.4f}, 2) <= {km * km:.4f}"
    x, y = place(middle)
    shape = f'<ellipse cx="{x:.1f}" cy="{y:.1f}" rx="{d_lon * scale()[1]:.1f}" ry="{d_lat * scale()[0]:.1f}"/>'
    return Zone(name, f"{bounds(lat - d_lat, lon - d_lon, lat + d_lat, lon + d_lon)} AND {near}{more}", shape)


def polygon(name: str, corners: list[Point], more: str = "") -> Zone:
    """A convex polygon, its corners counterclockwise: inside is left of every side."""
    sides = [
        f"({lon2 - lon:.6f}) * (lat - {lat}) - ({lat2 - lat:.6f}) * (lon - {lon}) >= 0"
        for (lat, lon), (lat2, lon2) in zip(corners, corners[1:] + corners[:1], strict=True)
    ]
    lats, lons = zip(*corners, strict=True)
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(place, corners))
    condition = " AND ".join([bounds(min(lats), min(lons), max(lats), max(lons)), *sides])
    return Zone(name, condition + more, f'<polygon points="{points}"/>')


def bounds(south: float, west: float, north: float, east: float) -> str:
    """The condition of a rectangle; this part is indexed."""
    return f"lat BETWEEN {south:.6f} AND {north:.6f} AND lon BETWEEN {west:.6f} AND {east:.6f}"


def scale() -> Point:
    """Pixels per degree."""
    return HEIGHT / (2 * HALF[0]), WIDTH / (2 * HALF[1])


def place(point: Point) -> Point:
    """Where a point is on the map: x, y."""
    per_lat, per_lon = scale()
    return (point[1] - MIDDLE[1] + HALF[1]) * per_lon, (MIDDLE[0] + HALF[0] - point[0]) * per_lat


def make_zones(count: int, seed: int = 3) -> list[Zone]:
    """Zones all over the city: some count for some vehicles or speeds only."""
    rng = random.Random(seed)

    def somewhere() -> Point:
        return (
            round(MIDDLE[0] + rng.uniform(-0.9, 0.9) * HALF[0], 5),
            round(MIDDLE[1] + rng.uniform(-0.9, 0.9) * HALF[1], 5),
        )

    def quarter(name: str) -> Zone:
        lat, lon = somewhere()
        return rectangle(name, lat, lon, lat + 0.006, lon + 0.012, " AND speed > 30")

    def depot(name: str) -> Zone:
        return circle(name, somewhere(), round(rng.uniform(0.3, 1.2), 2))

    def district(name: str) -> Zone:
        lat, lon = somewhere()
        turns = sorted(rng.uniform(0, 2 * math.pi) for _ in range(6))
        corners = [(round(lat + 0.008 * math.sin(t), 5), round(lon + 0.013 * math.cos(t), 5)) for t in turns]
        return polygon(name, corners, " AND vehicle <> 'bicycle'")

    kinds: list[tuple[str, Callable[[str], Zone]]] = [("quarter", quarter), ("depot", depot), ("district", district)]
    return [kinds[n % 3][1](f"{kinds[n % 3][0]} {n // 3}") for n in range(count)]


def make_positions(couriers: int, steps: int, seed: int = 4) -> pa.Table:
    """Couriers on their ways, a row for each step."""
    rng = random.Random(seed)
    rows = []
    for courier in range(couriers):
        lat = MIDDLE[0] + rng.uniform(-0.8, 0.8) * HALF[0]
        lon = MIDDLE[1] + rng.uniform(-0.8, 0.8) * HALF[1]
        turn, vehicle = rng.uniform(0, 2 * math.pi), rng.choice(("bicycle", "van", "scooter"))
        for _ in range(steps):
            turn += rng.gauss(0, 0.35)
            speed = rng.uniform(10, 50)
            lat += speed / 50 * 0.0012 * math.sin(turn)
            lon += speed / 50 * 0.0020 * math.cos(turn)
            rows.append({"lat": lat, "lon": lon, "speed": speed, "vehicle": vehicle, "courier": courier})
    return pa.Table.from_pylist(rows)


def draw(zones: list[Zone], positions: pa.Table, told: list[list[int]]) -> str:
    """The map as one page: zones, ways, and a mark wherever a zone told somebody."""
    shapes = [
        f'<g class="{zone.name.split()[0]}"><title>{html.escape(zone.name + chr(10) + zone.condition)}</title>{zone.shape}</g>'
        for zone in zones
    ]
    ways: dict[int, list[str]] = {}
    marks = []
    for row, found in zip(positions.to_pylist(), told, strict=True):
        x, y = place((row["lat"], row["lon"]))
        ways.setdefault(row["courier"], []).append(f"{x:.1f},{y:.1f}")
        if found:
            names = ", ".join(zones[n].name for n in found)
            marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{html.escape(names)}</title></circle>')
    lines = [f'<polyline points="{" ".join(points)}"/>' for points in ways.values()]
    return PAGE.format(
        width=WIDTH,
        height=HEIGHT,
        shapes="\n".join(shapes),
        ways="\n".join(lines),
        marks="\n".join(marks),
        text=f"{len(zones)} zones, {positions.num_rows:,} positions of {len(ways)} couriers, {sum(map(len, told)):,} messages",
    )


PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Geofences</title>
<style>
body {{ margin: 1rem; font: 1rem system-ui, sans-serif; color: #1b2430; background: #fff }}
svg {{ width: 100%; max-width: {width}px; background: #f3f1ea; border: 1px solid #c9c4b5 }}
.quarter {{ fill: #3c6fd8; fill-opacity: .25; stroke: #3c6fd8 }} .depot {{ fill: #d8853c; fill-opacity: .3; stroke: #b8620f }}
.district {{ fill: #3ca66b; fill-opacity: .25; stroke: #2c7d50 }}
.ways {{ fill: none; stroke: #8a8575; stroke-width: 1 }} .marks {{ fill: #b3123b }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e4e8ee; background: #14181f }} svg {{ background: #1d232c; border-color: #3a424e }} }}
</style>
<h1>Geofences</h1>
<p>{text}. Blue: quarters with a speed limit. Orange: depots. Green: districts without cars. A red mark is a position that a zone matched;
point at it, or at a zone, for the name.</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="Map of zones and positions">
{shapes}
<g class="ways">{ways}</g>
<g class="marks">{marks}</g>
</svg></html>
"""


#: A map that is quick to draw and to look at.
SMALL = {"zones": 36, "couriers": 20, "steps": 40}


def draw_city(zones: int, couriers: int, steps: int) -> tuple[list[list[int]], str]:
    """Match all positions against all zones: for each position the numbers of the zones, and the map."""
    fences = make_zones(zones)
    engine = Engine(SCHEMA)
    engine.subscribe_many(enumerate(zone.condition for zone in fences))
    positions = make_positions(couriers, steps)
    told = [[int(n) for n in found] for found in engine.match_batch(positions).to_lists()]
    return told, draw(fences, positions, told)


def main(arguments: list[str] | None = None) -> list[list[int]]:
    """Write the map."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("map", type=Path, nargs="?", default=Path("map.html"))
    for name, usual in SMALL.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(arguments)
    told, page = draw_city(given.zones, given.couriers, given.steps)
    given.map.write_text(page, encoding="utf-8")
    print(f"{sum(map(len, told)):,} messages for {len(told):,} positions; the map is in {given.map}")
    return told


if __name__ == "__main__":
    main()
