"""The pages in a real browser: narrow and wide screens, light and dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageStat

from benchmarks.paper.catalogue import EXPERIMENTS
from benchmarks.paper.datasets import DataFolder
from benchmarks.paper.experiment import ClaimCheck, Number, Outcome, Request
from benchmarks.paper.figures import new_figure
from benchmarks.paper.results import write_outcome, write_page
from mrtf_fedml.experiments import figures, report
from mrtf_fedml.experiments.plan import Trial
from mrtf_fedml.experiments.report import comparison_page
from mrtf_fedml.experiments.scores import score_trials
from mrtf_fedml.report import write_multi_run_report, write_report

from .browser import Tab, open_browser
from .runs import add_everything, line, write_run

pytestmark = pytest.mark.browser

#: Pictures that cannot be seen, or that stand out of the page.
HIDDEN = """
[...document.querySelectorAll('svg, img')].filter(one => {
  const box = one.getBoundingClientRect();
  return !one.closest('details, .scroll') && (box.width < 100 && one.tagName === 'svg' || box.height < 20 ||
    box.left < 0 || box.right > innerWidth);
}).length
"""
#: The least size of the letters on and around the charts, in pixels of the screen.
LETTERS = """
Math.min(99, ...[...document.querySelectorAll('.chart span, .chart figcaption, .blocks text')].map(one => {
  const drawn = one.closest('svg');
  const scale = drawn ? drawn.getBoundingClientRect().width / drawn.viewBox.baseVal.width : 1;
  return scale * parseFloat(getComputedStyle(one).fontSize);
}))
"""
#: Words on and around the charts that lie over one another, or stand out of their box.
COVERED = """
[...document.querySelectorAll('.chart, .map')].flatMap(chart => {
  const box = chart.closest('.card').getBoundingClientRect();
  const names = '.legend > span, .ys span, .xs span, .note, .map > span:not(:has(em)), .map em';
  const words = [...chart.querySelectorAll(names)]
    .map(one => [one.innerText.trim(), one.getBoundingClientRect()]).filter(([text, place]) => text && place.width);
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return [
    ...words.filter(([, place]) => place.left < box.left || place.right > box.right).map(([text]) => text + ' is out'),
    ...words.flatMap(([text, place], at) => words.slice(at + 1).filter(([, other]) => meet(place, other))
      .map(([over]) => text + ' and ' + over)),
  ];
})
"""
#: Tables of which not even the first two columns are in sight.
UNREAD = """
[...document.querySelectorAll('.scroll:has(table)')].filter(box => {
  const cell = box.querySelector('tr:nth-child(2) > :nth-child(2)').getBoundingClientRect();
  return cell.right > box.getBoundingClientRect().right;
}).map(box => box.getAttribute('aria-label'))
"""
#: How light the page and its cards are, 0 to 255.
GROUNDS = """
['body', '.card'].map(name => Math.max(
  ...getComputedStyle(document.querySelector(name)).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)))
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with open_browser(tmp_path_factory.mktemp("browser") / "profile") as opened:
        yield opened


def check_page(tab: Tab, file: Path) -> None:
    """At 390 and 1280 pixels, light and dark."""
    for width in (390, 1280):
        for dark in (False, True):
            tab.open(file, width, dark)
            seen = f"{width} pixels, {'dark' if dark else 'light'}"
            assert tab.value("document.scrollingElement.scrollWidth <= innerWidth"), f"wider than the screen: {seen}"
            assert tab.value("innerWidth") == width
            assert tab.value("document.querySelectorAll('svg, img').length") > 0
            assert tab.value(HIDDEN) == 0, seen
            assert tab.value(LETTERS) >= 10, seen
            assert tab.value(COVERED) == [], seen
            assert tab.value(UNREAD) == [], seen
            grounds = tab.value(GROUNDS)
            assert max(grounds) < 60 if dark else min(grounds) > 200, seen
            assert tab.messages == [], seen
            assert [one for one in tab.requests if not one.startswith("data:")] == [file.resolve().as_uri()], seen


