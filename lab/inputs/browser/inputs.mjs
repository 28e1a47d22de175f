// Inputs of the tasks that the pages about changes, runs and large work are tried with: files of the
// repository, and cases of the scripted agent.

const zeros = (number) => String(number).padStart(3, "0");

// Images of one pixel.
const PNG_START = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8";
const png = (end) => Buffer.from(PNG_START + end, "base64");

const amountLine = (number) => `pub fn amount_${zeros(number)}(cents: i64) -> i64 { cents * ${number} } // <b>line ${number}</b>`;
const amountFile = (changes = {}) =>
  Array.from({ length: 120 }, (_, i) => (i + 1 in changes ? changes[i + 1] : amountLine(i + 1)))
    .filter((it) => it !== null)
    .join("\n") + "\n";

const FIRST = {
  60: "pub fn amount_060(cents: i64) -> i64 { cents * 6000 } // <b>line 60</b>",
  61: `${amountLine(61)}\npub fn currency() -> &'static str { "EUR" }`,
  100: null,
};

const moduleLine = (name, module, line) => `pub const ${name}_${line}: i64 = round_${name}(${module} + ${line}); // module ${module}`;
const moduleFile = (name, module, lines) => Array.from({ length: lines }, (_, i) => moduleLine(name, module, i + 1)).join("\n") + "\n";
const modulePath = (number) => `modules/m${zeros(number)}.rs`;

const SIGNALS = { modules: 1, novelty: "none", tests: "none", security: "none", ambiguity: "none" };
const change = (path, action, description, estimated_lines = 2) => ({ path, action, description, estimated_lines });
const plan = (summary, approach, file_changes) => ({
  plan: { summary, approach, signals: SIGNALS, file_changes, testing_strategy: "The check still passes.", estimated_tokens: 2000, estimated_cost_usd: "0.03" },
});
const end = (cost, input) => [{ usage: { cost } }, { end: { tokens: { input, cached: 0, output: 200 } } }];

export const REVIEWED = {
  title: "Print the euro beside each amount",
  // Raw HTML and a script are shown as text.
  description:
    "The receipt has **bare numbers**.\n\n- one place\n- `EUR` for now\n\n```rust\nlet euro = 1;\n```\n\n<img src=x onerror=\"window.broken = true\"> [a link](javascript:window.broken=true)",
  comment: "Name the euro in the heading, too.",
  files: ["assets/logo.png", "data/rates.bin", "docs.txt", "notes/old.md", "src/amount.rs", "web/app.min.js"],
};
export const WATCHED = { title: "Count the words of the receipt", steps: ["the first part", "the second part", "the third part"] };
export const LARGE = { title: "Move every module to the one rounding" };

// Returns the files that the repository has before the first task, by path. `modules` is the number of
// files of the large change: each has 25 changed lines, 12 removed and 13 added.
export const repositoryFiles = (modules) => ({
  "src/amount.rs": amountFile(),
  "assets/logo.png": png("BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="),
  "assets/next.png": png("DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="),
  "data/rates.bin": Buffer.from([0, 1, 2, 3]),
  "data/new.bin": Buffer.from([0, 9, 8, 7, 6]),
  "web/app.min.js": "const a=1;\n",
  "notes/old.md": "# Old notes\n\nNobody reads them.\n",
  ...Object.fromEntries(Array.from({ length: modules }, (_, i) => [modulePath(i + 1), moduleFile("half_up", i + 1, 12)])),
});

// Returns the cases of the scripted agent. The first one that fits a prompt is played. `signal` returns
// the path of a file that the agent waits for.
export const agentCases = (modules, signal) => {
  const numbers = Array.from({ length: modules }, (_, i) => i + 1);
  return [
    {
      when: REVIEWED.comment,
      steps: [
        { say: "The heading names the euro now." },
        { write: { path: "src/amount.rs", content: amountFile({ ...FIRST, 1: "// Amounts in euro.\n" + amountLine(1) }) } },
        ...end("0.04", 2100),
      ],
    },
    {
      when: "One function says which currency it is",
      steps: [
        { say: "I will print the euro." },
        { write: { path: "src/amount.rs", content: amountFile(FIRST) } },
        { run: "cp assets/next.png assets/logo.png" },
        { run: "cp data/new.bin data/rates.bin" },
        { run: "sh no-such-script.sh" },
        { write: { path: "web/app.min.js", content: "const a=2;\n" } },
        { write: { path: "docs.txt", content: "Amounts are in euro.\n" } },
        { delete: { path: "notes/old.md" } },
        ...end("0.05", 2600),
      ],
    },
    {
      when: REVIEWED.title,
      steps: [
        plan("Each amount has its **currency**.", "One function says which currency it is.", [
          change("src/amount.rs", "modify", "the currency"),
          change("assets/logo.png", "modify", "a new logo"),
          change("data/rates.bin", "modify", "new rates"),
          change("web/app.min.js", "modify", "built again"),
          change("docs.txt", "create", "says so"),
          change("notes/old.md", "delete", "nobody reads them"),
        ]),
        ...end("0.02", 1500),
      ],
    },
    {
      when: "A word is what stands between two spaces",
      steps: [
        { say: `I count ${WATCHED.steps[0]}.` },
        { usage: { cost: "0.01" } },
        { await_file: signal(1) },
        { say: `I count ${WATCHED.steps[1]}.` },
        { usage: { cost: "0.05" } },
        { await_file: signal(2) },
        { say: `I count ${WATCHED.steps[2]}.` },
        { usage: { cost: "0.09" } },
        { await_file: signal(3) },
        { write: { path: "words.txt", content: "7\n" } },
        ...end("0.12", 4321),
      ],
    },
    {
      when: WATCHED.title,
      steps: [
        plan("The words are counted.", "A word is what stands between two spaces.", [change("words.txt", "create", "the number")]),
        ...end("0.01", 1100),
      ],
    },
    {
      when: "Every module calls the one rounding",
      steps: [...numbers.map((it) => ({ write: { path: modulePath(it), content: moduleFile("half_even", it, 13) } })), ...end("0.20", 9000)],
    },
    {
      when: LARGE.title,
      steps: [
        plan("Modules round half to even.", "Every module calls the one rounding.", numbers.map((it) => change(modulePath(it), "modify", "calls the one rounding", 25))),
        ...end("0.05", 3000),
      ],
    },
  ];
};
