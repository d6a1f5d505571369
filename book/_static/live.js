/* "Run this page in your browser": the code cells of the page become editable and run in Pyodide, in a web worker, with no
 * server. Nothing is loaded before the button is pressed, and only a list of 6 KB before Start is pressed.
 *
 * Where Python comes from is said in one place, the file live.json that tools/fetch_pyodide.py writes: beside the page, or
 * from the CDN named there. A page may set window.DPBOOK_LIVE = {base: "https://.../"} to overrule it.
 */
"use strict";

(() => {
  const STATIC = new URL(".", document.currentScript.src).href;
  const FOLDER = STATIC + "pyodide/";
  const KEYWORDS =
    "and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield".split(" ");
  const TOKENS = /(?<c1>#.*)|(?<s2>[rbfRBF]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(?<mi>\b\d[\w.]*)|(?<name>[^\W\d]\w*)/gu;

  function make(tag, attributes = {}, text) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }
  const button = (text, extra = {}) => make("button", { type: "button", class: "dp-button", ...extra }, text);

  const MAIN = { class: "dp-button dp-main" };

  /** The source with the theme's own colours, for the layer under the text that is typed. */
  function colour(pre, source) {
    const parts = [];
    let at = 0;
    for (const match of source.matchAll(TOKENS)) {
      const kind = Object.entries(match.groups).find(([, text]) => text !== undefined)[0];
      const style = kind !== "name" ? kind : KEYWORDS.includes(match[0]) ? "k" : ["True", "False", "None"].includes(match[0]) ? "kc" : "";
      if (!style) continue;
      parts.push(source.slice(at, match.index), make("span", { class: style }, match[0]));
      at = match.index + match[0].length;
    }
    pre.replaceChildren(...parts, source.slice(at) + "\n");
  }

  /** Names of the packages that the code imports at any place, without the submodules. */
  function imports(source) {
    const names = [];
    for (const [, first, list] of source.matchAll(/^[ \t]*(?:from[ \t]+([A-Za-z_]\w*)[\w.]*[ \t]+import|import[ \t]+([^#\n]+))/gm)) {
      if (first) names.push(first);
      else names.push(...list.split(",").map((part) => part.trim().split(/[\s.]/)[0]));
    }
    return names;
  }

  /** What has to be loaded for these cells, and which of their imports cannot be had. */
  function plan(contents, cells) {
    const owner = {};
    for (const [name, entry] of Object.entries(contents.packages)) for (const module of entry.imports) owner[module] = name;
    const wanted = new Set(), missing = new Map();
    const add = (name) => {
      if (wanted.has(name)) return;
      wanted.add(name);
      contents.packages[name].depends.forEach(add);
    };
    for (const cell of cells) {
      for (const module of imports(cell.original)) {
        if (owner[module]) add(owner[module]);
        else if (!contents.stdlib.includes(module)) missing.set(module, [...(missing.get(module) || []), cell.number]);
      }
    }
    const size = [...wanted].reduce((sum, name) => sum + contents.packages[name].size, contents.core);
    return { packages: [...wanted], missing, size };
  }

  class Page {
    constructor(elements, heading) {
      this.cells = elements.map((element, i) => {
        const pre = element.querySelector(".cell_input pre");
        return { element, pre, number: i + 1, original: pre.textContent.replace(/\n$/, "") };
      });
      this.state = "off"; // off, loading, ready, running, stopped
      this.ran = []; // sources that Python has run, in order, since it was last fresh
      this.bar = make("div", { class: "dp-run", role: "region", "aria-label": "Python in this page" });
      this.say = make("p", { class: "dp-run-say" });
      this.live = make("p", { class: "dp-unseen", role: "status", "aria-live": "polite" });
      this.progress = make("progress", { "aria-label": "Download" });
      this.buttons = make("div", { class: "dp-run-buttons" });
      this.open = button("Run this page in your browser", MAIN);
      this.open.addEventListener("click", () => this.offer());
      this.buttons.append(this.open);
      // The page's module as one file: the link stands beside its code, and here where it is seen first.
      const name = location.pathname.split("/").at(-1).replace(/\.html$/, "");
      const file = document.querySelector(`.bd-article a[download="privacy_${CSS.escape(name)}.py"]`);
      this.file = file && make("a", { class: "dp-button", href: file.href, download: file.download }, "Get the code");
      if (this.file) this.file.append(make("span", { class: "dp-file" }, `: ${file.download}`));
      if (this.file) this.buttons.append(this.file);
      this.bar.append(this.buttons, this.say, this.live);
      heading.after(this.bar);
    }

    tell(text, aloud = true) {
      this.say.textContent = text;
      if (aloud) this.live.textContent = text;
    }

    show(...buttons) {
      const focused = this.buttons.contains(document.activeElement);
      this.buttons.replaceChildren(...buttons, ...(this.file ? [this.file] : []));
      if (focused && buttons[0]) buttons[0].focus();
    }

    // ------------------------------------------------------------------------------------------- before the start
    async offer() {
      this.tell("Looking for Python…", false);
      let contents;
      try {
        const response = await fetch(FOLDER + "live.json", { cache: "no-cache" });
        if (!response.ok) throw new Error();
        contents = await response.json();
      } catch {
        this.tell(
          location.protocol === "file:"
            ? "Python needs a page that comes from a web server, if only your own: run “make live”, then “make serve”."
            : "This copy of the site was built without Python in it: run “make live”, then “make serve”.",
        );
        return;
      }
      this.contents = contents;
      this.base = new URL((window.DPBOOK_LIVE || {}).base || contents.base || FOLDER, FOLDER).href;
      this.plan = plan(contents, this.cells);
      const site = new URL(this.base).host, megabytes = Math.ceil(this.plan.size / 1e6);
      let text =
        `Python ${contents.python} with dpbook and what this page imports is a download of up to ${megabytes} MB from ` +
        `${site === location.host ? "this site" : site}; after the first time your browser may have kept it. ` +
        "It then runs on your own computer, and what you type stays there.";
      for (const [name, cells] of this.plan.missing) {
        text += ` Not available here: ${name}. Cell${cells.length > 1 ? "s" : ""} ${cells.join(", ")} and the cells after it will not run.`;
      }
      const start = button("Start", MAIN), cancel = button("Cancel");
      start.addEventListener("click", () => this.start());
      cancel.addEventListener("click", () => { this.show(this.open); this.tell("", false); });
      this.tell(text);
      this.show(start, cancel);
    }

    // ------------------------------------------------------------------------------------------------- the worker
    async start() {
      this.edit();
      this.all = button("Run all cells", MAIN);
      this.all.addEventListener("click", () => this.run(this.cells.length));
      this.stop = button("Stop");
      this.stop.addEventListener("click", () => this.halt("Stopped. Run starts Python anew."));
      this.again = button("Restart");
      this.again.addEventListener("click", () => { this.halt(""); this.clear(); this.boot(); });
      this.show(this.all, this.stop, this.again);
      this.boot();
    }

    boot() {
      this.state = "loading";
      this.warm = false;
      this.ran = [];
      const total = this.plan.size, here = Object.keys(this.contents.packages).filter((name) => this.contents.packages[name].here);
      let quarter = 0;
      this.progress.max = total;
      this.progress.value = 0;
      this.say.after(this.progress);
      this.tell(`Loading Python, ${Math.ceil(total / 1e6)} MB`);
      this.worker = new Worker(STATIC + "live-worker.js", { type: "module" });
      this.worker.onerror = (event) => this.halt(`Python could not be started: ${event.message || "the worker did not load"}`);
      this.worker.onmessage = ({ data }) => {
        if (data.type === "bytes" && this.state === "loading") {
          const done = Math.min(data.count, total);
          this.progress.value = done;
          const text = done < total * 0.97 ? `Loading: ${Math.round(done / 1e6)} of ${Math.ceil(total / 1e6)} MB` : "Loaded; starting Python";
          const now = Math.floor((4 * done) / total);
          this.tell(text, now > quarter); // aloud at each quarter only
          quarter = Math.max(quarter, now);
        } else if (data.type === "ready") {
          this.progress.remove();
          this.state = "ready";
          this.tell("Python is ready. Edit a cell and press Run, or Ctrl and Enter in the cell.");
          if (this.waiting) this.run(this.waiting);
        } else if (data.type === "failed") this.halt(`Python failed: ${data.message}`);
        else this.report(data);
      };
      this.worker.postMessage({ type: "start", folder: FOLDER, base: this.base, packages: this.plan.packages, here });
    }

    halt(text) {
      if (this.worker) this.worker.terminate();
      this.worker = undefined;
      this.progress.remove();
      this.state = "stopped";
      this.waiting = undefined;
      this.ran = [];
      this.cells.forEach((cell) => { if (/^(running|waiting)/.test(cell.status.textContent)) cell.status.textContent = "stopped"; });
      if (text) this.tell(text);
    }

    // -------------------------------------------------------------------------------------------------- the cells
    edit() {
      if (this.cells[0].area) return;
      document.documentElement.classList.add("dp-live");
      const header = document.querySelector(".bd-header-article"); // under which the bar stays while the page scrolls
      if (header) this.bar.style.top = `${header.offsetHeight}px`;
      for (const cell of this.cells) {
        const box = cell.pre.closest("div.highlight");
        const layer = make("pre", { "aria-hidden": "true" });
        const area = make("textarea", { spellcheck: "false", autocapitalize: "off", autocomplete: "off", wrap: "off", rows: 1 });
        area.setAttribute("aria-label", `Code of cell ${cell.number} of ${this.cells.length}`);
        area.value = cell.original;
        const editor = make("div", { class: "dp-editor" });
        editor.append(layer, area);
        cell.kept = [...box.childNodes];
        box.replaceChildren(editor);
        const run = button("Run", { "aria-label": `Run cell ${cell.number}` });
        const undo = button("Undo the edits", { hidden: "" });
        cell.status = make("span", { class: "dp-cell-status" });
        const tools = make("div", { class: "dp-cell-tools" });
        tools.append(run, undo, cell.status);
        cell.output = make("div", { class: "dp-output cell_output", role: "group", "aria-label": `Output of cell ${cell.number}`, hidden: "" });
        const input = cell.element.querySelector(".cell_input");
        box.after(tools);
        (input.closest("details") || input).after(cell.output);
        cell.printed = [...cell.element.querySelectorAll(".cell_output")].filter((out) => out !== cell.output);
        const changed = () => {
          colour(layer, area.value);
          undo.hidden = area.value === cell.original;
        };
        area.addEventListener("input", changed);
        area.addEventListener("keydown", (event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) {
            event.preventDefault();
            this.run(cell.number);
          }
        });
        undo.addEventListener("click", () => { area.value = cell.original; changed(); area.focus(); });
        run.addEventListener("click", () => this.run(cell.number));
        cell.area = area;
        changed();
      }
    }

    /** Bring back the outputs of the printed page. */
    clear() {
      for (const cell of this.cells) {
        cell.output.hidden = true;
        cell.output.replaceChildren();
        cell.status.textContent = "";
        cell.printed.forEach((out) => { out.hidden = false; });
      }
    }

    /** Run the cells up to this number, so that each finds what a reader from the top would have. */
    run(number) {
      if (this.state === "running") return this.tell("Python is busy. Stop ends it.");
      if (this.state === "loading" || this.state === "stopped") {
        this.waiting = number;
        this.cells[number - 1].status.textContent = "waiting for Python";
        if (this.state === "stopped") this.boot();
        return;
      }
      this.waiting = undefined;
      const sources = this.cells.slice(0, number).map((cell) => cell.area.value);
      const fresh = this.ran.length >= number || this.ran.some((source, i) => source !== sources[i]);
      if (fresh) this.ran = [];
      const cells = this.cells.slice(this.ran.length, number);
      for (const cell of cells) cell.status.textContent = "waiting";
      this.state = "running";
      this.goal = number;
      const first = this.warm ? "" : ". The first imports take some seconds";
      this.warm = true;
      this.tell((cells.length > 1 ? `Running cells ${cells[0].number} to ${number}` : `Running cell ${number}`) + first);
      this.worker.postMessage({ type: "run", fresh, cells: cells.map((cell) => ({ number: cell.number, source: cell.area.value })) });
      cells.forEach((cell) => { cell.sent = cell.area.value; });
    }

    report({ type, number, kind, data, good, seconds }) {
      if (type === "begin") {
        this.now = this.cells[number - 1];
        this.now.status.textContent = "running";
        this.now.output.replaceChildren();
        this.now.output.hidden = false;
        this.now.length = this.now.pictures = 0;
        this.now.printed.forEach((out) => { out.hidden = true; });
      } else if (type === "out") this.put(this.now, kind, data);
      else if (type === "end") {
        this.now.status.textContent = good ? `done in ${seconds.toFixed(1)} s` : "failed";
        this.now.output.hidden = !this.now.output.childNodes.length;
        if (good) this.ran.push(this.now.sent);
        else {
          this.ran = ["\0"]; // a cell that failed may have done half its work: begin anew next time
          this.cells.forEach((cell) => { if (cell.status.textContent === "waiting") cell.status.textContent = "not run"; });
          this.tell(`Cell ${number} failed: ${this.error}`);
        }
      } else if (type === "idle") {
        this.state = "ready";
        if (this.ran[0] !== "\0") this.tell(`Cell ${this.goal} is done.`);
      }
    }

    put(cell, kind, data) {
      const last = cell.output.lastElementChild;
      if (kind === "stdout" || kind === "stderr") {
        cell.length += data.length;
        if (cell.length > 200000) return;
        if (last && last.dataset.kind === kind) last.firstChild.textContent += data;
        else this.text(cell, kind, data, kind);
      } else if (kind === "text") this.text(cell, "text", data);
      else if (kind === "html") {
        const box = make("div", { class: "output text_html", tabindex: "0", role: "group", "aria-label": "Table" });
        box.innerHTML = data; // from the reader's own code
        for (const empty of box.querySelectorAll("th:empty")) empty.replaceWith(make("td")); // a corner is no heading
        cell.output.append(box);
      } else if (kind === "png") {
        const before = cell.printed.flatMap((out) => [...out.querySelectorAll("img")])[cell.pictures++];
        const edited = cell.area.value !== cell.original;
        const alt = before && !edited ? before.alt : `Figure ${cell.pictures} of cell ${cell.number}, drawn by ${edited ? "the edited" : "its"} code`;
        cell.output.append(make("img", { src: "data:image/png;base64," + data, alt, class: "dark-light" }));
      } else if (kind === "error") {
        const [summary, full] = data.split("\0");
        this.error = summary.split("\n").at(-1);
        const box = make("div", { class: "dp-error" });
        box.append(make("p", {}, this.error));
        if (/^ModuleNotFoundError/.test(this.error)) box.append(make("p", {}, "This package is not among those that this page can load."));
        const details = make("details", {});
        details.append(make("summary", {}, "Where it happened"), make("pre", { tabindex: "0" }, full));
        details.open = !/^ModuleNotFoundError/.test(this.error);
        box.append(details);
        cell.output.append(box);
      }
    }

    text(cell, kind, data, style = "stdout") {
      const pre = make("pre", { class: `dp-text dp-${style}`, "data-kind": kind, tabindex: "0" });
      pre.append(data);
      cell.output.append(pre);
    }
  }

  function begin() {
    const cells = [...document.querySelectorAll("div.cell")].filter((cell) => cell.querySelector(".cell_input pre"));
    const heading = document.querySelector(".bd-article h1");
    if (cells.length && heading) window.dpbookPage = new Page(cells, heading);
  }
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
  else begin();
})();
