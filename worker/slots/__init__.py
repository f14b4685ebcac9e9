"""One isolated Capacity Slot: what a run is given, what it may ask, how its handler is called and how it ends."""
