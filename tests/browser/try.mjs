/* Drives Chromium for tests/test_live.py and prints what it saw as JSON. Not a test itself.
 *   node try.mjs CHROMIUM sliders URL                the sliders of one page, by keyboard, in both themes
 *   node try.mjs CHROMIUM live URL all|FIRST [CDN]   Python in one page: run all cells, or the first so many
 *   node try.mjs CHROMIUM newcomer URL WIDTH         from the first page of the site to a changed ε and the code as a file
 */
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [, , executablePath, task, url, ...rest] = process.argv;
const AXE = createRequire(import.meta.url).resolve("axe-core/axe.min.js");
const FLAGS = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync";
const OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1";
const browser = await chromium.launch({ executablePath, args: [...FLAGS.split(" "), OFFLINE] });
const seen = { errors: [], external: [], failed: [], python: [] };

async function open(options) {
  const page = await (await browser.newContext(options)).newPage();
  const host = new URL(url).host;
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && seen.errors.push(m.text()));
  page.on("pageerror", (e) => seen.errors.push(e.message));
  page.on("request", (r) => {
    if (/\/pyodide\/|live-worker/.test(r.url())) seen.python.push(r.url());
    if (r.url().startsWith("http") && new URL(r.url()).host !== host) seen.external.push(r.url());
  });
  page.on("requestfailed", (r) => seen.failed.push(r.url()));
  await page.goto(url, { waitUntil: "load" });
  return page;
}

/** axe's findings about our own parts of the page. */
async function axe(page) {
  await page.addScriptTag({ path: AXE });
  return page.evaluate(async () => {
    const found = await axe.run({ include: [[".dp-slider"], [".dp-run"], [".dp-editor"], [".dp-cell-tools"], [".dp-output"]].filter(([s]) => document.querySelector(s)) });
    return found.violations.flatMap((v) => v.nodes.map((n) => `${v.id}: ${n.target.join(" ")}`));
  });
}

