/* Sliders in the page, without Python: <div class="dp-slider" data-fn="laplace"> with a table inside, which is what
 * readers without JavaScript see. The first part holds the formulas, free of any page, so that tests/test_widgets.py can
 * compare them with dpbook; the second part draws.
 */
"use strict";

const DPBOOK_WIDGETS = (() => {
  // ---------------------------------------------------------------------------------------------------- formulas
  /** exp(x²) erfc(x) for x >= 0: a power series below 1, Laplace's continued fraction from there on. */
  function erfcx(x) {
    if (x < 1) {
      // erf(x) = 2/sqrt(pi) exp(-x²) (x + 2x³/3 + 4x⁵/15 + ...): all terms positive, so nothing cancels
      let term = x, sum = x;
      for (let k = 1; term > sum * 1e-17; k++) {
        term *= (2 * x * x) / (2 * k + 1);
        sum += term;
      }
      return Math.exp(x * x) - (2 / Math.sqrt(Math.PI)) * sum;
    }
    let tail = 0; // 200 terms: below 1e-16 of the value already at x = 1
    for (let k = 200; k > 0; k--) tail = k / 2 / (x + tail);
    return 1 / (Math.sqrt(Math.PI) * (x + tail));
  }

  function erfc(x) {
    return x >= 0 ? Math.exp(-x * x) * erfcx(x) : 2 - Math.exp(-x * x) * erfcx(-x);
  }

  /** P(N > x) for a standard normal N. */
  const normalTail = (x) => erfc(x / Math.SQRT2) / 2;

  /** The x with P(N > x) = p: Newton on the logarithm of the tail, which is concave. */
  function normalTailQuantile(p) {
    if (p > 0.5) return -normalTailQuantile(1 - p);
    let x = Math.sqrt(-2 * Math.log(2 * p));
    for (let k = 0; k < 60; k++) {
      const tail = normalTail(x);
      const step = (Math.log(tail / p) * tail * Math.sqrt(2 * Math.PI)) / Math.exp((-x * x) / 2);
      x += step;
      if (Math.abs(step) < 1e-15 * (1 + x)) break;
    }
    return x;
  }

  const laplaceScale = (epsilon, sensitivity) => sensitivity / epsilon;
  const laplaceError = (scale, alpha) => scale * Math.log(1 / alpha);
  const laplaceDensity = (x, scale) => Math.exp(-Math.abs(x) / scale) / (2 * scale);
  const laplaceLogRatio = (x, first, second, scale) => (Math.abs(x - second) - Math.abs(x - first)) / scale;
  const gaussianError = (sigma, alpha) => sigma * normalTailQuantile(alpha / 2);

  /** Smallest δ at ε of Gaussian noise with mu = sensitivity / sigma (Balle and Wang, 2018, Thm. 8). */
  function gaussianDelta(mu, epsilon) {
    const a = (epsilon / mu - mu / 2) / Math.SQRT2;
    const b = (epsilon / mu + mu / 2) / Math.SQRT2;
    // exp(ε) erfc(b) = exp(-a²) erfcx(b), as b² - a² = ε: nothing overflows
    const second = Math.exp(-a * a) * erfcx(b);
    return a >= 0 ? (Math.exp(-a * a) * (erfcx(a) - erfcx(b))) / 2 : (erfc(a) - second) / 2;
  }

  /** The largest mu that is (ε, δ)-DP: bisection on its logarithm, as δ grows with mu. */
  function largestMu(epsilon, delta) {
    let low = Math.log(1e-14), high = Math.log(1e3);
    while (high - low > 1e-14 * Math.max(1, Math.abs(low))) {
      const middle = (low + high) / 2;
      if (middle <= low || middle >= high) break;
      if (gaussianDelta(Math.exp(middle), epsilon) <= delta) low = middle;
      else high = middle;
    }
    return Math.exp(low);
  }

  const gaussianSigma = (epsilon, delta, sensitivity) => sensitivity / largestMu(epsilon, delta);
  const classicSigma = (epsilon, delta, sensitivity) => (Math.sqrt(2 * Math.log(1.25 / delta)) * sensitivity) / epsilon;

  /** Least rate of misses of any attacker at a rate of false alarms, against every (ε, δ)-DP mechanism. */
  function tradeoff(alarms, epsilon, delta) {
    return Math.max(0, 1 - delta - Math.exp(epsilon) * alarms, Math.exp(-epsilon) * (1 - delta - alarms));
  }

  /** The same against Gaussian noise with mu = sensitivity / sigma: Φ(Φ⁻¹(1 - alarms) - mu). */
  function gaussianTradeoff(alarms, mu) {
    if (alarms <= 0) return 1;
    return alarms >= 1 ? 0 : normalTail(mu - normalTailQuantile(alarms));
  }

  /** 95 % errors of each of k means of n values from 0 to 100 of the same people, replace-one. */
  function meanErrors({ epsilon, n, k, delta }) {
    const one = 100 / n; // one person moves every mean by at most this
    return {
      laplace: laplaceError(laplaceScale(epsilon, k * one), 0.05),
      gaussian: gaussianError(gaussianSigma(epsilon, delta, Math.sqrt(k) * one), 0.05),
    };
  }

  // ------------------------------------------------------------------------------------------------ numbers as text
  function show(x, digits) {
    if (x === 0) return "0";
    const size = Math.abs(x);
    if (size < 1e-3 || size >= 1e7) return x.toExponential(digits - 1).replace("e+", "e");
    return x.toLocaleString("en-US", { minimumSignificantDigits: digits, maximumSignificantDigits: digits });
  }

  /** Rounded up, so that no noise is shown too small. `guard` is larger than the error of the value itself. */
  function up(x, digits, guard = 0) {
    const unit = Math.floor(Math.log10(x)) - digits + 1;
    // a power of ten below one is not a double, but its inverse is
    const scaled = unit < 0 ? x * 10 ** -unit : x / 10 ** unit;
    const whole = Math.ceil(scaled * (1 + guard) * (1 - 1e-12));
    return show(unit < 0 ? whole / 10 ** -unit : whole * 10 ** unit, digits);
  }

  const plain = (x) => (x !== 0 && x < 1e-3 ? x.toExponential().replace("e+", "e") : x.toLocaleString("en-US", { maximumFractionDigits: 6 }));

  /** A share as per cent, rounded down (a promise about misses) to a digit that is not lost near 100 %. */
  function percentDown(share) {
    const digits = share > 0.999 ? 3 : 1;
    return (Math.floor(share * 100 * 10 ** digits + 1e-9) / 10 ** digits).toFixed(digits) + " %";
  }

  // Nice values only, so that what is shown is what is computed.
  const E12 = [1, 1.2, 1.5, 1.8, 2.2, 2.7, 3.3, 3.9, 4.7, 5.6, 6.8, 8.2];
  const E10 = [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8];
  const E3 = [1, 2, 5];
  function grid(low, high, mantissas) {
    const values = [];
    for (let power = -15; power <= 15; power++) {
      for (const mantissa of mantissas) {
        const value = Number(`${mantissa}e${power}`);
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) values.push(value);
      }
    }
    return values;
  }

  // ------------------------------------------------------------------------------------------------------- widgets
  const EPSILON = { name: "epsilon", symbol: "ε", label: "ε, the privacy parameter" };
  const DELTA = { name: "delta", symbol: "δ", label: "δ", values: grid(1e-12, 1e-2, E3), start: 1e-6 };

  const WIDGETS = {
    laplace: {
      title: "Try it: Laplace noise and two neighbours",
      chart: "Densities of the release for two neighbours, and below them the ratio of the densities",
      sliders: [
        { ...EPSILON, values: grid(0.1, 5, E10), start: 0.5 },
        { name: "sensitivity", symbol: "Δ", label: "Δ, the sensitivity", values: grid(1, 10, E10), start: 1 },
      ],
      numbers({ epsilon, sensitivity }) {
        const scale = laplaceScale(epsilon, sensitivity);
        return { scale, error: laplaceError(scale, 0.05), ratio: Math.exp(epsilon) };
      },
      say({ epsilon, sensitivity }) {
        const { scale, error, ratio } = this.numbers({ epsilon, sensitivity });
        return (
          `ε = ${plain(epsilon)}, Δ = ${plain(sensitivity)}: scale ${up(scale, 2)}, 95 % of releases within ±${up(error, 2, 1e-9)} ` +
          `of the true answer. No result is more than ${up(ratio, 3, 1e-9)} times as likely for one neighbour as for the other.`
        );
      },
    },
    error: {
      title: "Try it: the error of a mean",
      chart: "95 % error of a mean of values from 0 to 100, against epsilon on the left and against n on the right",
      sliders: [
        { ...EPSILON, values: grid(0.01, 10, E10), start: 1 },
        { name: "n", symbol: "n", label: "n, people (a public number)", values: grid(10, 1e6, E10), start: 1000 },
        { name: "k", symbol: "k", label: "k, means of the same people", values: grid(1, 1000, E3), start: 1 },
        DELTA,
      ],
      numbers: meanErrors,
      say(at) {
        const { laplace, gaussian } = meanErrors(at);
        const [less, more, name] = laplace <= gaussian ? [laplace, gaussian, "Gaussian"] : [gaussian, laplace, "Laplace"];
        const means = at.k === 1 ? "one mean" : `each of ${plain(at.k)} means`;
        const useless = less > 100 ? " Both errors are larger than the whole range of the values." : "";
        return (
          `ε = ${plain(at.epsilon)}, n = ${plain(at.n)}, ${means}: with 95 % probability Laplace noise stays within ±${up(laplace, 2, 1e-9)}, ` +
          `Gaussian noise (δ = ${plain(at.delta)}) within ±${up(gaussian, 2, 1e-9)}. The error of ${name} noise is ${show(more / less, 2)} times as large.${useless}`
        );
      },
    },
    sigma: {
      title: "Try it: the exact σ and the classic formula",
      chart: "Standard deviation of Gaussian noise against epsilon, exact and by the classic formula",
      sliders: [
        { ...EPSILON, values: grid(0.01, 50, E10), start: 0.5 },
        { ...DELTA, start: 1e-5 },
        { name: "sensitivity", symbol: "Δ", label: "Δ, the L2 sensitivity", values: grid(0.1, 100, E10), start: 1 },
      ],
      numbers({ epsilon, delta, sensitivity }) {
        const sigma = gaussianSigma(epsilon, delta, sensitivity);
        const classic = classicSigma(epsilon, delta, sensitivity);
        return { sigma, classic, classicDelta: gaussianDelta(sensitivity / classic, epsilon) };
      },
      say(at) {
        const { sigma, classic, classicDelta } = this.numbers(at);
        const start =
          `ε = ${plain(at.epsilon)}, δ = ${plain(at.delta)}, Δ = ${plain(at.sensitivity)}: exact σ = ${up(sigma, 4, 1e-9)} (rounded up). ` +
          `The classic formula gives ${up(classic, 4, 1e-9)}`;
        if (at.epsilon < 1) return `${start}, ${show(classic / sigma, 3)} times as much as needed.`;
        if (classic >= sigma) return `${start}; its theorem says nothing from ε = 1 on, although here it is still enough.`;
        return `${start}: too little noise. Its theorem ends at ε = 1, and the true δ would be ${up(classicDelta, 2, 1e-6)}.`;
      },
    },
    tradeoff: {
      title: "Try it: what an attacker can tell",
      chart: "Least rate of misses of an attacker against the rate of false alarms",
      sliders: [
        { ...EPSILON, values: grid(0.01, 10, E10), start: 1 },
        { ...DELTA, values: grid(1e-12, 0.1, E3), start: 1e-5 },
        {
          name: "alarms", symbol: "", label: "the attacker's false alarms", unit: "%", start: 0.05,
          values: [0.001, 0.002, 0.005, ...Array.from({ length: 50 }, (_, i) => (i + 1) / 100)],
        },
      ],
      numbers({ epsilon, delta, alarms }) {
        const mu = largestMu(epsilon, delta);
        return { mu, any: tradeoff(alarms, epsilon, delta), gaussian: gaussianTradeoff(alarms, mu) };
      },
      say(at) {
        const { any, gaussian } = this.numbers(at);
        const percent = plain(at.alarms * 100) + " %";
        return (
          `ε = ${plain(at.epsilon)}, δ = ${plain(at.delta)}: an attacker who raises a false alarm in ${percent} of the cases misses the person ` +
          `in at least ${percentDown(any)} of the cases, against any mechanism with this (ε, δ); against Gaussian noise ` +
          `calibrated to it, in at least ${percentDown(gaussian - 1e-9)}. Guessing misses ${plain(Number(((1 - at.alarms) * 100).toFixed(1)))} %.`
        );
      },
    },
  };

  return {
    erfcx, erfc, normalTail, normalTailQuantile, laplaceScale, laplaceError, laplaceDensity, laplaceLogRatio, gaussianError,
    gaussianDelta, largestMu, gaussianSigma, classicSigma, tradeoff, gaussianTradeoff, meanErrors, show, up, plain, percentDown,
    WIDGETS,
  };
})();

