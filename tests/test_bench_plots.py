"""bench/plots draws what it is given: well formed, to scale, and no text upon another."""

import random
import xml.etree.ElementTree as ElementTree

import pytest

from bench.plots.curves import Curves, points_of
from bench.plots.dots import Dots
from bench.plots.marks import NARROW_PX, WIDE_PX, Axis, Mark, Row, Series
from bench.plots.scale import Scale, linear_ticks, log_ticks, readable, spread
from bench.plots.shares import Shares
from bench.plots.svg import MARKERS, Drawing, number

WIDTHS = (WIDE_PX, NARROW_PX)
SVG = "{http://www.w3.org/2000/svg}"


def parsed(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(drawing.render("name", "A <title> & more", "words \"here\""))


def overlaps(drawing: Drawing) -> list[tuple[str, str]]:
    """Pairs of texts that lie upon each other."""
    found = []
    for place, (left, top, right, bottom, text) in enumerate(drawing.boxes):
        found += [(text, other[4]) for other in drawing.boxes[:place]
                  if left < other[2] and other[0] < right and top < other[3] and other[1] < bottom]
    return found


def outside(drawing: Drawing) -> list[str]:
    return [text for left, top, right, bottom, text in drawing.boxes
            if left < -1 or top < -1 or right > drawing.width + 1 or bottom > drawing.height + 1]


def some_curves(chance: random.Random) -> Curves:
    """Lines as of latency by load: positive values over four decades, perhaps close together."""
    loads = sorted(chance.sample(range(5, 205, 5), chance.randint(1, 8)))
    series = []
    for name in ("p50", "p90", "p99", "p99.9")[:chance.randint(1, 4)]:
        values = [10 ** chance.uniform(-1, 3) for _ in loads]
        rows = [(load, value, value * chance.uniform(0.5, 1), value * chance.uniform(1, 2))
                for load, value in zip(loads, values)]
        series.append(Series(name, points_of(rows[-chance.randint(1, len(rows)):]), "q0",
                             chance.choice(MARKERS)))
    points = [point for one in series for point in one.points]
    ticks = log_ticks(min(one.low for one in points), max(one.high for one in points))
    return Curves(tuple(series), Axis("offered load, % of capacity", tuple(
        (tick, f"{tick:g}") for tick in linear_ticks(0, 200, 4))),
        Axis("latency, ms", tuple((tick, readable(tick)) for tick in ticks), is_log=True),
        (100.0, "more than it can do"))


def some_rows(chance: random.Random, is_bar: bool) -> tuple[Row, ...]:
    rows = []
    for number_of in range(chance.randint(1, 8)):
        marks = []
        for place in range(1 if is_bar else chance.randint(1, 4)):
            value = chance.uniform(0, 90)
            label = f"{value:.0f}, ours 1.23 ×" if is_bar else ""
            marks.append(Mark(f"server number {place}", value, value * 0.9, value * 1.1,
                              f"s{place}", MARKERS[place], label))
        rows.append(Row(f"row {number_of} of some length", tuple(marks),
                        f"group {number_of // 3}"))
    return tuple(rows)


PERCENT = Axis("share, %", tuple((tick, f"{tick} %") for tick in (0, 25, 50, 75, 100)))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(40))
def test_plots_no_text_lies_upon_another_or_leaves_the_drawing(seed, width):
    chance = random.Random(seed)
    plots = [some_curves(chance), Dots(some_rows(chance, True), PERCENT, is_bar=True),
             Dots(some_rows(chance, False), PERCENT, (50.0, "as fast as ours")),
             Shares(("products", "attention", "rest"), ("s0", "s1", "s2"),
                    tuple((f"8 texts of {at} tokens", (chance.random(), chance.random(), 0.1))
                          for at in range(chance.randint(1, 6))))]
    for plot in plots:
        drawing = plot.draw(width)
        assert parsed(drawing).tag == SVG + "svg"
        assert not overlaps(drawing)
        assert not outside(drawing)


def test_plots_overlapping_texts_would_be_seen():
    drawing = Drawing(100, 100)
    drawing.text(10, 50, "one")
    drawing.text(12, 52, "two")
    assert overlaps(drawing) == [("two", "one")]


def test_plots_names_and_words_are_escaped_and_bound_to_the_drawing():
    drawing = Drawing(10, 10)
    drawing.text(0, 9, "<&>")
    root = parsed(drawing)
    assert root.find(SVG + "title").text == "A <title> & more"
    assert root.find(SVG + "desc").text == 'words "here"'
    assert root.get("aria-labelledby").split() == [root.find(SVG + "title").get("id"),
                                                   root.find(SVG + "desc").get("id")]
    assert root.find(SVG + "text").text == "<&>"


