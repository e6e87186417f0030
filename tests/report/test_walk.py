"""How many files of the library a report runs through: who reads the code must follow it."""

import os
import subprocess
import sys

import numpy as np
import pytest

pytestmark = pytest.mark.once

MOST = 92  # files
WALK = """
import sys, threading
from pathlib import Path
import everwide.cli, everwide.report
root, run = str(Path(everwide.__file__).parent), set()

def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith(root):  # bodies of functions only
        run.add(code.co_filename[len(root) + 1:])

threading.setprofile(note)
sys.setprofile(note)
try:
    everwide.cli.app(sys.argv[1:], standalone_mode=False)
finally:
    sys.setprofile(None)
    print(*sorted(run), sep="\\n", file=sys.stderr)
"""


@pytest.mark.slow
def test_a_report_runs_through_few_files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 3))
    table = np.column_stack([x, 100 * x[:, 0] + np.abs(x[:, 1])])
    np.savetxt(tmp_path / "train.csv", table, delimiter=",", header="a,b,c,price", comments="")
    command = ["report", str(tmp_path / "train.csv"), "--target", "price", "--quick", "-o", str(tmp_path / "page.html")]
    done = subprocess.run(
        [sys.executable, "-c", WALK, *command], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == 0, done.stderr
    files = [line for line in done.stderr.splitlines() if line.endswith(".py")]
    assert (tmp_path / "page.html").is_file()
    assert any(name.endswith("modes.py") for name in files)
    assert len(files) <= MOST, "\n".join(files)
