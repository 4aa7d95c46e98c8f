import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { brotliCompressSync } from "node:zlib";

const MANTINE = new URL("./node_modules/@mantine/core/esm/", import.meta.url).pathname;
const SOURCES = new URL("./src/", import.meta.url).pathname;
const HASHED = /\bm_[0-9a-f]{8}\b/g;

/** The components of Mantine that the console imports. */
function imported() {
  const names = new Set();
  for (const file of readdirSync(SOURCES, { recursive: true, encoding: "utf8" })) {
    if (/\.tsx?$/.test(file)) {
      const text = readFileSync(join(SOURCES, file), "utf8");
      for (const [, list] of text.matchAll(/import \{([^}]*)\} from "@mantine\/core"/g)) {
        for (const name of (list ?? "").split(",")) {
          names.add(name.replace(/^\s*type\s/, "").trim());
        }
      }
    }
  }
  return names;
}

/** The hashed class names of these components, and of the components that they consist of. */
function classesOf(names) {
  const index = readFileSync(join(MANTINE, "index.mjs"), "utf8");
  const files = [...index.matchAll(/import \{([^}]*)\} from "(\.[^"]+)"/g)]
    .filter(([, list]) =>
      (list ?? "").split(",").some((name) => names.has(name.trim().split(" as ")[0] ?? "")),
    )
    .map(([, , file]) => resolve(MANTINE, file ?? ""));
  const seen = new Set();
  const classes = new Set();
  for (let file = files.pop(); file !== undefined; file = files.pop()) {
    if (seen.has(file)) {
      continue;
    }
    seen.add(file);
    const text = readFileSync(file, "utf8");
    for (const [name] of text.matchAll(HASHED)) {
      classes.add(name);
    }
    for (const [, next] of text.matchAll(/ from "(\.[^"]+)"/g)) {
      files.push(resolve(dirname(file), next ?? ""));
    }
  }
  return classes;
}

/** The top-level rules of a style sheet. */
function* rulesOf(css) {
  let depth = 0;
  let from = 0;
  for (let at = 0; at < css.length; at += 1) {
    depth += css[at] === "{" ? 1 : css[at] === "}" ? -1 : 0;
    if (css[at] === "}" && depth === 0) {
      yield css.slice(from, at + 1);
      from = at + 1;
    }
  }
  yield css.slice(from);
}

/** Leaves out of Mantine's style sheet the rules of components that the console does not use: most of it. */
export function usedStyles() {
  return {
    name: "used-styles",
    enforce: "pre",
    transform(css, id) {
      if (!id.endsWith("@mantine/core/styles.css")) {
        return null;
      }
      const used = classesOf(imported());
      const kept = [...rulesOf(css)].filter((rule) => {
        const named = rule.match(HASHED) ?? [];
        return named.length === 0 || named.some((name) => used.has(name));
      });
      return { code: kept.join(""), map: null };
    },
  };
}

/** Compresses the files of the first page with brotli, which saves a slow link an eighth of their transfer. */
export function firstPageInBrotli() {
  return {
    name: "first-page-in-brotli",
    apply: "build",
    enforce: "post",
    writeBundle({ dir }) {
      const page = readFileSync(join(dir ?? "", "index.html"), "utf8");
      for (const [, file] of page.matchAll(/"\.\/(assets\/[^"]+)"/g)) {
        const path = join(dir ?? "", file ?? "");
        writeFileSync(`${path}.br`, brotliCompressSync(readFileSync(path)));
      }
    },
  };
}
