"""bench/readme.py makes README's figures, and README has what the committed results give."""

from pathlib import Path

import pytest

from bench.readme import END, NOTHING, named, render, rewritten
from bench.report import make_page
from bench.results import Figure, read_figures, read_results

NAME = "bench/results/2026-11-30-0123abcd.jsonl"
FIXTURE = Path(__file__).parent / "fixtures" / "bench_results.jsonl"


@pytest.fixture(scope="module")
def figures() -> list[Figure]:
    return read_figures(FIXTURE.read_text("utf-8").splitlines())


def test_readme_has_the_figures_of_the_committed_results(repo):
    readme = (repo / "README.md").read_text("utf-8")
    name = named(readme)
    found = [] if name == NOTHING else read_results(repo / name)
    assert rewritten(readme, name, found) == readme, f"run python -m bench.readme {name}"


def test_readme_committed_page_is_the_one_of_its_results(repo):
    name = named((repo / "README.md").read_text("utf-8"))
    if name != NOTHING:
        page = (repo / name).with_suffix(".html").read_text("utf-8")
        assert page == make_page(read_results(repo / name)), f"run python -m bench.report {name}"


def test_readme_block_is_replaced_and_nothing_else(figures):
    readme = "before\n" + render(NOTHING, []) + "after\n"
    made = rewritten(readme, NAME, figures)
    assert made.startswith("before\n<!-- ") and made.endswith(END + "after\n")
    assert named(made) == NAME
    assert rewritten(made, NAME, figures) == made
    assert rewritten(made, NOTHING, []) == readme


def test_readme_another_value_gives_another_block(figures):
    place = next(at for at, one in enumerate(figures) if one.name == "load.capacity")
    one = figures[place]
    changed = list(figures)
    changed[place] = Figure(one.name, 2 * one.value, one.unit, (), one.facts)
    assert render(NAME, changed) != render(NAME, figures)


def test_readme_every_row_has_a_figure_and_a_command(figures):
    rows = [line for line in render(NAME, figures).splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for row in rows:
        what, figure, command = (cell.strip() for cell in row.strip("|").split(" | "))
        assert what and any(one.isdigit() for one in figure)
        assert command.startswith("`python -m bench.") and command.endswith("`")


def test_readme_names_the_machine_the_commit_and_the_page(figures):
    block = render(NAME, figures)
    for words in ("A Processor, 2 cores", "0123abcd", "2026-11-30-0123abcd.html"):
        assert words in block


@pytest.mark.parametrize("readme", ["", "no marks", END, render(NOTHING, []).replace(END, "")])
def test_readme_without_marks_is_refused(readme, figures):
    with pytest.raises(ValueError, match="README has no"):
        rewritten(readme, NAME, figures)
