"""Write docs/depth_laws.png, the picture of the README: ``python docs/make_picture.py``."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))


def main() -> None:
    """Draw and save."""
    from theory.pictures import depth_laws_figure
    from theory.results import save_figure

    print(save_figure(depth_laws_figure().axes[0], HERE / "depth_laws.png"))


if __name__ == "__main__":
    main()
