// The page: a chat whose tokens show how they came, and a race of plain decoding against drafts.
import { Refused, rounds } from "./stream.js";
import { Strip } from "./strip.js";

const at = (id) => document.getElementById(id);
const messages = [];
let model = "";
let running = null;

function report(error) {
  if (error.name === "AbortError") return;
  at("problem").textContent = error instanceof Refused ? error.message : `The server cannot be reached (${error.message}).`;
  at("problem").hidden = false;
}

/** Returns the request's fields as the settings say; `speculation` overrides theirs. */
function options(speculation = null) {
  const drafter = at("drafter").value, length = at("draft-length").value;
  const chosen = { trace: true };
  if (drafter === "off") chosen.off = true;
  else {
    if (drafter !== "auto") chosen.drafter = drafter;
    if (length !== "") chosen.draft_length = Number(length);
  }
  return {
    model, temperature: Number(at("temperature").value), seed: Number(at("seed").value),
    max_tokens: Number(at("max-tokens").value), speculation: speculation ?? chosen,
  };
}

/** Returns a span for one token, with what a reader may want to know of it. */
function tokenSpan(token, round, number) {
  const span = document.createElement("span");
  span.className = `token ${token.origin}`;
  span.textContent = token.text;
  const percent = (logprob) => `${(100 * Math.exp(logprob)).toFixed(1)} %`;
  const likely = token.top.map((one) => `${JSON.stringify(one.token)} ${percent(one.logprob)}`).join("   ");
  const drafted = round.draft.length ? `draft: ${round.draft.map((text) => JSON.stringify(text)).join(" ")}` : "no draft";
  const own = token.logprob === undefined ? "" : `, probability ${percent(token.logprob)}`;
  span.dataset.tip = `${token.origin}${own}\nround ${number}, ${drafted}, ${round.accepted} accepted${likely ? `\nlikeliest: ${likely}` : ""}`;
  return span;
}

/** Runs one request; calls `each(round, number)` as rounds arrive. Returns {text, strip, speculation}. */
async function run(conversation, wanted, each) {
  running = new AbortController();
  const strip = new Strip();
  let text = "", speculation = null;
  at("problem").hidden = true;
  try {
    for await (const round of rounds(conversation, wanted, at("key").value, running.signal)) {
      if (round.usage) speculation = round.speculation;
      if (!round.tokens) continue;
      strip.add(round);
      text += round.tokens.map((token) => token.text).join("");
      each(round, strip.steps, strip);
    }
  } finally {
    running = null;
  }
  return { text, strip, speculation };
}

function busy(now) {
  for (const id of ["send", "go", "reset"]) at(id).disabled = now;
  at("stop").disabled = !now;
}

function listItem(role) {
  const item = document.createElement("li");
  item.className = role;
  if (role === "assistant") item.tabIndex = 0;
  at("messages").append(item);
  return item;
}

async function ask(event) {
  event.preventDefault();
  const question = at("question").value.trim();
  if (!question || running) return;
  const asked = listItem("user"), answer = listItem("assistant");
  asked.textContent = question;
  const conversation = [...messages, { role: "user", content: question }];
  at("question").value = "";
  busy(true);
  let shown = "";
  try {
    await run(conversation, options(), (round, number, strip) => {
      answer.append(...round.tokens.map((token) => tokenSpan(token, round, number)));
      shown += round.tokens.map((token) => token.text).join("");
      strip.show();
      answer.scrollIntoView({ block: "end" });
    });
  } catch (error) {
    report(error);
  }
  // What was answered before a stop stays in the conversation, as it stands on the page.
  if (shown) messages.push(conversation.at(-1), { role: "assistant", content: shown });
  else { // what was not answered may be sent again
    asked.remove();
    answer.remove();
    at("question").value = question;
  }
  busy(false);
  at("question").focus();
}

/** Returns [{seconds, spans}] of one lane, run alone. */
async function lane(name, task, speculation) {
  const text = at(`${name}-text`), clock = at(`${name}-clock`), record = [];
  text.replaceChildren();
  const wanted = { ...options(speculation), ignore_eos: false };
  const { strip, text: whole } = await run([{ role: "user", content: task }], wanted, (round, number, soFar) => {
    const spans = round.tokens.map((token) => tokenSpan(token, round, number));
    record.push({ seconds: soFar.seconds, spans });
    text.append(...spans.map((span) => span.cloneNode(true)));
    clock.textContent = `${soFar.seconds.toFixed(2)} s`;
    soFar.show();
  });
  return { record, seconds: strip.seconds, tokens: strip.tokens, whole };
}

