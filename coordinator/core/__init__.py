"""Pure decisions about Missions: no clock, no chance, no Redis."""
