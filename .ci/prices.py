#!/usr/bin/env python3
"""Writes crates/core/src/prices.yaml from the price list of genai-prices (PyPI, MIT).

Needs the network, so CI does not run it. Usage: .ci/prices.py [VERSION]
"""

import dataclasses
import datetime
import pathlib
import re
import subprocess
import sys
import tempfile
import types

VERSION = "0.2.1"
FILE = pathlib.Path(__file__).parent.parent / "crates/core/src/prices.yaml"

# Text models of the providers that the built-in agents use.
PROVIDERS = {
    "anthropic": re.compile(r"claude-(fable|haiku|opus|sonnet|[4-9])"),
    "openai": re.compile(r"gpt-(4\.1|4o|[5-9])|o[34]|codex-"),
    "google": re.compile(r"gemini-(2\.5|[3-9]|(pro|flash|flash-lite)-latest)"),
}
OTHER_USES = re.compile(r"audio|image|tts|live|realtime|transcribe|embedding|search|deep-research|robotics|computer-use")
DATED = re.compile(r"(-\d{8}|-\d{4}-\d{2}-\d{2}|(?<=sonnet-4)-2025)$")

# Names that Claude Code gives to the newest model of a family.
ALIASES = {
    "fable": "claude-fable-5-1",
    "haiku": "claude-haiku-5-5",
    "opus": "claude-opus-5-5",
    "sonnet": "claude-sonnet-5-5",
}

RATES = {
    "input": "input_mtok",
    "cached": "cache_read_mtok",
    "output": "output_mtok",
    "cache_write": "cache_write_mtok",
    "cache_write_1h": "cache_write_1h_mtok",
}


def load(version, folder):
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder]
    subprocess.run([*pip, f"genai-prices=={version}"], check=True)
    sys.path.insert(0, str(next(pathlib.Path(folder).glob("*.whl"))))
    # Only its data is used, not its HTTP client.
    sys.modules.setdefault("httpx2", types.ModuleType("httpx2"))
    from genai_prices.data import providers

    return providers


def names(model, pattern):
    """Exact names in the clauses that match a model."""
    found, open_clauses = {model.id}, [model.match]
    while open_clauses:
        clause = open_clauses.pop()
        for field in dataclasses.fields(clause):
            value = getattr(clause, field.name)
            if isinstance(value, list):
                open_clauses += value
            elif field.name in ("equals", "starts_with"):
                found.add(value)
    is_text = lambda name: pattern.match(name) and not OTHER_USES.search(name)
    return [name for name in found if is_text(name) and re.fullmatch(r"[a-z0-9.-]*[a-z0-9]", name)]


def without_dates(models):
    """Drops dated snapshots with the price of the undated name, which the lookup finds by itself."""
    kept = {name: prices for name, prices in models.items() if not DATED.search(name)}
    for name, prices in models.items():
        if kept.setdefault(DATED.sub("", name), prices) != prices:
            kept[name] = prices
    return kept


def rates(prices):
    """Rates of a model, and those above its long-context threshold."""
    base, long, above = {}, {}, None
    for key, name in RATES.items():
        rate = getattr(prices, name)
        if rate is None:
            continue
        if hasattr(rate, "tiers"):
            [tier] = rate.tiers
            assert above in (None, tier.start)
            above, long[key], rate = tier.start, tier.price, rate.base
        base[key] = rate
    # Without a rate of their own, cached tokens cost as much as others.
    base.setdefault("cached", base["input"])
    if above is not None:
        long = {"above": above, "input": base["input"], "cached": long.get("input", base["cached"]), "output": base["output"]} | long
        base["long_context"] = long
    order = ["above", *RATES, "long_context"]
    text = lambda value: value if isinstance(value, int) else table(value) if isinstance(value, dict) else f"{value.normalize():f}"
    table = lambda values: "{ " + ", ".join(f"{key}: {text(values[key])}" for key in order if key in values) + " }"
    return table(base)


def dated(model, today):
    """Prices of a model: the current one, then those that start later."""
    entries = model.prices if isinstance(model.prices, list) else [None]
    if entries == [None]:
        return [(None, rates(model.prices))]
    current, later = None, []
    for entry in entries:
        start = getattr(entry.constraint, "start_date", None)
        if entry.constraint is not None and start is None:
            continue
        if start is None or start <= today:
            current = rates(entry.prices)
        else:
            later.append((start, rates(entry.prices)))
    return [(None, current), *later]


def main():
    version = sys.argv[1] if len(sys.argv) > 1 else VERSION
    today = datetime.date.today()
    models = {}
    with tempfile.TemporaryDirectory() as folder:
        for provider in load(version, folder):
            pattern = PROVIDERS.get(provider.id)
            for model in provider.models if pattern else []:
                first = model.prices[0].prices if isinstance(model.prices, list) else model.prices
                priced = first.input_mtok is not None and first.output_mtok is not None
                if priced and pattern.match(model.id) and not OTHER_USES.search(model.id):
                    prices = dated(model, today)
                    for name in names(model, pattern):
                        assert models.setdefault(name, prices) == prices, f"two prices of {name}"
    lines = [
        "# Generated by .ci/prices.py. Do not edit: run it again, or set `prices` in tamma.yaml.",
        "# US dollars per million tokens, by exact model name.",
        f"date: {today}",
        f"source: genai-prices {version} (PyPI, MIT)",
        "aliases:",
        *(f"  {alias}: {name}" for alias, name in ALIASES.items()),
        "models:",
    ]
    for name, entries in sorted(without_dates(models).items()):
        lines.append(f"  {name}:")
        for start, price in entries:
            start = f"from: {start}, " if start else ""
            lines.append(f"    - {{ {start}price: {price} }}")
    assert all(name in models for name in ALIASES.values())
    FILE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
