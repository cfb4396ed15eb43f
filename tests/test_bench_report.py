"""bench/report.py makes a page of whatever figures there are, and it needs nothing else."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from bench.figures import figure_line
from bench.report import SECTIONS, main, make_page
from bench.results import Figure, read_figures, read_line

VOID = {"meta", "link", "br", "img", "input", "hr"}
FIXTURE = Path(__file__).parent / "fixtures" / "bench_results.jsonl"


class Checked(HTMLParser):
    """Notes tags that do not close, ids, links and what could reach outside."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.faults: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.labels: list[str] = []
        self.words: list[str] = []
        self.tags: dict[str, int] = {}

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        self.labels += (found.get("aria-labelledby") or "").split()
        self.links += [found[name] for name in ("href", "src", "xlink:href") if name in found]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")

    def handle_data(self, data):
        self.words.append(data)


def checked(page: str) -> Checked:
    parser = Checked()
    parser.feed(page)
    parser.close()
    return parser


@pytest.fixture(scope="module")
def figures() -> list[Figure]:
    return read_figures(FIXTURE.read_text("utf-8").splitlines())


@pytest.fixture(scope="module")
def page(figures) -> str:
    return make_page(figures)


def test_report_page_is_well_formed(page):
    found = checked(page)
    assert found.open == [] and found.faults == []
    assert len(set(found.ids)) == len(found.ids)
    assert set(found.labels) <= set(found.ids)


def test_report_page_refers_to_nothing_outside(page):
    found = checked(page)
    assert found.links and all(link.startswith("#") for link in found.links)
    assert {link[1:] for link in found.links} <= set(found.ids)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    addresses = set(re.findall(r"\w+://[^\s\"'<]+", page)) - {"http://www.w3.org/2000/svg"}
    assert not addresses
    assert "url(" not in page and "@import" not in page


def test_report_every_figure_of_the_results_is_on_the_page(figures, page):
    words = " ".join(checked(page).words)
    for name in {one.name for one in figures}:
        assert name in words
    whole = page[page.index('id="all"'):]
    assert whole.count("<tr>") - whole.count("<thead>") == len(figures)


def test_report_every_section_has_what_it_shows(figures):
    for make in SECTIONS:
        section = make(figures)
        assert section.figures, section.title
        tables = [*section.tables, *(plot.table for plot in section.plots if plot.table)]
        assert tables, section.title
        for table in tables:
            assert table.rows
            assert all(len(row) == len(table.columns) for row in table.rows), table.title


def test_report_plots_have_words_for_those_who_do_not_see_them(figures):
    for make in SECTIONS:
        for plot in make(figures).plots:
            assert len(plot.words) > len(plot.title) and re.search(r"\d", plot.words)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_report_same_lines_give_the_same_page(seed, page, repo, tmp_path):
    """Whatever the order of sets in the process that makes it."""
    made = tmp_path / "page.html"
    subprocess.run([sys.executable, "-m", "bench.report", str(FIXTURE), "-o", str(made)], cwd=repo,
                   env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True)
    assert made.read_text("utf-8") == page


def test_report_no_figures_says_how_to_get_them():
    found = checked(make_page([]))
    assert found.faults == [] and "svg" not in found.tags
    words = " ".join(found.words)
    for program in ("bench.load_curve", "bench.engine", "bench.padding", "bench.peers.venv",
                    "bench.front", "bench.engine --short --roofline"):
        assert program in words


@pytest.mark.parametrize("left_out", ["load.", "engine.ms", "engine.ratio", "engine.fraction",
                                      "padding.", "peers.", "front.", "bench."])
def test_report_page_without_some_of_the_figures_is_whole(figures, left_out):
    found = checked(make_page([one for one in figures if not one.name.startswith(left_out)]))
    assert found.open == [] and found.faults == []


def test_report_each_figure_alone_makes_a_page(figures):
    for one in {figure.name: figure for figure in figures}.values():
        found = checked(make_page([one]))
        assert found.faults == [] and one.name in " ".join(found.words)


def test_report_figures_without_their_facts_make_a_page(figures):
    bare = [Figure(name, 1.0, "x") for name in {one.name for one in figures}]
    assert checked(make_page(bare)).faults == []


def test_report_facts_cannot_write_html():
    line = figure_line("front.ratio_64", 1.0, "x", model="<script>alert(1)</script>")
    page = make_page([read_line(line)])
    assert "<script>" not in page and "&lt;script&gt;" in page


@pytest.mark.parametrize("client, is_said", [("own", True), ("wrk", False)])
def test_report_says_where_wrk_was_missing(client, is_said):
    line = figure_line("load.capacity", 100.0, "requests/s", model="m", texts="t", client=client)
    assert ("wrk was not installed" in make_page([read_line(line)])) == is_said


def test_report_unknown_figure_is_listed(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text(figure_line("strange.new", 3.0, "s", what="yes") + "\nnot json\n")
    assert main([str(path)]) == 0
    assert "strange.new" in path.with_suffix(".html").read_text("utf-8")


def test_report_missing_results_are_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "none.jsonl")])
    assert ended.value.code == 2 and "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"figure": "a", "value": true, "unit": "s"}',
                                  '{"figure": "a", "value": 1, "unit": "s", "runs": ["x"]}',
                                  '{"figure": "a", "value": Infinity, "unit": "s"}'])
def test_results_line_that_is_no_figure_is_none(line):
    assert read_line(line) is None


def test_results_line_gives_back_what_was_emitted():
    figure = read_line(figure_line("a.b", 2.0, "s", [1.0, 2.0, 4.0], model="m"))
    assert (figure.name, figure.value, figure.unit, figure.runs) == ("a.b", 2.0, "s", (1, 2, 4))
    assert (figure.low, figure.high, figure.text("model")) == (1, 4, "m")
    assert json.loads(figure_line("a", 1.23456, "s"))["value"] == 1.235
