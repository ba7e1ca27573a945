"""`python -m postroom.cli`: the same as the console script, by a known interpreter."""

from postroom.cli import main

if __name__ == "__main__":
    main()
