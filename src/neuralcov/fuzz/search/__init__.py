"""Search for mutants that raise coverage, wave by wave."""
