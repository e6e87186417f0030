import pytest

from everwide._problem import Problem, prepare
from everwide.report import study, study_run
from report.report_tables import FORMULA, IMAGE, SCRIPT, hostile_table, number_table, small_net
from report.run_logs import FakeCause, FakeRun, facts, records


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
def watched():
    """A run of which everything was recorded, with two causes, under hostile names."""
    names = (SCRIPT, IMAGE, "_hidden", "readout")
    causes = (FakeCause(SCRIPT, "it is over the edge", "take 0.02"), FakeCause("another", "it is slow.", "Wait."))
    return study_run(FakeRun(facts(names), tuple(records(60, names)), causes), source=FORMULA)


@pytest.fixture(scope="session")
def run_page(watched, tmp_path_factory):
    return watched.write(tmp_path_factory.mktemp("run") / "run.html")


@pytest.fixture(scope="session")
def numbers() -> Problem:
    """A regression problem, made ready."""
    return prepare(number_table(), small_net(), quick=True)


@pytest.fixture(scope="session")
def labelled() -> Problem:
    """A problem of classes, made ready."""
    return prepare(hostile_table(), small_net(), quick=True)
