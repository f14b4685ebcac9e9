"""The demo: two Missions on real files, shared by weight, one Worker killed, the result checked."""
