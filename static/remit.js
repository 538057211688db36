// Keys, copying and ageing times. Every page reads and works without this file.
(() => {
  "use strict";
  const root = document.documentElement;
  root.classList.add("js");
  const one = (selector) => document.querySelector(selector);
  const all = (selector) => [...document.querySelectorAll(selector)];
  const typing = (target) =>
    target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName);

  // ---- keys: "?" lists them, "g" and a letter goes, j and k walk through rows
  const GO_MILLISECONDS = 1500;
  let goUntil = 0;

  const step = (by) => {
    const rows = all("[data-rows] [data-row]");
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.classList.contains("current"));
    const next = rows[Math.min(rows.length - 1, Math.max(0, at + by))];
    rows.forEach((row) => row.classList.toggle("current", row === next));
    const link = next.matches("a[href]") ? next : next.querySelector("a[href]");
    (link || next).focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (one("dialog[open]")) return;
    const now = Date.now();
    if (now < goUntil) {
      goUntil = 0;
      const link = one(`[data-go="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); link.click(); }
      return;
    }
    if (event.key === "g") { goUntil = now + GO_MILLISECONDS; return; }
    if (event.key === "?") { event.preventDefault(); one("#keys")?.showModal(); return; }
    if (event.key === "j") { event.preventDefault(); step(1); return; }
    if (event.key === "k") { event.preventDefault(); step(-1); return; }
    if (event.key === "/") {
      const search = one('input[type="search"]');
      if (search) { event.preventDefault(); search.focus(); }
    }
  });

  document.addEventListener("click", (event) => {
    const target = event.target.closest("[data-copy], [data-keys]");
    // Open popovers close when one clicks elsewhere.
    all("details.why[open], details.ask[open], details.account[open]").forEach((open) => {
      if (!open.contains(event.target)) open.open = false;
    });
    if (!target) return;
    if (target.hasAttribute("data-keys")) { one("#keys")?.showModal(); return; }
    const say = (word) => {
      const before = target.dataset.label || target.textContent;
      target.dataset.label = before;
      target.textContent = word;
      setTimeout(() => { target.textContent = before; }, 1600);
    };
    if (!navigator.clipboard) { say("Select it by hand"); return; }
    navigator.clipboard.writeText(target.dataset.copy).then(() => say("Copied"), () => say("Not allowed"));
  });

  // ---- the number of a line in a diff begins a comment about it; the link above each file does the same by keyboard
  document.addEventListener("click", (event) => {
    const number = event.target.closest("[data-comment] .ln");
    const line = number && [...number.parentElement.querySelectorAll(".ln")].map((each) => each.textContent).findLast(Boolean);
    if (line) location.href = `${number.closest("[data-comment]").dataset.comment}${encodeURIComponent(`:${line}`)}`;
  });

  // ---- a log that is followed shows its newest entry
  let following = false;
  const showNewest = () => {
    const button = one("[data-follow]");
    if (!button) { following = false; return; }
    button.setAttribute("aria-pressed", String(following));
    const newest = following && all(".log-calls > li").at(-1);
    if (!newest) return;
    const entry = [...newest.querySelectorAll(".log-entry")].at(-1);
    if (entry) entry.open = true;
    (entry || newest).scrollIntoView({ block: "end" });
  };
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-follow]")) return;
    following = !following;
    showNewest();
  });
  document.addEventListener("htmx:afterSwap", () => { if (following) showNewest(); });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    all("details.why[open], details.ask[open], details.account[open]").forEach((open) => {
      open.open = false;
      open.querySelector("summary").focus();
    });
  });

  // ---- a region that was drawn anew keeps what a person had opened, ticked, typed or focused
  const nameOf = (element, index) => element.id || `${element.tagName}-${element.name || ""}-${element.value || ""}-${
    element.querySelector?.("summary")?.textContent || element.getAttribute("href") || index}`;
  const named = (region, selector) => [...region.querySelectorAll(selector)].map((one, index) => [nameOf(one, index), one]);
  let kept = null;
  document.addEventListener("htmx:beforeSwap", (event) => {
    const region = event.detail.target;
    if (region?.id !== "live" || event.detail.xhr?.status !== 200) return;
    const focused = region.contains(document.activeElement) ? document.activeElement : null;
    kept = {
      open: new Set(named(region, "details[open]").map(([name]) => name)),
      ticked: new Set(named(region, "input:checked").map(([name]) => name)),
      typed: new Map(named(region, "input[type=search]").map(([name, one]) => [name, one.value])),
      focused: focused && named(region, focused.tagName).find(([, one]) => one === focused)?.[0],
      tag: focused?.tagName,
      current: region.querySelector("[data-row].current a[href]")?.getAttribute("href"),
    };
  });
  document.addEventListener("htmx:afterSwap", () => {
    const region = one("#live");
    if (!kept || !region) return;
    named(region, "details").forEach(([name, found]) => { if (kept.open.has(name)) found.open = true; });
    named(region, "input[type=checkbox]").forEach(([name, found]) => { found.checked ||= kept.ticked.has(name); });
    named(region, "input[type=search]").forEach(([name, found]) => { if (kept.typed.has(name)) found.value = kept.typed.get(name); });
    if (kept.current) {
      region.querySelector(`[data-row] a[href="${CSS.escape(kept.current)}"]`)?.closest("[data-row]").classList.add("current");
    }
    if (kept.focused) named(region, kept.tag).find(([name]) => name === kept.focused)?.[1].focus({ preventScroll: true });
    kept = null;
  });

  // ---- a region with data-stream is asked for anew when its stream tells of something; nobody looks, nobody listens
  const NEWS_MILLISECONDS = 250;
  let source = null;
  let due = 0;
  const news = () => {
    due ||= setTimeout(() => {
      due = 0;
      const region = one("#live");
      if (region) window.htmx?.trigger(region, "news");
    }, NEWS_MILLISECONDS);
  };
  const follow = () => {
    const wanted = document.hidden ? undefined : one("#live[data-stream]")?.dataset.stream;
    if (source && source.wanted !== wanted) { source.close(); source = null; }
    if (!wanted || source) return;
    source = new EventSource(wanted);
    source.wanted = wanted;
    source.onopen = news;
    source.onmessage = news;
  };
  document.addEventListener("visibilitychange", follow);
  document.addEventListener("htmx:afterSwap", follow);
  window.addEventListener("pagehide", () => { source?.close(); source = null; });
  window.addEventListener("pageshow", follow);

  // ---- a button pressed twice sends its form once; a page that comes back may send again
  const TWICE_MILLISECONDS = 5000;
  const sentAt = new WeakMap();
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post") return;
    if (Date.now() - (sentAt.get(event.target) ?? -Infinity) < TWICE_MILLISECONDS) event.preventDefault();
    else sentAt.set(event.target, Date.now());
  });
  window.addEventListener("pageshow", () => all("form").forEach((form) => sentAt.delete(form)));

  // ---- times grow older while a page stays open; same words as the tag `when`
  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];
  const words = (seconds) => {
    const past = seconds >= 0;
    const size = Math.abs(seconds);
    if (size < 45) return past ? "just now" : "in a moment";
    const [length, unit] = UNITS.find(([unitSeconds]) => size >= unitSeconds) || [60, "min"];
    const count = Math.max(1, Math.floor(size / length));
    return past ? `${count} ${unit} ago` : `in ${count} ${unit}`;
  };
  const age = () => all("time[data-relative]").forEach((time) => {
    const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
    if (Math.abs(seconds) < 30 * 86400) time.textContent = words(seconds);
  });
  setInterval(age, 30000);
})();
