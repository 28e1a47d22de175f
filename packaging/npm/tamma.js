#!/usr/bin/env node
// Starts the `tamma` program of the package for this platform.
"use strict";

const { spawn } = require("node:child_process");
const path = require("node:path");

const PLATFORMS = ["linux-x64", "linux-arm64", "darwin-x64", "darwin-arm64"];

function fail(problem, help) {
  process.stderr.write(`error: ${problem}\n  help: ${help}\n`);
  process.exit(1);
}

function program() {
  const platform = `${process.platform}-${process.arch}`;
  if (!PLATFORMS.includes(platform)) {
    fail(`Tamma has no package for ${platform}`, `use one of ${PLATFORMS.join(", ")}`);
  }
  const name = `@tamma/${platform}`;
  try {
    return path.join(path.dirname(require.resolve(`${name}/package.json`)), "bin", "tamma");
  } catch {
    const musl = process.platform === "linux" && !process.report.getReport().header.glibcVersionRuntime;
    if (musl) fail("Tamma needs glibc, and this system has musl", "use a system with glibc, such as Debian");
    return fail(`the package ${name} is not installed`, "install tamma again, without --omit=optional");
  }
}

function run(file, args) {
  // Becomes the program where Node can: signals and the exit code need no forwarding then.
  if (typeof process.execve === "function") {
    process.execve(file, [file, ...args], process.env);
  }
  const child = spawn(file, args, { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
    process.on(signal, () => {
      // A terminal sends SIGINT to the program itself, and a second one would force its exit.
      if (signal !== "SIGINT" || !process.stdin.isTTY) child.kill(signal);
    });
  }
  child.on("error", (error) => fail(`cannot start ${file}: ${error.message}`, "install tamma again"));
  child.on("exit", (code, signal) => {
    if (signal === null) process.exit(code);
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
}

run(program(), process.argv.slice(2));
