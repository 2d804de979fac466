"""One module for each command: parse, call the stage, print, answer with an exit code."""
