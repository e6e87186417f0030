"""The page in a browser: it is complete, fits every window, can be read in the dark, and runs nothing."""

import time

import numpy as np
import pytest

from everwide.report import study_run
from everwide.report._page import Answer, Fact, Grid, Section, Text
from report.devtools import Browser, chromium
from report.report_tables import FORMULA, IMAGE, SCRIPT
from report.run_logs import FakeCause, FakeRun
from report.test_page import KEYS
from report.test_run import KEYS as RUN_KEYS

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(chromium() is None, reason="needs Chromium: apt-get install chromium"),
]
# Text of the page, and of its drawings, with the colours in which it is painted.
COLOURS = """
(() => {
  const solid = (colour) => !/, 0\\)$/.test(colour) && colour !== 'transparent';
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (solid(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    if (!text.textContent.trim()) continue;
    const owner = text.parentElement, style = getComputedStyle(owner);
    const ink = owner.closest('svg') ? style.fill : style.color;
    const pair = ink + '|' + behind(owner);
    found[pair] = text.textContent.trim().slice(0, 40);
  }
  return found;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = Browser(chromium() or "", tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


def luminance(colour: str) -> float:
    """Of a colour `rgb(r, g, b)`, as WCAG 2 defines it."""
    parts = np.array([float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(ink: str, paper: str) -> float:
    low, high = sorted((luminance(ink), luminance(paper)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_that_of_the_standard():
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.fixture(params=["page", "run_page"])
def shown(request):
    """The pages: of a table, and of a run, with the keys of their sections and how many figures they have."""
    return request.getfixturevalue(request.param)[0], *{"page": (KEYS, 8), "run_page": (RUN_KEYS, 7)}[request.param]


@pytest.mark.parametrize("width", [400, 1400])
def test_the_page_is_complete_quiet_and_fits(browser, shown, width):
    browser.open(shown[0], width=width)
    assert browser.troubles == []
    assert browser.value("innerWidth") == width
    assert browser.value("[...document.querySelectorAll('main > section')].map(s => s.id)") == shown[1]
    assert browser.value("document.documentElement.scrollWidth") <= width
    boxes = "[...document.querySelectorAll('section > *, .tiles > *, nav li')]"
    wide = f"{boxes}.filter(e => e.getBoundingClientRect().right > innerWidth)"
    assert browser.value(f"{wide}.map(e => e.outerHTML.slice(0, 80))") == []
    heights = browser.value("[...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect().height)")
    assert len(heights) == shown[2]
    assert min(heights) > 90


@pytest.mark.parametrize("dark", [False, True])
def test_everything_can_be_read(browser, shown, dark):
    browser.open(shown[0], dark=dark)
    pairs = browser.value(COLOURS)
    assert len(pairs) >= 5
    poor = {text: pair for pair, text in pairs.items() if contrast(*pair.split("|")) < 4.5}
    assert poor == {}
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (luminance(paper) < 0.1) == dark


def test_hostile_names_are_shown_and_not_run(browser, shown):
    browser.open(shown[0])
    assert browser.value("document.scripts.length") == 0
    assert "broken" not in browser.value("document.title").replace(SCRIPT, "")
    shown = browser.value("document.body.textContent")
    assert [name for name in (SCRIPT, IMAGE, FORMULA) if name not in shown] == []


def test_long_names_and_wide_tables_do_not_widen_the_page(browser, classes, tmp_path):
    long = "endless" * 60
    grid = Grid(long, tuple(long for _ in range(12)), (tuple(long for _ in range(12)),))
    text = Text((Fact(long, long, long),), (long,), (long,), (grid,))
    tile = lambda result: Fact(long, long, long)
    section = Section("data", long, long, lambda problem: None, lambda problem, result: text, tile=tile)
    changed = {**classes.__dict__, "source": long, "sections": {"data": Answer(section, None, text)}}
    path = tmp_path / "long.html"
    path.write_text(type(classes)(**changed).html(), encoding="utf-8")
    browser.open(path, width=400)
    assert browser.value("document.documentElement.scrollWidth") <= 400


def test_a_page_of_a_run_that_goes_on_loads_itself_again(browser, tmp_path):
    path = tmp_path / "run.html"
    path.write_text(study_run(FakeRun()).html(refresh=1), encoding="utf-8")
    browser.open(path)
    assert "Nothing was measured yet" in browser.value("document.title")
    path.write_text(study_run(FakeRun(causes=(FakeCause("rate", "it jumped", "take less"),))).html(), encoding="utf-8")
    end = time.monotonic() + 30
    while not (shown := browser.value("document.querySelector('.remedy')?.textContent")) and time.monotonic() < end:
        time.sleep(0.2)
    assert shown == "Take less."


def test_the_browser_would_tell(browser, tmp_path):
    """What the tests above ask for can fail."""
    path = tmp_path / "bad.html"
    path.write_text("<p style='width: 3000px'>wide</p><script>document.title='ran'; console.error('no')</script>")
    browser.open(path, width=400)
    assert browser.troubles != []
    assert browser.value("document.title") == "ran"
    assert browser.value("document.documentElement.scrollWidth") > 400
