"""Statistics of a study: arrays and a passed generator in, NamedTuple out; imports nothing of the project."""
