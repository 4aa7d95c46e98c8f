// The faults of the screen that is shown, as texts; the gallery calls it with {touch: boolean}.
({ touch }) => {
  const SLACK = 1.5; // pixels that rounding can cost
  const TARGET = 24; // WCAG 2.2, 2.5.8
  const CONTROLS =
    "a[href], button, input:not([type=hidden]), select, textarea, summary, [role=button], [role=tab], [role=slider]";
  const WRONG = /\b(undefined|NaN|Infinity|Invalid Date)\b|\[object |(^|[^\w"'.-])null([^\w"'.-]|$)/;
  const RAW = /\b(TypeError|ReferenceError|SyntaxError|Traceback|Internal Server Error)\b/;
  const MISSING_TEXT = /^(?:[a-z][a-zA-Z]*\.){1,2}[a-z][a-zA-Z]*(?:_[a-zA-Z]+)?$/;
  const faults = new Set();

  const nameOf = (element) => {
    const text = (element.getAttribute("aria-label") || element.textContent || "").trim().replace(/\s+/g, " ");
    const kind = element.tagName.toLowerCase() + (element.className?.split ? `.${element.className.split(" ")[0]}` : "");
    return `${kind} “${text.slice(0, 60)}”`;
  };
  const isClip = (style) => [style.overflowX, style.overflowY].some((one) => one === "hidden" || one === "clip");
  const scrolls = (style) => [style.overflowX, style.overflowY].some((one) => one === "auto" || one === "scroll");
  const chain = (element) => {
    const found = [];
    for (let one = element; one && one !== document.body; one = one.parentElement) found.push(one);
    return found;
  };
  /** Drawn at all: not hidden, and not moved aside for screen readers only. */
  const isShown = (element) => {
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return false;
    const box = element.getBoundingClientRect();
    return (
      box.width > 1 && box.height > 1 && box.right > 0 && box.bottom + scrollY > 0 &&
      !chain(element).some((one) => {
        const style = getComputedStyle(one);
        const { width, height } = one.getBoundingClientRect();
        return isClip(style) && (width <= 1 || height <= 1);
      })
    );
  };
  /** The part of a box that its scrolling and clipping ancestors let through. */
  const seen = (element) => {
    let { left, top, right, bottom } = element.getBoundingClientRect();
    for (const one of chain(element.parentElement)) {
      const style = getComputedStyle(one);
      if (isClip(style) || scrolls(style)) {
        const box = one.getBoundingClientRect();
        left = Math.max(left, box.left);
        top = Math.max(top, box.top);
        right = Math.min(right, box.right);
        bottom = Math.min(bottom, box.bottom);
      }
    }
    return { left, top, right, bottom };
  };

  if (document.documentElement.scrollWidth > innerWidth)
    faults.add(`the page is ${document.documentElement.scrollWidth} px wide`);
  if (document.querySelectorAll("main h1, #content h1").length !== 1) faults.add("no single heading of the first level");

  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const text = node.data.trim();
    const element = node.parentElement;
    if (!text || !element || element.closest("script, style, noscript") || !isShown(element)) continue;
    const isCode = element.closest("pre, code, textarea, .log, .mono") !== null;
    if (!isCode && WRONG.test(text)) faults.add(`it says “${text.slice(0, 80)}”`);
    if (!isCode && RAW.test(text)) faults.add(`a raw error: “${text.slice(0, 80)}”`);
    if (!isCode && !element.closest("a, td, h1, dd") && MISSING_TEXT.test(text)) faults.add(`a text is missing: ${text}`);

    const range = document.createRange();
    range.selectNodeContents(node);
    const box = range.getBoundingClientRect();
    if (box.width === 0) continue;
    if (element.closest("[title]:not([title='']), a[aria-label], button[aria-label]")) continue;
    for (const one of chain(element)) {
      const style = getComputedStyle(one);
      if (scrolls(style)) break;
      if (!isClip(style)) continue;
      const frame = one.getBoundingClientRect();
      const cut = [frame.left - box.left, box.right - frame.right, frame.top - box.top, box.bottom - frame.bottom];
      if (Math.max(cut[0], cut[1]) > SLACK || Math.max(cut[2], cut[3]) > 4) {
        faults.add(`a text is cut and has no title: “${text.slice(0, 60)}” in ${nameOf(one).slice(0, 50)}`);
        break;
      }
    }
  }

  for (const element of document.querySelectorAll("[title], [aria-label], [placeholder]"))
    for (const name of ["title", "aria-label", "placeholder"]) {
      const text = element.getAttribute(name);
      if (text && WRONG.test(text)) faults.add(`${name} says “${text.slice(0, 80)}”`);
    }

  const controls = [...document.querySelectorAll(CONTROLS)]
    .filter((one) => isShown(one) && !one.closest("[role=grid], .skip"))
    .map((element) => ({ element, ...seen(element) }))
    .filter((one) => one.right - one.left > 1 && one.bottom - one.top > 1);
  const fixed = (element) => chain(element).some((one) => ["fixed", "sticky"].includes(getComputedStyle(one).position));
  for (const [index, a] of controls.entries())
    for (const b of controls.slice(index + 1)) {
      const width = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (width <= SLACK || height <= SLACK || a.element.contains(b.element) || b.element.contains(a.element)) continue;
      const [inside, other] = [a.element, b.element].map((one) => one.closest("label, .mantine-Input-wrapper, .mantine-SegmentedControl-root"));
      if (inside && inside === other) continue; // a button inside its field
      if (fixed(a.element) !== fixed(b.element)) continue; // the head stays above what scrolls
      faults.add(`${nameOf(a.element)} overlaps ${nameOf(b.element)}`);
    }

  if (touch)
    for (const { element, left, top, right, bottom } of controls) {
      // A label, and the frame of a field with pills, also take the touch.
      const boxes = [...(element.labels ?? []), element.closest(".mantine-Input-wrapper, .mantine-PillsInput-input")]
        .map((one) => one?.getBoundingClientRect() ?? { width: 0, height: 0 });
      const width = Math.max(right - left, ...boxes.map((one) => one.width));
      const height = Math.max(bottom - top, ...boxes.map((one) => one.height));
      // A link in the middle of a sentence is as high as its line.
      const inText = element.matches("a") && getComputedStyle(element).display === "inline" &&
        [...element.parentElement.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim() !== "");
      if (!inText && Math.min(width, height) < TARGET - 0.5)
        faults.add(`${nameOf(element)} is ${Math.round(width)} × ${Math.round(height)} px, too small to touch`);
    }

  return [...faults];
}
