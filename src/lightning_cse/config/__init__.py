"""From a command line to a checked config: launching, checking, composing, suggestions, paths."""
