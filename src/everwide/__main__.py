"""`everwide` and `python -m everwide`."""

import sys

_EXTRA = ("typer", "rich", "pandas")


def main() -> None:
    """Run the command line, or say what is missing to do so."""
    try:
        from .cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        sys.exit(
            f"error: the command line of everwide needs {', '.join(_EXTRA)}, but {error.name} is not installed. "
            "Install them with: pip install 'everwide[cli]'"
        )
    except KeyboardInterrupt:  # while everything is being imported
        sys.exit(130)
    app(prog_name="everwide")


if __name__ == "__main__":
    main()
