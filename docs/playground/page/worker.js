// Runs pitcheck in Python that is compiled to WebAssembly. Messages in: {texts, seed, bound}. Messages out: {step},
// {progress: [what, done, total]}, {answer} and {error}. Every file of Pyodide is held against its digest; the wheels
// are held against the digests in lock.json, by Pyodide itself.

const here = new URL("./", import.meta.url);
const plain = self.fetch.bind(self);
let starting;

async function fetched(url) {
  const answer = await self.fetch(url);
  if (!answer.ok) throw new Error(`${url}: ${answer.status} ${answer.statusText}`);
  return answer;
}

// Make every request of a file that has a digest fail if it has another one.
function holdAgainst(digests) {
  self.fetch = (what, options = {}) => {
    const integrity = digests[String(what.url ?? what)];
    return plain(what, integrity ? { ...options, integrity } : options);
  };
}

// Return the module of a file of Pyodide. An import has no digest, so the file is fetched first.
async function imported(url) {
  const blob = new Blob([await (await fetched(url)).text()], { type: "text/javascript" });
  const copy = URL.createObjectURL(blob);
  try {
    return await import(copy);
  } finally {
    URL.revokeObjectURL(copy);
  }
}

// Return the list of wheels, with the address of each.
async function wheels(base) {
  const lock = await (await fetched(new URL("lock.json", here))).json();
  for (const each of Object.values(lock.packages))
    each.file_name = new URL(each.file_name, each.name === "pitcheck" ? here : base).href;
  return lock;
}

async function start() {
  postMessage({ step: "loading Python" });
  const settings = await (await fetched(new URL("settings.json", here))).json();
  const base = new URL(settings.pyodide, here).href;
  holdAgainst(Object.fromEntries(Object.entries(settings.integrity).map(([name, digest]) => [base + name, digest])));
  const [{ loadPyodide }, { default: createPyodideModule }, lockFileContents] = await Promise.all([
    imported(`${base}pyodide.mjs`),
    imported(`${base}pyodide.asm.mjs`),
    wheels(base),
  ]);
  const python = await loadPyodide({ indexURL: base, packageBaseUrl: base, lockFileContents, createPyodideModule });
  postMessage({ step: "loading pitcheck" });
  await python.loadPackage("pitcheck", { messageCallback: () => {}, errorCallback: (text) => console.error(text) });
  return python;
}

// Return Python, started once; a start that failed is tried again.
function started() {
  starting ??= start().catch((error) => {
    starting = undefined;
    throw new Error(`Python could not be loaded: ${error.message}`);
  });
  return starting;
}

async function answer({ texts, seed, bound }) {
  const python = await started();
  postMessage({ step: "checking" });
  const run = python.pyimport("pitcheck.commands.texts").answer_in_json;
  return JSON.parse(run(JSON.stringify(texts), seed, bound, (...progress) => postMessage({ progress })));
}

self.onmessage = async ({ data }) => {
  try {
    const found = await answer(data);
    postMessage("error" in found ? found : { answer: found });
  } catch (error) {
    postMessage({ error: String(error.message ?? error) });
  }
};
