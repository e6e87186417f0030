import pytest

from everwide.report import Study, study, write_report
from everwide.report._study._problem import QUICK, Problem, prepared
from report.report_tables import hostile_table, number_table, small_net


@pytest.fixture(scope="session")
def told():
    """What `progress` was called with, in the study below."""
    return []


@pytest.fixture(scope="session")
def classes(told) -> Study:
    """The whole report on a hostile table."""
    return study(hostile_table(), net=small_net(), quick=True, progress=lambda *said: told.append(said))


@pytest.fixture(scope="session")
def page(classes, tmp_path_factory):
    return write_report(classes, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="session")
def numbers() -> Problem:
    """A regression problem, made ready."""
    return prepared(number_table(), small_net(), QUICK, seed=0)
