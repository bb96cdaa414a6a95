// The script of the operator page. The server draws everything; this follows
// its one event stream, swaps the parts that changed, and asks who and why
// before it sends a change. Whatever comes from outside is set as text.

const $ = (id) => document.getElementById(id);
document.documentElement.classList.add("js");

// ---- time -------------------------------------------------------------------

function span(ms) {
  const s = Math.round(ms / 1000);
  if (s < 120) return s + "s";
  const m = Math.round(s / 60);
  if (m < 120) return m >= 60 ? Math.floor(m / 60) + "h" + (m % 60) + "m" : m + "m";
  const h = Math.round(m / 60);
  return h < 48 ? h + "h" : Math.floor(h / 24) + "d";
}

// The server's clock counts, not that of whoever looks.
let skew = 0;
function readClock(root) {
  const at = root.querySelector('[data-part="headline"] time');
  if (at) skew = Date.parse(at.dateTime) - Date.now();
}

function tellTimes(root) {
  const now = Date.now() + skew;
  for (const t of root.querySelectorAll("time[data-rel]")) {
    const ms = Date.parse(t.dateTime) - now;
    const over = t.dataset.rel ? "at the " + t.dataset.rel : span(-ms) + " ago";
    const text = ms > 0 ? "in " + span(ms) : ms > -1000 ? "now" : over;
    if (t.textContent !== text) t.textContent = text;
    t.title = t.dateTime.replace("T", " ").replace("Z", " UTC");
  }
}

// ---- parts ------------------------------------------------------------------

const mark = (e) => e.dataset.do + " " + e.dataset.about;

// swap puts a new drawing in the place of the old one, and leaves whoever is at
// work there where they were.
function swap(old, fresh) {
  const open = new Map([...old.querySelectorAll("details[data-key]")].map((d) => [d.dataset.key, d.open]));
  const at = old.contains(document.activeElement) ? document.activeElement : null;
  const key = at?.dataset.do ? mark(at) : null;
  const inside = at?.tagName === "SUMMARY" ? at.parentElement.dataset.key : null;
  for (const d of fresh.querySelectorAll("details[data-key]")) {
    if (open.has(d.dataset.key)) d.open = open.get(d.dataset.key);
  }
  old.replaceChildren(...document.adoptNode(fresh).childNodes);
  tellTimes(old);
  if (!at) return;
  const again = at.id ? $(at.id)
    : key ? [...old.querySelectorAll("[data-do]")].find((e) => mark(e) === key)
    : inside ? [...old.querySelectorAll("details[data-key]")].find((d) => d.dataset.key === inside)?.firstElementChild
    : at.href ? [...old.querySelectorAll("a")].find((a) => a.href === at.href) : null;
  (again || old.querySelector("h2[tabindex]"))?.focus({ preventScroll: true });
}

let fetching = null, wanted = new Set();

// refresh draws parts anew; without names, all of them.
async function refresh(names) {
  for (const n of names || ["*"]) wanted.add(n);
  if (fetching) return fetching;
  fetching = (async () => {
    try {
      while (wanted.size) {
        const now = wanted;
        wanted = new Set();
        const answer = await fetch("/", { cache: "no-store" });
        if (!answer.ok) throw new Error("the page was answered with status " + answer.status);
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        readClock(fresh);
        document.title = fresh.title;
        for (const part of document.querySelectorAll("[data-part]")) {
          const next = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
          if (next && (now.has("*") || now.has(part.dataset.part) || part.dataset.part === "headline")) swap(part, next);
        }
        $("lost").hidden = !lostSince;
      }
    } catch {
      lost();
    } finally {
      fetching = null;
    }
  })();
  return fetching;
}

// ---- stream -----------------------------------------------------------------

let stream, lostSince = 0, wait = 1000, page = "", quiet, again;

function link(state, says) {
  $("link").dataset.state = state;
  $("link-says").textContent = says;
}

function lost() {
  if (!lostSince) lostSince = Date.now();
  link("lost", "connection lost");
  const at = new Date(lostSince + skew).toISOString().slice(11, 19);
  $("lost").textContent = `Connection lost at ${at} UTC, trying again. What is shown below is from before that.`;
  $("lost").hidden = false;
  stream?.close();
  clearTimeout(quiet);
  clearTimeout(again);
  again = setTimeout(follow, wait);
  wait = Math.min(wait * 1.6, 8000);
}

// alive is called for every message: a stream that says nothing for long is dead,
// also where nobody closed it.
function alive() {
  clearTimeout(quiet);
  quiet = setTimeout(lost, 15000);
}

