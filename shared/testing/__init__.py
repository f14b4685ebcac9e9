"""What a test of treadle needs: stores, a virtual clock, faults."""
