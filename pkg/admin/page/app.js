// The page of the admin API. All texts of the server reach the page as text nodes, never as HTML: keys contain what clients sent.

const every = 2000; // ms between two polls
const within = 5000; // ms that a call may take
const points = 60; // of a sparkline: two minutes
const mostRules = 1000;
const mostRows = 200;

const $ = (id) => document.getElementById(id);

/** el returns an element. A child is a node or a text; null and undefined are left out. */
function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "class") node.className = value;
    else if (name === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}

// --- Calls of the API

let token = sessionStorage.getItem("token") ?? "";

/** A Problem is an error of the API with its status, or 0 if the API did not answer. */
class Problem extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function call(path, body) {
  const headers = { Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body) headers["Content-Type"] = "application/json";
  let response, content;
  try {
    response = await fetch(path, {
      method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal: AbortSignal.timeout(within), cache: "no-store",
    });
    content = await response.json();
  } catch (error) {
    if (!response) throw new Problem(0, "Weir does not answer.");
    throw new Problem(response.status, `The response is no JSON (status ${response.status}).`);
  }
  if (!response.ok) {
    const details = (content.errors ?? []).map((e) => `${e.location}: ${e.message}`);
    throw new Problem(response.status, [content.detail ?? content.title, ...details].join(". "));
  }
  return { content, total: Number(response.headers.get("X-Total-Count")) };
}

// --- Numbers and texts

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const rate = (n) => (n === 0 ? "0" : n < 10 ? n.toFixed(1) : number.format(n));
const plural = (n, noun) => `${number.format(n)} ${noun}${n === 1 ? "" : "s"}`;

function span(seconds) {
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const i = Math.max(units.findIndex(([, size]) => seconds >= size), 0);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const [name, size] = units[i];
  const [small, part] = units[i + 1];
  return `${Math.floor(seconds / size)} ${name} ${Math.floor((seconds % size) / part)} ${small}`;
}

/** seconds returns the seconds of a duration such as 1h2m3.5s, and null for never. */
function seconds(text) {
  let total = 0;
  const sizes = { h: 3600, m: 60, s: 1, ms: 1e-3, "µs": 1e-6, ns: 1e-9 };
  for (const [, n, unit] of text.matchAll(/([\d.]+)(h|ms|m|µs|ns|s)/g)) total += Number(n) * sizes[unit];
  return text === "never" ? null : total;
}

const duration = (text) => {
  const s = seconds(text);
  if (s === null) return "never";
  return s === 0 ? "now" : s < 10 ? `${Number(s.toPrecision(2))} s` : span(Math.ceil(s));
};

function latency(s) {
  if (s === 0) return "no calls now";
  return s < 1e-3 ? `${(s * 1e6).toFixed(0)} µs a call` : `${(s * 1e3).toFixed(1)} ms a call`;
}

/** limitText describes a limit in a few words. */
function limitText(l) {
  if (l.algorithm === "concurrency") return `${number.format(l.requests_per_unit)} at once`;
  const units = l.unit_multiplier > 1 ? `${l.unit_multiplier} ${l.unit}s` : l.unit;
  return `${number.format(l.requests_per_unit)} per ${units}`;
}

const algorithm = (l) => l.algorithm.replaceAll("_", " ");

const escaped = (text) => text.replace(/[\\,=]/g, "\\$&");
const written = (entries) => entries.map(([key, value]) => `${escaped(key)}=${escaped(value)}`).join(",");

/** visible returns nodes for a text of a client. A character without a glyph, or one that turns the text behind it, becomes its code. */
function visible(text) {
  const nodes = [];
  let from = 0;
  for (const m of text.matchAll(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu)) {
    // Emoji and some scripts need these two between their characters.
    if (/[\u200c\u200d]/.test(m[0]) && text.charCodeAt(m.index - 1) > 127) continue;
    const code = m[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(text.slice(from, m.index), el("span", { class: "escape" }, `U+${code}`));
    from = m.index + m[0].length;
  }
  return [...nodes, text.slice(from)];
}

/** shown returns nodes for entries. The direction of a value does not reach beyond the value. */
const shown = (entries, form = escaped) => entries.flatMap(([key, value], i) => [i > 0 ? "," : "", el("bdi", {}, ...visible(form(key))), "=",
  el("bdi", {}, ...visible(form(value)))]);

/** parse reads entries such as user_id=42,action=login, with \, and \= and \\ in keys and values. */
function parse(text) {
  const entries = [];
  let parts = [""];
  const end = () => {
    if (parts.length !== 2 || parts[0] === "") throw new Error(`“${parts.join("=")}” is no entry: want key=value.`);
    entries.push(parts);
    parts = [""];
  };
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (c === "\\" && /[\\,=]/.test(text[i + 1] ?? "")) parts[parts.length - 1] += text[++i];
    else if (c === "=" && parts.length === 1) parts.push("");
    else if (c === ",") end();
    else parts[parts.length - 1] += c;
  }
  end();
  return entries.map(([key, value]) => [key.trim(), value]);
}

