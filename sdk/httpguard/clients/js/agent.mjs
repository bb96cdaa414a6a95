// One client in a process of its own: node agent.mjs NAME. It reads asks from
// standard input, one JSON document a line, and writes what each brought. Asks
// run side by side, as those of one agent would.
import { createInterface } from "node:readline";

const { call } = await import(`./${process.argv[2]}.mjs`);

async function carry(ask) {
  // What the client handed over before an error is the caller's to keep.
  const said = { text: "", tools: [] };
  try {
    await call(ask, said);
    return { id: ask.id, ...said, clean: true };
  } catch (error) {
    return { id: ask.id, ...said, clean: false, error: describe(error) };
  }
}

// describe finds what an application would look at, wherever the client put it.
function describe(error) {
  const told = { name: error?.name ?? typeof error, message: String(error?.message ?? error) };
  const seen = new Set();
  for (let e = error; e && typeof e === "object" && !seen.has(e); e = e.lastError ?? e.cause) {
    seen.add(e);
    told.status ??= e.status ?? e.statusCode;
    const body = bodyOf(e);
    told.code ??= body?.code ?? (typeof e.code === "string" ? e.code : undefined);
    told.fusebox ??= body?.fusebox;
    const headers = e.headers ?? e.responseHeaders;
    told.layer ??= (typeof headers?.get === "function" ? headers.get("fusebox-layer") : headers?.["fusebox-layer"]) ?? undefined;
  }
  return told;
}

// bodyOf is the error object of the answer: OpenAI's client unwraps it, that of
// Anthropic does not, and Vercel's keeps the text.
function bodyOf(e) {
  if (typeof e.responseBody === "string") {
    try {
      return JSON.parse(e.responseBody).error;
    } catch {
      return undefined;
    }
  }
  return e.error?.error ?? e.error ?? e.data?.error;
}

process.stdout.write('{"ready":true}\n');
for await (const line of createInterface({ input: process.stdin })) {
  carry(JSON.parse(line)).then((got) => process.stdout.write(JSON.stringify(got) + "\n"));
}
