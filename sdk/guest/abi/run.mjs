// Runs golden files against a module without imports, with nothing of fusebox:
// the whole of ABI 1 as a host sees it.
//
//   node run.mjs MODULE.wasm GOLDEN_FOLDER
import { readFileSync, readdirSync } from "node:fs";
import { isDeepStrictEqual } from "node:util";

const [file, folder] = process.argv.slice(2);
const module = new WebAssembly.Module(readFileSync(file));
const names = WebAssembly.Module.exports(module).map((e) => e.name);
for (const need of ["memory", "fb_abi_1", "fb_buf"]) {
  if (!names.includes(need)) throw new Error(`${file}: no export ${need}`);
}

function ask(document) {
  // A new instance for every call: state never reaches the next one.
  const { exports } = new WebAssembly.Instance(module, {});
  exports._initialize?.();
  const bytes = new TextEncoder().encode(document);
  const at = exports.fb_buf(bytes.length) >>> 0;
  if (at === 0) throw new Error("fb_buf has no room");
  new Uint8Array(exports.memory.buffer).set(bytes, at);
  const schema = JSON.parse(document).schema;
  const entry = schema === "fusebox.fallback/v1" ? exports.fb_fallback : exports.fb_classify;
  const result = entry(at, bytes.length);
  if (result === 0n) return null;
  if (result < 0n) return { error: `guest_error:${result}` };
  const place = Number(result >> 32n), length = Number(result & 0xffffffffn);
  const text = new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array(exports.memory.buffer, place, length));
  return JSON.parse(text);
}

let failed = 0, count = 0;
for (const name of readdirSync(folder).filter((f) => f.endsWith(".input.json")).sort()) {
  const want = JSON.parse(readFileSync(`${folder}/${name.replace(".input.", ".want.")}`, "utf8"));
  const got = ask(readFileSync(`${folder}/${name}`, "utf8").trimEnd());
  count++;
  if (!isDeepStrictEqual(got, want)) {
    failed++;
    console.log(`${name}: got ${JSON.stringify(got)}, want ${JSON.stringify(want)}`);
  }
}
console.log(`${count - failed} of ${count} golden files pass`);
process.exit(failed || count === 0 ? 1 : 0);