function follow() {
  stream = new EventSource("/events");
  alive();
  stream.onerror = lost;
  stream.addEventListener("hello", (e) => {
    alive();
    const now = JSON.parse(e.data);
    if (page && page !== now.page && !$("ask").open) return location.reload(); // the server was replaced
    page = now.page;
    wait = 1000;
    const was = lostSince;
    lostSince = 0;
    link("live", "live");
    if (was) say("Connected again.");
    refresh();
  });
  stream.addEventListener("change", (e) => {
    alive();
    const now = JSON.parse(e.data);
    for (const t of now.transitions.slice(0, 3).reverse()) say(`${t.scope} went from ${t.from} to ${t.to}: ${t.reason}`);
    if (now.changed.length) refresh(now.changed);
  });
}

// say tells those who hear the page.
function say(text) {
  $("said").textContent = text.replaceAll("_", " ");
}

// ---- changes ----------------------------------------------------------------

const hours = { "10m": "10 minutes", "30m": "30 minutes", "1h": "1 hour", "4h": "4 hours", "24h": "24 hours" };
const why = { name: "reason", label: "Why, in one line", most: 80 };
const until = (all) => ({ name: "for", label: "For how long", choose: all });
const override = (action) => (d, f) => ["/v1/overrides", { scope: f.scope || d.about, action, for: f.for || "", reason: f.reason }];
const item = (action) => (d, f) => ["/v1/queue/" + encodeURIComponent(d.about), { action, reason: f.reason }];
const word = (denies) => (d, f) => ["/v1/approvals", { scope: f.scope, tenant: d.tenant, for: f.for, single_use: !denies && f.once, denies, reason: f.reason }];
const step = (name) => (d, f) => ["/v1/rollout/" + name, { reason: f.reason, ...(f.percent ? { percent: Number(f.percent) } : {}) }];
const covers = (d) => ({ name: "scope", label: "It covers", choose: { [d.about]: "this request", ...(d.class ? { [d.class]: "every " + d.class } : {}) } });

const CHANGES = {
  freeze: { title: "Freeze a scope", yes: "Freeze", says: "Nothing is sent to it until the end that you choose. A scope is a breaker’s name and its values, widest first: tool:mail, or provider:openai/-/gpt-x.",
    fields: () => [{ name: "scope", label: "Scope", most: 300 }, until(hours), why], sends: override("force_open") },
  open: { title: "Hold open by hand", yes: "Hold open", says: "Nothing is sent through this circuit until the end that you choose, whatever it counts.",
    fields: () => [until(hours), why], sends: override("force_open") },
  close: { title: "Close by hand", yes: "Let everything through", danger: true, says: "Every call goes through, whatever the circuit says. What made it open may still be there.",
    fields: () => [until(hours), why], sends: override("force_closed") },
  release: { title: "Release the override", yes: "Release", says: "The circuit decides by itself again, at once.", fields: () => [why], sends: override("release") },
  retry: { title: "Retry", yes: "Retry", says: "It waits its turn and passes admission like any other call.", fields: () => [why], sends: item("retry") },
  discard: { title: "Discard", yes: "Discard for good", danger: true, says: "The work is dropped for good.", fields: () => [why], sends: item("discard") },
  compensate: { title: "Take back", yes: "Queue what takes it back", danger: true, says: "What policy declares to take this back goes into the queue, and the dead letter is dropped.", fields: () => [why], sends: item("compensate") },
  reconcile: { title: "Reconcile", yes: "Record the finding", danger: true, says: "Applied settles it SUCCEEDED. Not applied settles it FAILED, and so allows another attempt: look it up first.",
    fields: () => [{ name: "finding", label: "What did you find?", choose: { "": "choose", applied: "it was applied", not_applied: "it was not applied", still_unknown: "still not known", lookup: "ask the declared reconciler" } },
      { name: "reason", label: "Where you looked, and what was there", most: 80 }],
    sends: (d, f) => ["/v1/reconcile", { permit: d.about, finding: f.finding, evidence: f.reason }] },
  allow: { title: "Allow", yes: "Allow", danger: true, says: "What was asked for may go, for as long as you say.",
    fields: (d) => [covers(d), until({ ...hours, "168h": "7 days" }), { name: "once", label: "For one call only", tick: true }, why], sends: word(false) },
  deny: { title: "Refuse", yes: "Refuse", says: "Whoever asks is refused with your reason until the end that you choose.", fields: (d) => [covers(d), until({ ...hours, "168h": "7 days" }), why], sends: word(true) },
  advance: { title: "Advance the rollout", yes: "Advance", danger: true, says: "The next stage begins. After the canary it is enforce, where the candidate decides for all.",
    fields: (d) => [...(d.stage === "observe" ? [] : [{ name: "percent", label: "Share of the canary in percent; empty takes what policy says", optional: true, most: 6 }]), why], sends: step("advance") },
  hold: { title: "Hold the rollout", yes: "Hold", says: "It stays in its stage until somebody advances it. Gates and the deadline still take it back.", fields: () => [why], sends: step("hold") },
  rollback: { title: "Roll back", yes: "Roll back", danger: true, says: "Every call goes to the version in force again, at once and in every process.", fields: () => [why], sends: step("rollback") },
};

