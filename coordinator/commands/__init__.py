"""The commands of `treadle`, a file for each family; `cli.py` puts them together."""
