"use strict";
let unpacked;
const pressed = {};

/* The exchanges, unpacked when the first one is looked at. */
function exchanges() {
  const packed = Uint8Array.from(atob(document.getElementById("exchanges").textContent), (letter) => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return (unpacked ??= new Response(stream).json());
}

/* The filters are in the URL: #verdict=fail,blocked&level=must&q=epoch; #PRD-05 opens one requirement. */
const search = document.getElementById("search");
const buttons = [...document.querySelectorAll(".filters button")];
for (const button of buttons) pressed[button.dataset.kind] ??= new Set();

function filter() {
  const words = search.value.toLowerCase();
  let shown = 0;
  const rows = document.querySelectorAll("[data-verdict]");
  for (const row of rows) {
    const fits = Object.entries(pressed).every(([kind, set]) =>
      !set.size || (row.dataset[kind] || "").split("|").some((value) => set.has(value)));
    const hidden = !(fits && (!words || row.textContent.toLowerCase().includes(words)));
    row.classList.toggle("hidden", hidden);
    shown += !hidden;
  }
  for (const head of document.querySelectorAll("[data-area]"))
    head.classList.toggle("hidden", !document.querySelector(`[data-of="${head.dataset.area}"]:not(.hidden)`));
  const count = document.getElementById("count");
  if (count) count.textContent = shown < rows.length ? `${shown} of ${rows.length} shown` : "";
}

function writeUrl() {
  const query = new URLSearchParams();
  for (const [kind, set] of Object.entries(pressed)) if (set.size) query.set(kind, [...set].join(","));
  if (search.value) query.set("q", search.value);
  history.replaceState(null, "", "#" + query);
}

function readUrl() {
  const text = decodeURIComponent(location.hash.slice(1));
  const query = new URLSearchParams(text.includes("=") ? location.hash.slice(1) : "");
  for (const kind of Object.keys(pressed)) pressed[kind] = new Set(query.get(kind)?.split(",") ?? []);
  for (const button of buttons) button.setAttribute("aria-pressed", pressed[button.dataset.kind].has(button.value));
  search.value = query.get("q") ?? "";
  filter();
  const found = text && document.getElementById(text);
  if (found) { found.open = true; found.scrollIntoView(); }
}

for (const button of buttons) {
  button.addEventListener("click", () => {
    const set = pressed[button.dataset.kind];
    const on = !set.has(button.value);
    on ? set.add(button.value) : set.delete(button.value);
    button.setAttribute("aria-pressed", on);
    filter();
    writeUrl();
  });
}
search.addEventListener("input", () => { filter(); writeUrl(); });
search.form?.addEventListener("submit", (event) => event.preventDefault());

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

function hexDump(hex, start, end) {
  const box = element("div", undefined, "hex");
  box.tabIndex = 0;
  let line = "", marked = false;
  const flush = () => { if (line) { box.append(marked ? element("b", line) : line); line = ""; } };
  for (let at = 0; at * 2 < hex.length; at++) {
    const now = at >= start && at < end;
    if (at % 16 === 0) { flush(); marked = false; line += (at ? "\n" : "") + at.toString(16).padStart(5, "0") + " "; }
    if (at % 8 === 0) { if (marked && !now) { flush(); marked = false; } line += " "; }
    if (now !== marked) { flush(); marked = now; }
    line += hex.slice(at * 2, at * 2 + 2);
    if (marked && !(at + 1 < end)) { flush(); marked = false; }
    line += " ";
  }
  flush();
  return box;
}

function side(title, hex, rows, box) {
  box.append(element("h4", title));
  const fields = element("div", undefined, "fields");
  fields.tabIndex = 0;
  let dump = hexDump(hex, 0, 0);
  box.append(fields, dump);
  for (const [depth, name, value, start, end] of rows) {
    const row = element("div");
    row.style.paddingLeft = depth * 0.9 + "rem";
    row.append(element("span", name, "n"), value ? "  " + value : "");
    if (name === "error_code" && !value.startsWith("0 ")) row.classList.add("bad");
    row.addEventListener("mouseenter", () => {
      const next = hexDump(hex, start, end);
      const top = dump.scrollTop;
      dump.replaceWith(next);
      dump = next;
      dump.scrollTop = top;
      const hit = dump.querySelector("b");
      if (hit && (hit.offsetTop - dump.offsetTop < top || hit.offsetTop - dump.offsetTop > top + dump.clientHeight - 20))
        dump.scrollTop = hit.offsetTop - dump.offsetTop - 40;
    });
    fields.append(row);
  }
}

for (const details of document.querySelectorAll("details.ex")) {
  details.addEventListener("toggle", async () => {
    if (!details.open || details.dataset.built) return;
    details.dataset.built = "yes";
    const [requestHex, requestRows, responseHex, responseRows, requestBytes, responseBytes] = (await exchanges())[details.dataset.key];
    const box = element("div", undefined, "two");
    side(`request, ${requestBytes} bytes`, requestHex, requestRows, box);
    if (responseHex) side(`response, ${responseBytes} bytes`, responseHex, responseRows, box);
    details.append(box);
  });
}

/* On paper nothing can be opened: failures are printed with what is known of them, and the legend. */
addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("#causes > details, .legend:first-of-type")) details.open = true;
});

addEventListener("hashchange", readUrl);
readUrl();