def test_report_of_a_run_renders_in_a_browser(tab: Tab, tmp_path: Path) -> None:
    metrics = [line(number, acc_mine=0.5, mine_norm=number, excluded_clients={"3": "too late"}) for number in range(3)]
    directory, evaluator = write_run(tmp_path / "run", metrics=metrics, samples=60, warnings=["One class is empty."])
    add_everything(directory)
    check_page(tab, write_report(directory, torch.rand(60, 1, 8, 8), evaluator))
    tab.open(tmp_path / "run" / "report.html", 390, False)
    scrolls = "[...document.querySelectorAll('.scroll')].some(one => one.scrollWidth > one.clientWidth)"
    assert tab.value(scrolls), "the matrix is wider than a telephone, and scrolls in its box"


def test_report_of_a_large_run_renders_in_a_browser(tab: Tab, tmp_path: Path) -> None:
    names = [f"a class of some name, {number}" for number in range(62)]
    metrics = [line(number, acc_mine=0.5, mine_norm=number) for number in range(200)]
    directory, evaluator = write_run(tmp_path / "run", metrics=metrics, samples=26_000, classes=62, names=names)
    add_everything(directory, clients=3000)
    page = write_report(directory, torch.rand(26_000, 3, 32, 32), evaluator)
    assert page.stat().st_size < 5_000_000
    check_page(tab, page)


def test_report_of_several_runs_renders_in_a_browser(tab: Tab, tmp_path: Path) -> None:
    words = ("a-rather-long-name-of-a-folder-of-a-run-20260101-120000", "b", "c", "d", "e", "f")
    stores = [write_run(tmp_path / word)[0] for word in words]
    check_page(tab, write_multi_run_report(stores, tmp_path / "side_by_side.html"))


def test_comparison_page_renders_in_a_browser(tab: Tab, tmp_path: Path) -> None:
    trials = [Trial(f"MrTF:tuned, refine_lr={place}", seed, "", {}, "") for place in range(12) for seed in range(2)]
    rows = score_trials(trials, lambda trial: [line(number, acc=0.1 * number) for number in range(9)], 0.5)
    drawn = {"Accuracy over rounds": figures.curves_chart(rows), "Final accuracy": figures.bars_chart(rows)}
    notes = report.table_notes(rows, 0.5)
    page = comparison_page(
        "A", report.table_cells(rows, 0.5), notes, drawn, "mrtf compare " + "x" * 300, {"a": {"b": 1}}
    )
    (tmp_path / "comparison.html").write_text(page)
    check_page(tab, tmp_path / "comparison.html")


def test_reproduction_page_renders_in_a_browser(tab: Tab, tmp_path: Path) -> None:
    figure, ((panel,),) = new_figure(1, 1)
    panel.plot([0, 1], [0, 1])
    outcome = Outcome(
        figure, [Number("AvgProb, uniform", 44.3), Number("AvgLogi", 3.0)], [ClaimCheck("A", True, "B")], 9.0
    )
    request = Request(DataFolder(tmp_path, [""]), tmp_path)
    write_outcome(EXPERIMENTS["logi"], request, outcome, "python benchmarks/paper logi")
    page = write_page(tmp_path, EXPERIMENTS)
    assert page is not None
    check_page(tab, page)
    for width in (390, 1280):
        for dark in (False, True):
            tab.open(page, width, dark)
            # The letters of 7 points in a figure of 7.2 inches are then 10 pixels high.
            assert tab.value("document.querySelector('.figure').getBoundingClientRect().width") >= 736
            box = tab.value(
                "(box => [box.left, box.top, box.right, box.bottom])"
                "(document.querySelector('.scroll:has(.figure)').getBoundingClientRect())"
            )
            tab.picture(tmp_path / "page.png")
            with Image.open(tmp_path / "page.png") as picture:
                lightness = ImageStat.Stat(picture.convert("L").crop(tuple(map(int, box)))).median[0]
            assert lightness < 60 if dark else lightness > 200, f"{width} pixels, {'dark' if dark else 'light'}"


def test_browser_check_detects_faults(tab: Tab, tmp_path: Path) -> None:
    """What the tests above look for is found where it is: a message, a request, a page too wide."""
    file = tmp_path / "faulty.html"
    file.write_text(
        '<!doctype html><link rel="icon" href="data:,"><p style="width:9999px">.</p>'
        '<img src="http://127.0.0.1:9/x.png"><script>console.error("so")</script>'
    )
    tab.open(file, 390, False)
    assert any("so" in message for message in tab.messages)
    assert "http://127.0.0.1:9/x.png" in tab.requests
    assert not tab.value("document.scrollingElement.scrollWidth <= 390")
