// Look at every page in Chromium, light and dark, wide and on a phone, and print what was found as JSON.
// Called by tests/test_pages.py with one JSON argument: { base, pages, prints, chromium }.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { chromium } from "playwright-core";

const { base, pages, prints, searches, chromium: executablePath } = JSON.parse(process.argv[2]);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const WORKERS = 2;
// The structure of a page is the same in both themes: in the dark one only what depends on colour is asked again.
const VIEWS = [
  { width: 1300, theme: "light", rules: null },
  { width: 1300, theme: "dark", rules: ["color-contrast", "link-in-text-block"] },
  { width: 390, theme: "dark", rules: ["color-contrast", "link-in-text-block"] },
  { width: 390, theme: "light", rules: null },
];
const COMPRESSED = /html|css|javascript|json|svg|xml/;
const sizes = new Map(); // address -> bytes as a server with gzip sends them

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"], // nothing leaves; page.route would switch the cache off
});

async function open() {
  const context = await browser.newContext({ viewport: { width: 1300, height: 800 }, reducedMotion: "reduce" });
  const page = await context.newPage();
  const seen = { errors: [], external: [], failed: [], urls: new Set() };
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !/^(data|blob):/.test(request.url())) seen.external.push(request.url());
  });
  page.on("console", (message) => message.type() === "error" && seen.errors.push(message.text()));
  page.on("pageerror", (error) => seen.errors.push(String(error)));
  page.on("requestfailed", (request) => seen.failed.push(request.url()));
  page.on("response", async (response) => {
    const url = response.url().split("?")[0];
    if (!url.startsWith(base)) return;
    if (response.status() >= 400) seen.failed.push(`${response.status()} ${url}`);
    seen.urls.add(url);
    if (!sizes.has(url)) {
      sizes.set(url, 0);
      const body = await response.body().catch(() => Buffer.alloc(0));
      const type = response.headers()["content-type"] || "";
      sizes.set(url, COMPRESSED.test(type) ? gzipSync(body).length : body.length);
    }
  });
  return { page, seen };
}

async function settled(page, address) {
  await page.goto(base + address, { waitUntil: "load" });
  await page.addStyleTag({ content: "*,*::before,*::after{transition:none!important;animation:none!important}" });
  await page.evaluate(async () => {
    for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame); // laid out, so that fonts are asked for
    await document.fonts.ready;
  });
}

async function resize(page, width) {
  if (page.viewportSize().width === width) return;
  await page.setViewportSize({ width, height: width === 390 ? 844 : 800 });
  await page.waitForTimeout(450); // the theme waits as long before it looks at what scrolls now
}

// Code has thousands of elements, all of a few kinds. Of each kind of token one is left for the checker.
function thin() {
  const known = new Set();
  for (const token of document.querySelectorAll(".highlight span[class]")) {
    if (!token.isConnected) continue;
    const kind = `${token.className} ${token.closest("a")?.className}`;
    if (known.has(kind) && !token.querySelector("a")) token.replaceWith(token.textContent);
    known.add(kind);
  }
}

async function look({ page, seen }, address) {
  Object.assign(seen, { errors: [], external: [], failed: [], urls: new Set() });
  await page.setViewportSize({ width: 1300, height: 800 });
  await settled(page, address);
  // How far down the doors of the first page reach, in a window of 1300 x 800.
  const doors = await page.evaluate(() => [...document.querySelectorAll(".dp-doors .sd-card")]
    .map((card) => ({ bottom: card.getBoundingClientRect().bottom, link: card.querySelector("a")?.getAttribute("href") })));
  const formulas = await page.evaluate(() => ({
    count: document.querySelectorAll("math").length,
    font: [...document.fonts].some((font) => font.family.includes("Book Formulas") && font.status === "loaded"),
    gaps: [...document.querySelectorAll("msqrt")].filter((root) => root.checkVisibility()).map((root) => {
      const end = (e) => e.getBoundingClientRect().right, size = parseFloat(getComputedStyle(root).fontSize);
      return { gap: (end(root) - end(root.lastElementChild)) / size, text: root.textContent };
    }).filter(({ gap }) => gap > 0.2).map(({ gap, text }) => `${gap.toFixed(2)} em after the root of ${text}`),
  }));
  const views = VIEWS.map(({ width, theme, rules }) => ({ width, theme, rules }));
  for (const width of [1300, 390]) { // what is too wide, before the page is thinned; the theme does not change it
    await resize(page, width);
    const wide = await page.evaluate(() => {
      const room = document.documentElement.clientWidth;
      return document.documentElement.scrollWidth <= room ? [] : [...document.querySelectorAll("main *")]
        .filter((e) => e.getBoundingClientRect().right > room + 1).slice(0, 5)
        .map((e) => `${e.tagName}.${e.className} ${e.textContent.slice(0, 60)}`).concat("(sideways)");
    });
    for (const view of views) if (view.width === width) view.wide = wide;
  }
  await page.evaluate(thin);
  await page.evaluate(axe);
  for (const view of views) {
    await resize(page, view.width);
    await page.evaluate((theme) => Object.assign(document.documentElement.dataset, { theme, mode: theme }), view.theme);
    const { violations } = await page.evaluate(
      (rules) => axe.run({ resultTypes: ["violations"], ...(rules && { runOnly: rules }) }), view.rules);
    view.axe = violations.flatMap((v) => v.nodes.map((n) =>
      `${v.id}: ${n.target.join(" ")} ${n.html.slice(0, 160)} ${(n.any[0] || n.all[0] || n.none[0])?.message || ""}`));
  }
  const urls = [...seen.urls];
  return { address, views, urls, doors, formulas, errors: seen.errors, external: seen.external, failed: seen.failed };
}

const queue = [...pages];
const found = [];
async function work() {
  const tab = await open();
  for (let address; (address = queue.shift()); ) found.push(await look(tab, address));
}
await Promise.all(Array.from({ length: WORKERS }, work));

// What a printed page needs in sheets of A4.
const sheets = {};
const { page, seen } = await open();
for (const address of prints) {
  await settled(page, address);
  const pdf = (await page.pdf({ format: "A4", preferCSSPageSize: true })).toString("latin1");
  sheets[address] = (pdf.match(/\/Type\s*\/Page[^s]/g) || []).length;
}
// What the search finds, without any server behind it.
const hits = {};
for (const word of searches) {
  await page.goto(`${base}search.html?q=${encodeURIComponent(word)}`);
  await page.waitForSelector("#search-results li a", { timeout: 10000 }).catch(() => {});
  await page.waitForTimeout(300);
  hits[word] = await page.$$eval("#search-results li a", (links) => links.map((a) => a.getAttribute("href")));
}
await browser.close();
for (const one of found) one.bytes = one.urls.reduce((sum, url) => sum + (sizes.get(url) || 0), 0);
console.log(JSON.stringify({ found, sheets, hits, errors: seen.errors, sizes: Object.fromEntries(sizes) }));
