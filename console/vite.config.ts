import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";
import { firstPage, usedStyles } from "./build-steps.mjs";

// The manager serves the build from its package; `npm run dev` sends API calls to a manager on its default port.
// A build names its files relative to each other, because a web server in front may serve them below any path.
export default defineConfig(({ command }) => ({
  base: command === "serve" ? "/console/" : "./",
  plugins: [react(), usedStyles(), firstPage("Overview")],
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
    // Few files before the first page: over HTTP/1.1, a browser opens six connections to a host.
    rolldownOptions: {
      output: {
        codeSplitting: {
          groups: [
            {
              name: "libraries",
              test: /node_modules\/(react|react-dom|scheduler|@tanstack|i18next|openapi-fetch|clsx)\//,
            },
            {
              name: "parts",
              test: /\/src\/(api|parts|texts)\/(?!FormDialog|Conflict|OccupancyGrid|actions|CreatePage)/,
            },
          ],
        },
      },
    },
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8700", "/version": "http://127.0.0.1:8700" } },
}));
