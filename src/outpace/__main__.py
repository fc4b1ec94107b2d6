"""`python -m outpace` is the command `outpace`."""

from outpace.cli import main

if __name__ == "__main__":
    main()
