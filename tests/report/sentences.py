"""What a section of the page says: every sentence is said under a condition.

Sentences are read from the source of the sections. One that no case says, or that all cases say, fails; what is true of
every table stands in `ALWAYS`.
"""

import ast
import inspect

LEAST = 20  # letters of what counts as a part of a sentence

ALWAYS = {  # what a number is, and how it was made
    "data": ("Each row is one example.",),
    "accuracy": (
        "same folds for all models",
        "chosen on the training rows of each fold alone",
        "to mean 0 and variance 1",
        "each learned from",
        "to be expected on new rows",
    ),
    "columns": (
        "kept out",
        "rows of which this column alone is changed",
        "how much of what it sees comes from",
        "from the ",
        "are worth little one by one",
        "that everwide takes for tables",
    ),
    "rows": ("Rows are counted from 1", "what the network would say without them", "when that one row is removed"),
    "architecture": ("what goes in and out", "Repeated layers count once", "nothing larger is held"),
    "modes": (
        "Its share of the kernel",
        "at infinite width",
        "What ridge or stopping leaves",
        "mostly treated as noise",
    ),
    "width": (
        "in batches of 64",
        "They start with",
        " steps of ",
        "infinitely wide, on the same",
        "judged on",
        "before and after training",
        "The infinitely wide network, on",
    ),
    "forecast": (
        "Goals, and the rows",
        "rows; trusted to",
        "The band should hold",
        "with 90",
        "infinitely wide network that learns",
    ),
    "ahead": (
        "to say when to stop; others say",
        " networks of width ",
        "What to expect of a network of width",
        "With twice as many rows about",
        "of a trained network, all",
        "probability ",
        "Its kernel is expected to reach",
        "Which to use, with ",
        "of the same network at infinite width",
        "all layers, by Adam",
    ),
    "training": (
        "above it the first step overshoots",
        "decay its rate, or it hovers",
        "Largest first rate, ADAM*",
        "measured on",
        " others. Steps are of ",
        "an error of 1 is that",
        "The rates are those",
        "at infinite width diverges above it",
        "Full batches, mean squared loss",
    ),
    "phase": ("What a layer deep down does", "variance of weights", "variance of biases"),
}


def parts_of(room) -> list[str]:
    """Parts of sentences in the functions of a section: no docstrings, no messages of errors, no names of columns."""
    tree = ast.parse(inspect.getsource(room))
    skipped = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            skipped |= {id(inner) for inner in ast.walk(node)}
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and isinstance(body[0], ast.Expr):
            skipped.add(id(body[0].value))
        if getattr(node, "name", "") in ("_draw", "_sides") or _is_of_the_figure(node):
            skipped |= {id(inner) for inner in ast.walk(node)}
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in skipped]
    texts = [node.value for node in constants if isinstance(node.value, str)]
    return [text for text in dict.fromkeys(texts) if len(text) >= LEAST and set(text) & set(".,;:?")]


def _is_of_the_figure(node) -> bool:
    """Its caption, and what a section is called."""
    named = isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") in ("_CAPTION", "SECTION", "NETWORK")
    return named


def said(room, problem, result) -> str:
    """All that the page says of a result."""
    text = room.SECTION.describe(problem, result)
    tile = room.SECTION.tile(result) if room.SECTION.tile else None
    facts = [*text.facts, *([tile] if tile else [])]
    grids = [(grid.caption, *grid.columns, *(cell for row in grid.rows for cell in row)) for grid in text.grids]
    words = [*(word for fact in facts for word in fact), *text.warnings, *text.notes, *text.cautions]
    return "\n".join([*words, *(cell for grid in grids for cell in grid)])


def check(room, cases) -> list[str]:
    """Every part of a sentence is said of some cases, and not of all."""
    texts = [said(room, *case) for case in cases]
    always = ALWAYS.get(room.SECTION.key, ())
    hits = {part: [part in text for text in texts] for part in parts_of(room)}
    never = [part for part, said in hits.items() if not any(said)]
    unconditional = [part for part, said in hits.items() if all(said) and not any(one in part for one in always)]
    assert not never, "\n".join(["no case makes the page say", *never])
    assert not unconditional, "\n".join(["all cases make the page say", *unconditional])
    return texts
