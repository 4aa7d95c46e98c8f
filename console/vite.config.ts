import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The manager serves the build from its package; `npm run dev` sends API calls to a manager on its default port.
// A build names its files relative to each other, because a web server in front may serve them below any path.
export default defineConfig(({ command }) => ({
  base: command === "serve" ? "/console/" : "./",
  plugins: [react()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  build: {
    outDir: "../src/moorage/manager/console/bundle",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    sourcemap: false,
    license: { fileName: "licenses.md" },
    target: "es2023",
    chunkSizeWarningLimit: 800,
  },
  server: { proxy: { "/v1": "http://127.0.0.1:8700", "/version": "http://127.0.0.1:8700" } },
}));
