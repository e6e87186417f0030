"""The page and its numbers: complete, inert, the same every time."""

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import everwide as ew
from everwide._words import plain
from everwide.report import study
from everwide.report._page import Answer, Fact, Grid, Section, Text, thumbnail
from report.report_tables import FORMULA, IMAGE, SCRIPT, hostile_table, number_table, small_net

pytestmark = pytest.mark.once
KEYS = ["data", "accuracy", "calibration", "columns", "forecast", "rows", "labels"]
KEYS += ["architecture", "modes", "training", "phase", "width"]


class Reader(HTMLParser):
    """What a browser would make of a page: tags, identifiers and text."""

    def __init__(self):
        HTMLParser.__init__(self)
        self.tags, self.ids, self.text, self.inside = [], [], "", []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.inside.append(tag)

    def handle_data(self, data):
        self.text += data


@pytest.fixture(scope="module")
def read(page):
    reader = Reader()
    reader.feed(page[0].read_text("utf-8"))
    return reader


def test_every_part_is_there_and_computed(classes, read):
    assert list(classes.sections) == KEYS
    assert {key: part.missing for key, part in classes.sections.items() if part.missing} == {}
    assert [attrs["id"] for tag, attrs in read.tags if tag == "section"] == KEYS
    assert [attrs["href"] for tag, attrs in read.tags if tag == "a"] == [f"#{key}" for key in KEYS]
    assert sum(tag == "svg" for tag, _ in read.tags) == 8
    assert len(classes.tiles) == 5


def test_progress_counts_to_the_end(classes, told):
    done, total, seconds = zip(*told, strict=True)
    assert list(done) == list(range(1, len(KEYS) + 2))
    assert set(total) == {len(KEYS) + 1}
    assert list(seconds) == sorted(seconds)


def test_every_number_has_a_sentence(classes):
    facts = [fact for answer in classes.sections.values() for fact in answer.text.facts]
    assert len(facts) > 25
    assert [fact for fact in facts if not (fact.label and fact.value and fact.meaning.endswith((".", "?")))] == []


def test_hostile_names_are_text(page, read):
    tags = {tag for tag, _ in read.tags}
    assert tags & {"script", "iframe", "object", "embed", "link", "form", "base"} == set()
    handlers = [name for _, attrs in read.tags for name in attrs if name.startswith("on")]
    assert handlers == []
    assert [attrs for tag, attrs in read.tags if tag == "img"] == []  # but for thumbnails, and this table has none
    for name in (SCRIPT, IMAGE, FORMULA):
        assert name in read.text
        assert name not in page[0].read_text("utf-8")


def test_nothing_is_fetched_and_nothing_may_run(page, read):
    policy = [attrs["content"] for tag, attrs in read.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page[0].read_text("utf-8"))
    assert [one for one in addresses if not one.startswith(("#", "data:image/png"))] == []


def test_identifiers_are_used_once_and_references_lead_somewhere(page, read):
    assert len(read.ids) == len(set(read.ids))
    text = page[0].read_text("utf-8")
    asked = re.findall(r"url\(#([^)]+)\)", text) + re.findall(r'href="#([^"]+)"', text)
    assert set(asked) <= set(read.ids)


def test_drawings_have_the_colours_of_the_page(page):
    drawings = re.findall(r"<svg.*?</svg>", page[0].read_text("utf-8"), re.DOTALL)
    assert {colour for drawing in drawings for colour in re.findall(r"(?:fill|stroke): #\w+", drawing)} == set()
    assert all("var(--blue)" in drawing for drawing in drawings)


def test_the_page_is_the_same_every_time(classes, page):
    assert classes.html() == page[0].read_text("utf-8")


def walk(value):
    if isinstance(value, dict):
        for inner in value.values():
            yield from walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from walk(inner)
    else:
        yield value


