"""``python -m validate.cli``: the same as the console script."""

from validate.cli.app import main

if __name__ == "__main__":
    main()