let asking = null;

function field(f) {
  const label = document.createElement("label");
  const text = document.createElement("span");
  text.textContent = f.label;
  let input = document.createElement(f.choose ? "select" : "input");
  if (f.choose) for (const [value, name] of Object.entries(f.choose)) input.append(new Option(name, value));
  else if (f.tick) Object.assign(input, { type: "checkbox", checked: true });
  else Object.assign(input, { type: "text", maxLength: f.most, autocomplete: "off", spellcheck: false });
  input.name = f.name;
  input.required = !f.optional && !f.tick;
  label.className = f.tick ? "tick" : "";
  label.append(...(f.tick ? [input, text] : [text, input]));
  return label;
}

function ask(button) {
  const d = { ...button.dataset }, change = CHANGES[d.do];
  asking = { d, change, button };
  $("ask-title").textContent = change.title;
  $("ask-about").textContent = [d.name, d.about].filter(Boolean).join(" · ");
  $("ask-says").textContent = change.says + (d.owner ? ` ${d.owner} may close it.` : "");
  $("ask-fields").replaceChildren(...change.fields(d).map(field));
  $("ask-yes").textContent = change.yes;
  $("ask-yes").classList.toggle("danger", !!change.danger);
  wrong("");
  $("ask").showModal();
}

function wrong(text, name) {
  const form = $("ask-form");
  $("ask-error").textContent = text;
  $("ask-error").hidden = !text;
  for (const e of form.querySelectorAll("[aria-invalid]")) e.removeAttribute("aria-invalid");
  const bad = name && form.elements.namedItem(name);
  if (bad) {
    bad.setAttribute("aria-invalid", "true");
    bad.setAttribute("aria-describedby", "ask-error");
    bad.focus();
  }
}

async function send(event) {
  event.preventDefault();
  const form = $("ask-form"), f = {};
  for (const e of form.elements) if (e.name) f[e.name] = e.type === "checkbox" ? e.checked : e.value.trim();
  for (const e of form.elements) {
    if (e.required && !f[e.name]) return wrong(e.name === "reason" ? "Say why: it stands in the receipt." : "This is needed.", e.name);
  }
  const { d, change } = asking;
  const [path, body] = change.sends(d, f);
  wrong("");
  busy($("ask-yes"), true);
  try {
    const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
    const said = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      const p = said.error || {};
      const how = answer.status < 500 ? "Nothing was changed" : "It may have been done; look under Latest before you try again";
      return wrong(`${how}: ${p.field ? p.field + ": " : ""}${p.message || "status " + answer.status}`, { evidence: "reason", permit: "finding" }[p.field] || p.field);
    }
    $("ask").close();
    result(`${change.title}: done. ${f.scope || d.name || d.about}.`, answer.headers.get("fusebox-receipt"));
    refresh();
  } catch {
    wrong("The server did not answer. Whether it was done shows under Latest once the connection is back.");
  } finally {
    busy($("ask-yes"), false);
  }
}

function busy(button, is) {
  button.disabled = is;
  button.setAttribute("aria-busy", is);
}

function result(text, receipt) {
  const box = $("result"), says = document.createElement("span"), shut = document.createElement("button");
  says.textContent = text + (receipt ? " Receipt " : "");
  box.replaceChildren(says);
  if (receipt) {
    const a = document.createElement("a"), code = document.createElement("code");
    a.href = "/receipts/" + encodeURIComponent(receipt);
    code.textContent = receipt;
    a.append(code);
    box.append(a);
  }
  Object.assign(shut, { type: "button", textContent: "Dismiss" });
  shut.addEventListener("click", () => { box.hidden = true; });
  box.append(shut);
  box.hidden = false;
  box.focus();
}

async function verify(button) {
  busy(button, true);
  button.textContent = "Verifying…";
  try {
    const answer = await fetch("/verify", { method: "POST" });
    const v = await answer.json();
    say(answer.ok ? v.says : v.error.message);
    await refresh(["evidence"]);
  } catch {
    say("The server did not answer.");
    busy(button, false);
    button.textContent = "Verify now";
  }
}

document.addEventListener("click", (e) => {
  const button = e.target.closest("button");
  if (button?.dataset.do) ask(button);
  else if (button?.id === "verify") verify(button);
  else if (button?.id === "ask-no") $("ask").close();
});
$("ask-form").addEventListener("submit", send);

readClock(document);
tellTimes(document);
setInterval(() => tellTimes(document), 1000);
follow();
