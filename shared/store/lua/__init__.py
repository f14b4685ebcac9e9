"""The function library: one Lua file a transaction, `_*.lua` are shared pieces."""