// --- Alerts

/** alertOf shows a text until it is called with another, or with "". */
function alertOf(text, kind = "") {
  const box = $("alert");
  if (box.textContent === text) return;
  box.className = kind;
  box.replaceChildren(...(text ? [el("p", {}, text)] : []));
}

const announce = (text) => ($("announce").textContent = text);

// --- Polling

let reached = null; // the time of the last response
let rules = [];
let totalRules = 0;
let storeKind = "";
const history = new Map(); // the rates of a rule, by domain and path
let generation = 0; // grows at a sign-out, so that responses to earlier calls are ignored
let timer = 0;

function show(what) {
  $("sign-in").hidden = what !== "sign-in";
  $("dashboard").hidden = what !== "dashboard";
  $("sign-out").hidden = what !== "dashboard" || !token;
}

async function poll() {
  clearTimeout(timer);
  const mine = generation;
  try {
    const [status, inForce, busiest, denied, candidate] = await Promise.all([
      call("v1/status"), call(`v1/rules?limit=${mostRules}`), top("hits"), top("denied"), shadow(),
    ]);
    if (mine !== generation) return;
    reached = new Date();
    document.body.classList.remove("stale");
    show("dashboard");
    rules = inForce.content;
    totalRules = inForce.total;
    remember(rules);
    showStatus(status.content);
    showRules();
    showTop("busiest", busiest);
    showTop("denied", denied);
    showShadow(candidate);
    showDomains();
  } catch (error) {
    if (mine !== generation) return;
    if (error.status === 401) {
      signOut(token ? "The token is not valid." : "");
      return;
    }
    failed(error);
  }
  if (!document.hidden) timer = setTimeout(poll, every);
}

/** top returns a list of keys, or the reason why there is none. */
async function top(by) {
  try {
    return (await call(`v1/top?by=${by}&limit=10`)).content;
  } catch (error) {
    if (error.status === 401 || error.status === 0) throw error;
    return { keys: [], problem: error.message };
  }
}

function failed(error) {
  if (!(error instanceof Problem)) console.error(error);
  const since = reached ? ` The figures are those of ${reached.toLocaleTimeString()}.` : "";
  document.body.classList.add("stale");
  noShadow = false; // Weir may restart with a shadow file
  alertOf(`${error.message}${since} The page keeps trying.`);
  const store = document.querySelector("#tiles dd.store");
  if (store) store.replaceChildren(el("span", { class: "state-unreachable" }, "unknown"), el("small", {}, "Weir is unreachable"));
}

let remembered = 0; // when remember was last called

function remember(list) {
  if (Date.now() - remembered > 3 * every) history.clear(); // after a gap, older points would seem recent
  remembered = Date.now();
  const present = new Set();
  for (const r of list) {
    const id = idOf(r);
    present.add(id);
    const past = history.get(id) ?? [];
    past.push([r.allowed_per_second, r.denied_per_second]);
    history.set(id, past.slice(-points));
  }
  for (const id of history.keys()) if (!present.has(id)) history.delete(id);
}

/** brief returns a file and line without the folder. The name of an xDS resource stays whole. */
const brief = (source) => (source.startsWith("/") ? source.slice(source.lastIndexOf("/") + 1) : source);

const idOf = (r) => `${r.domain}\n${r.path}\n${r.source}`;

// --- Status

const modes = {
  ok: ["ok", ""],
  fallback: ["fallback", "The store does not answer. Each limit decides by its on_store_error."],
  lost: ["lost", "The store does not answer. Requests that need it fail, and Envoy decides by its failure mode."],
};

