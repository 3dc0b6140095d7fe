"""Run the command as `python -m palmatch`."""

from palmatch.cli import main

if __name__ == "__main__":
    main()
