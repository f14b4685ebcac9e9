"""Pure decisions of a Worker: no clock, no chance, no Redis."""
