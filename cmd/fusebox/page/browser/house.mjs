// The house under test: a real fusebox server on a data directory of its own,
// with operators, and the traffic that opens circuits.
import { spawn, execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createServer } from "node:net";

const root = resolve(import.meta.dirname, "../../../..");
export const fusebox = join(root, "bin/fusebox");

const freePort = () => new Promise((done) => {
  const s = createServer().listen(0, "127.0.0.1", () => { const { port } = s.address(); s.close(() => done(port)); });
});

export async function house() {
  const dir = mkdtempSync(join(tmpdir(), "fusebox-page-"));
  const tokens = {};
  const run = (...args) => execFileSync(fusebox, args, { cwd: dir, encoding: "utf8", stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, FUSEBOX_TOKEN: tokens.admin || "" } });
  let toml = "";
  for (const role of ["viewer", "operator", "approver", "admin"]) {
    const made = JSON.parse(run("token", "--json"));
    tokens[role] = made.token;
    toml += `[[operator]]\nname = "${role === "admin" ? "ann" : role}"\nrole = "${role}"\ntoken = "${made.hash}"\n`;
  }
  writeFileSync(join(dir, "fusebox.toml"), toml);

  // The built-in policy; writes are bound too, and circuits stay open for longer
  // than the test takes.
  const policies = join(dir, "policies"), candidate = join(dir, "candidate");
  const edit = (at, ...changes) => {
    const file = join(at, "policy.toml");
    let text = readFileSync(file, "utf8");
    for (const [from, to] of changes) {
      if (!text.includes(from)) throw new Error(`policy.toml has no ${from}`);
      text = text.replace(from, to);
    }
    writeFileSync(file, text);
  };
  const tuned = [['base = "30s", growth = 1.5, max = "2m"', 'base = "20m", growth = 1.5, max = "40m"'], ["enforce_writes = false", "enforce_writes = true"]];
  for (const at of [policies, candidate]) {
    run("policy", "export", at);
    edit(at, ...tuned);
    const file = join(at, "policy.toml"), text = readFileSync(file, "utf8"), i = text.indexOf('name = "ambiguity"');
    writeFileSync(file, text.slice(0, i) + text.slice(i).replace('mode = "observe"', 'mode = "enforce"'));
  }
  edit(candidate, ['consecutive = 5, slow_over = "20s"', 'consecutive = 8, slow_over = "25s"']);

  const h = { dir, tokens, agent: `http://127.0.0.1:${await freePort()}`, oper: `http://127.0.0.1:${await freePort()}`, data: join(dir, "data"), policies, candidate, run };
  let child, ended;
  h.start = async (config = "fusebox.toml") => {
    child = spawn(fusebox, ["serve", "--config", join(dir, config), "--data", h.data, "--policies", policies,
      "--listen", h.agent.slice(7), "--listen-operator", h.oper.slice(7)], { stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    ended = new Promise((done) => child.once("exit", (code) => done(code)));
    await new Promise((ready, failed) => {
      child.stderr.on("data", (b) => { said += b; });
      child.stdout.on("data", (b) => { if (String(b).includes("Ctrl-C")) ready(); });
      child.once("exit", () => failed(new Error("the server ended: " + said)));
    });
  };
  // stop ends the server in order, and says how long that took.
  h.stop = async () => {
    const began = Date.now();
    child.kill("SIGTERM");
    if (await ended !== 0) throw new Error("the server did not end in order");
    return Date.now() - began;
  };
  h.seed = () => execFileSync(join(root, "bin/seed"), [h.data, policies], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  h.end = async () => { if (child.exitCode === null) await h.stop(); rmSync(dir, { recursive: true, force: true }); };

  const post = async (base, path, body, token) => {
    const answer = await fetch(base + path, { method: "POST", body: JSON.stringify(body), headers: token ? { authorization: "Bearer " + token } : {} });
    return { status: answer.status, body: await answer.json().catch(() => null) };
  };
  h.change = (path, body) => post(h.oper, path, body, tokens.admin);
  h.admit = async (operation, shadow = false) => (await post(h.agent, "/v1/admit", { operation, shadow })).body;
  h.status = async () => (await fetch(h.oper + "/status.json", { headers: { authorization: "Bearer " + tokens.admin } })).json();
  // attempt is one call of an agent that ends as the observation says.
  h.attempt = async (operation, observation) => {
    const { permit } = await h.admit(operation);
    if (!permit) throw new Error("not admitted: " + JSON.stringify(operation));
    await post(h.agent, `/v1/permits/${permit.id}/dispatch`, { token: permit.token });
    const r = await post(h.agent, "/v1/record", { permit: permit.id, token: permit.token, observation });
    if (r.status !== 200) throw new Error("record: " + JSON.stringify(r.body));
    return r.body;
  };
  h.fails = async (provider, times, more = {}) => {
    for (let i = 0; i < times; i++) {
      await h.attempt({ kind: "model", name: "chat.completions", provider, model: "gpt-x", effect: "read_only", ...more },
        { transport: { dispatched: "yes" }, response: { status: 503 }, elapsed_ms: 20 });
    }
  };
  h.works = (provider, more = {}) => h.attempt({ kind: "model", name: "chat.completions", provider, model: "gpt-x", effect: "read_only", ...more },
    { transport: { dispatched: "yes" }, response: { status: 200, body: '{"id":"x","object":"chat.completion","choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant","content":"ok"}}]}' }, elapsed_ms: 20 });
  return h;
}