if (typeof module !== "undefined") module.exports = DPBOOK_WIDGETS;

// ---------------------------------------------------------------------------------------------------------- the page
if (typeof document !== "undefined") (() => {
  const F = DPBOOK_WIDGETS;
  const SVG = "http://www.w3.org/2000/svg";
  const superscript = (k) => String(k).replace(/[-0-9]/g, (c) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(c)]);
  const power = (x) => {
    const k = Math.round(Math.log10(x));
    return k >= -2 && k <= 4 ? x.toLocaleString("en-US", { maximumFractionDigits: 2 }) : "10" + superscript(k);
  };

  function make(tag, attributes = {}, text) {
    const element = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    return element;
  }

  function draw(parent, tag, attributes, text) {
    const element = document.createElementNS(SVG, tag);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.appendChild(element);
    return element;
  }

  const decades = (low, high) => {
    const ticks = [];
    for (let k = Math.ceil(Math.log10(low) - 1e-9); k <= Math.log10(high) + 1e-9; k++) ticks.push(10 ** k);
    return ticks;
  };
  const space = (low, high, count, log) =>
    Array.from({ length: count + 1 }, (_, i) => (log ? low * (high / low) ** (i / count) : low + ((high - low) * i) / count));

  let clips = 0;
  /** Axes in a box of the drawing; returns how to place points and to draw lines and areas. */
  function axes(svg, box, x, y) {
    const place = ({ domain: [low, high], log }, from, to) => (v) =>
      from + (to - from) * (log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low));
    const fx = place(x, box.left, box.left + box.width);
    const fy = place(y, box.top + box.height, box.top);
    const g = draw(svg, "g", {});
    for (const tick of x.ticks) {
      draw(g, "line", { class: "dp-grid", x1: fx(tick), x2: fx(tick), y1: box.top, y2: box.top + box.height });
      if (x.label !== undefined)
        draw(g, "text", { x: fx(tick), y: box.top + box.height + 17, "text-anchor": "middle" }, (x.text || String)(tick));
    }
    for (const tick of y.ticks) {
      draw(g, "line", { class: "dp-grid", x1: box.left, x2: box.left + box.width, y1: fy(tick), y2: fy(tick) });
      draw(g, "text", { x: box.left - 6, y: fy(tick) + 4, "text-anchor": "end" }, (y.text || String)(tick));
    }
    if (x.label) draw(g, "text", { x: box.left + box.width / 2, y: box.top + box.height + 36, "text-anchor": "middle" }, x.label);
    draw(g, "text", { x: box.left - (box.gutter || 44), y: box.top - 11 }, y.label);
    const clip = `dp-clip-${++clips}`;
    draw(draw(svg, "clipPath", { id: clip }), "rect", { x: box.left, y: box.top, width: box.width, height: box.height });
    const plot = draw(svg, "g", { "clip-path": `url(#${clip})` });
    const path = (points) => points.map(([a, b]) => `${fx(a).toFixed(1)},${fy(b).toFixed(1)}`).join(" ");
    return {
      fx, fy, plot,
      line: (points, style) => draw(plot, "polyline", { class: `dp-line ${style}`, points: path(points) }),
      area: (points, style) => draw(plot, "polygon", { class: style, points: path(points) }),
      dot: (a, b, style) => {
        if (b >= y.domain[0] && b <= y.domain[1]) draw(plot, "circle", { class: `dp-dot ${style}`, cx: fx(a), cy: fy(b), r: 5 });
      },
      frame: () => draw(svg, "path", { class: "dp-axis", d: `M${box.left},${box.top}v${box.height}h${box.width}` }),
    };
  }

  // Each picture draws into an empty SVG of the given width and returns its height.
  const PICTURES = {
    laplace: {
      legend: [["dp-one", "a person's answer 100"], ["dp-two", "the neighbour's answer 100 + Δ"], ["dp-band", "from e⁻ᵋ to eᵋ times the first"]],
      draw(svg, width, { epsilon, sensitivity }) {
        const scale = F.laplaceScale(epsilon, sensitivity), [a, b] = [100, 100 + sensitivity];
        const [from, to] = [85, 120], x = { domain: [from, to], ticks: width < 500 ? [90, 100, 110, 120] : [85, 90, 95, 100, 105, 110, 115, 120] };
        const points = [...space(from, to, 280), a, b].sort((p, q) => p - q);
        const peak = 1 / (2 * scale), box = { left: 52, width: width - 66, gutter: 46 };
        const unit = 10 ** Math.floor(Math.log10(peak * 1.2)), step = [1, 2, 5].find((m) => (peak * 1.2) / (m * unit) <= 4) * unit;
        const ticks = [];
        for (let t = 0; t <= peak * 1.2; t += step) ticks.push(Number(t.toPrecision(3)));
        const top = axes(svg, { ...box, top: 26, height: 170 }, x, { domain: [0, peak * 1.2], ticks, label: "density of the release" });
        const near = (v, factor) => Math.min(factor * F.laplaceDensity(v - a, scale), peak * 3);
        top.area([...points.map((v) => [v, near(v, Math.exp(epsilon))]), ...points.reverse().map((v) => [v, near(v, Math.exp(-epsilon))])], "dp-band");
        points.reverse();
        top.line(points.map((v) => [v, F.laplaceDensity(v - a, scale)]), "dp-one");
        top.line(points.map((v) => [v, F.laplaceDensity(v - b, scale)]), "dp-two");
        top.frame();
        const ratio = { domain: [1 / 200, 200], log: true, ticks: [0.01, 0.1, 1, 10, 100], text: power, label: "ratio of the densities, second to first" };
        const low = axes(svg, { ...box, top: 232, height: 110 }, { ...x, label: "released value" }, ratio);
        low.area([[from, Math.exp(-epsilon)], [to, Math.exp(-epsilon)], [to, Math.exp(epsilon)], [from, Math.exp(epsilon)]], "dp-band");
        low.line(points.map((v) => [v, Math.exp(F.laplaceLogRatio(v, b, a, scale))]), "dp-ink");
        low.frame();
        return 384;
      },
    },
    error: {
      legend: [["dp-one", "Laplace, ε-DP"], ["dp-two", "Gaussian, (ε, δ)-DP"], ["dp-useless", "larger than the range of the values"]],
      draw(svg, width, at) {
        const narrow = width < 620;
        const y = { domain: [1e-4, 1e3], log: true, ticks: decades(1e-4, 1e3), text: power, label: "95 % error of each mean" };
        const panel = (box, name, domain, label, text) => {
          const a = axes(svg, box, { domain, log: true, ticks: decades(...domain), text, label }, y);
          a.area([[domain[0], 100], [domain[1], 100], [domain[1], 1e3], [domain[0], 1e3]], "dp-useless");
          const xs = space(...domain, 40, true), errors = xs.map((v) => F.meanErrors({ ...at, [name]: v })), now = F.meanErrors(at);
          a.line([[at[name], 1e-4], [at[name], 1e3]], "dp-here");
          for (const [kind, style] of [["laplace", "dp-one"], ["gaussian", "dp-two"]]) {
            a.line(xs.map((v, i) => [v, errors[i][kind]]), style);
            a.dot(at[name], now[kind], style);
          }
          a.frame();
        };
        const half = narrow ? width - 66 : (width - 140) / 2;
        const second = narrow ? { left: 52, top: 312 } : { left: 52 + half + 74, top: 26 };
        panel({ left: 52, top: 26, width: half, height: 210, gutter: 46 }, "epsilon", [0.01, 10], "ε", power);
        panel({ ...second, width: half, height: 210, gutter: 46 }, "n", [10, 1e6], "n", power);
        return second.top + 210 + 44;
      },
    },
    sigma: {
      legend: [["dp-one", "exact"], ["dp-two", "classic formula, ε < 1"], ["dp-three", "classic formula where no theorem holds"]],
      draw(svg, width, at) {
        const domain = [0.01, 50], range = [at.sensitivity * 0.02, at.sensitivity * 2000];
        const a = axes(svg, { left: 60, top: 26, width: width - 76, height: 260, gutter: 54 },
          { domain, log: true, ticks: decades(...domain), text: power, label: "ε" },
          { domain: range, log: true, ticks: decades(...range), text: power, label: "σ" });
        const xs = space(...domain, 90, true), below = space(0.01, 1, 2, true), above = space(1, 50, 2, true);
        a.line([[at.epsilon, range[0]], [at.epsilon, range[1]]], "dp-here");
        a.line(xs.map((v) => [v, F.gaussianSigma(v, at.delta, at.sensitivity)]), "dp-one");
        a.line(below.map((v) => [v, F.classicSigma(v, at.delta, at.sensitivity)]), "dp-two");
        a.line(above.map((v) => [v, F.classicSigma(v, at.delta, at.sensitivity)]), "dp-three");
        a.dot(at.epsilon, F.classicSigma(at.epsilon, at.delta, at.sensitivity), at.epsilon < 1 ? "dp-two" : "dp-three");
        a.dot(at.epsilon, F.gaussianSigma(at.epsilon, at.delta, at.sensitivity), "dp-one");
        a.frame();
        return 330;
      },
    },
    tradeoff: {
      legend: [["dp-one", "Gaussian noise"], ["dp-two", "bound for every (ε, δ)-DP mechanism"], ["dp-ink", "guessing"], ["dp-useless", "out of reach of every attacker"]],
      draw(svg, width, at) {
        const side = Math.min(width - 84, 360), left = Math.max(52, (width - side) / 2), ticks = [0, 0.25, 0.5, 0.75, 1], text = (v) => `${v * 100} %`;
        const a = axes(svg, { left, top: 26, width: side, height: side, gutter: 46 },
          { domain: [0, 1], ticks, text, label: "false alarms" }, { domain: [0, 1], ticks, text, label: "misses: the attacker's least rate" });
        const { mu, any, gaussian } = F.WIDGETS.tradeoff.numbers(at);
        const corner = (1 - at.delta) / (1 + Math.exp(at.epsilon));
        const bound = [[0, 1 - at.delta], [corner, corner], [1 - at.delta, 0], [1, 0]];
        a.area([[0, 0], ...bound], "dp-useless");
        a.line([[0, 1], [1, 0]], "dp-ink");
        a.line([[at.alarms, 0], [at.alarms, 1]], "dp-here");
        a.line(bound, "dp-two");
        // the curve by its threshold t: false alarms P(N > t), misses P(N > mu - t)
        const curve = space(-9, 9 + mu, 200).map((t) => [F.normalTail(t), F.normalTail(mu - t)]);
        a.line(curve, "dp-one");
        a.dot(at.alarms, any, "dp-two");
        a.dot(at.alarms, gaussian, "dp-one");
        a.frame();
        return side + 70;
      },
    },
  };

  function mount(root, number) {
    const name = root.dataset.fn, widget = F.WIDGETS[name], picture = PICTURES[name];
    if (!widget || root.dataset.ready) return;
    root.dataset.ready = "yes";
    const id = `dp-widget-${number}`, index = {}, inputs = [];
    const fallback = [...root.childNodes];
    root.setAttribute("role", "group");
    root.setAttribute("aria-labelledby", `${id}-title`);
    const say = make("p", { class: "dp-say", id: `${id}-say` });
    const live = make("p", { class: "dp-unseen", "aria-live": "polite", "aria-atomic": "true" });
    const svg = draw(make("div"), "svg", { role: "img", "aria-label": widget.chart, "aria-describedby": `${id}-say` });
    const canvas = make("div", { class: "dp-canvas" });
    canvas.append(svg);
    const legend = make("ul", { class: "dp-legend" });
    for (const [style, text] of picture.legend) {
      const item = make("li", {}), key = draw(item, "svg", { width: 30, height: 14, "aria-hidden": "true" });
      if (style === "dp-band" || style === "dp-useless") draw(key, "rect", { class: style, width: 30, height: 14 });
      else draw(key, "line", { class: `dp-line ${style}`, x1: 0, x2: 30, y1: 7, y2: 7 });
      item.append(text);
      legend.append(item);
    }
    const controls = make("div", { class: "dp-controls" });
    for (const slider of widget.sliders) {
      const row = make("div", { class: "dp-control" }), output = make("output", { for: `${id}-${slider.name}` });
      const input = make("input", { type: "range", id: `${id}-${slider.name}`, min: 0, max: slider.values.length - 1, step: 1 });
      row.append(make("label", { for: input.id }, slider.label), output, input);
      controls.append(row);
      inputs.push([slider, input, output]);
    }
    const reset = make("button", { type: "button", class: "dp-reset" }, "Reset");
    controls.append(reset);

    const table = make("details", { class: "dp-table" });
    table.append(make("summary", {}, "The same as a table"), ...fallback);
    root.append(make("p", { class: "dp-title", id: `${id}-title` }, widget.title), controls, say, live, canvas, legend, table);

    const at = () => Object.fromEntries(widget.sliders.map((s) => [s.name, s.values[index[s.name]]]));
    let speak, frame, drawn;
    function paint() {
      frame = undefined;
      const width = Math.max(260, Math.floor(canvas.clientWidth)), key = width + JSON.stringify(index);
      if (key === drawn) return;
      drawn = key;
      svg.replaceChildren();
      svg.setAttribute("width", width);
      svg.setAttribute("height", picture.draw(svg, width, at()));
    }
    const later = () => { frame = frame || requestAnimationFrame(paint); };
    function update(aloud) {
      for (const [slider, input, output] of inputs) {
        index[slider.name] = Number(input.value);
        const value = slider.values[index[slider.name]];
        output.textContent = slider.unit ? `${F.plain(value * 100)} %` : `${slider.symbol} = ${F.plain(value)}`;
        input.setAttribute("aria-valuetext", output.textContent);
      }
      say.textContent = widget.say(at());
      later();
      clearTimeout(speak); // a screen reader hears the value at once, and the message when the slider has come to rest
      if (aloud) speak = setTimeout(() => { live.textContent = say.textContent; }, 700);
    }
    function start(aloud) {
      for (const [slider, input] of inputs) input.value = slider.values.indexOf(slider.start);
      update(aloud);
    }
    for (const [, input] of inputs) input.addEventListener("input", () => update(true));
    reset.addEventListener("click", () => start(true));
    start(false);
    new ResizeObserver(later).observe(canvas);
    addEventListener("beforeprint", () => { table.open = true; });
  }

  const all = () => document.querySelectorAll(".dp-slider[data-fn]").forEach(mount);
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", all);
  else all();
})();