/** Shows both lanes again, from one start, each at its own speed. */
function replay(lanes) {
  const start = performance.now();
  for (const name of Object.keys(lanes)) at(`${name}-text`).replaceChildren();
  const next = Object.fromEntries(Object.keys(lanes).map((name) => [name, 0]));
  return new Promise((done) => {
    const tick = () => {
      const now = (performance.now() - start) / 1000;
      let left = false;
      for (const [name, { record, seconds }] of Object.entries(lanes)) {
        while (next[name] < record.length && record[next[name]].seconds <= now) at(`${name}-text`).append(...record[next[name]++].spans);
        left ||= next[name] < record.length;
        at(`${name}-clock`).textContent = `${Math.min(now, seconds).toFixed(2)} s`;
      }
      if (left) requestAnimationFrame(tick);
      else done();
    };
    requestAnimationFrame(tick);
  });
}

async function race(event) {
  event.preventDefault();
  if (running) return;
  busy(true);
  at("outcome").textContent = "Plain decoding runs ...";
  try {
    const task = at("task").value, chosen = options().speculation;
    const plain = await lane("plain", task, { off: true, trace: true });
    at("outcome").textContent = "Drafts run ...";
    const drafts = await lane("drafts", task, chosen.off ? { trace: true } : chosen);
    await replay({ plain, drafts });
    const rate = (one) => one.tokens / one.seconds;
    const same = plain.whole === drafts.whole ? "the same text" : "NOT the same text";
    at("outcome").textContent = `${(rate(drafts) / rate(plain)).toFixed(2)} times as fast, ${same}: ${rate(plain).toFixed(0)} against ${rate(drafts).toFixed(0)} tokens/s.`;
  } catch (error) {
    at("outcome").textContent = "";
    report(error);
  }
  busy(false);
}

function tip(event) {
  showTip(event.target.closest?.(".token"));
}

/** Arrow keys go from token to token of the answer that has the focus. */
function walk(event) {
  const answer = event.target.closest?.("li.assistant");
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!answer || !step) return;
  event.preventDefault();
  const tokens = [...answer.querySelectorAll(".token")];
  const now = tokens.findIndex((token) => token.classList.contains("current"));
  const next = Math.max(0, Math.min(tokens.length - 1, now + step));
  tokens[now]?.classList.remove("current");
  tokens[next]?.classList.add("current");
  showTip(tokens[next]);
}

function showTip(token) {
  const box = at("tip");
  box.hidden = !token;
  if (!token) return;
  box.textContent = token.dataset.tip;
  const place = token.getBoundingClientRect();
  box.style.left = `${Math.max(4, Math.min(place.left, innerWidth - box.offsetWidth - 4))}px`;
  const above = place.top - box.offsetHeight - 4;
  box.style.top = `${above > 4 ? above : place.bottom + 4}px`;
}

function page() {
  const name = location.hash === "#race" ? "race" : "chat";
  for (const id of ["chat", "race"]) at(id).hidden = id !== name;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function begin() {
  for (let n = 0; n <= 15; n++) at("draft-length").append(new Option(String(n), String(n)));
  at("ask").addEventListener("submit", ask);
  at("start").addEventListener("submit", race);
  at("stop").addEventListener("click", () => running?.abort());
  at("reset").addEventListener("click", () => { messages.length = 0; at("messages").replaceChildren(); at("question").focus(); });
  at("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); at("ask").requestSubmit(); }
  });
  document.addEventListener("mouseover", tip);
  at("messages").addEventListener("keydown", walk);
  document.addEventListener("touchstart", tip, { passive: true });
  addEventListener("hashchange", page);
  page();
  try {
    const described = await (await fetch("web/server.json")).json();
    model = described.model;
    at("model").textContent = `${model}, ${described.engine} engine`;
    for (const drafter of described.drafters) at("drafter").append(new Option(drafter, drafter));
  } catch (error) {
    report(error);
  }
}

begin();
