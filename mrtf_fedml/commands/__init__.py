"""The commands of the command line: `NAME.py` has `main(options)` of `mrtf NAME`."""
