"""`python -m cudamaster` is the command line."""

from cudamaster.cli import main

if __name__ == "__main__":
    main()
