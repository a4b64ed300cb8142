"""The command ``python -m sparklog.cli``, which is the same as ``sparklog``."""

from sparklog.cli import main

if __name__ == "__main__":
    main()
