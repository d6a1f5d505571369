/* Python for live.js, in a thread of its own: the page stays usable, and Stop can end it at any time.
 * Messages in:  {type: "start", folder, base, packages}   {type: "run", cells: [{number, source}], fresh}
 * Messages out: {type: "bytes", count}, "ready", "begin", "out" (kind: stdout, stderr, html, text, png, error), "end", "idle", "failed"
 */
const SETUP = `
import ast, base64, io, linecache, os, sys, time, traceback, types
os.environ["MPLBACKEND"] = "agg"
SPACE, EMIT = None, None

class Stream(io.TextIOBase):
    def __init__(self, kind):
        self.kind, self.parts = kind, []
    def writable(self):
        return True
    def write(self, text):
        self.parts.append(text)
        if sum(map(len, self.parts[-64:])) > 4096 or len(self.parts) > 512:
            self.flush()
        return len(text)
    def flush(self):
        if self.parts:
            text, self.parts = "".join(self.parts), []
            EMIT(self.kind, text)

def flush():
    sys.stdout.flush(), sys.stderr.flush()

def fresh():
    global SPACE
    space = types.ModuleType("__main__")
    sys.modules["__main__"] = space
    SPACE = space.__dict__
    SPACE["display"] = display
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")

def display(*values):
    for value in values:
        flush()
        html = getattr(value, "_repr_html_", None)
        html = html() if callable(html) and not isinstance(value, type) else None
        EMIT("html", html) if html else EMIT("text", repr(value))

def show(*args, **kwargs):
    plt = sys.modules["matplotlib.pyplot"]
    for number in plt.get_fignums():
        figure, file = plt.figure(number), io.BytesIO()
        figure.savefig(file, format="png", dpi=figure.dpi, bbox_inches="tight")
        flush()
        EMIT("png", base64.b64encode(file.getvalue()).decode())
    plt.close("all")

def with_pictures():
    import matplotlib.pyplot as plt
    plt.show = show

def run(source, number):
    """Run one cell as Jupyter would: the value of the last expression is shown. Return whether it went well."""
    name = f"<cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    sys.stdout, sys.stderr = Stream("stdout"), Stream("stderr")
    try:
        tree = ast.parse(source, name)
        last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), SPACE)
        if last is not None:
            value = eval(compile(last, name, "eval"), SPACE)
            if value is not None:
                display(value)
        if "matplotlib.pyplot" in sys.modules:
            show()
        flush()
        return True
    except BaseException as error:
        flush()
        place = error.__traceback__
        while place and not place.tb_frame.f_code.co_filename.startswith("<cell"):
            place = place.tb_next
        full = "".join(traceback.format_exception(type(error), error, place))
        EMIT("error", "".join(traceback.format_exception_only(type(error), error)).strip() + "\\0" + full)
        return False
`;

let pyodide, live;

/** fetch, with every byte counted as it comes. */
function counted() {
  const original = self.fetch.bind(self);
  let count = 0, told = 0;
  self.fetch = async (...request) => {
    const response = await original(...request);
    if (!response.ok || !response.body) return response;
    const watch = new TransformStream({
      transform(chunk, controller) {
        count += chunk.byteLength;
        if (count - told > 250000) self.postMessage({ type: "bytes", count: (told = count) });
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(watch), { status: response.status, headers: response.headers });
  };
}

async function start({ folder, base, packages, here }) {
  counted();
  const response = await fetch(folder + "pyodide-lock.json", { cache: "no-cache" });
  if (!response.ok) throw new Error(`no ${folder}pyodide-lock.json`);
  const lock = await response.json();
  // A package is beside the page or at the CDN: write out which.
  for (const [name, entry] of Object.entries(lock.packages)) {
    entry.file_name = new URL(entry.file_name, here.includes(name) ? folder : base).href;
  }
  const lockFileURL = URL.createObjectURL(new Blob([JSON.stringify(lock)], { type: "application/json" }));
  const { loadPyodide } = await import(base + "pyodide.mjs");
  pyodide = await loadPyodide({ indexURL: base, lockFileURL, packages, stdout: () => {}, stderr: () => {} });
  live = pyodide.globals.get("dict")();
  pyodide.runPython(SETUP, { globals: live });
  live.set("EMIT", (kind, data) => self.postMessage({ type: "out", kind, data }));
  if (packages.includes("matplotlib")) live.get("with_pictures")();
  live.get("fresh")();
  self.postMessage({ type: "ready" });
}

async function run({ cells, fresh }) {
  if (fresh) live.get("fresh")();
  for (const { number, source } of cells) {
    self.postMessage({ type: "begin", number });
    const begun = performance.now();
    try {
      await pyodide.loadPackagesFromImports(source, { messageCallback: () => {}, errorCallback: () => {} });
    } catch {
      // a syntax error, or a package that cannot be had: Python says it better below
    }
    if (/\bmatplotlib\b/.test(source)) try { live.get("with_pictures")(); } catch { /* the cell says so */ }
    const good = live.get("run")(source, number);
    self.postMessage({ type: "end", number, good, seconds: (performance.now() - begun) / 1000 });
    if (!good) break;
  }
  self.postMessage({ type: "idle" });
}

self.onmessage = ({ data }) => {
  (data.type === "start" ? start(data) : run(data)).catch((error) => self.postMessage({ type: "failed", message: String(error.message || error) }));
};
