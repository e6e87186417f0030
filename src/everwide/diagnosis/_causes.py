"""What may be wrong with a run: each cause is a rule over its records, with evidence and a remedy that has a number."""

from dataclasses import dataclass

from ._log import Record


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong: its name, how sure the rule is (above 1: past its threshold), evidence and remedy."""

    name: str
    strength: float
    evidence: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence}. {self.remedy}."


def causes_of(facts: Record, records: list[Record]) -> tuple[Cause, ...]:
    """All that is wrong, the likeliest first."""
    return ()
