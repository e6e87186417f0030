"""What somebody does who has just installed the wheel: `make wheel-check` runs this in an empty environment."""

import subprocess
from importlib.metadata import version

import numpy as np

import everwide as ew
import everwide_lab


def printed(*command: str) -> str:
    return subprocess.run(["everwide", *command], capture_output=True, text=True, check=True).stdout


def main() -> None:
    assert "site-packages" in ew.__file__, f"{ew.__file__} is not the wheel."
    assert "site-packages" in everwide_lab.__file__
    assert version("everwide") in printed("--version")
    assert "Dense" in printed("explain", "mlp", "--input", "3")
    net = ew.Serial(ew.Dense(), ew.Relu(), ew.Dense(1))
    kernel = ew.ntk(net, np.eye(3))
    assert kernel.shape == (3, 3)
    print(f"everwide {version('everwide')}: the wheel works.")


if __name__ == "__main__":
    main()