function showStatus(s) {
  const store = s.store;
  storeKind = store.kind;
  let [word, consequence] = modes[store.mode] ?? [store.mode, ""];
  const unknown = consequence && store.calls_per_second === 0; // only a request finds that the store is back
  if (unknown) consequence = "The last call to the store failed, and no request has needed the store since. The next request shows whether it is back.";
  alertOf(consequence || (s.ready ? "" : "This process is not ready to decide requests."), store.mode === "lost" && !unknown ? "" : "warn");
  $("identity").textContent = `${s.replica} · ${s.version} · rules ${s.rules_version || "not loaded"}`;
  document.title = store.mode === "ok" ? `Weir · ${s.replica}` : `${word.toUpperCase()} · Weir · ${s.replica}`;
  const answers = store.kind === "memory" ? plural(store.keys, "key") : latency(store.latency_seconds);
  const denied = s.denied_per_second;
  const tile = (name, value, detail, kind = "") => el("div", {}, el("dt", {}, name), el("dd", { class: kind }, value, el("small", {}, detail)));
  $("tiles").replaceChildren(
    tile("Store", el("span", { class: `state-${store.mode}` }, `${store.kind} ${word}`), answers, "store"),
    tile("Store calls", `${rate(store.calls_per_second)}/s`, store.kind === "memory" ? latency(store.latency_seconds) : "without those from the deny cache"),
    tile("Allowed hits", `${rate(s.allowed_per_second)}/s`, plural(s.rules, "rule")),
    tile("Denied hits", el("span", { class: denied > 0 ? "hot" : "" }, `${rate(denied)}/s`), plural(s.domains, "domain")),
    tile("In flight", number.format(s.in_flight), `${number.format(s.shed)} shed since the start`),
    tile("Running for", span(s.uptime_seconds), s.ready ? "ready" : "not ready"),
  );
  $("updated").textContent = `Last response at ${reached.toLocaleTimeString()}.`;
}

function showDomains() {
  const names = [...new Set(rules.map((r) => r.domain))].sort();
  const list = $("domains");
  if (list.dataset.names !== names.join("\n")) {
    list.dataset.names = names.join("\n");
    list.replaceChildren(...names.map((name) => el("option", { value: name })));
  }
  if (!$("domain").value && names.length === 1) $("domain").value = names[0];
}

// --- Rules

const rows = new Map(); // the row of a rule in the table, by idOf

function showRules() {
  const wanted = $("filter").value.trim().toLowerCase();
  const text = (r) => [r.domain, r.path, r.source, `${r.mode} mode`, r.unlimited ? "unlimited" : "",
    ...r.limits.flatMap((l) => [l.name, algorithm(l), limitText(l)])].join("\n").toLowerCase();
  const found = rules.filter((r) => text(r).includes(wanted));
  const first = found.slice(0, mostRows);
  const body = $("rules").tBodies[0];
  const all = first.map(ruleRow);
  if (body.children.length !== all.length || all.some((row, i) => body.children[i] !== row)) body.replaceChildren(...all);
  for (const id of rows.keys()) if (!history.has(id)) rows.delete(id);
  const parts = [];
  if (rules.length === 0) parts.push("No rules are loaded.");
  else if (found.length === 0) parts.push(`No rule contains “${$("filter").value}”.`);
  else if (found.length > first.length) parts.push(`${first.length} of ${plural(found.length, "rule")}: filter to see others.`);
  else parts.push(wanted ? `${number.format(found.length)} of ${plural(rules.length, "rule")}.` : `${plural(rules.length, "rule")}.`);
  if (totalRules > rules.length) parts.push(`The filter searches the first ${number.format(rules.length)} of ${number.format(totalRules)} rules.`);
  $("rules-note").textContent = parts.join(" ");
}