def test_plots_every_point_and_every_spread_is_drawn():
    rows = [(x, 10.0 * x, 9.0 * x, 11.0 * x) for x in (1.0, 2.0, 3.0)]
    plot = Curves((Series("one", points_of(rows)),), Axis("x", ((0, "0"), (4, "4"))),
                  Axis("y", ((0, "0"), (40, "40"))))
    root = parsed(plot.draw(WIDE_PX))
    circles = [one for one in root.iter(SVG + "circle")]
    heights = [float(one.get("cy")) for one in circles]
    assert len(circles) == 3 and heights == sorted(heights, reverse=True)
    assert sum("whisker" in one.get("class", "") for one in root.iter(SVG + "line")) == 9


def test_plots_bar_ends_at_its_value():
    plot = Dots((Row("a", (Mark("a", 50, 50, 50, label="50"),)),
                 Row("b", (Mark("b", 100, 100, 100, label="100"),))), PERCENT, is_bar=True)
    bars = [one for one in parsed(plot.draw(WIDE_PX)).iter(SVG + "rect")
            if "bar" in one.get("class")]
    assert float(bars[1].get("width")) == pytest.approx(2 * float(bars[0].get("width")), abs=0.02)


@pytest.mark.parametrize("low, high, expected", [
    (0, 9.3, [0, 2, 4, 6, 8, 10]), (0, 0.01, [0, 0.002, 0.004, 0.006, 0.008, 0.01]),
    (-1, 1, [-1, -0.5, 0, 0.5, 1]), (5, 5, [5, 6, 7, 8, 9, 10])])
def test_scale_linear_ticks(low, high, expected):
    assert linear_ticks(low, high) == expected


@pytest.mark.parametrize("low, high, expected", [
    (3, 40, [2, 5, 10, 20, 50]), (1, 1000, [1, 3, 10, 30, 100, 300, 1000]),
    (0.4, 2.1e5, [0.1, 1, 10, 100, 1000, 1e4, 1e5, 1e6]), (1, 1, [1])])
def test_scale_log_ticks(low, high, expected):
    assert log_ticks(low, high) == expected


@pytest.mark.parametrize("seed", range(50))
def test_scale_ticks_hold_every_value(seed):
    chance = random.Random(seed)
    low = 10 ** chance.uniform(-4, 4)
    high = low * 10 ** chance.uniform(0.001, 6)
    for ticks in (linear_ticks(low, high), log_ticks(low, high)):
        assert ticks == sorted(set(ticks)) and len(ticks) <= 12
        assert ticks[0] <= low * (1 + 1e-6) and ticks[-1] >= high * (1 - 1e-6)


@pytest.mark.parametrize("value, text", [
    (0, "0"), (0.012345, "0.0123"), (1234.5, "1,230"), (12.0, "12"), (-3.14159, "\u22123.14"),
    (999.9, "1,000"), (0.000012345, "0.0000123"), (100, "100"), (20000, "20,000")])
def test_scale_readable(value, text):
    assert readable(value) == text


def test_scale_maps_both_ends():
    assert [Scale(1, 100, 0, 10, is_log=True)(value) for value in (1, 10, 100)] == [0, 5, 10]
    assert [Scale(0, 4, 10, 0)(value) for value in (0, 1, 4)] == [10, 7.5, 0]


@pytest.mark.parametrize("seed", range(50))
def test_scale_spread_keeps_order_distance_and_bounds(seed):
    chance = random.Random(seed)
    wanted = [chance.uniform(0, 100) for _ in range(chance.randint(1, 6))]
    found = spread(wanted, 15, 0, 100)
    ordered = sorted(found)
    assert all(later - earlier >= 15 - 1e-9 for earlier, later in zip(ordered, ordered[1:]))
    assert ordered[0] >= -1e-9 and ordered[-1] <= 100 + 1e-9
    assert [found.index(one) for one in ordered] == sorted(range(len(wanted)),
                                                           key=lambda place: wanted[place])


def test_scale_spread_leaves_alone_what_has_room():
    assert spread([10, 12, 50], 10, 0, 100) == [6, 16, 50]


def test_svg_numbers_are_short():
    assert [number(value) for value in (1.0, 1.005, -0.001, 12.3456)] == ["1", "1", "0", "12.35"]
