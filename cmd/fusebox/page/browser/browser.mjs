// Chromium, and what the steps of the test need of it.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createRequire } from "node:module";
import { chromium } from "playwright-core";
import { house } from "./house.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
export const shots = process.env.FUSEBOX_SHOTS || mkdtempSync(join(tmpdir(), "fusebox-shots-"));
mkdirSync(shots, { recursive: true });
export const hostile = `<img src=x onerror=hit()>"';--><script>hit()</script>`;
const patience = 60_000; // the machine may be busy; nothing here measures speed

export const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, headless: true, timeout: patience, args: ["--headless", "--no-sandbox", "--disable-gpu",
  "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"] });
export const h = await house();
export const said = []; // what pages wrote to their consoles

export const looks = {
  light: { viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  dark: { viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
  phone: { viewport: { width: 360, height: 740 }, colorScheme: "light", isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
  "phone-dark": { viewport: { width: 360, height: 740 }, colorScheme: "dark", isMobile: true, hasTouch: true, deviceScaleFactor: 2 },
};

export async function open(look = "light", { role = "admin", more = {}, path = "/" } = {}) {
  const context = await browser.newContext({ ...looks[look], ...(role ? { httpCredentials: { username: role, password: h.tokens[role] } } : {}), ...more });
  const page = await context.newPage();
  page.setDefaultTimeout(patience);
  page.on("console", (m) => { if (m.type() === "error") said.push(`${m.text()} (${m.location().url})`); });
  page.on("pageerror", (e) => said.push("error: " + e.message));
  page.on("dialog", (d) => { said.push("a dialog of the browser: " + d.message()); d.dismiss(); });
  await page.addInitScript(() => { window.hits = 0; window.hit = () => window.hits++; });
  await page.goto(h.oper + path, { timeout: patience });
  return page;
}

export const live = (page) => page.waitForSelector('#link[data-state="live"]');
export const shot = (page, name) => page.screenshot({ path: join(shots, name + ".png"), fullPage: true });

// check has axe look; what it calls serious or critical fails.
export async function check(page, name) {
  // The page's own policy forbids foreign scripts, so axe comes in by the debugger.
  const client = await page.context().newCDPSession(page);
  await client.send("Runtime.evaluate", { expression: axe + ";1" });
  const found = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const bad = found.violations.filter((v) => ["serious", "critical"].includes(v.impact));
  assert.deepEqual(bad.map((v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((n) => n.html + " " + (n.any[0]?.message || "")).join(" | ")}`), [], `axe on ${name}`);
  if (page.viewportSize().width <= 400) {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(wide <= 360, `${name} is ${wide} px wide on a phone of 360`);
  }
}

export let steps = 0;
export const began = Date.now();
export async function step(name, does) {
  try {
    await does();
  } catch (err) {
    err.message = `${name}: ${err.message}`;
    throw err;
  }
  steps++;
  console.log(`ok    ${name} (${Math.round((Date.now() - began) / 1000)} s)`);
}

export const part = (page, name) => page.locator(`[data-part="${name}"]`);
export const within = async (what, ok) => {
  for (const end = Date.now() + patience; ; await new Promise((r) => setTimeout(r, 200))) {
    if (await ok()) return;
    assert.ok(Date.now() < end, "not within " + patience + " ms: " + what);
  }
};

// change does one change as a person would: without a reason it is refused before
// anything is sent, and then it shows the receipt that it left.
export async function change(page, button, fields, { reason = "ticket 4711" } = {}) {
  await button.click();
  const ask = page.locator("#ask");
  await ask.waitFor();
  let posts = 0;
  const count = (r) => { if (r.method() === "POST") posts++; };
  page.on("request", count);
  await page.click("#ask-yes");
  await page.waitForSelector("#ask-error:not([hidden])");
  assert.equal(posts, 0, "something was sent before a reason was given");
  page.off("request", count);
  for (const [name, value] of Object.entries(fields)) {
    const input = ask.locator(`[name="${name}"]`);
    if (await input.evaluate((e) => e.tagName) === "SELECT") await input.selectOption(value);
    else if (typeof value === "boolean") await input.setChecked(value);
    else await input.fill(value);
  }
  await ask.locator('[name="reason"]').fill(reason);
  await page.click("#ask-yes");
  await Promise.race([ask.waitFor({ state: "hidden" }), page.waitForSelector("#ask-error:not([hidden])").then(async () => {
    throw new Error("refused: " + await page.textContent("#ask-error"));
  })]);
  const link = page.locator("#result a");
  await link.waitFor();
  const id = await link.textContent();
  assert.match(id, /^[0-9a-f-]{36}$/);
  const receipt = await (await fetch(h.oper + "/receipts/" + id, { headers: { authorization: "Bearer " + h.tokens.admin } })).text();
  assert.match(receipt, /ann/, "the receipt does not say who");
  assert.equal(await page.evaluate(() => document.activeElement.id), "result", "the result is not where the focus is");
  await page.click("#result button");
  return id;
}
