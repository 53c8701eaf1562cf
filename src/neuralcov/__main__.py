"""``python -m neuralcov`` is ``neuralcov``."""

from neuralcov.cli.app import main

if __name__ == "__main__":
    main()
