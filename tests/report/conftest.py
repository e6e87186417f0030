import pytest

from everwide._problem import Problem, prepare
from everwide.report import study
from report.report_tables import hostile_table, number_table, small_net


@pytest.fixture(scope="session")
def told():
    """What `progress` was called with, in the study below."""
    return []


@pytest.fixture(scope="session")
def classes(told):
    """The whole report on a hostile table."""
    return study(hostile_table(), net=small_net(), quick=True, progress=told.append)


@pytest.fixture(scope="session")
def page(classes, tmp_path_factory):
    return classes.write(tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="session")
def numbers() -> Problem:
    """A regression problem, made ready."""
    return prepare(number_table(), small_net(), quick=True)


@pytest.fixture(scope="session")
def labelled() -> Problem:
    """A problem of classes, made ready."""
    return prepare(hostile_table(), small_net(), quick=True)