const tasks = {
  async sliders() {
    const result = { axe: [], wide: [], sliders: [] };
    for (const [colorScheme, width] of [["light", 1300], ["dark", 390]]) {
      const page = await open({ colorScheme, viewport: { width, height: 900 } });
      await page.waitForSelector(".dp-slider[data-ready]");
      result.axe.push(...(await axe(page)));
      result.theme = { ...result.theme, [colorScheme]: await page.evaluate(() => document.documentElement.dataset.theme) };
      result.wide.push(...(await page.evaluate(() => [...document.querySelectorAll(".dp-slider, .dp-slider svg[role]")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).length ? [innerWidth] : [])));
      if (colorScheme === "light" && width === 1300) {
        for (const input of await page.locator(".dp-slider input[type=range]").all()) {
          const state = () => input.evaluate((i) => {
            const root = i.closest(".dp-slider");
            return { value: i.value, text: i.getAttribute("aria-valuetext"), say: root.querySelector(".dp-say").textContent,
              live: root.querySelector("[aria-live]").textContent, name: i.labels[0].textContent,
              picture: [...root.querySelectorAll("svg[role] :is(polyline, polygon, circle, text)")].map((e) => e.getAttribute("points") || e.getAttribute("cy") || e.textContent).join() };
          });
          await input.focus();
          await page.waitForTimeout(60);
          const before = await state();
          for (const key of ["Home", "ArrowRight", "ArrowRight", "ArrowRight", "PageUp", "End", "ArrowLeft"]) await page.keyboard.press(key);
          await page.waitForTimeout(120);
          const after = await state();
          await page.waitForTimeout(800);
          const rest = await state();
          await input.evaluate((i) => i.closest(".dp-slider").querySelector(".dp-reset").focus());
          await page.keyboard.press("Enter");
          await page.waitForTimeout(60);
          const reset = await state();
          result.sliders.push({
            name: before.name, text: [before.text, after.text], say: [before.say, after.say], max: await input.getAttribute("max"), value: after.value,
            chatty: after.live === after.say, heard: rest.live === rest.say, drawn: before.picture !== after.picture, back: reset.value === before.value && reset.say === before.say,
          });
        }
        result.address = page.url() === url;
      }
      await page.context().close();
    }
    // without scripts the tables are there
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(url);
    result.tables = await page.locator(".dp-slider table:visible").count();
    result.count = await page.locator(".dp-slider").count();
    return result;
  },

  async live() {
    const [goal, cdn] = rest, result = { axe: [] };
    const page = await open({ viewport: { width: 1300, height: 900 } });
    if (cdn) await page.evaluate((base) => { window.DPBOOK_LIVE = { base }; }, cdn);
    const state = (wanted, timeout = 240000) => page.waitForFunction((w) => w.includes(window.dpbookPage.state), wanted, { timeout });
    await page.getByRole("button", { name: "Run this page in your browser" }).press("Enter");
    await page.getByRole("button", { name: "Start" }).waitFor();
    result.offer = await page.locator(".dp-run-say").textContent();
    result.before = seen.python.map((address) => address.split("/").at(-1));
    result.axe.push(...(await axe(page)));
    await page.getByRole("button", { name: "Start" }).press("Enter");
    await state(["ready", "stopped"]);
    result.started = await page.locator(".dp-run-say").textContent();
    const count = await page.evaluate(() => window.dpbookPage.cells.length);
    const last = goal === "all" ? count : Number(goal);
    await page.getByRole("button", { name: `Run cell ${last}`, exact: true }).press("Enter");
    await page.waitForTimeout(200);
    await state(["ready", "stopped"]);
    result.said = await page.locator(".dp-run-say").textContent();
    result.cells = await page.evaluate((n) => window.dpbookPage.cells.slice(0, n).map((cell) => {
      const words = (boxes) => boxes.flatMap((box) => [...box.querySelectorAll("pre, table")]).map((e) => e.textContent).join(" ").replace(/\s+/g, " ").trim();
      const pictures = (boxes) => boxes.flatMap((box) => [...box.querySelectorAll("img")]).length;
      return { number: cell.number, status: cell.status.textContent, printed: words(cell.printed), output: words([cell.output]),
        pictures: [pictures(cell.printed), pictures([cell.output])], alt: [...cell.output.querySelectorAll("img")].every((i) => i.alt.length > 10 && i.naturalWidth > 100) };
    }), last);
    // an edit, an error, and an endless loop that Stop ends
    const area = page.locator(".dp-editor textarea").first();
    const source = await area.inputValue();
    const again = async (text) => { await area.fill(text); await area.press("Control+Enter"); await page.waitForTimeout(200); };
    await again(source + "\nprint('edited', 6 * 7)");
    await state(["ready"]);
    result.edited = await page.evaluate(() => window.dpbookPage.cells[0].output.textContent);
    await again("laplace_scale = 1\n1 / 0");
    await state(["ready"]);
    result.error = await page.evaluate(() => window.dpbookPage.cells[0].output.textContent);
    result.errorSaid = await page.locator(".dp-run [role=status]").textContent();
    for (const theme of ["light", "dark"]) {
      await page.evaluate((t) => { document.documentElement.dataset.theme = t; }, theme);
      result.axe.push(...(await axe(page)));
    }
    await again("while True:\n    pass");
    await page.getByRole("button", { name: "Stop" }).press("Enter");
    result.stopped = await page.evaluate(() => [window.dpbookPage.state, window.dpbookPage.cells[0].status.textContent]);
    return result;
  },

  /** Only what is seen on the screen and named is pressed, as somebody does who has never been here. */
  async newcomer() {
    const width = Number(rest[0]), begun = performance.now(), steps = [];
    const page = await open({ viewport: { width, height: width < 500 ? 844 : 800 }, hasTouch: width < 500 });
    const press = async (role, name) => {
      const target = page.getByRole(role, { name, ...(typeof name === "string" && { exact: true }) }).filter({ visible: true }).first();
      await target.click({ timeout: 30000 });
      steps.push({ what: `${role} ${name}`, seconds: (performance.now() - begun) / 1000 });
    };
    const cell = (number) => page.getByRole("textbox", { name: new RegExp(`^Code of cell ${number} of`) });
    const done = (number) => page.waitForFunction((n) => {
      const { status } = window.dpbookPage.cells[n - 1];
      return window.dpbookPage.state === "ready" && /^(done|failed|not run|stopped)/.test(status.textContent) && status.textContent;
    }, number, { timeout: 200000 }).then((found) => found.jsonValue());
    const output = (number) => page.getByRole("group", { name: `Output of cell ${number}`, exact: true }).innerText();

    await page.getByRole("heading", { level: 1 }).waitFor();
    await press("link", /the Laplace mechanism/i);
    await press("button", "Run this page in your browser");
    await press("button", "Start");
    await press("button", "Run cell 1");
    const result = { first: await done(1), firstSeconds: (performance.now() - begun) / 1000 };
    let number = 1; // the first cell with an ε to change
    while (!/\bepsilon=[\d.]+/.test(await cell(number).inputValue())) number += 1;
    await press("button", `Run cell ${number}`);
    if (!(await done(number)).startsWith("done")) return { ...result, steps, clicks: 0, seconds: 0 };
    result.before = await output(number);
    await cell(number).fill((await cell(number).inputValue()).replace(/\bepsilon=[\d.]+/, "epsilon=0.05"));
    steps.push({ what: "typed another epsilon", seconds: (performance.now() - begun) / 1000 });
    await press("button", `Run cell ${number}`);
    result.again = await done(number);
    result.after = await output(number);
    result.wide = await page.evaluate(() => document.documentElement.scrollWidth > document.documentElement.clientWidth);
    const download = page.waitForEvent("download");
    await press("link", /^Get the code/);
    result.name = (await download).suggestedFilename();
    result.file = readFileSync(await (await download).path(), "utf8");
    return { ...result, steps, clicks: steps.filter(({ what }) => !what.startsWith("typed")).length, seconds: steps.at(-1).seconds };
  },
};

try {
  const result = await tasks[task]();
  console.log(JSON.stringify({ ...seen, ...result }));
} finally {
  await browser.close();
}
