"""How many complete events of each name a Chrome trace holds."""
import json
import sys

events = json.load(open(sys.argv[1]))
for name in sys.argv[2:]:
    named = [event for event in events if event["name"] == name]
    assert all(event["ph"] == "X" and event["dur"] >= 0 and event["ts"] >= 0 for event in named), name
    print(f"{name}: {len(named)} events")
