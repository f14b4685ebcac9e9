"""The figures as people read them. Pure: figures in, lines out."""

from __future__ import annotations

from collections.abc import Mapping


def table(figures: Mapping[str, object], weights: Mapping[str, int]) -> str:
    """Two aligned columns."""
    shares = " to ".join(str(weight) for weight in weights.values())
    missing = "none: they never both had a shard waiting"
    window = f"over {figures['share_window_s']} s in which both had shards waiting, weights {shares}"
    share = missing if figures["share_a"] is None else _shares(figures, weights) + f"; {window}"
    resumed = "-"
    if figures["resumed_after_s"] is not None:
        resumed = (
            f"{figures['resumed_after_s_least']} to {figures['resumed_after_s']} s ({figures['resumed_items']} items; "
            f"offered again after {figures['offered_again_after_s']} s at the latest)"
        )
    rows = [
        ("items verified", f"{figures['verified']} of {figures['items']} in {figures['missions']} Missions"),
        ("Events", f"{figures['events']}, {figures['saves']} of them saved progress"),
        ("files", f"{figures['files']}, each read for both Missions"),
        ("share of slot-seconds", share),
        ("kills (SIGKILL)", f"{figures['kills']}"),
        ("from kill to resumption", resumed),
        ("files redone", f"{figures['redone_files']}, behind the last saved progress"),
        ("duplicated results", f"{figures['duplicates']}"),
        ("equals plain computation", "yes, byte for byte" if figures["report_matches"] else "NO"),
        ("seconds", f"{figures['seconds']} by the Missions, {figures['plain_s']} by the plain single process"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {value}" for name, value in rows)


def _shares(figures: Mapping[str, object], weights: Mapping[str, int]) -> str:
    total = sum(weights.values())
    return ", ".join(
        f"{name} {float(str(figures[key])):.1%} (due {weight / total:.0%})"
        for key, (name, weight) in zip(("share_a", "share_b"), weights.items(), strict=True)
    )
