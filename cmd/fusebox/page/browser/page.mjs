// The operator page in headless Chromium, as a person uses it.
import assert from "node:assert/strict";
import { browser, change, check, h, hostile, live, looks, open, part, said, shot, shots, step, steps, within } from "./browser.mjs";

try {
  await h.start();

  await step("calm: every part says that nothing is wrong, in four looks", async () => {
    for (const look of Object.keys(looks)) {
      const page = await open(look);
      await live(page);
      assert.equal(await page.textContent("h1"), "All circuits are closed");
      for (const name of ["open", "unknown", "asks", "queue", "overrides"]) assert.ok(await part(page, name).locator(".calm").count(), name);
      assert.equal(await page.locator(".tile").count(), 6);
      await check(page, "calm, " + look);
      await shot(page, "calm-" + look);
      await page.context().close();
    }
  });

  const page = await open("light", { path: "/healthz" });
  let streams = 0;
  page.on("request", (r) => { if (r.url().endsWith("/events")) streams++; });
  await page.goto(h.oper + "/");
  await live(page);
  const followed = Date.now();

  await step("live: a circuit that opens shows by itself, and is told to those who listen", async () => {
    for (let i = 0; i < 3; i++) await h.works("openai");
    await h.fails("openai", 5);
    const card = page.locator(".circuit", { hasText: "provider:openai/-/gpt-x" });
    await card.waitFor();
    assert.equal(await page.textContent("h1"), "1 circuit is open");
    await within("the live region", async () => (await page.textContent("#said")).includes("provider:openai/-/gpt-x went from CLOSED to OPEN"));
    assert.match(await card.textContent(), /OPEN.*consecutive failures.*in 2\dm.*model call, 3 times.*platform-oncall/s);
    assert.equal(await card.locator(".bars").getAttribute("aria-label"), "5 of 8 failed in the last 1m0s");
    assert.deepEqual(await card.locator(".gauge span:last-child").allTextContents(), ["62.5 %, limit 50 %", "8, at least 20", "5, limit 5"]);
    assert.equal(await card.locator(".gauge.over").count(), 2);
    const tile = page.locator(".tile", { hasText: "provider" }).first();
    assert.match(await tile.textContent(), /1\s*open/);
    await within("the receipts of the change", () => card.locator(".says").count().then((n) => n >= 2));
    assert.match(await card.locator(".says").first().textContent(), /5 failures in a row; the limit is 5\..*would have kept it CLOSED/s);
    assert.ok(await part(page, "history").locator("li", { hasText: "provider:openai/-/gpt-x" }).count());
  });

  await step("night: hostile names, doubt, people who wait, work, a rollout", async () => {
    await h.fails(hostile, 5);
    await h.fails("half", 5);
    for (const tenant of ["acme", hostile]) {
      await h.attempt({ kind: "tool", name: "mail.send", tool: "mail", action: "send", action_class: "mail.send", effect: "non_repeatable", agent: "a-1", tenant, idempotency_key: "k-" + tenant },
        { transport: { dispatched: "yes", error_kind: "read_timeout" }, elapsed_ms: 30000 });
    }
    for (const request_id of ["refund-1", "refund-2", "refund-3 " + hostile]) {
      const a = await h.admit({ kind: "tool", name: "files.delete", tool: "files", action: "delete", action_class: "data.delete", effect: "non_repeatable", agent: hostile, tenant: "acme", request_id });
      assert.equal(a.decision, "require_approval");
    }
    h.seed();
    h.run("rollout", "start", h.candidate, "--server", h.oper, "--reason", "opens later, ticket 4711");
    await page.locator('[data-part="rollout"] .badge', { hasText: "observe" }).first().waitFor();
    await within("all of it on the page", async () => /openai.*OPEN/s.test(await part(page, "open").textContent()) &&
      await part(page, "unknown").locator("tbody tr").count() === 5 && await part(page, "asks").locator("tbody tr").count() === 3 && await part(page, "queue").locator("tbody tr").count() === 6);
    assert.ok((await part(page, "open").textContent()).includes("onerror=hit()"), "a hostile name is not shown as text");
    assert.equal(await page.locator("main img, main script").count(), 0);
    const diff = await part(page, "rollout").locator(".diff").textContent();
    assert.match(diff, /breaker\.provider\.trip\.consecutive\s*5\s*8/);
    await within("the policy on trial", async () => /On trial/.test(await part(page, "policy").textContent()));
    assert.equal(await page.evaluate(() => window.hits), 0);
  });

  await step("looks: no serious finding of axe in light, dark and on a phone; nothing is wider than it", async () => {
    for (const look of Object.keys(looks)) {
      const other = await open(look);
      await live(other);
      await other.locator("summary", { hasText: "Breakers of the policy" }).click();
      await check(other, "night, " + look);
      await shot(other, "night-" + look);
      await other.getByRole("button", { name: "Freeze a scope" }).click();
      await check(other, "a question, " + look);
      await other.screenshot({ path: shots + `/ask-${look}.png` });
      await other.context().close();
    }
    const receipt = await open("light");
    await receipt.locator(".says a").first().click();
    await receipt.waitForSelector("#h-why");
    assert.match(await receipt.textContent("main"), /limit/);
    await check(receipt, "a receipt");
    await shot(receipt, "receipt-light");
    await receipt.goto(h.oper + "/receipts/01a22d5b-0000-7000-8000-000000000000");
    assert.match(await receipt.textContent("main"), /No log on this data directory holds it/);
    await receipt.context().close();
  });

  await step("keyboard: a question opens, holds the focus, closes with Escape and gives it back", async () => {
    await page.evaluate(() => document.activeElement.blur());
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.className), "skip");
    const freeze = page.getByRole("button", { name: "Freeze a scope" });
    await freeze.focus();
    await page.keyboard.press("Enter");
    await page.waitForSelector("#ask[open]");
    assert.equal(await page.evaluate(() => document.activeElement.closest("#ask") !== null), true);
    await page.keyboard.press("Escape");
    await page.locator("#ask").waitFor({ state: "hidden" });
    assert.equal(await page.evaluate(() => document.activeElement.dataset.do), "freeze");
  });

  await step("what somebody works at stays where it is when the page changes", async () => {
    const card = page.locator(".circuit", { hasText: "provider:openai/-/gpt-x" });
    const summary = card.locator("summary");
    const was = await card.locator("details").evaluate((d) => d.open);
    await summary.click();
    await card.getByRole("button", { name: "Close by hand" }).focus();
    await h.fails("another", 5);
    await page.locator(".circuit", { hasText: "provider:another" }).waitFor();
    assert.equal(await card.locator("details").evaluate((d) => d.open), !was);
    assert.equal(await page.evaluate(() => document.activeElement.dataset.about), "provider:openai/-/gpt-x");
  });

  const row = (name, text) => part(page, name).locator("tbody tr", { hasText: text });
  const button = (where, name) => where.getByRole("button", { name });

  await step("overrides: freeze, hold open, close, release", async () => {
    await change(page, page.getByRole("button", { name: "Freeze a scope" }), { scope: "tool:mail", for: "30m" });
    await part(page, "overrides").locator("li", { hasText: "tool:mail" }).waitFor();
    const card = page.locator("article.circuit", { hasText: "provider:openai/-/gpt-x" });
    await change(page, button(card, /^Close by hand/), { for: "10m" });
    await part(page, "overrides").locator("li", { hasText: "HELD CLOSED" }).waitFor();
    assert.equal((await h.admit({ kind: "model", name: "chat.completions", provider: "openai", model: "gpt-x", effect: "read_only" }, true)).decision, "allow");
    await change(page, button(part(page, "overrides").locator("li", { hasText: "provider:openai/-/gpt-x" }), /^Release/), {});
    await change(page, button(page.locator("article.circuit", { hasText: "provider:half/-/gpt-x" }), /^Hold open/), { for: "1h" });
    const d = await h.status();
    assert.deepEqual(d.open.filter((c) => c.override).map((c) => [c.scope, c.override, c.override_by, c.override_why]).sort(),
      [["provider:half/-/gpt-x", "forced_open", "ann", "ticket 4711"], ["tool:mail", "forced_open", "ann", "ticket 4711"]]);
    await within("people", async () => /ann.*forced closed.*provider:openai/s.test(await part(page, "history").textContent()));
  });

  await step("work: retry, discard, take back; what is refused says so and changes nothing", async () => {
    await change(page, button(row("queue", "night-report-0"), /^Discard/), {});
    await row("queue", "night-report-0").waitFor({ state: "detached" });
    await change(page, button(row("queue", "night-report-1"), /^Retry/), {});
    await assert.rejects(change(page, button(row("queue", "case-invoice-1"), /^Take back/), {}), /refused: Nothing was changed: .*nothing that takes mail\/send back/);
    await shot(page, "refused-light");
    await page.click("#ask-no");
    await change(page, button(row("queue", "case-invoice-1"), /^Retry/), {});
    await change(page, button(row("queue", "case-invoice-3"), /^Discard/), {});
    await within("the queue", async () => {
      const d = await h.status();
      return d.dead.map((i) => i.id).join() === "case-invoice-5" && d.queue.some((i) => i.id === "case-invoice-1" && i.state === "WAITING" && i.reason.includes("ann: ticket 4711"));
    });
  });

  await step("doubt: an UNKNOWN write is reconciled, once it is said what was found", async () => {
    const id = await page.locator('[data-part="unknown"] tbody tr', { hasText: "k-acme" }).locator('[data-do="reconcile"]').getAttribute("data-about");
    await change(page, page.locator(`[data-do="reconcile"][data-about="${id}"]`), { finding: "applied" }, { reason: "mail log 09:12" });
    await page.locator(`[data-do="reconcile"][data-about="${id}"]`).waitFor({ state: "detached" });
    const list = await (await fetch(h.oper + "/v1/intents?state=SETTLED", { headers: { authorization: "Bearer " + h.tokens.admin } })).json();
    assert.equal(list.intents.find((i) => i.id === id).by, "ann: mail log 09:12");
  });

  await step("approvals: one request is allowed, another refused, and both wait no more", async () => {
    await change(page, button(row("asks", "refund-1"), /^Allow/), { for: "1h", once: true });
    await change(page, button(row("asks", "refund-2"), /^Refuse/), { for: "1h" });
    await within("one that waits", async () => await part(page, "asks").locator("tbody tr").count() === 1);
    const again = (request_id) => h.admit({ kind: "tool", name: "files.delete", tool: "files", action: "delete", action_class: "data.delete", effect: "non_repeatable", agent: hostile, tenant: "acme", request_id }, true);
    assert.equal((await again("refund-1")).decision, "allow");
    assert.equal((await again("refund-2")).decision, "reject");
  });

  await step("rollout: hold, advance, roll back", async () => {
    await change(page, part(page, "rollout").getByRole("button", { name: "Hold…" }), {});
    await part(page, "rollout").locator(".tag", { hasText: "held" }).waitFor();
    await change(page, part(page, "rollout").getByRole("button", { name: "Advance…" }), {});
    await part(page, "rollout").locator(".badge", { hasText: "shadow" }).first().waitFor();
    await change(page, part(page, "rollout").getByRole("button", { name: "Roll back…" }), {});
    await part(page, "rollout").locator(".badge", { hasText: "rolled back" }).waitFor();
    assert.equal(await part(page, "rollout").getByRole("button", { name: "Advance…" }).count(), 0);
  });

  await step("evidence: the log is verified from the page", async () => {
    await page.click("#verify");
    await part(page, "evidence").locator(".badge", { hasText: /pass|unproven/ }).waitFor();
    assert.match(await part(page, "evidence").textContent(), /Every check passed|Nothing wrong was found/);
  });

  await step("one stream lasted all the time, longer than any other request may", async () => {
    await new Promise((r) => setTimeout(r, Math.max(0, followed + 35_000 - Date.now())));
    assert.equal(streams, 1);
    await live(page);
  });

  await step("restart: the page says that the connection is lost, and goes on by itself afterwards", async () => {
    const took = await h.stop();
    assert.ok(took < 9_000, `a page that is followed held the server's end up for ${took} ms`);
    await page.waitForSelector('#link[data-state="lost"]');
    assert.match(await page.textContent("#lost"), /Connection lost at \d\d:\d\d:\d\d UTC, trying again/);
    await check(page, "lost");
    await page.screenshot({ path: shots + "/lost-light.png" });
    await button(page.locator("article.circuit", { hasText: "provider:half/-/gpt-x" }), /^Release/).click();
    await page.locator("#ask [name=reason]").fill("while it is down");
    await page.click("#ask-yes");
    await page.locator("#ask-error", { hasText: "The server did not answer" }).waitFor();
    await page.click("#ask-no");
    await h.start();
    await live(page);
    await page.locator("#lost").waitFor({ state: "hidden" });
    await within("it said so", async () => /Connected again|went from/.test(await page.textContent("#said")));
    await h.fails("afterwards", 5);
    await page.locator(".circuit", { hasText: "provider:afterwards" }).waitFor();
  });

  await step("roles: who may not change a thing is offered none", async () => {
    for (const [role, may] of Object.entries({ viewer: [], approver: ["allow", "deny"], operator: ["close", "discard", "freeze", "open", "reconcile", "release", "retry"] })) {
      const other = await open("light", { role });
      await live(other);
      const offered = await other.locator("[data-do]").evaluateAll((all) => [...new Set(all.map((e) => e.dataset.do))].sort());
      assert.deepEqual(offered.filter((o) => o !== "compensate"), may, role);
      assert.match(await other.textContent(".who"), new RegExp(role));
      if (role === "viewer") await check(other, "viewer");
      await other.context().close();
    }
    const nobody = await browser.newContext();
    assert.equal((await nobody.request.get(h.oper + "/")).status(), 401);
    await nobody.close();
  });

  await step("without JavaScript everything can be read, and nothing pretends to work", async () => {
    const other = await open("phone", { more: { javaScriptEnabled: false } });
    assert.match(await other.textContent("body"), /Without JavaScript/);
    assert.ok(await other.locator("article.circuit").count() > 3);
    for (const b of await other.locator("button").all()) assert.equal(await b.isVisible(), false);
    await shot(other, "plain-phone");
    await other.context().close();
  });

  await step("nothing foreign ran, and the console holds no complaint of ours", async () => {
    assert.equal(await page.evaluate(() => window.hits), 0);
    const ours = said.filter((t) => !/Failed to load resource|net::ERR/.test(t));
    assert.deepEqual(ours, []);
  });
  console.log(`${steps} steps passed; screenshots in ${shots}`);
} catch (err) {
  console.error("FAIL  " + err.message + "\n" + (err.stack || "").split("\n").filter((l) => l.includes(".mjs")).slice(0, 4).join("\n"));
  console.error("circuits: " + await h.status().then((d) => d.open.map((c) => `${c.scope} ${c.state} ${c.override || ""}`).join("; "), (e) => e.message));
  process.exitCode = 1;
} finally {
  await browser.close();
  await h.end();
}
