"""Options that are more than a word."""

import typer


def shape_of(text: str) -> tuple[int, ...]:
    """`32,32,3` as a shape."""
    shape = _whole_numbers(text)
    if shape is None:
        raise typer.BadParameter(
            f"{text!r} is not a shape: expected positive whole numbers separated by commas, sites first and channels "
            "last, such as 32,32,3 for images or 784 for vectors.",
            param_hint="'--input'",
        )
    return shape


def whole_numbers(text: str, option: str, example: str) -> tuple[int, ...]:
    """Ascending, each once."""
    found = _whole_numbers(text)
    if found is None:
        raise typer.BadParameter(
            f"{text!r}: expected whole numbers above 0 separated by commas, such as {example}.",
            param_hint=f"'{option}'",
        )
    return tuple(sorted(set(found)))


def _whole_numbers(text: str) -> tuple[int, ...] | None:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        return None
    return found if min(found) >= 1 else None
