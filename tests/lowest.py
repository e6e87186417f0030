"""Print the lowest versions that pyproject.toml admits, as constraints for pip."""

import re
import tomllib
from pathlib import Path

EXTRAS = ("cpu", "cli", "dask")


def lowest(requirement: str) -> str:
    """`"jax>=0.8.0"` becomes `"jax==0.8.0"`."""
    found = re.fullmatch(r"([\w.-]+)>=([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"{requirement!r} in pyproject.toml: expected NAME>=VERSION, so that it can be tested.")
    return f"{found[1]}=={found[2]}"


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = [r for extra in EXTRAS for r in project["optional-dependencies"][extra]]
    print(*map(lowest, [*project["dependencies"], *extras]), sep="\n")
