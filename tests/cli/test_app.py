"""The command line as a whole: help, completion, versions, exit codes, what is missing."""

import inspect
import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from everwide import activations
from everwide.activations import AbstractActivation
from everwide.cli import _show, app

pytestmark = pytest.mark.once

COMMANDS = ("report", "explain", "gram", "critical", "rate", "forecast", "doctor", "reproduce")


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS), ("reproduce", "lee2019")])
def test_every_help_has_examples(run, command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert f"  everwide {' '.join(command)}" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_listed_and_has_json(run, command):
    assert f"  {command} " in run("--help").stdout
    inside = ("reproduce", "lee2019") if command == "reproduce" else (command,)
    assert "--json" in run(*inside, "--help").stdout


def test_version_is_the_installed_one(run):
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("everwide")


def in_fresh_python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=os.environ | environment
    )


def bash_after(words: str) -> dict[str, str]:
    """The environment in which bash asks what could follow these words."""
    return {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}


def test_a_shell_asks_the_module_for_completions():
    asked = bash_after("everwide critical ge")
    done = in_fresh_python("-m", "everwide", _EVERWIDE_COMPLETE="complete_bash", **asked)
    assert done.stdout.split() == ["gelu"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("everwide rate data.csv --net re", ["resnet"]),
        ("everwide explain m", ["mlp"]),
        ("everwide reproduce s", ["sernau2024", "simon2021", "sgd-noise"]),
        ("everwide for", ["forecast"]),
    ],
)
def test_networks_experiments_and_commands_are_completed(words, offered):
    result = CliRunner(env={"_ROOT_COMPLETE": "complete_bash", **bash_after(words)}).invoke(app, [])
    assert result.stdout.split() == offered


def test_names_that_are_completed_are_those_that_exist():
    found = set()
    for name in vars(activations):
        value = getattr(activations, name)
        if name.startswith("_") or not callable(value) or inspect.isabstract(value):
            continue
        try:
            made = value()
        except TypeError:
            continue
        found |= {name} if isinstance(made, AbstractActivation) else set()
    assert set(_show.ACTIVATIONS) == found


WITHOUT = """
import sys
import everwide.__main__
for missing in sys.argv[1:]:
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == missing}
    sys.modules[missing] = None
    try:
        everwide.__main__.main()
    except (SystemExit, ModuleNotFoundError) as ended:
        print(missing, type(ended).__name__, ended)
    for name in [name for name in sys.modules if name.startswith(("everwide.cli", "everwide.tables"))]:
        del sys.modules[name]
    del sys.modules[missing]
    sys.modules.update(kept)
"""


def test_says_what_to_install_and_hides_no_other_fault():
    done = in_fresh_python("-c", WITHOUT, "typer", "rich", "pandas", "difflib")
    assert done.returncode == 0, done.stderr
    said = dict(line.split(" ", maxsplit=1) for line in done.stdout.splitlines())
    for missing in ("typer", "rich", "pandas"):
        assert said[missing].startswith("SystemExit")
        assert f"but {missing}" in said[missing]
        assert "pip install 'everwide[cli]'" in said[missing]
    assert said["difflib"].startswith("ModuleNotFoundError")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (ValueError("two\nlines"), 1, "error: two lines"),
        (MemoryError(), 1, "error: MemoryError"),
        (ZeroDivisionError("oh"), 1, "error: ZeroDivisionError: oh"),
        (KeyboardInterrupt(), 130, "interrupted: nothing was written."),
        (ModuleNotFoundError("x", name="pyarrow.lib"), 1, "pip install 'everwide[parquet]'"),
        (ModuleNotFoundError("no y", name="y"), 1, "error: ModuleNotFoundError: no y"),
        (typer.Exit(7), 7, ""),
    ],
)
def test_faults_become_sentences_and_exit_codes(raised, code, said, capsys):
    with pytest.raises(typer.Exit) as ended, _show.in_a_sentence():
        raise raised
    assert ended.value.exit_code == code
    assert said in capsys.readouterr().err


def test_json_has_no_numbers_that_json_does_not_know(capsys):
    _show.print_json({"a": float("inf"), "b": [float("nan"), 1.5], 3: True, "c": None, "d": "x"})
    assert "".join(capsys.readouterr().out.split()) == '{"a":null,"b":[null,1.5],"3":true,"c":null,"d":"x"}'


def test_names_from_files_are_not_markup(capsys):
    _show.print_table(("name", "value"), [("[red]:smile:[/red]", 1.23456789)], title="[bold]")
    shown = capsys.readouterr().out
    assert "[red]:smile:[/red]" in shown
    assert "[bold]" in shown
    assert "1.235" in shown
