import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { firstPageInBrotli, usedStyles } from "./build-steps.mjs";

// The manager serves the build from its package; `npm run dev` sends API calls to a manager on its default port.
// A build names its files relative to each other, because a web server in front may serve them below any path.
export default defineConfig(({ command }) => ({
  base: command === "serve" ? "/console/" : "./",
  plugins: [react(), usedStyles(), firstPageInBrotli()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  build: {
    outDir: "../src/moorage/manager/console/bundle",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    // One file: a style sheet that failed to load with its part would not be loaded again.
    cssCodeSplit: false,
    sourcemap: false,
    license: { fileName: "licenses.md" },
    target: "es2023",
    chunkSizeWarningLimit: 800,
    // Few files before a page is shown: over HTTP/1.1, a browser opens six connections to a host, and another part of a
    // page that is found only in one of them costs the latency again. What the first page needs is in one file, and what
    // several other pages share in a second one.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            {
              name: "libraries",
              test: /node_modules\/(react|react-dom|scheduler|@tanstack\/(?!react-virtual|virtual-core)[^/]+|openapi-fetch|clsx)\//,
            },
            { name: "first", tags: ["$initial"] },
            {
              name: "parts",
              minShareCount: 3,
              // Without what a chart uses, because the overview loads one.
              test: /\/src\/(parts|forms)\/|@mantine\/(?!.*use-computed-color-scheme)/,
            },
          ],
        },
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8700", "/version": "http://127.0.0.1:8700" } },
}));
