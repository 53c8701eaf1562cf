"""Values and folds everything else is built on. Imports nothing else of this package."""
