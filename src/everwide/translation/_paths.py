"""Which pieces all paths pass, on the way from the input and on the way to the output."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Tree:
    """Every number has one that stands over it; the root has none."""

    over: dict[int, int] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)

    def add(self, number: int, neighbours: Sequence[int]) -> None:
        """A number under the one where these meet; without any it is a root."""
        if not neighbours:
            self.depth[number] = 0
            return
        meeting = neighbours[0]
        for other in neighbours[1:]:
            meeting = self.meeting(meeting, other)
        self.over[number], self.depth[number] = meeting, self.depth[meeting] + 1

    def meeting(self, a: int, b: int) -> int:
        """The lowest one over both, or one of them."""
        while a != b:
            if self.depth[a] < self.depth[b]:
                a, b = b, a
            a = self.over[a]
        return a

    def upwards(self, number: int) -> list[int]:
        """All over it, the nearest first."""
        out = []
        while number in self.over:
            number = self.over[number]
            out.append(number)
        return out


def from_the_input(inputs: Sequence[Sequence[int]]) -> Tree:
    """Over each piece the last one that all paths to it pass; `inputs` are those of each, in the order they run."""
    tree = Tree()
    for number, read in enumerate(inputs):
        tree.add(number, read)
    return tree


def to_the_output(inputs: Sequence[Sequence[int]], output: int) -> Tree:
    """Over each piece the first one that all paths from it to the output pass; others are not in it."""
    tree = Tree()
    readers: dict[int, list[int]] = {}
    for number in range(output, -1, -1):
        if number == output or number in readers:
            tree.add(number, readers.get(number, ()))
            for one in inputs[number]:
                readers.setdefault(one, []).append(number)
    return tree


def between(inputs: Sequence[Sequence[int]], start: int, end: int) -> set[int]:
    """What is computed on the way from one piece to another, which all paths pass; the end too, the start not."""
    members, waiting = set[int](), [end]
    while waiting:
        number = waiting.pop()
        if number != start and number not in members:
            members.add(number)
            waiting += inputs[number]
    return members
