// The page: what is typed goes to a worker, what comes back is shown.

import { Editor } from "./editor.js";
import { decodeLink, encodeLink } from "./link.js";

const $ = (id) => document.getElementById(id);
const REFERENCE = "reference.plan.json", PARALLEL = "parallel.plan.json", CONFIGURATION = "configuration.toml";
const editors = {
  [REFERENCE]: new Editor($("reference")),
  [PARALLEL]: new Editor($("parallel")),
  [CONFIGURATION]: new Editor($("toml")),
};
const labels = { [REFERENCE]: "reference plan", [PARALLEL]: "parallel plan", [CONFIGURATION]: "configuration" };
const urls = [];
let worker = null;

function kind() {
  return new FormData($("form")).get("kind");
}

function setKind(kind) {
  for (const button of $("form").elements.kind) button.checked = button.value === kind;
  $("plans").hidden = kind !== "plans";
  $("configuration").hidden = kind === "plans";
}

function state() {
  const names = kind() === "plans" ? [REFERENCE, PARALLEL] : [CONFIGURATION];
  const texts = Object.fromEntries(names.map((name) => [name, editors[name].text]));
  return { texts, seed: $("seed").value, bound: $("bound").value };
}

function show({ texts, seed, bound }) {
  setKind(CONFIGURATION in texts ? "configuration" : "plans");
  for (const [name, text] of Object.entries(texts)) editors[name].text = text;
  $("seed").value = seed;
  $("bound").value = bound;
}

// Show messages; those with a line get a button that leads there.
function say(...messages) {
  $("messages").replaceChildren(
    ...messages.map(({ file, message, line, column }) => {
      const shown = document.createElement("p");
      shown.textContent = message;
      if (file) shown.prepend(`${labels[file]}: `);
      if (line) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = `line ${line}, column ${column}`;
        button.addEventListener("click", () => editors[file].show(line, column));
        shown.append(" ", button);
      }
      return shown;
    }),
  );
}

function busy(is) {
  $("check").disabled = is;
  $("cancel").disabled = !is;
  $("form").setAttribute("aria-busy", is);
}

function startWorker() {
  worker?.terminate();
  worker = new Worker("worker.js", { type: "module" });
  worker.addEventListener("message", ({ data }) => receive(data));
  worker.addEventListener("error", (event) => {
    event.preventDefault();
    failed(`The worker could not start: ${event.message ?? "its files are missing"}`);
  });
}

function failed(message) {
  worker?.terminate();
  worker = null;
  ended("");
  say({ message });
}

function ended(text) {
  busy(false);
  $("progress").textContent = text;
}

function receive({ step, progress, answer, error }) {
  if ($("cancel").disabled) return; // a worker that starts anew after a cancel
  if (step) $("progress").textContent = `${step} …`;
  if (progress) $("progress").textContent = `${progress[0]}: ${progress[1]} of ${progress[2]}`;
  if (error !== undefined) {
    ended("");
    say({ message: error });
  }
  if (answer) report(answer);
}

function saved(link, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  urls.push(url);
  link.href = url;
}

function report({ said, page, report, faults, witness }) {
  ended("done");
  say(...faults);
  for (const url of urls.splice(0)) URL.revokeObjectURL(url);
  saved($("save-page"), page, "text/html");
  saved($("save-json"), report, "application/json");
  $("save-witness").hidden = !witness;
  if (witness) {
    saved($("save-witness"), witness[1], "application/json");
    $("save-witness").download = witness[0];
  }
  $("verdict").textContent = said;
  $("report").srcdoc = page;
  $("result").hidden = false;
  if (!faults.length) $("verdict").focus();
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  say();
  $("result").hidden = true;
  busy(true);
  $("progress").textContent = "starting …";
  if (!worker) startWorker();
  worker.postMessage(state());
});

$("cancel").addEventListener("click", () => {
  ended("cancelled");
  startWorker();
  $("check").focus();
});

$("form").addEventListener("change", (event) => {
  if (event.target.name === "kind") setKind(kind());
});

$("link").addEventListener("click", async () => {
  try {
    history.replaceState(null, "", await encodeLink(state()));
  } catch (error) {
    say({ message: error.message });
    return;
  }
  try {
    await navigator.clipboard.writeText(location.href);
    $("progress").textContent = "the link is copied";
  } catch {
    $("progress").textContent = "the link is in the address bar";
  }
});

async function followLink() {
  try {
    const found = await decodeLink(location.hash);
    if (found) show(found);
    return found !== null;
  } catch (error) {
    say({ message: error.message });
    return true;
  }
}

async function loadExamples() {
  const examples = await (await fetch("examples.json")).json();
  for (const [number, { title }] of examples.entries()) $("example").append(new Option(title, number));
  $("example").addEventListener("change", () => {
    const chosen = examples[$("example").value];
    if (!chosen) return;
    show({ texts: chosen.texts, seed: "1", bound: "2^-64" });
    say();
  });
  return examples;
}

addEventListener("hashchange", followLink);
const [examples, linked] = await Promise.all([loadExamples(), followLink()]);
if (!linked) {
  show({ texts: examples[0].texts, seed: "1", bound: "2^-64" });
  $("example").value = "0";
}
document.documentElement.dataset.ready = "";
