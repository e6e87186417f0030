"""`python -m everwide_lab golden CASES.json ARRAYS.npz`: reference cases as a command. `words` lists their words."""

import argparse
import sys

from .golden import run_golden, words


def main(arguments: list[str] | None = None) -> int:
    """Run a command; 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m everwide_lab", description="The laboratory of everwide.")
    commands = parser.add_subparsers(dest="command", required=True)
    golden = commands.add_parser("golden", help="compare with reference kernels, in float64 and float32")
    golden.add_argument("cases", help="description of the cases (JSON)")
    golden.add_argument("arrays", help="their arrays (NPZ)")
    commands.add_parser("words", help="list the words that describe the layers of a case")
    options = parser.parse_args(arguments)
    if options.command == "words":
        sys.stdout.writelines(f"{group}: {', '.join(known)}\n" for group, known in words().items())
        return 0
    outcomes = run_golden(options.cases, options.arrays)
    return int(any(outcome.status == "failed" for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