/** ruleRow returns the row of a rule. It updates a row that exists, so that focus and selection stay. */
function ruleRow(r) {
  let row = rows.get(idOf(r));
  if (!row) {
    row = el("tr", { role: "row" },
      el("th", { scope: "row", role: "rowheader" }),
      el("td", { class: "limits", role: "cell" }),
      el("td", { class: "number", role: "cell", "data-label": "Allowed/s" }),
      el("td", { class: "number", role: "cell", "data-label": "Denied/s" }),
      el("td", { class: "spark-cell", role: "cell" }));
    rows.set(idOf(r), row);
  }
  const content = JSON.stringify([r.limits, r.mode, r.unlimited]);
  if (row.dataset.content !== content) {
    row.dataset.content = content;
    row.children[0].replaceChildren(el("code", {}, el("bdi", {}, ...visible(r.path))), el("span", { class: "source", title: r.source }, `${r.domain} · ${brief(r.source) || "unknown source"}`));
    row.children[1].replaceChildren(
      ...(r.unlimited ? [el("span", {}, "unlimited")] : r.limits.map((l) => el("div", {}, limitText(l), el("span", { class: "source" },
        [l.name, algorithm(l)].filter(Boolean).join(" · "))))),
      r.mode === "enforced" ? "" : el("span", { class: "badge warn" }, `${r.mode} mode`));
  }
  row.children[2].textContent = rate(r.allowed_per_second);
  row.children[3].textContent = rate(r.denied_per_second);
  row.children[3].classList.toggle("hot", r.denied_per_second > 0);
  row.children[4].replaceChildren(sparkline(history.get(idOf(r)) ?? []));
  return row;
}

