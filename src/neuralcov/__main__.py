"""``python -m neuralcov`` is ``neuralcov``."""

from neuralcov.cli import main

if __name__ == "__main__":
    main()