def test_the_numbers_are_finite_json(classes, page):
    found = json.loads(page[1].read_text("utf-8"), parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert found == classes.to_dict()
    leaves = list(walk(found))
    assert {type(leaf) for leaf in leaves} <= {int, float, str, bool, type(None)}
    assert all(math.isfinite(leaf) for leaf in leaves if isinstance(leaf, float))
    assert found["sections"]["data"]["numbers"]["duplicate_rows"] == 2
    assert found["sections"]["accuracy"]["numbers"]["scores"]["infinitely wide network"]["value"] > 0.6


def test_plain_values():
    given = {
        "a": np.array([1.0, np.inf]),
        "b": np.float64("nan"),
        "c": (np.int64(3), True, ew.signal.Parametrization.NTK),
    }
    assert plain(given) == {"a": [1.0, None], "b": None, "c": [3, True, "ntk"]}
    with pytest.raises(TypeError, match="got object"):
        plain(object())


def page_of(classes, text: Text, **known: str) -> str:
    """A page with one section that says this."""
    said = {"key": "key", "title": "title", "question": "question"} | known
    section = Section(**said, measure=lambda problem: None, describe=lambda problem, result: text)
    return replace(classes, sections={section.key: Answer(section, None, text)}).html()


def test_rows_that_are_images_are_shown(classes):
    pixels = np.linspace(0, 1, 12).reshape(2, 2, 3)
    text = Text((), grids=(Grid("Rows", ("row", "label"), (("1", "a"),), (pixels,)),))
    assert f'src="{thumbnail(pixels)}"' in page_of(classes, text)
    assert thumbnail(np.zeros((2, 2, 1))) != thumbnail(np.ones((2, 2, 1)))


@pytest.mark.parametrize("hostile", [SCRIPT, IMAGE, "</style><b>", "{{ study }}{% raw %}", "'\" onload=alert(1) x='"])
def test_every_place_of_the_page_escapes(classes, hostile):
    """Whatever is put anywhere is text: the page has the tags of one with harmless words, and no attribute more."""

    def tags(word: str) -> tuple[list, str]:
        fact = Fact(word, word, word)
        text = Text((fact,), (word,), (word,), (Grid(word, (word,), ((word,),)),))
        known = {"source": word, "target": word, "task": word, "network": word}
        section = {"key": word, "title": word, "question": word, "tile": lambda result: fact}
        missing = Answer(Section("gone", word, word, lambda p: None, lambda p, r: text), missing=word)
        made = Section(**section, measure=lambda problem: None, describe=lambda problem, result: text)
        reader = Reader()
        sections = {word: Answer(made, None, text), "gone": missing}
        reader.feed(replace(classes, **known, sections=sections).html())
        return [(tag, sorted(attrs)) for tag, attrs in reader.tags], reader.text

    found, text = tags(hostile)
    assert found == tags("h" * len(hostile))[0]
    assert text.count(hostile) >= 15


BAD = [
    ("net", {"net": "transformer"}, "architecture='transformer'"),
    ("images", {"net": "cnn"}, "reads images"),
    ("shape", {"net": ew.Serial(ew.Conv((3, 3)), ew.Relu(), ew.Flatten(), ew.Dense(1))}, "needs 2 site axes"),
]


@pytest.mark.parametrize(("name", "options", "said"), BAD, ids=[name for name, _, _ in BAD])
def test_what_cannot_be_studied_is_refused(name, options, said):
    with pytest.raises(ValueError, match=said):
        study(number_table(), **options)


def test_tables_without_rows_or_target_are_refused():
    table = number_table()
    with pytest.raises(ValueError, match=r"numbers\.csv has 1 rows"):
        study(replace(table, x=table.x[:1], y=table.y[:1]))
    with pytest.raises(ValueError, match="has no target"):
        study(replace(table, y=None), net=small_net())


def test_the_page_and_its_numbers_are_two_files(classes, tmp_path):
    with pytest.raises(ValueError, match=r"Use \.html"):
        classes.write(tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rows", [2, 7])
def test_tiny_tables_have_a_page(rows, tmp_path):
    """Most parts cannot be computed; each of them says so."""
    table = hostile_table()
    found = study(replace(table, x=table.x[:rows], y=table.y[:rows]), net=small_net(), quick=True)
    missing = [key for key, part in found.sections.items() if part.missing]
    assert {"forecast", "width"} <= set(missing) < set(KEYS)
    page, _ = found.write(tmp_path / "page.html")
    assert page.read_text("utf-8").count('class="missing"') == len(missing)
