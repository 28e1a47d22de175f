#!/usr/bin/env bash
# Creates a small shop in a new folder: a repository with a check, and a scripted agent. `just demo web`,
# `just lab alerts`, `just lab browser` and `just lab top` use it to run Tamma without a model.
#
# usage: shop.sh <new folder> <program folder>
set -euo pipefail

here="$(cd "$(dirname "$0")" && pwd)"
folder="$1"
programs="$2"

# Under root, PostgreSQL runs as another user, who needs access to its data.
chmod 711 "$folder"
mkdir "$folder/bin" "$folder/shop"
# Program and script share a folder that the agent can read in its sandbox.
cp "$here/shop/agent.json" "$programs/scripted-agent" "$folder/bin/"

# The operator of the machine lets projects read this folder.
mkdir -p "$folder/data"
echo "readable: ['$folder/bin']" >> "$folder/data/operator.yaml"

cd "$folder/shop"
git init --quiet --initial-branch=main
cat > check.sh << 'CHECK'
grep -q "half to even" round.txt || { echo "round.txt does not round half to even"; exit 1; }
CHECK
echo "half to even, sometimes" > round.txt
cat > tamma.yaml << RULES
agents:
  scripted:
    command: $folder/bin/scripted-agent
    env: { TAMMA_SCRIPT: "$folder/bin/agent.json" }
tiers:
  simple: { agent: scripted }
  moderate: { agent: scripted }
  complex: { agent: scripted }
engines: { readable: ["$folder/bin"] }
gates:
  rounding: { command: sh check.sh, kind: tests }
ceremony:
  medium: { human_review: true }
${SHOP_RULES:-}
RULES
git add .
git -c user.name=Grace -c user.email=grace@example.org commit --quiet -m "Add the shop"
