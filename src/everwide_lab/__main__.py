"""`python -m everwide_lab golden CASES.json ARRAYS.npz`: the reference cases as a command."""

import argparse
import sys

from .golden import run_golden


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m everwide_lab", description="The laboratory of everwide.")
    commands = parser.add_subparsers(dest="command", required=True)
    golden = commands.add_parser("golden", help="compare with reference kernels, in float64 and float32")
    golden.add_argument("cases", help="description of the cases (JSON)")
    golden.add_argument("arrays", help="their arrays (NPZ)")
    options = parser.parse_args(arguments)
    outcomes = run_golden(options.cases, options.arrays)
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