/** sparkline draws the rates of a rule. The scale is that of the largest rate. */
function sparkline(past) {
  const svg = (tag, props) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(props)) node.setAttribute(name, value);
    return node;
  };
  const [width, height] = [136, 32];
  const most = Math.max(...past.flat(), 0);
  const box = svg("svg", { class: most === 0 ? "spark flat" : "spark", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img" });
  box.setAttribute("aria-label", most === 0 ? "no hits" : `at most ${rate(most)} hits per second`);
  const line = (i, name) => svg("polyline", {
    class: name, "vector-effect": "non-scaling-stroke",
    points: past.map((p, n) => `${(((points - past.length + n) / (points - 1)) * width).toFixed(1)},${(height - 2 - (most ? p[i] / most : 0) * (height - 4)).toFixed(1)}`).join(" "),
  });
  box.append(svg("line", { class: "base", x1: 0, x2: width, y1: height - 1, y2: height - 1, "vector-effect": "non-scaling-stroke" }), line(0, "allowed"));
  if (past.some((p) => p[1] > 0)) box.append(line(1, "denied"));
  return box;
}

// --- Busiest keys

function showTop(id, list) {
  const note = $(`${id}-note`);
  note.textContent = list.problem ?? (list.keys.length === 0 ? "None in the last minutes."
    : `Since ${new Date(list.since).toLocaleTimeString()}. ${list.error === 0 ? "The counts are exact." : `A count is too large by at most ${number.format(list.error)}.`}`);
  showKeys(id, list.keys.map((k) => [k, k.count]));
}

/** showKeys fills a table of keys and counts. It changes nothing if they are the same. */
function showKeys(id, keys) {
  const body = $(id).tBodies[0];
  const content = JSON.stringify(keys);
  if (body.dataset.content === content) return;
  body.dataset.content = content;
  $(id).hidden = keys.length === 0;
  const focused = body.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  body.replaceChildren(...keys.map(([k, count]) => {
    const name = k.key.length > 0 ? written(k.key) : `hash ${k.key_hash}`;
    const text = k.key.length > 0 ? shown(k.key) : [name];
    // A key has the hash of a long value. Nobody can look up a key by that hash.
    const whole = k.key.length > 0 && !k.key.some(([, value]) => /^#[0-9a-f]{64}$/.test(value));
    const cell = whole
      ? el("button", { class: "link", "data-key": `${k.domain} ${name}`, title: "Look up this key", onclick: () => lookUp(k.domain, k.key) }, ...text)
      : el("code", {}, ...text);
    return el("tr", {}, el("td", {}, cell, el("span", { class: "source" }, k.domain)),
      el("td", { class: "number" }, number.format(count)));
  }));
  if (focused) [...body.querySelectorAll("button")].find((b) => b.dataset.key === focused)?.focus();
}

// --- Candidate rules

let noShadow = false; // this process has no shadow file

/** shadow returns the comparison of the candidate rules, or null without a shadow file. */
async function shadow() {
  if (noShadow) return null;
  try {
    return (await call("v1/shadow?limits=20&keys=10")).content;
  } catch (error) {
    if (error.status !== 404) throw error;
    noShadow = true;
    return null;
  }
}

function showShadow(s) {
  $("shadow").hidden = s === null;
  if (s === null) return;
  const state = !s.running ? ["warn", "not running"] : s.error ? ["warn", "file has faults"] : ["ok", "comparing"];
  $("shadow-state").replaceChildren(el("span", { class: `badge ${state[0]}` }, state[1]));
  $("shadow-note").replaceChildren("What ", el("code", {}, s.file), " would change. It denies nothing.",
    s.since ? ` Compared since ${new Date(s.since).toLocaleString()}.` : "");
  $("shadow-warnings").replaceChildren(...shadowWarnings(s).map((text) => el("p", { class: "note" }, text)));
  $("shadow-diff").hidden = !s.running;
  const n = s.requests;
  const count = (name, value, kind) => el("div", {}, el("dt", {}, name), el("dd", { class: value > 0 ? kind : "" }, number.format(value),
    el("small", {}, n.compared > 0 ? `${percent(value / n.compared)} of ${number.format(n.compared)}` : "no requests yet")));
  $("shadow-counts").replaceChildren(count("Newly denied", n.newly_denied, "hot"), count("Newly allowed", n.newly_allowed, "state-ok"),
    count("Denied by both", n.both_denied, ""), count("Allowed by both", n.both_allowed, ""));
  showShadowLimits(s.limits);
  for (const [id, keys] of [["newly-denied", s.newly_denied_keys], ["newly-allowed", s.newly_allowed_keys]]) {
    $(`${id}-note`).textContent = keys.keys === 0 ? "None so far." : `${keys.exact ? "" : "More than "}${plural(keys.keys, "key")}${keys.keys > keys.worst.length ? `, the worst ${keys.worst.length} first` : ""}.`;
    showKeys(id, keys.worst.map((k) => [k, k.requests]));
  }
}

const percent = (share) => (share === 0 ? "0 %" : share < 0.001 ? "under 0.1 %" : `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`);

/** shadowWarnings returns what makes the counts wrong. */
function shadowWarnings(s) {
  const all = [];
  if (s.error) all.push(`${s.running ? "The file was not loaded, and the candidate before is still compared" : "No candidate is loaded"}: ${s.error}`);
  if (!s.running) return all;
  if (s.requests.dropped > 0) all.push(`The candidate missed ${plural(s.requests.dropped, "request")} (${percent(s.dropped_share)}), because this process is busy. It denies too little.`);
  if (s.evicted > 0) all.push("The candidate had to forget keys. It denies too little: raise SHADOW_MAX_BYTES.");
  if (s.requests.undecided > 0) all.push(`${plural(s.requests.undecided, "request")} could not be compared, because a store failed.`);
  if (s.limits.some((l) => !l.warm)) all.push("Limits marked “warming up” have not counted for a whole window. Until then the candidate denies too little.");
  if (s.replicas > 1) all.push(`The candidate counts only the requests of this replica, one of ${s.replicas}. It denies too little.`);
  else if (storeKind !== "memory") all.push("The candidate counts only the requests of this replica. With several replicas it denies too little.");
  return all;
}

function showShadowLimits(limits) {
  const body = $("shadow-limits").tBodies[0];
  const content = JSON.stringify(limits);
  if (body.dataset.content === content) return;
  body.dataset.content = content;
  $("shadow-limits").hidden = limits.length === 0;
  const cell = (label, n, kind) => el("td", { class: n > 0 ? `number ${kind}` : "number", role: "cell", "data-label": label }, number.format(n));
  body.replaceChildren(...limits.map((l) => el("tr", { role: "row" },
    el("th", { scope: "row", role: "rowheader" }, el("code", {}, l.rule || "limit in the request"),
      el("span", { class: "source" }, [l.domain, /^\d+$/.test(l.limit) ? "" : l.limit, algorithm(l)].filter(Boolean).join(" · ")),
      l.warm ? "" : el("span", { class: "badge warn" }, "warming up"),
      l.shadowed > 0 ? el("span", { class: "badge warn" }, `shadow mode: ${plural(l.shadowed, "request")}`) : ""),
    cell("Newly denied", l.newly_denied, "hot"), cell("Newly allowed", l.newly_allowed, "state-ok"), cell("Denied by both", l.both_denied, ""))));
}

// --- Look-up

let asked = null; // the domain and the entries of the answer
let askedN = 0;

async function lookUp(domain, entries) {
  $("domain").value = domain;
  $("entries").value = written(entries);
  await look({ domain, entries }); // not those of the input, which drops the ends of lines
  $("look-up").scrollIntoView({ block: "start" });
  $("look-up").focus({ preventScroll: true });
}

/** ask looks up what the form names. */
async function ask() {
  try {
    await look({ domain: $("domain").value.trim(), entries: parse($("entries").value) });
  } catch (error) {
    answer(el("p", { class: "badge no" }, "Not read"), el("p", {}, error.message));
    $("entries").focus();
  }
}

/** look looks up entries of a domain, and shows a note above the answer. A later call makes an earlier one void. */
async function look({ domain, entries }, note = "") {
  const mine = ++askedN;
  const notes = note ? [el("p", { class: "badge ok" }, note)] : [];
  answer(el("p", { class: "muted" }, "Looking up…"));
  try {
    const [explained, state] = await Promise.all([
      call("v1/explain", { domain, descriptors: [entries], live: true }).catch((e) => {
        // Without its store, Weir still explains.
        if (e.status !== 503) throw e;
        return call("v1/explain", { domain, descriptors: [entries] }).then((r) => ({ ...r, problem: e.message }));
      }),
      call("v1/keys/peek", { domain, descriptor: entries }).catch((e) => ({ problem: e })),
    ]);
    if (mine !== askedN) return;
    asked = { domain, entries };
    showAnswer(explained.content, state.content, explained.problem, notes);
  } catch (error) {
    if (mine !== askedN) return;
    if (error.status === 401) signOut("The token is no longer valid.");
    else answer(...notes, el("p", { class: "badge no" }, "No answer"), el("p", {}, error.message));
  }
}

const answer = (...nodes) => $("answer").replaceChildren(...nodes);

function showAnswer(record, state, problem, notes) {
  const d = record.descriptors[0];
  // A peek lists the limits with leases, too. An explanation has those of the request only.
  const limits = state?.limits?.length > 0 ? state.limits : (d?.limits ?? []);
  const nodes = [...notes, verdict(d, limits, problem),
    el("p", { class: "muted" }, `As of ${new Date().toLocaleTimeString()}. The figures below do not update by themselves.`)];
  if (problem) nodes.push(el("p", {}, `${problem} The limits are shown without their usage.`));
  if (d) {
    const walk = el("ol", { class: "walk", "aria-label": "Matching, entry by entry" });
    d.walk.forEach((s, i) => {
      const matched = s.result === "matched";
      const item = el("li", { class: matched ? "yes" : "no" }, el("code", {}, ...shown([s.entry], (text) => text)), matched ? " matched " : " no match ",
        s.source ? el("code", { class: "muted" }, s.source) : null, el("span", { class: "why" }, s.reason));
      item.style.setProperty("--level", i);
      walk.append(item);
    });
    nodes.push(walk);
    if (limits.length === 0) nodes.push(el("p", { class: "muted" }, sentence(d.reason)));
  }
  nodes.push(...limits.map(limitBox));
  if (limits.length > 0) {
    nodes.push(el("div", { class: "actions" },
      el("button", { onclick: refresh, type: "button" }, "Refresh"),
      el("button", { class: "danger", onclick: confirmReset, type: "button" }, "Reset this key…")));
  }
  answer(...nodes);
}

async function refresh() {
  await look(asked);
  $("answer").querySelector(".actions button")?.focus();
}

const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (text.endsWith(".") || text.endsWith("?") ? "" : ".");

function verdict(d, limits, problem) {
  const badge = (kind, text) => el("p", {}, el("strong", { class: `badge ${kind}` }, text));
  if (d?.unlimited) return badge("ok", "Unlimited");
  if (limits.length === 0) return badge("warn", "No limit");
  if (problem || limits.some((l) => !l.state)) return badge("warn", plural(limits.length, "limit"));
  // A key with too many reservations is denied although hits remain.
  const full = limits.filter((l) => seconds(l.state.retry_after) !== 0);
  if (full.length === 0) return badge("ok", "One more request is allowed");
  const enforced = full.some((l) => l.mode === "enforced");
  const quota = full.some((l) => l.mode === "quota");
  const overLimit = quota ? "Denied, unless another quota of the request has room" : "Over a limit that denies nothing by itself";
  const waits = (l) => seconds(l.state.retry_after) ?? Infinity;
  const longest = full.reduce((a, b) => (waits(b) > waits(a) ? b : a));
  const verdict = badge(enforced ? "no" : "warn", enforced ? "The next request is denied" : overLimit);
  verdict.append(` by ${longest.name || longest.rule || algorithm(longest)}: ${limitText(longest)}. One hit fits ${waits(longest) === Infinity ? "never" : `in ${duration(longest.state.retry_after)}`}.`);
  return verdict;
}

function limitBox(l) {
  const name = l.name || l.rule || algorithm(l);
  const item = (term, value, kind = "") => el("div", { class: kind }, el("dt", {}, term), el("dd", {}, value));
  const s = l.state;
  const penalty = s && seconds(s.penalty) !== 0;
  const box = el("div", { class: "limit" },
    el("div", { class: "head" }, el("h3", {}, `${name}: ${limitText(l)}`),
      el("span", { class: "muted" }, [algorithm(l), l.mode === "enforced" ? "" : `${l.mode} mode`].filter(Boolean).join(" · "))));
  if (s) {
    const all = Math.max(s.used + s.remaining, 1);
    // During a penalty nothing is left, whatever is used.
    const meter = el("meter", { min: 0, max: all, low: all * 0.6, high: all * 0.95, optimum: 0, value: s.remaining === 0 ? all : Math.max(s.used, 0), "aria-label": `${number.format(s.used)} used, ${number.format(s.remaining)} left` });
    box.append(meter);
  }
  box.append(el("dl", {},
    ...(s ? [item("Used", number.format(s.used)), item("Left", number.format(s.remaining)), item("Next fits", duration(s.retry_after)),
      item("Fully reset", duration(s.reset_after))] : []),
    ...(penalty ? [item("Penalty ends in", el("span", { class: "hot" }, duration(s.penalty)))] : []),
    item("Rule", el("code", {}, l.source || "in the request"), "wide"),
    item("Key", el("code", {}, ...(l.key ? [el("bdi", {}, ...visible(l.key))] : [`hash ${l.key_hash}`])), "wide")));
  return box;
}

// --- Reset

let resetting = null; // the domain and the entries that the dialog names

function confirmReset() {
  resetting = asked;
  $("confirm-text").replaceChildren("All limits of ", el("code", {}, ...shown(asked.entries)), " in the domain ", el("code", {}, asked.domain),
    storeKind === "memory" ? " are reset in this process." : " are reset on every replica.");
  $("confirm").showModal();
}

$("confirm").addEventListener("submit", async (event) => {
  if (event.submitter.value !== "reset") return;
  const { domain, entries } = resetting;
  try {
    const { content } = await call("v1/keys/reset", { domain, descriptor: entries });
    const others = storeKind === "memory" ? " Other replicas have counters of their own." : content.replicas_notified ? ""
      : " Other replicas were not fully notified and may deny the key a little longer. Reset it again.";
    announce(`The key was reset.${others}`);
    await look(resetting, `Reset at ${new Date().toLocaleTimeString()}.${others}`);
    $("look-up").focus({ preventScroll: true });
  } catch (error) {
    if (error.status === 401) signOut("The token is no longer valid.");
    else $("answer").prepend(el("p", { role: "alert" }, el("strong", { class: "badge no" }, "Not reset"), ` ${error.message}`));
  }
});

// --- Credentials

function signOut(text = "") {
  generation++;
  askedN++;
  token = "";
  sessionStorage.removeItem("token");
  noShadow = false;
  history.clear();
  rows.clear();
  $("confirm").close();
  answer();
  clearTimeout(timer);
  show("sign-in");
  alertOf(text);
  $("identity").textContent = "";
  $("token").focus();
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  token = $("token").value.trim();
  $("token").value = "";
  sessionStorage.setItem("token", token);
  alertOf("");
  poll();
});
$("sign-out").addEventListener("click", () => signOut());
$("question").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
});
$("filter").addEventListener("input", showRules);
document.addEventListener("visibilitychange", () => !document.hidden && poll());

poll();
